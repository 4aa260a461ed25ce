//! GraphQL from an image in a real registry to an answer over HTTPS.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use fixture::{Catalogd, Fixture, image};
use olm_image::docker_registry::DockerRegistry;
use olm_image::{Push, push};
use serde_json::{Value, json};

const CONTENT: &str = "schema: olm.package\nname: foo\n---\nschema: olm.channel\npackage: foo\nname: stable\n\
                       entries: [{name: foo.v2, replaces: foo.v1, skips: [foo.v0]}]\n---\n\
                       schema: olm.bundle\npackage: foo\nname: foo.v2\n";
const GATE: [&str; 1] = ["--feature-gates=APIV1MetasHandler=true,GraphQLCatalogQueries=true"];

#[tokio::test(flavor = "multi_thread")]
async fn graphql_answers_queries_and_reports_schema_collision() {
    let fixture = Fixture::start().await;
    let files = tempfile::tempdir().unwrap();
    let (registry, ca_pem) = DockerRegistry::start_with_tls(files.path()).unwrap();
    std::fs::write(fixture.file("cas").join("docker-registry.crt"), &ca_pem).unwrap();
    let trusted = Push { ca_pem: Some(ca_pem.into()), ..Push::default() };
    let cat = format!("{}/a/cat:v1", registry.host());
    let digest = push(&cat, &image(CONTENT), &trusted).await.unwrap();
    let colliding = format!("{}/a/collision:v1", registry.host());
    let content = image("schema: a.b\n---\nschema: a-b\n");
    let collision = push(&colliding, &content, &trusted).await.unwrap();

    // Without the gate the route does not exist, and content is stored without a GraphQL schema.
    let catalogd = Catalogd::start(&fixture, "first").await;
    fixture.create("cat", "", at(&cat)).await;
    fixture.until_served("cat", &digest).await;
    assert_eq!(ask(&fixture, &catalogd, "cat", "{ summary { totalSchemas } }").await, (404, Value::Null));
    catalogd.stop().await;

    let catalogd = Catalogd::start_with(&fixture, "first", &GATE).await;
    fixture.create("collision", "", at(&colliding)).await;
    fixture.until_served("collision", &collision).await;
    let (status, answer) = ask(
        &fixture,
        &catalogd,
        "cat",
        "{ summary { totalSchemas } olmchannels { name entries { name skips } } }",
    )
    .await;
    let expect = json!({"data": {
        "summary": {"totalSchemas": 3},
        "olmchannels": [{"name": "stable", "entries": [{"name": "foo.v2", "skips": ["foo.v0"]}]}],
    }});
    assert_eq!((status, answer), (200, expect));

    // docs/design/catalogd.md#graphql-schema-failures: the catalog is still served, and the log reports that
    // GraphQL is unavailable
    let (status, answer) = ask(&fixture, &catalogd, "collision", "{ summary { totalSchemas } }").await;
    let message = answer["errors"][0]["message"].as_str().unwrap();
    assert!(
        status == 200 && message.contains("type name collision: schemas \"a-b\" and \"a.b\""),
        "{answer}"
    );
    assert_eq!(catalogd.get(&fixture, "collision/api/v1/all").await.0, 200);
    assert!(fixture.log("first").contains("catalog is served without GraphQL"));
    catalogd.stop().await;
}

/// The spec of a catalog at another registry than the test's own.
fn at(reference: &str) -> Value {
    json!({"spec": {"source": {"image": {"ref": reference}}}})
}

/// Status and JSON body of the answer. Null if the body is not JSON.
async fn ask(fixture: &Fixture, catalogd: &Catalogd, catalog: &str, query: &str) -> (u16, Value) {
    let url = catalogd.url(&format!("{catalog}/api/v1/graphql"));
    let request = fixture.client().await.post(url).json(&json!({"query": query}));
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
}
