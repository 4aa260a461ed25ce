//! `olm crd-check` of unsafe changes and invalid input. The golden files cover the other results.

use std::io::Write;
use std::process::Stdio;

use super::fixture::{Ran, command, olm};

// Case apply-49
#[test]
fn unsafe_change_is_listed_and_exits_3() {
    let ran = olm(&["crd-check", "crds/old.yaml", "crds/unsafe.json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
    assert_eq!(
        ran.stdout,
        "\
CRD                   VERSION   PROPERTY      CHECK                  BREAKS           CHANGE
widgets.example.com   -         -             existingFieldRemoval   stored objects   removed field : v1.^.spec.colour
widgets.example.com   -         -             scope                  stored objects   scope changed : \"Namespaced\" -> \"Cluster\"
widgets.example.com   v1        ^.spec.size   maximum                stored objects   maximum decreased : 9 -> 5

widgets.example.com: not safe
only in OLD, not checked: 1
operator-controller holds the upgrade: 3 break stored objects. The API server always rejects 1 of these changes.
"
    );
    for format in ["json", "yaml"] {
        let ran = olm(&["crd-check", "crds/old.yaml", "crds/unsafe.json", "-o", format]);
        assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
        let printed = olm_yaml::from_slice(ran.stdout.as_bytes()).unwrap();
        assert_eq!((&printed["kind"], &printed["safe"]), (&"CrdCheck".into(), &false.into()));
        let crd = &printed["crds"][1];
        let error = "validating upgrade for CRD \"widgets.example.com\": existingFieldRemoval: removed field : \
                     v1.^.spec.colour\nscope: scope changed : \"Namespaced\" -> \"Cluster\"\nv1: ^.spec.colour: type: type \
                     changed : \"string\" -> \"\"\nv1: ^.spec.size: maximum: maximum decreased : 9 -> 5";
        assert_eq!((&crd["result"], &crd["error"]), (&"Unsafe".into(), &error.into()));
        assert_eq!(crd["findings"][2]["line"], "v1: ^.spec.size: maximum: maximum decreased : 9 -> 5");
    }
}

#[test]
fn either_file_can_be_standard_input() {
    let with_input = |args: &[&str]| {
        let mut child =
            command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.as_mut().unwrap();
        let text = std::fs::read(super::fixture::data().join("crds/safe.yaml")).unwrap();
        child.stdin.take().unwrap().write_all(&text).unwrap();
        child.wait().unwrap().code()
    };
    assert_eq!(with_input(&["crd-check", "crds/old.yaml", "-"]), Some(0));
    assert_eq!(with_input(&["crd-check", "-", "crds/unsafe.json"]), Some(3));
}

#[test]
fn invalid_input_fails_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let crd = |version: &str, spec: &str| {
        format!(
            "apiVersion: {version}\nkind: CustomResourceDefinition\nmetadata: {{name: widgets.example.com}}\nspec: {spec}\n"
        )
    };
    let v1 = |spec: &str| crd("apiextensions.k8s.io/v1", spec);
    let twice = file("twice.yaml", &format!("{}---\n{}", v1("{}"), v1("{}")));
    let ancient = file("ancient.yaml", &crd("apiextensions.k8s.io/v1beta1", "{}"));
    let nameless = file("nameless.yaml", "kind: CustomResourceDefinition\n");
    let odd = file(
        "odd.yaml",
        &v1("{versions: [{name: v1, schema: {openAPIV3Schema: {properties: {a: {maximum: x}}}}}]}"),
    );
    for (new, code, message) in [
        (
            "classic/subscription.yaml",
            1,
            "no CustomResourceDefinition is in both: crds/old.yaml has gadgets.example.com, widgets.example.com, \
             classic/subscription.yaml has none",
        ),
        ("crds", 1, "crds/safe.yaml: CustomResourceDefinition \"widgets.example.com\" occurs twice"),
        ("nowhere.yaml", 1, "cannot read \"nowhere.yaml\": No such file or directory (os error 2)"),
        (&twice, 1, &format!("{twice}: CustomResourceDefinition \"widgets.example.com\" occurs twice")),
        (&nameless, 1, &format!("{nameless}: a CustomResourceDefinition has no metadata.name")),
        (
            &ancient,
            1,
            "object \"widgets.example.com\" is a \"CustomResourceDefinition\" of \"apiextensions.k8s.io/v1beta1\", not a \
             CustomResourceDefinition of apiextensions.k8s.io/v1",
        ),
        (
            &odd,
            1,
            "CustomResourceDefinition \"widgets.example.com\": \
             spec.versions[0].schema.openAPIV3Schema.properties.a.maximum must be a number",
        ),
    ] {
        let Ran { code: got, stdout, stderr } = olm(&["crd-check", "crds/old.yaml", new]);
        assert_eq!((got, stdout.as_str(), stderr), (code, "", format!("error: {message}\n")), "{new}");
    }
    let both = olm(&["crd-check", "-", "-"]);
    assert_eq!((both.code, both.stderr.as_str()), (2, "error: OLD and NEW cannot both be standard input\n"));
}

#[test]
fn folders_list_what_vanishes_and_must_have_crds() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let crd = |name: &str, versions: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {name}.example.com}}\n\
             spec: {{group: example.com, scope: Namespaced, names: {{kind: A, plural: {name}}}, versions: [{versions}]}}\n"
        )
    };
    let version = |name: &str, served: bool, size: &str| {
        format!(
            "{{name: {name}, served: {served}, storage: {}, schema: {{openAPIV3Schema: {{type: object, properties: \
             {{size: {{type: integer{size}}}}}}}}}}}",
            name == "v1"
        )
    };
    let both = |served, size| format!("{}, {}", version("v1", true, size), version("v2", served, ""));
    write("old/a.yaml", &(crd("as", &both(true, ", format: int64")) + "---\n" + &crd("bs", &both(true, ""))));
    write("new/a.yaml", &crd("as", &both(false, ", format: int32")));
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let run = |arguments: &[&str]| {
        let mut child = command(&[&["crd-check"], arguments].concat());
        let ran = child.current_dir(folder.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ran.status.code(), text(ran.stdout) + &text(ran.stderr))
    };
    let table = "\
CRD              VERSION   PROPERTY   CHECK                  BREAKS           CHANGE
as.example.com   v1        ^.size     unhandled              stored objects   unhandled changes found (Format \"int64\" -> \"int32\")
as.example.com   -         -          servedVersionRemoval   clients          version is no longer served: v2
bs.example.com   -         -          crdRemoval             stored objects   removed: its custom resources are deleted with it

as.example.com: not safe
bs.example.com: removed
operator-controller holds the upgrade: 1 break stored objects. With the annotation \
ext.olm.operatorframework.io/crd-check of the ClusterExtension, `Live` lets existing objects decide, and `Warn` only reports.
";
    assert_eq!(run(&["old", "new"]), (Some(3), table.to_owned()));
    let (code, text) = run(&["old", "new", "--ignore", "unhandled", "--ignore", "servedVersionRemoval"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("as.example.com: safe, except for ignored findings\n"), "{text}");
    let (code, text) = run(&["old", "new", "-o", "github"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.starts_with("::error file=new/a.yaml,line="), "{text}");
    let (code, text) = run(&["old", "new", "-o", "sarif"]);
    let sarif: serde_json::Value = serde_json::from_str(&text).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    let results: Vec<_> = results.iter().map(|one| (one["ruleId"].as_str(), one["level"].as_str())).collect();
    let expected = [("unhandled", "error"), ("servedVersionRemoval", "warning"), ("crdRemoval", "error")];
    assert_eq!((code, results), (Some(3), expected.map(|(rule, level)| (Some(rule), Some(level))).into()));
    let (code, text) = run(&["old", "new", "-o", "junit"]);
    assert_eq!((code, text.matches("<failure").count() > 0), (Some(3), true), "{text}");
    for (old, new) in [("old", "empty"), ("empty", "new")] {
        let message = "error: empty has no CustomResourceDefinition\n".to_owned();
        assert_eq!(run(&[old, new]), (Some(1), message), "{old} {new}");
    }
}
