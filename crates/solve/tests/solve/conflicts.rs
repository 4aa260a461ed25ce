//! Conflicts (docs/design/additions.md#dependency-modes).

use crate::fixture::Fixture;

// Case additions-a33
#[test]
fn conflict_tree_lists_each_rejected_candidate() {
    let fixture = Fixture::default()
        .catalog(
            "main",
            0,
            &[
                "app 2.0.0 @s>1.0.0 pkg:base:>=2.0.0",
                "app 1.0.0 @s gvk:Bucket",
                "base 2.0.0 @s pkg:store:>=5.0.0",
                "base 1.0.0 @s",
                "store 1.0.0 @s",
                "idle 1.0.0 @s",
            ],
        )
        .installed("other 1.0.0")
        .wants("app")
        .wants("idle");
    let conflict = fixture.conflict();
    assert_eq!(
        conflict.to_string(),
        "no plan exists
  package app is requested
    - app.v2.0.0 2.0.0 (main): excludes this goal:
      app.v2.0.0 requires an operator with package: base and with version in range: >=2.0.0
        - base.v2.0.0 2.0.0 (main): excludes this goal:
          base.v2.0.0 requires an operator with package: store and with version in range: >=5.0.0
            - store.v1.0.0 1.0.0 (main): does not meet the requirement
        - base.v1.0.0 1.0.0 (main): does not meet the requirement
    - app.v1.0.0 1.0.0 (main): excludes this goal:
      app.v1.0.0 requires an operator providing an API with group: ex.io, version: v1, kind: Bucket: no catalog offers a \
         candidate"
    );
    let json = serde_json::to_value(&conflict).unwrap();
    assert_eq!(json["goals"], serde_json::json!([{"kind": "wanted", "package": "app"}]));
    assert_eq!(json["unmet"]["candidates"][0]["reason"]["kind"], "leaves");
    let base = &json["unmet"]["candidates"][0]["reason"]["unmet"]["candidates"][1];
    assert_eq!(
        *base,
        serde_json::json!({
            "bundle": "base.v1.0.0", "version": "1.0.0", "catalog": "main", "reason": {"kind": "unsuitable"},
        })
    );
}

#[test]
fn conflict_names_all_incompatible_goals() {
    let fixture = Fixture::default()
        .catalog(
            "main",
            0,
            &["app 1.0.0 @s pkg:base:1.x", "tool 1.0.0 @s pkg:base:2.x", "base 1.0.0 @s", "base 2.0.0 @s"],
        )
        .wants("app")
        .wants("tool");
    assert_eq!(
        fixture.conflict().to_string(),
        "no plan exists; these goals conflict: package app is requested; package tool is requested
  package app is requested
    - app.v1.0.0 1.0.0 (main): excludes this goal:
      app.v1.0.0 requires an operator with package: base and with version in range: 1.x
        - base.v1.0.0 1.0.0 (main): excludes this goal:
          package tool is requested
            - tool.v1.0.0 1.0.0 (main): excludes this goal:
              tool.v1.0.0 requires an operator with package: base and with version in range: 2.x
                - base.v2.0.0 2.0.0 (main): base.v1.0.0 of the same package is required
                - base.v1.0.0 1.0.0 (main): does not meet the requirement
        - base.v2.0.0 2.0.0 (main): does not meet the requirement"
    );
}

#[test]
fn conflict_names_the_installed_extension_that_would_break() {
    let fixture = Fixture::default()
        .catalog("main", 0, &["app 1.0.0 @s pkg:base:>=2.0.0", "base 3.0.0 @s", "base 2.0.0 @s>1.0.0"])
        .installed("base 1.0.0")
        .installed("user 1.0.0 pkg:base:<2.0.0")
        .wants("app");
    let text = fixture.conflict().to_string();
    assert!(
        text.starts_with(
            "no plan exists; these goals conflict: package app is requested; extension base is installed (bundle \
             base.v1.0.0); extension user is installed (bundle user.v1.0.0)"
        ) || text.contains("extension user is installed (bundle user.v1.0.0)"),
        "{text}"
    );
    assert!(
        text.contains(
            "user.v1.0.0 requires an operator with package: base and with version in range: <2.0.0"
        ),
        "{text}"
    );
    assert!(text.contains("base.v3.0.0 3.0.0 (main): "), "{text}");
}

#[test]
fn providers_of_the_same_kind_conflict() {
    let fixture = Fixture::default()
        .catalog("main", 0, &["red 1.0.0 @s +Bucket", "blue 1.0.0 @s +Bucket"])
        .installed("blue 1.0.0 +Bucket")
        .wants("red");
    assert_eq!(
        fixture.conflict().to_string(),
        "no plan exists; these goals conflict: package red is requested; extension blue is installed (bundle blue.v1.0.0)
  package red is requested
    - red.v1.0.0 1.0.0 (main): excludes this goal:
      extension blue is installed (bundle blue.v1.0.0)
        - blue.v1.0.0 1.0.0 (installed): red.v1.0.0, which is required, provides the same kind (group: ex.io, version: v1, kind: \
         Bucket)"
    );
}

#[test]
fn conflict_reports_excluded_and_invalid_candidates() {
    let fixture = Fixture::default()
        .catalog("main", 0, &["app 2.0.0 @s con:{\"gvk\":{\"name\":\"x\"}}", "app 1.0.0 @t"])
        .wants("app >=1.5.0");
    let text = fixture.conflict().to_string();
    assert!(
        text.contains(
            "app.v2.0.0 2.0.0 (main): has an invalid dependency: parse olm.constraint: json: unknown field"
        ),
        "{text}"
    );
    assert!(text.contains("app.v1.0.0 1.0.0 (main): "), "{text}");
    assert!(text.starts_with("no plan exists\n  package app is requested in version >=1.5.0\n"), "{text}");
    let nothing = Fixture::default().wants("app").conflict().to_string();
    assert_eq!(nothing, "no plan exists\n  package app is requested: no catalog offers a candidate");
}

/// Six packages that each provide one of five kinds. The tree of all attempts is cut, always in the same place.
#[test]
fn large_conflict_tree_is_cut() {
    let mut lines = Vec::new();
    for package in 0..6 {
        for kind in 0..5 {
            lines.push(format!("p{package} {}.0.0 @s +Kind{kind}", kind + 1));
        }
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let fixture = (0..6)
        .fold(Fixture::default().catalog("main", 0, &lines), |fixture, p| fixture.wants(&format!("p{p}")));
    let text = fixture.conflict().to_string();
    assert!(text.ends_with("rejected, too; its reasons are omitted"), "{text}");
    assert!(text.lines().count() < 1000, "{} lines", text.lines().count());
    assert_eq!(text, fixture.conflict().to_string());
}
