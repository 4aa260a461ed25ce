use serde_json::{Value, json};

use super::fixture::{Fixture, compare, object};

const DONE: [&str; 2] =
    ["Progressing=True/Succeeded Revision 1.2.0 has rolled out.", "Succeeded=True/Succeeded done"];

#[tokio::test(flavor = "multi_thread")]
async fn history_shows_the_outcome_of_each_revision() {
    let fixture = Fixture::start().await;
    fixture.create_extension("pipe", "1.x").await;
    let ran = fixture.olm(&["history", "pipe"]).await;
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "pipe has no revision yet; run `olm status pipe` for the reason.\n")
    );
    let nothing = fixture.olm(&["rollback", "pipe"]).await;
    assert_eq!(nothing.code, 4);
    assert!(
        nothing.stderr.contains("pipe has no revision to roll back to; it has no revisions"),
        "{}",
        nothing.stderr
    );

    let objects = || vec![object("v1", "ConfigMap", "settings")];
    fixture.make("pipe", 1, "1.0.0", objects()).await;
    fixture.archive("pipe-1").await;
    fixture.make("pipe", 2, "1.1.0", objects()).await;
    fixture.set_revision("pipe-2", &DONE).await;
    fixture.make("pipe", 3, "1.2.0", objects()).await;
    fixture.set_revision("pipe-3", &["Progressing=True/Retrying revision object collisions"]).await;
    let ran = fixture.olm(&["history", "pipe"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("history.txt", &ran.stdout);
    let ran = fixture.olm(&["history", "pipe", "-o", "wide"]).await;
    compare("history-wide.txt", &ran.stdout);
    let ran = fixture.olm(&["history", "pipe", "-o", "json"]).await;
    let history: Value = serde_json::from_str(&ran.stdout).unwrap();
    let rows: Vec<Value> = history["revisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| json!([row["revision"], row["version"], row["result"], row["rollback"]["possible"]]))
        .collect();
    assert_eq!(
        json!(rows),
        json!([
            [3, "1.2.0", "Retrying", false],
            [2, "1.1.0", "Installed", true],
            [1, "1.0.0", "Superseded", true]
        ])
    );
    let ran = fixture.olm(&["history", "pump"]).await;
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (4, "error: there is no ClusterExtension \"pump\"; existing: pipe\n")
    );
}
