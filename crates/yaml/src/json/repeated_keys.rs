//! Test for repeated keys that keeps no more than the keys of the open objects.

use std::collections::HashSet;

/// Reports whether an object in JSON text has the same key twice. Different escapes of one key are not noticed.
pub fn has_repeated_keys(json: &[u8]) -> bool {
    // Keys of each open object, `None` for a list.
    let mut open: Vec<Option<Keys<'_>>> = Vec::new();
    let (mut at, mut is_key) = (0, false);
    while let Some(byte) = json.get(at) {
        match byte {
            b'{' => {
                open.push(Some(Keys::default()));
                is_key = true;
            }
            b'[' => {
                open.push(None);
                is_key = false;
            }
            b'}' | b']' => drop(open.pop()),
            b',' => is_key = matches!(open.last(), Some(Some(_))),
            b':' => is_key = false,
            b'"' => {
                let start = at + 1;
                at = start + string_length(&json[start..]);
                if is_key
                    && let Some(Some(keys)) = open.last_mut()
                    && !keys.insert(&json[start..at])
                {
                    return true;
                }
            }
            _ => {}
        }
        at += 1;
    }
    false
}

/// Bytes before the quote that ends a string.
fn string_length(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Keys of one object. Most have only a few.
#[derive(Default)]
struct Keys<'a> {
    few: Vec<&'a [u8]>,
    more: HashSet<&'a [u8]>,
}

impl<'a> Keys<'a> {
    /// `false` if the key is known.
    fn insert(&mut self, key: &'a [u8]) -> bool {
        const FEW: usize = 16;
        if self.few.contains(&key) {
            return false;
        }
        if self.few.len() < FEW {
            self.few.push(key);
            return true;
        }
        self.more.insert(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_key_of_any_object_is_found() {
        for (json, expected) in [
            (r#"{"a":1,"b":{"a":2}}"#, false),
            (r#"{"a":[{"b":1},{"b":2}],"c":"a"}"#, false),
            (r#"{"a":1,"a":2}"#, true),
            (r#"[{"x":[{"b":"}","b":2}]}]"#, true),
            (r#"{"a":"\",\"a\":1","b":"\\"}"#, false),
            (r#"{"a"#, false),
        ] {
            assert_eq!(has_repeated_keys(json.as_bytes()), expected, "{json}");
        }
        let many: Vec<String> = (0..40).map(|number| format!("\"{number}\":0")).collect();
        assert!(!has_repeated_keys(format!("{{{}}}", many.join(",")).as_bytes()));
        assert!(has_repeated_keys(format!("{{{},\"39\":1}}", many.join(",")).as_bytes()));
        assert!(has_repeated_keys(format!("{{{},\"3\":1}}", many.join(",")).as_bytes()));
    }
}
