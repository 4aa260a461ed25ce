//! Queries on small catalogs: responses according to docs/design/catalogd.md#graphql-requests.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use olm_graphql::{CatalogSchema, Discovery, Executor, Objects, Query, SchemaError};
use proptest::prelude::*;
use serde_json::{Value, json};

/// In-memory objects. An empty object cannot be read.
#[derive(Clone, Default)]
struct Catalog {
    text: String,
    objects: Vec<(String, Range<u64>)>,
}

impl Catalog {
    fn new<'a>(objects: impl IntoIterator<Item = &'a str>) -> Self {
        let mut catalog = Self::default();
        for object in objects {
            let schema = serde_json::from_str::<Value>(object)
                .ok()
                .and_then(|object| Some(object.get("schema")?.as_str()?.to_owned()));
            catalog.push(&schema.unwrap_or_default(), object);
        }
        catalog
    }

    fn push(&mut self, schema: &str, object: &str) {
        let start = self.text.len() as u64;
        self.text.push_str(object);
        self.objects.push((schema.to_owned(), start..self.text.len() as u64));
    }

    fn discover(&self) -> CatalogSchema {
        let mut discovery = Discovery::default();
        for (schema, range) in &self.objects {
            discovery.observe(schema, self.slice(range)).unwrap();
        }
        discovery.finish()
    }

    fn slice(&self, range: &Range<u64>) -> &str {
        &self.text[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
    }

    fn executor(&self) -> Executor {
        Executor::new(&self.discover()).unwrap()
    }

    fn ask(&self, query: &str) -> Value {
        ask(&self.executor(), self.clone(), query, Duration::from_secs(60))
    }

    fn problem(&self) -> String {
        Executor::new(&self.discover()).unwrap_err().to_string()
    }
}

impl Objects for Catalog {
    fn ranges(&self, schema: &str, offset: usize, limit: usize) -> Vec<Range<u64>> {
        let of_schema = self.objects.iter().filter(|(found, _)| found == schema);
        of_schema.skip(offset).take(limit).map(|(_, range)| range.clone()).collect()
    }

    fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        match self.slice(&range) {
            "" => Err(io::Error::other("secret detail")),
            text => Ok(text.as_bytes().to_vec()),
        }
    }
}

fn ask(executor: &Executor, objects: impl Objects, query: &str, time: Duration) -> Value {
    let text = match Query::parse(query) {
        Ok(query) => executor.run(query, objects, Instant::now() + time),
        Err(error) => error.response(),
    };
    assert_eq!(text.last(), Some(&b'\n'));
    serde_json::from_slice(&text).unwrap()
}

/// Catalog with one package, one channel, 40 bundles and an object without schema.
fn cat() -> Catalog {
    let mut objects = vec![
        json!({"schema": "olm.package", "name": "foo"}),
        json!({"schema": "olm.channel", "package": "foo", "name": "stable", "entries": [{"name": "foo.v1"}]}),
        json!({"name": "noschema", "package": "foo"}),
    ];
    objects.extend(
        (0..40).map(|n| json!({"schema": "olm.bundle", "package": "foo", "name": format!("foo.v{n}")})),
    );
    let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
    Catalog::new(objects.iter().map(String::as_str))
}

fn messages(answer: &Value) -> Vec<&str> {
    answer["errors"].as_array().unwrap().iter().map(|error| error["message"].as_str().unwrap()).collect()
}

// Case catalogd-55
#[test]
fn summary_page_and_depth_limit_are_returned() {
    let cat = cat();
    assert_eq!(cat.ask("{ summary { totalSchemas } }"), json!({"data": {"summary": {"totalSchemas": 3}}}));
    assert_eq!(
        cat.ask("{ olmbundles(limit: 2, offset: 1) { name } }"),
        json!({"data": {"olmbundles": [{"name": "foo.v1"}, {"name": "foo.v2"}]}})
    );
    let deep = "{a".repeat(11) + &"}".repeat(11);
    assert_eq!(
        cat.ask(&deep),
        json!({"data": null, "errors": [{"message": "query exceeds maximum depth of 10", "locations": []}]})
    );
}

#[test]
fn limit_and_offset_select_page() {
    let objects: Vec<String> = (0..120).map(|n| format!(r#"{{"schema":"x","n":{n}}}"#)).collect();
    let catalog = Catalog::new(objects.iter().map(String::as_str));
    let rows = [
        ("", 0, 100),
        ("(limit: 1000)", 0, 100),
        ("(limit: 0)", 0, 100),
        ("(limit: -1)", 0, 100),
        ("(limit: null)", 0, 100),
        ("(limit: 3)", 0, 3),
        ("(offset: 118)", 118, 2),
        ("(limit: 99999999999)", 0, 100),
        ("(offset: -5, limit: 1)", 0, 1),
        ("(offset: 120)", 0, 0),
        ("(offset: 2000000000)", 0, 0),
    ];
    for (arguments, first, count) in rows {
        let answer = catalog.ask(&format!("{{ xs{arguments} {{ n }} }}"));
        let expect: Vec<Value> = (first..first + count).map(|n| json!({"n": n})).collect();
        assert_eq!(answer, json!({"data": {"xs": expect}}), "{arguments}");
    }
    // Variables are not sent, so defaults apply.
    let answer = catalog.ask("query q($n: Int = 2) { xs(limit: $n) { n } }");
    assert_eq!(answer, json!({"data": {"xs": [{"n": 0}, {"n": 1}]}}));
}

#[test]
fn values_of_all_types_are_returned() {
    let catalog = Catalog::new([
        r#"{"schema":"x","text":"a","flag":true,"count":3,"ratio":0.5,"none":null,"object":{"b":[1]},"tags":["a","b"],"numbers":[1,2],"mixed":[1,"a",null],"empty":[],"elements":[{"name":"e","skips":["s"],"deep":{"k":1}},7]}"#,
        r#"{"schema":"x","text":5,"count":"x","tags":"no list","elements":null,"package-name":"p"}"#,
    ]);
    let answer = catalog.ask(
        "{ xs { schema text flag count ratio none object tags numbers mixed empty packageName \
         elements { name skips deep } } }",
    );
    let first = json!({
        "schema": "x", "text": "a", "flag": true, "count": 3, "ratio": 0.5, "none": null, "object": "{\"b\":[1]}",
        "tags": ["a", "b"], "numbers": [1, 2], "mixed": ["1", "a", null], "empty": [], "packageName": null,
        "elements": [
            {"name": "e", "skips": ["s"], "deep": "{\"k\":1}"},
            {"name": null, "skips": null, "deep": null},
        ],
    });
    let second = json!({
        "schema": "x", "text": "5", "flag": null, "count": null, "ratio": null, "none": null, "object": null,
        "tags": null, "numbers": null, "mixed": null, "empty": null, "packageName": "p", "elements": null,
    });
    assert_eq!(answer["data"], json!({"xs": [first, second]}));
    assert_eq!(
        answer["errors"],
        json!([{
            "message": "User Error: expected iterable, but did not find one for field X.tags.",
            "locations": [{"line": 1, "column": 49}],
            "path": ["xs", 1, "tags"],
        }])
    );
}

#[test]
fn aliases_fragments_and_directives_are_applied() {
    let cat = cat();
    let answer = cat.ask(
        "query { a: olmchannels { ...c __typename } olmchannels { entries { name } ... on OlmChannel { package } \
         ... on OlmBundle { nothing } } } fragment c on OlmChannel { n: name entries { __typename } }",
    );
    assert_eq!(messages(&answer).len(), 2, "{answer}");
    let answer = cat.ask(
        "query { a: olmchannels { ...c __typename } olmchannels { entries { name } ... on OlmChannel { package } } } \
         fragment c on OlmChannel { n: name entries { __typename } }",
    );
    assert_eq!(
        answer,
        json!({"data": {
            "a": [{"n": "stable", "entries": [{"__typename": "OlmChannelEntries"}], "__typename": "OlmChannel"}],
            "olmchannels": [{"entries": [{"name": "foo.v1"}], "package": "foo"}],
        }})
    );
    assert_eq!(cat.ask("{ olmpackages @skip(if: true) { name } }"), json!({"data": {}}));
    assert_eq!(
        cat.ask("{ olmpackages { name @include(if: true) schema @skip(if: true) } }"),
        json!({"data": {"olmpackages": [{"name": "foo"}]}})
    );
}

#[test]
fn summary_and_introspection_describe_catalog() {
    let cat = cat();
    assert_eq!(
        cat.ask("{ summary { totalSchemas schemas { name totalObjects totalFields } } }")["data"]["summary"],
        json!({"totalSchemas": 3, "schemas": [
            {"name": "olm.bundle", "totalObjects": 40, "totalFields": 3},
            {"name": "olm.channel", "totalObjects": 1, "totalFields": 4},
            {"name": "olm.package", "totalObjects": 1, "totalFields": 2},
        ]})
    );
    let answer = cat.ask(
        "{ __schema { queryType { fields { name args { name defaultValue type { name } } \
         type { kind ofType { name } } } } mutationType { name } } \
         __type(name: \"OlmChannelEntries\") { fields { name type { kind name } } } }",
    );
    let args = json!([
        {"name": "limit", "defaultValue": "100", "type": {"name": "Int"}},
        {"name": "offset", "defaultValue": "0", "type": {"name": "Int"}},
    ]);
    let list = |name: &str| json!({"kind": "LIST", "ofType": {"name": name}});
    let mut fields = answer["data"]["__schema"]["queryType"]["fields"].as_array().unwrap().clone();
    fields.sort_by_key(|field| field["name"].as_str().unwrap().to_owned());
    assert_eq!(
        fields,
        [
            json!({"name": "olmbundles", "args": args, "type": list("OlmBundle")}),
            json!({"name": "olmchannels", "args": args, "type": list("OlmChannel")}),
            json!({"name": "olmpackages", "args": args, "type": list("OlmPackage")}),
            json!({"name": "summary", "args": [], "type": {"kind": "OBJECT", "ofType": null}}),
        ]
    );
    assert_eq!(answer["data"]["__schema"]["mutationType"], json!(null));
    assert_eq!(
        answer["data"]["__type"]["fields"],
        json!([{"name": "name", "type": {"kind": "SCALAR", "name": "String"}}])
    );
    let empty = Catalog::default();
    let answer = empty.ask("{ summary { totalSchemas schemas { name } } }");
    assert_eq!(answer, json!({"data": {"summary": {"totalSchemas": 0, "schemas": []}}}));
}

#[test]
fn name_collision_is_reported() {
    let of = |schemas: &[&str]| {
        let objects: Vec<String> =
            schemas.iter().map(|schema| json!({"schema": schema}).to_string()).collect();
        Catalog::new(objects.iter().map(String::as_str)).problem()
    };
    let unique = |name: &str| {
        format!(
            "failed to create GraphQL schema: Schema must contain unique named types but contains multiple types named \"{name}\"."
        )
    };
    let rows: [(&[&str], String); 7] = [
        (
            &["x", "olm.bundle", "olm-bundle"],
            "type name collision: schemas \"olm-bundle\" and \"olm.bundle\" both sanitize to GraphQL type \"OlmBundle\"".to_owned(),
        ),
        (
            &["olm.bundle", "olmbundle"],
            "query field collision: schemas \"olm.bundle\" and \"olmbundle\" both map to field \"olmbundles\"".to_owned(),
        ),
        (&["query"], unique("Query")),
        (&["catalog.summary"], unique("CatalogSummary")),
        (&["string"], unique("String")),
        (
            &["1x"],
            "failed to create GraphQL schema: Names must match /^[_a-zA-Z][_a-zA-Z0-9]*$/ but \"1xs\" does not.".to_owned(),
        ),
        (&["..", "12"], "type name collision: schemas \"..\" and \"12\" both sanitize to GraphQL type \"Unknown\"".to_owned()),
    ];
    for (schemas, expect) in rows {
        assert_eq!(of(schemas), expect);
    }
    // The type of a list may have the same name as that of a schema.
    let nested = Catalog::new([r#"{"schema":"a","b":[{"c":1}]}"#, r#"{"schema":"a.b"}"#]);
    assert_eq!(nested.problem(), unique("AB"));
}

#[test]
fn invalid_query_returns_error() {
    let cat = cat();
    let rows = [
        ("{ nothing }", "Unknown field \"nothing\" on type \"Query\"."),
        ("{ olmbundles }", "Field \"olmbundles\" of type \"OlmBundle\" must have a selection of subfields"),
        (
            "{ olmbundles(limit: \"x\") { name } }",
            "Invalid value for argument \"limit\", expected type \"Int\"",
        ),
        ("query q($n: Int!) { olmbundles(limit: $n) { name } }", "Variable n is not defined."),
        ("mutation { olmbundles { name } }", "Schema is not configured for mutations"),
        ("{ ...f }", "Unknown fragment: \"f\""),
    ];
    for (query, message) in rows {
        let answer = cat.ask(query);
        assert_eq!(answer["data"], json!(null), "{query}");
        assert_eq!(messages(&answer), [message], "{query}");
    }
}

#[test]
fn unreadable_object_is_null_and_others_are_returned() {
    let mut catalog = cat();
    catalog.push("olm.package", "");
    catalog.push("olm.package", "[1]");
    catalog.push("olm.package", &format!(r#"{{"name":"{}"}}"#, " ".repeat(16 << 20)));
    catalog.push("olm.package", r#"{"name":"bar"}"#);
    let executor = cat().executor();
    let answer = ask(&executor, catalog, "{ olmpackages(limit: 9) { name } }", Duration::from_secs(60));
    let name = |name: Value| json!({"name": name});
    let expect =
        [name(json!("foo")), name(json!(null)), name(json!(null)), name(json!(null)), name(json!("bar"))];
    assert_eq!(answer["data"]["olmpackages"], json!(expect));
    assert_eq!(
        messages(&answer),
        [
            "object 1 of schema \"olm.package\" cannot be read",
            "object 2 of schema \"olm.package\" is not a JSON object",
            "object 3 of schema \"olm.package\" is larger than 16 MiB",
        ]
    );
    assert_eq!(answer["errors"][0]["path"], json!(["olmpackages"]));
}

#[test]
fn query_over_time_or_size_limit_fails() {
    let cat = cat();
    let late = ask(&cat.executor(), cat.clone(), "{ olmpackages { name } }", Duration::ZERO);
    assert_eq!(
        late,
        json!({"data": null, "errors": [{"message": "context deadline exceeded", "locations": []}]})
    );

    let too_large = json!({"data": null, "errors": [{"message": "query result exceeds maximum size of 64 MiB", "locations": []}]});
    let text = format!(r#"{{"schema":"x","text":"{}"}}"#, "a".repeat(15 << 20));
    let large = Catalog::new([text.as_str(); 5]);
    assert!(large.ask("{ xs { text } }") == too_large);
    // Only selected fields are charged.
    assert_eq!(large.ask("{ xs(limit: 1) { schema } }"), json!({"data": {"xs": [{"schema": "x"}]}}));
    let many = Catalog::new([format!(r#"{{"schema":"x","list":[0{}]}}"#, ",0".repeat(1 << 20)).as_str()]);
    assert!(many.ask("{ xs { list } }") == too_large);
    let elements =
        Catalog::new([
            format!(r#"{{"schema":"x","list":[{{"a":0}}{}]}}"#, ",{\"a\":0}".repeat(1 << 18)).as_str()
        ]);
    assert!(elements.ask("{ xs { list { a } } }") == too_large);

    // Errors are charged too.
    let first = r#"{"schema":"x","list":[{"tags":["a"]}]}"#;
    let wrong = format!(r#"{{"schema":"x","list":[{{"tags":0}}{}]}}"#, ",{\"tags\":0}".repeat(90_000));
    assert!(Catalog::new([first, &wrong]).ask("{ xs { list { tags } } }") == too_large);

    // Introspection is charged too: thousands of fields, requested fifty times, with their types.
    let fields: Vec<String> = (0..4000).map(|n| format!("\"f{n}\":0")).collect();
    let wide = Catalog::new([format!("{{\"schema\":\"x\",{}}}", fields.join(",")).as_str()]);
    let aliases: String = (0..50).map(|n| format!("a{n}: fields {{ name type {{ name kind }} }} ")).collect();
    assert!(wide.ask(&format!("{{ __schema {{ types {{ {aliases} }} }} }}")) == too_large);

    // Schema names are charged wherever they are shown.
    let long = Catalog::new([json!({"schema": "s".repeat(300_000)}).to_string().as_str()]);
    let names: String = (0..25).map(|n| format!("n{n}: name ")).collect();
    for (root, field, ty) in [("summary", "schemas", "SchemaSummary"), ("__schema", "types", "__Type")] {
        let lists: String = (0..20).map(|n| format!("l{n}: {field} {{ ...f }} ")).collect();
        assert!(
            long.ask(&format!("{{ {root} {{ {lists} }} }} fragment f on {ty} {{ {names} }}")) == too_large
        );
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-b\u{e9}\"]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c_.1]{0,3}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Any catalog is either rejected as a whole, or its responses to any query are JSON.
    #[test]
    fn any_catalog_and_query_yield_response(
        objects in prop::collection::vec(("[ab.1]{0,3}", prop::collection::btree_map("[a-c_.1]{0,3}", json_value(), 0..5)), 0..6),
        query in "\\{ ?(a|b|aa|as|bs|summary|__schema)s?(\\(limit: ?-?[0-9]{1,12}\\))? ?(\\{ ?([abc]{1,2} ?(\\{ ?[abc_]{1,2} ?\\})? ?){1,3}\\})? ?\\}",
        noise in ".{0,40}",
    ) {
        let mut catalog = Catalog::default();
        for (schema, members) in &objects {
            catalog.push(schema, &Value::Object(members.clone().into_iter().collect()).to_string());
        }
        if let Ok(executor) = Executor::new(&catalog.discover()) {
            for query in [&query, &noise] {
                let answer = ask(&executor, catalog.clone(), query, Duration::from_secs(60));
                prop_assert!(answer["data"].is_object() || answer["errors"].is_array(), "{}", answer);
            }
        }
    }

    /// Every discovered field can be queried without error. Only two lists of objects may map to the same type.
    #[test]
    fn every_discovered_field_can_be_queried(members in prop::collection::btree_map("[a-cA_.1-]{0,4}", json_value(), 1..6)) {
        let mut catalog = Catalog::default();
        let is_list_of_objects = |value: &&Value| value.as_array().is_some_and(|items| items.iter().any(Value::is_object));
        let lists_of_objects = members.values().filter(is_list_of_objects).count();
        catalog.push("x", &Value::Object(members.into_iter().collect()).to_string());
        let schema = serde_json::to_value(catalog.discover()).unwrap();
        // The serialized schema round-trips.
        let kept: CatalogSchema = serde_json::from_value(schema).unwrap();
        prop_assert_eq!(&kept, &catalog.discover());
        let executor = match Executor::new(&kept) {
            Err(SchemaError::DuplicateType(_)) if lists_of_objects > 1 => return Ok(()),
            executor => executor.unwrap(),
        };
        let all = ask(&executor, catalog.clone(), "{ __type(name: \"X\") { fields { name type { ofType { kind fields { name } } } } } }", Duration::from_secs(60));
        for field in all["data"]["__type"]["fields"].as_array().into_iter().flatten() {
            let name = field["name"].as_str().unwrap();
            let nested = field["type"]["ofType"]["fields"].as_array().into_iter().flatten();
            let nested: Vec<&str> = nested.map(|field| field["name"].as_str().unwrap()).collect();
            let selection = if nested.is_empty() { String::new() } else { format!("{{ {} }}", nested.join(" ")) };
            let answer = ask(&executor, catalog.clone(), &format!("{{ xs {{ {name} {selection} }} }}"), Duration::from_secs(60));
            prop_assert!(answer["data"]["xs"][0].is_object(), "{} {}", name, answer);
            prop_assert!(answer.get("errors").is_none(), "{} {}", name, answer);
        }
    }
}
