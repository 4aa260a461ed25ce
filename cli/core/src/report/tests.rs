use std::collections::BTreeSet;

use super::*;

static ERROR: Rule = Rule { id: "LAMP-1", level: Level::Error, text: "a lamp burns", remedy: "Replace it." };
static NOTE: Rule = Rule { id: "LAMP-2", level: Level::Note, text: "a lamp is clean", remedy: "Wipe it." };

fn report(fails: Option<Level>) -> RunReport {
    let spot = Spot { file: Some("lamp s/a,b.yaml".to_owned()), line: Some(7), name: "Lamp a".to_owned() };
    let broken = Finding::new(&ERROR, spot, "50 % of it\nis <gone> & \"lost\"\u{1b}");
    let dusty = Finding::new(&NOTE, Spot { name: "Lamp b".to_owned(), ..Spot::default() }, "dust");
    let case = |name: &str, findings| Case { suite: "lamps".to_owned(), name: name.to_owned(), findings };
    let cases = vec![case("a", vec![broken]), case("b", vec![dusty])];
    RunReport { tool: "olm test", rules: vec![&ERROR, &NOTE], fails, cases }
}

/// Checks a SARIF log against the properties that its specification requires (sections 3.13 to 3.49 of SARIF 2.1.0).
#[track_caller]
fn require_sarif(log: &Value) {
    assert_eq!(log["version"], "2.1.0");
    for run in log["runs"].as_array().expect("runs") {
        let driver = &run["tool"]["driver"];
        assert!(driver["name"].as_str().is_some_and(|name| !name.is_empty()), "tool.driver.name");
        let rules: Vec<&str> =
            driver["rules"].as_array().unwrap().iter().map(|rule| rule["id"].as_str().unwrap()).collect();
        assert_eq!(rules.iter().collect::<BTreeSet<_>>().len(), rules.len(), "rule ids are unique");
        for rule in driver["rules"].as_array().unwrap() {
            assert!(
                rule["shortDescription"]["text"].is_string() && rule["help"]["text"].is_string(),
                "{rule}"
            );
        }
        for result in run["results"].as_array().expect("results") {
            assert!(result["message"]["text"].is_string(), "message.text: {result}");
            assert!(rules.contains(&result["ruleId"].as_str().unwrap()), "{result}");
            assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()), "{result}");
            for location in result["locations"].as_array().unwrap() {
                if let Some(physical) = location.get("physicalLocation") {
                    let uri = physical["artifactLocation"]["uri"].as_str().unwrap();
                    assert!(!uri.contains([' ', '\\', '<', '"']), "{uri}");
                    assert!(
                        physical["region"]["startLine"].as_u64().is_none_or(|line| line > 0),
                        "{physical}"
                    );
                }
            }
        }
    }
}

#[test]
fn sarif_has_its_required_properties_and_positions() {
    let log = report(Some(Level::Error)).sarif();
    require_sarif(&log);
    let results = &log["runs"][0]["results"];
    assert_eq!(
        results[0]["locations"][0],
        json!({
            "physicalLocation": {
                "artifactLocation": { "uri": "lamp%20s/a,b.yaml" },
                "region": { "startLine": 7 },
            },
            "logicalLocations": [{ "fullyQualifiedName": "Lamp a" }],
        })
    );
    assert_eq!((&results[0]["ruleId"], &results[0]["level"]), (&json!("LAMP-1"), &json!("error")));
    assert_eq!(
        (&results[1]["level"], &results[1]["message"]["text"]),
        (&json!("note"), &json!("Lamp b: dust"))
    );
    assert_eq!(results[1]["locations"][0].get("physicalLocation"), None);
}

#[test]
fn junit_fails_cases_with_findings_of_the_level_and_is_well_formed() {
    assert_eq!(
        report(Some(Level::Error)).junit(),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="lamps" tests="2" failures="1">
    <testcase classname="lamps" name="a">
      <failure type="LAMP-1" message="lamp s/a,b.yaml:7: LAMP-1: Lamp a: 50 % of it&#10;is &lt;gone&gt; &amp; &quot;lost&quot;\u{1b}">lamp s/a,b.yaml:7: LAMP-1: Lamp a: 50 % of it&#10;is &lt;gone&gt; &amp; &quot;lost&quot;\u{1b}</failure>
    </testcase>
    <testcase classname="lamps" name="b">
      <system-out>LAMP-2: Lamp b: dust</system-out>
    </testcase>
  </testsuite>
</testsuites>
"#
    );
    assert!(report(Some(Level::Note)).junit().contains("failures=\"2\""));
    assert!(report(None).junit().contains("failures=\"0\""));
    for fails in [None, Some(Level::Error), Some(Level::Note)] {
        require_well_formed(&report(fails).junit());
    }
}

/// Checks that tags are nested and that text has no character with a meaning.
#[track_caller]
fn require_well_formed(xml: &str) {
    let mut open = Vec::new();
    let mut rest = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").expect("declaration");
    while let Some((text, tag)) = rest.split_once('<') {
        let entities = ["&amp;", "&lt;", "&gt;", "&quot;", "&#10;"];
        let is_reference =
            |(at, _): (usize, &str)| entities.iter().any(|entity| text[at..].starts_with(entity));
        assert!(text.match_indices('&').all(is_reference) && !text.contains('>'), "{text}");
        let (tag, after) = tag.split_once('>').expect("end of a tag");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{xml}"),
            None => open.push(tag.split(' ').next().unwrap_or_default()),
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        rest = after;
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?}");
}

#[test]
fn github_commands_escape_properties_and_data() {
    assert_eq!(
        report(None).github(),
        "::error file=lamp s/a%2Cb.yaml,line=7,title=LAMP-1::Lamp a: 50 %25 of it%0Ais <gone> & \"lost\"\\u{1b}\n\
         ::notice title=LAMP-2::Lamp b: dust\n"
    );
}

#[test]
fn unknown_ignored_rule_is_an_error_with_similar_ids() {
    let args = |ignore: &str| ReportArgs {
        ignore: vec![ignore.to_owned()],
        rules: false,
        output: ReportFormat::Table,
    };
    let rules = || [&ERROR, &NOTE].into_iter();
    assert!(args("LAMP-2").check(rules()).is_ok());
    assert!(args("LAMP-2").ignores(&NOTE) && !args("LAMP-2").ignores(&ERROR));
    for (unknown, similar) in
        [("LAMP-9", "LAMP-1, LAMP-2"), ("lamp-1", "LAMP-1, LAMP-2"), ("X", "LAMP-1, LAMP-2")]
    {
        let error = args(unknown).check(rules()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert_eq!(
            error.to_string(),
            format!("--ignore {unknown}: no such rule; similar: {similar}; see --rules")
        );
    }
}

#[test]
fn path_is_relative_to_the_working_directory() {
    let current = std::env::current_dir().unwrap();
    for (path, expected) in [
        ("./bundle/manifests/a.yaml", "bundle/manifests/a.yaml"),
        ("../bundle/a.yaml", "../bundle/a.yaml"),
        ("/elsewhere/a.yaml", "/elsewhere/a.yaml"),
    ] {
        assert_eq!(relative(Path::new(path)), expected);
    }
    assert_eq!(relative(&current.join("bundle/./a.yaml")), "bundle/a.yaml");
}

#[test]
fn summary_names_levels_that_occur() {
    use Level::{Error, Note, Warning};
    for (levels, omitted, expected) in [
        (&[][..], 0, "no findings"),
        (&[Error], 0, "1 error"),
        (&[Note, Warning, Note], 3, "1 warning, 2 notes, 3 more not shown"),
    ] {
        assert_eq!(summary(levels.iter().copied(), omitted), expected);
    }
}
