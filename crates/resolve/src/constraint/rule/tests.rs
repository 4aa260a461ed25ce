//! Rules: compilation, results, and limits for untrusted rules.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn properties() -> Json {
    json!([
        { "type": "olm.package", "value": { "packageName": "a", "version": "v1.10" } },
        { "type": "certified", "value": true },
        { "type": "color", "value": "red" },
        { "type": "count", "value": 3 },
        { "type": "half", "value": 0.5 },
        { "type": "none", "value": null },
        { "type": "list", "value": [1, "a", { "b": [2] }] },
        { "type": "map", "value": { "k": 1, "l": { "m": "n" } } },
    ])
}

fn run(rule: &str) -> Result<bool, String> {
    let rule = Rule::compile(rule.to_owned()).map_err(|fault| format!("compile: {fault}"))?;
    rule.evaluate(&properties(), &mut Meter::default()).map_err(|failure| failure.to_string())
}

/// Replaces `P(count)` with the value of the property `count`.
fn expand(rule: &str) -> String {
    let mut text = rule.to_owned();
    for (index, property) in properties().as_array().unwrap().iter().enumerate() {
        let name = property["type"].as_str().unwrap();
        text = text.replace(&format!("P({name})"), &format!("properties[{index}].value"));
    }
    text
}

fn expect_true(rules: &[&str]) {
    let results = rules.iter().map(|rule| (rule, run(&expand(rule))));
    let faults: Vec<_> = results.filter(|(_, result)| *result != Ok(true)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn valid_rules_about_properties_evaluate_to_true() {
    expect_true(&[
        // Cases seeds-s1-2, additions-a27
        r#"properties.exists(p, p.type == "certified")"#,
        r#"properties.exists(p, p.type == "certified") && properties.exists(p, p.type == "color")"#,
        // Case additions-a28: only one property has a version, the errors of the others are absorbed.
        r#"properties.exists(p, semver_compare(p.value.version, "1.2") >= 0)"#,
        r#"semver_compare(P(olm.package).version, "1.9") == 1"#,
        r#"semver_compare("v1.2", "1.2.0") == 0 && semver_compare(1, 1.0) == 0 && semver_compare(2u, "3") == -1"#,
        r#"semver_compare(P(count), "3.0.0") == 0 && semver_compare(P(half), 0.5) == 0"#,
        r#"semver_compare("1.0.0-rc.1", " 1.0 ") < 0"#,
        // Numbers of unknown type compare by value.
        "P(count) == 3 && P(count) == 3u && 3 == P(count) && P(count) != 4 && P(count) < 4 && 2.5 < P(count)",
        "P(count) in [1, 2, 3] && !(P(count) in [1, 2]) && P(color) in ['red']",
        "P(count) != 'red' && P(none) == null && P(certified) != null && dyn(3) == 3.0",
        // The other side decides.
        "P(none).x == 1 || true",
        "true || P(none).x == 1",
        "!(P(none).x == 1 && false)",
        "!(false && P(none).x)",
        "P(certified) || P(color)",
        "!(P(color) && false)",
        r#"properties.exists(p, p.value == "red" || p.value.k == 1)"#,
        "!properties.all(p, p.value.k == 2)",
        // Maps and lists.
        "P(map).k == 1 && P(map)['k'] == 1 && 'k' in P(map) && !('z' in P(map)) && size(P(map)) == 2",
        "has(P(map).l.m) && !has(P(map).l.z) && has(properties[0].type)",
        "P(list)[0] == 1 && P(list)[1] == 'a' && P(list)[2].b[0u == 0u ? 0 : 1] == 2 && P(list).size() == 3",
        "P(list) == [1, 'a', {'b': [2]}] && [1.0, 'a', {'b': [2u]}] == P(list) && P(list) != [1]",
        "{1: 'a', 'b': 2}[1] == 'a' && {1: 'a'}[1u == 1u ? 1 : 2] == 'a' && {'a': 1} == {'a': 1} && {} != {'a': 1}",
        "P(map).exists(k, k == 'k') && P(map).all(k, k != '') && P(map).l == {'m': 'n'}",
        "[1, 2] + [3] == [1, 2, 3] && (P(list) + [4]).size() == 4 && [] + [1] == [1]",
        "properties.exists_one(p, p.type == 'color') && !properties.exists_one(p, p.type != 'x')",
        "properties.map(p, p.type)[1] == 'certified' && properties.filter(p, p.type == 'color').size() == 1",
        "properties.map(p, p.type == 'color', p.value) == ['red']",
        "properties.map(p, p.type == 'color')[2]",
        "[[1, 2], [3]].map(l, l.map(x, x * 2)) == [[2, 4], [6]]",
        "[1, 2, 3].filter(x, x > 1).exists(x, x == 3) && [1].all(x, [2].all(y, x < y))",
    ]);
}

#[test]
fn valid_rules_about_text_types_and_numbers_evaluate_to_true() {
    expect_true(&[
        // Text.
        "'héé'.size() == 3 && size(b'\\xff') == 1 && 'abc'.contains('b') && 'abc'.startsWith('a') && 'abc'.endsWith('c')",
        r"'v1.2'.matches('^v[0-9]+\\.[0-9]+$') && matches('xay', 'a') && !'b'.matches(r'\d')",
        "'a' + 'b' == 'ab' && 'a' < 'b' && b'a' + b'b' == b'ab' && r'\\d'.size() == 2",
        // Conversions.
        "int('5') == 5 && int(2.9) == 2 && int(7u) == 7 && uint('5') == 5u && uint(5) == 5u && double('0.5') == 0.5",
        "string(1) == '1' && string(true) == 'true' && string(0.5) == '0.5' && string(b'a') == 'a' && string(1e6) == '1e+06'",
        "string(100000.0) == '100000' && string(0.0001) == '0.0001' && string(0.00001) == '1e-05'",
        "bytes('a') == b'a' && bool('True') && !bool('0') && double(1) == 1.0 && double(2u) == 2.0",
        "type(P(color)) == string && type(P(none)) == null_type && type(P(list)) == list && type(P(map)) == map",
        "type(1) == int && type(1u) == uint && type(b'') == bytes && type(int) == type && type(P(count)) == double",
        // Arithmetic.
        "1 + 2 * 3 - 4 / 2 == 5 && 7 % 3 == 1 && -7 / 2 == -3 && 1.5 * 2.0 == 3.0 && -P(half) < 0.0",
        "5u - 3u == 2u && 6u / 4u == 1u && 7u % 4u == 3u && -(1) == -1 && 1.0 / 0.0 > 1.0",
        "true ? 1 == 1 : false",
        "(P(certified) ? 1 : 2) == 1",
        ".properties.size() == 8",
        "false < true && [1, 2].exists(properties, properties == 2)",
        "\n  true // a comment\n",
    ]);
}

#[test]
fn failing_rules_return_runtime_errors() {
    let cases = [
        // Case additions-e17
        ("properties.all(p, p.value.x == 1)", "no such key: x"),
        ("P(color).x == 1", "unsupported selection of field 'x' on type 'string'"),
        ("P(map).x == 1", "no such key: x"),
        ("properties[9].type == ''", "no such key or index"),
        ("P(list)[-1] == 1", "no such key or index"),
        ("P(list)['a'] == 1", "no such overload: _[_](list, string)"),
        ("P(color) < 1", "no such overload: _<_(string, int)"),
        ("P(color) && true", "no such overload: _&&_(string)"),
        ("P(none) || false", "no such overload: _||_(null_type)"),
        ("P(count) ? true : false", "no such overload: _?_:_(double)"),
        ("!P(count)", "no such overload: !_(double)"),
        ("size(P(count)) == 1", "no such overload: size(double)"),
        ("P(count) + 1 == 4", "no such overload: _+_(double, int)"),
        ("semver_compare('x', '1') == 0", "unable to parse 'x' to semver format"),
        ("semver_compare(P(list), '1') == 0", "unable to parse list to semver format"),
        ("semver_compare(20240101.0, '1') == 0", "unable to parse '2.0240101e+07' to semver format"),
        ("1 / 0 == 1", "divide by zero"),
        ("1u % 0u == 1u", "modulus by zero"),
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("1u - 2u == 0u", "integer overflow"),
        ("int('x') == 1", "type conversion error: int"),
        ("int(1e30) == 1 || uint(-1) == 1u", "range error"),
        ("'a'.matches('(')", "matches: the pattern is not valid"),
        ("{'a': 1, 'a': 2}.size() == 2", "a map has the same key twice"),
        ("{[1]: 1}.size() == 1", "unsupported key type: list"),
        ("P(certified).exists(x, true)", "got 'bool', expected iterable type"),
        ("properties.map(p, p.value.k).size() == 1", "no such key: k"),
    ];
    let mut faults = Vec::new();
    for (rule, expected) in cases {
        match run(&expand(rule)) {
            Err(shown) if shown == expected => {}
            other => faults.push(format!("{rule}: {other:?}")),
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn property_that_is_not_json_has_no_type() {
    // docs/design/additions.md#constraint-grammar
    let rule = Rule::compile("properties.all(p, p.type != 'x')".to_owned()).unwrap();
    let facts = json!([{ "type": "a", "value": 1 }, {}]);
    assert_eq!(rule.evaluate(&facts, &mut Meter::default()), Err("no such key: type".to_owned()));
}

fn compare_faults(cases: &[(&str, &str)]) {
    let mut faults = Vec::new();
    for (rule, expected) in cases {
        let found = Rule::compile((*rule).to_owned()).map(drop).unwrap_err();
        // Of the parser's messages, only the position is ours.
        let right = if expected.starts_with("ERROR") {
            found.starts_with(expected) && !found.contains('\n')
        } else {
            found == *expected
        };
        if !right {
            faults.push(format!("{rule}: {found}"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn rules_with_invalid_syntax_names_or_result_do_not_compile() {
    let type_fault = "cel expressions must have type Bool";
    compare_faults(&[
        ("", "ERROR: <input>:1:1: Syntax error: mismatched input '<EOF>' expecting expression"),
        ("1 + 1", type_fault),
        ("'true'", type_fault),
        ("properties", type_fault),
        ("properties[0].value", type_fault),
        ("properties.map(p, p.value)[0]", type_fault),
        ("true ? true : properties[0].value", type_fault),
        ("dyn(true)", type_fault),
        ("[][0]", type_fault),
        ("properties.filter(p, true)", type_fault),
        ("null", type_fault),
        ("x == 1", "undeclared reference to 'x' (in container '')"),
        ("[1].all(x, true) && x", "undeclared reference to 'x' (in container '')"),
        ("now() == 1", "undeclared reference to 'now' (in container '')"),
        ("properties.foo(1)", "undeclared reference to 'foo' (in container '')"),
        ("timestamp('') == 1", "undeclared reference to 'timestamp' (in container '')"),
        ("Foo{a: 1} == 1", "undeclared reference to 'Foo' (in container '')"),
        ("true &&", "ERROR: <input>:1:8: "),
        ("a = b", "ERROR: <input>:1:3: "),
        ("'abc", "ERROR: <input>:1:1: "),
        ("a.?b == 1", "ERROR: <input>:1:2: "),
        ("{'a': 1}.all(1, true)", "ERROR: <input>:"),
    ]);
}

#[test]
fn rules_with_operands_of_wrong_types_do_not_compile() {
    compare_faults(&[
        ("1 == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("1 == 1.0", "found no matching overload for '_==_' applied to '(int, double)'"),
        ("1 < 2u", "found no matching overload for '_<_' applied to '(int, uint)'"),
        ("1 == null", "found no matching overload for '_==_' applied to '(int, null)'"),
        (
            "properties == ['a']",
            "found no matching overload for '_==_' applied to '(list(map(string, dyn)), list(string))'",
        ),
        ("'a'.contains(1)", "found no matching overload for 'contains' applied to 'string.(int)'"),
        ("contains('a', 'a')", "found no matching overload for 'contains' applied to '(string, string)'"),
        ("semver_compare('1') == 0", "found no matching overload for 'semver_compare' applied to '(string)'"),
        ("true && 1", "found no matching overload for '_&&_' applied to '(bool, int)'"),
        ("true ? 1 : 'a'", "found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
        (
            "1.exists(x, true)",
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        (
            "properties.exists(p, p == 1)",
            "found no matching overload for '_==_' applied to '(map(string, dyn), int)'",
        ),
        ("properties.exists(p, 1)", "found no matching overload for '_||_' applied to '(bool, int)'"),
        ("'a'.b == 1", "type 'string' does not support field selection"),
    ]);
}

#[test]
fn deepest_accepted_rules_fit_a_small_stack() {
    let patterns: [(&str, &str, &str); 12] = [
        ("(", "true", ")"),
        ("!(", "true", ")"),
        ("[", "true", "][0]"),
        ("size([", "1", "])"),
        ("[1].exists(x, ", "true", ")"),
        ("[1].map(x, true, ", "1", ")"),
        ("{1: ", "true", "}[1]"),
        ("(true || true && true == (true in [1 + 1 == ", "2", "]))"),
        ("true ? true : ", "true", ""),
        ("dyn(", "1", ") + 1"),
        ("", "properties", "[0].a"),
        ("1 + (", "1", ")"),
    ];
    let work = move || {
        let mut deepest = Vec::new();
        for (open, core, close) in patterns {
            let compiles = |count: usize| {
                let text = format!("{}{core}{} == true || true", open.repeat(count), close.repeat(count));
                let fault = match Rule::compile(text) {
                    Ok(rule) => {
                        let _ = rule.evaluate(&properties(), &mut Meter::default());
                        return true;
                    }
                    Err(fault) => fault,
                };
                !fault.starts_with("expression nesting")
            };
            deepest.push((1..100).take_while(|count| compiles(*count)).count());
        }
        deepest
    };
    let small = std::thread::Builder::new().stack_size(256 * 1024).spawn(work).unwrap();
    let deepest = small.join().unwrap();
    assert!(deepest.iter().all(|count| (6..=64).contains(count)), "{deepest:?}");
}

#[test]
fn rules_beyond_the_step_limit_fail() {
    let values: Vec<_> = (0..2_000).map(|index| json!({ "type": "x", "value": "y".repeat(index) })).collect();
    let many = Json::Array(values);
    let rules = [
        "properties.all(a, properties.all(b, properties.all(c, a.type == b.type && b.type == c.type)))",
        "properties.map(a, properties.map(b, properties.map(c, c))).size() > 0",
        "properties.all(a, properties.all(b, a.value + b.value != 'z'))",
        "properties.all(a, properties.all(b, a.value.matches(b.value + 'a{1000}{10}') || true))",
        &format!("['aaaaaaaaaaaaaaaa']{}.size() == 1", ".map(a, a + a + a + a)".repeat(20)),
        &format!("[[1]]{}.size() == 1", ".map(a, a + a + a + a)".repeat(20)),
        &format!("[b'aaaaaaaaaaaaaaaa']{}.size() == 1", ".map(a, a + a + a + a)".repeat(20)),
        "properties.all(a, properties == properties)",
        &format!("properties.all(a, properties.all(b, b'{0}' == b'{0}'))", "x".repeat(50_000)),
        &format!("properties.all(a, properties.exists(b, b.{} == 1 || false))", "x".repeat(100_000)),
        "properties.all(a, properties.all(b, a in properties || true))",
        "[1].all(a, properties.all(b, !properties.exists(c, false))) || true",
    ];
    for text in rules {
        let rule = Rule::compile(text.to_owned()).unwrap();
        let started = Instant::now();
        let failure = rule.evaluate(&many, &mut Meter::default()).unwrap_err();
        assert_eq!(failure.to_string(), "the rules take more than 250000 steps", "{text}");
        assert!(started.elapsed() < Duration::from_secs(20), "{text}: {:?}", started.elapsed());
    }
    // A realistic rule stays far below the limit.
    let rule = Rule::compile("properties.exists(p, p.type == 'z' && p.value.a == 1)".to_owned()).unwrap();
    let mut meter = Meter::default();
    assert_eq!(rule.evaluate(&many, &mut meter), Ok(false));
}

#[test]
fn self_nested_types_are_checked_in_time() {
    let chain = "[1]".to_owned() + &".map(a, [a, a])".repeat(15);
    let keys = "[1]".to_owned() + &".map(a, {a: a})".repeat(15);
    for text in [format!("{chain} == {chain}"), format!("{keys} == {keys}")] {
        let started = Instant::now();
        let _ = Rule::compile(text);
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}

proptest! {
    #[test]
    fn arbitrary_text_is_rejected_or_evaluated(text in ".*") {
        if let Ok(rule) = Rule::compile(text) {
            let _ = rule.evaluate(&properties(), &mut Meter::default());
        }
    }

    #[test]
    fn arbitrary_tokens_are_rejected_or_evaluated(tokens in prop::collection::vec(prop::sample::select(vec![
        "properties", "p", "x", ".", "(", ")", "[", "]", "{", "}", ",", ":", "?", "&&", "||", "!", "-", "+", "*", "/",
        "%", "==", "!=", "<", "<=", ">", ">=", "in", "true", "false", "null", "1", "2u", "0.5", "'a'", "b'c'", "exists",
        "all", "map", "filter", "exists_one", "has", "size", "semver_compare", "type", "value", "dyn", "string", "int",
        "matches", "contains", "properties[0].value", "properties.exists(p, p.type ==", " // c\n", "`", "\"", "\\", "@",
        "9223372036854775808", "-9223372036854775808", "0x1F", "1e400", "r'\\'", "'''", "\u{e9}",
    ]), 0..24)) {
        if let Ok(rule) = Rule::compile(tokens.concat()) {
            let _ = rule.evaluate(&properties(), &mut Meter::default());
        }
    }
}
