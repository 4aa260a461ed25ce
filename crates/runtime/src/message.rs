//! Error texts for conditions: equal failures must give equal texts.

use std::sync::LazyLock;

pub use olm_api::text::with_causes;
use regex::Regex;

/// Address pairs with ephemeral ports that network errors contain (docs/design/api.md#condition-updates).
static ADDRESS_PAIR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const ADDRESS: &str = r"(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|\[[0-9a-fA-F:.]+\])(?::[0-9]+)?";
    Regex::new(&format!("(?:read|write) (?:tcp|udp) {ADDRESS}->{ADDRESS}(?:: )?")).ok()
});

/// Removes every `read|write tcp|udp source->destination: `, whose source port changes at each attempt.
pub fn sanitize(text: &str) -> String {
    match &*ADDRESS_PAIR {
        Some(pair) => pair.replace_all(text, "").into_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Case catalogd-45
    #[test]
    fn sanitize_removes_address_pairs() {
        let rows = [
            ("lookup x: read udp 10.0.0.1:4242->10.0.0.2:53: i/o timeout", "lookup x: i/o timeout"),
            ("write tcp [::1]:5->[fe80::1]:443: broken pipe", "broken pipe"),
            ("read tcp 10.0.0.1->10.0.0.2", ""),
            ("a read tcp 1.2.3.4:5->1.2.3.4:6: b write udp 1.2.3.4:5->1.2.3.4:6: c", "a b c"),
            ("dial tcp 10.0.0.1:1->10.0.0.2:2: refused", "dial tcp 10.0.0.1:1->10.0.0.2:2: refused"),
            ("read tcp host:1->10.0.0.2:2: x", "read tcp host:1->10.0.0.2:2: x"),
        ];
        for (text, expect) in rows {
            assert_eq!(sanitize(text), expect);
        }
    }
}
