//! Responses as JSON text (docs/design/catalogd.md#graphql-requests): `{"data":…}`, with `errors` if there are any,
//! and a newline.

use async_graphql::{Pos, ServerError, Value};
use serde_json::json;

use crate::query::QueryError;

/// Response to a query that is not executed.
pub fn error_response(message: &str) -> Vec<u8> {
    response(&Value::Null, &[ServerError::new(message, None)])
}

impl QueryError {
    /// Response to the query.
    pub fn response(&self) -> Vec<u8> {
        response(&Value::Null, &[ServerError::new(&self.message, self.location)])
    }
}

pub(crate) fn response(data: &Value, errors: &[ServerError]) -> Vec<u8> {
    let mut text = b"{\"data\":".to_vec();
    write(&mut text, data);
    if !errors.is_empty() {
        text.extend_from_slice(b",\"errors\":");
        write(&mut text, &errors.iter().map(error).collect::<Vec<_>>());
    }
    text.extend_from_slice(b"}\n");
    text
}

/// JSON of an error. Unlike in the library, `locations` is always present.
fn error(error: &ServerError) -> serde_json::Value {
    let location = |pos: &Pos| json!({"line": pos.line, "column": pos.column});
    let locations: Vec<_> = error.locations.iter().map(location).collect();
    let mut object = json!({"message": error.message, "locations": locations});
    if !error.path.is_empty() {
        object["path"] = json!(error.path);
    }
    object
}

/// Appends `value`. Writes null if it has no JSON form, which does not occur here.
fn write(text: &mut Vec<u8>, value: &impl serde::Serialize) {
    let start = text.len();
    if serde_json::to_writer(&mut *text, value).is_err() {
        text.truncate(start);
        text.extend_from_slice(b"null");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_always_have_locations() {
        let text = |response: Vec<u8>| String::from_utf8(response).unwrap();
        assert_eq!(
            text(error_response("no \"x\"")),
            "{\"data\":null,\"errors\":[{\"locations\":[],\"message\":\"no \\\"x\\\"\"}]}\n"
        );
        let error = crate::Query::parse("{").unwrap_err();
        assert_eq!(
            text(error.response()),
            "{\"data\":null,\"errors\":[{\"locations\":[{\"column\":2,\"line\":1}],\"message\":\
             \"query parse error: Syntax Error GraphQL (1:2) Unexpected EOF\"}]}\n"
        );
    }
}
