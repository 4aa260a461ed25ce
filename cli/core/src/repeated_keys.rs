//! Repeated keys in files of the user.

use olm_version::quote;

use crate::error::CliError;

/// Fails if a mapping of the YAML or JSON `text` has a key twice: the values of all but the last one would be lost.
/// `origin` is the file, for the message.
///
/// # Errors
/// One line for each repeated key.
pub fn refuse(origin: &str, text: &[u8]) -> Result<(), CliError> {
    let found = olm_yaml::all_repeated_keys(text);
    if found.is_empty() {
        return Ok(());
    }
    let line = |key: &olm_yaml::RepeatedKey| {
        let advice = match key.path.as_slice() {
            [name] if ["apiVersion", "kind", "metadata", "spec"].contains(&name.as_str()) => {
                "separate objects with a line `---`"
            }
            _ => "remove one of the two",
        };
        let path = quote(&key.path.join("."));
        format!("{origin}:{}: the key {path} is also on line {}: {advice}", key.line, key.first)
    };
    Err(CliError::findings(found.iter().map(line).collect::<Vec<_>>().join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repeated_key_is_refused_with_both_lines() {
        assert!(refuse("f.yaml", b"kind: A\n---\nkind: B\n").is_ok());
        let error = refuse("f.yaml", b"kind: A\nspec: {a: 1, a: 2}\nkind: B\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "f.yaml:2: the key \"spec.a\" is also on line 2: remove one of the two\n\
             f.yaml:3: the key \"kind\" is also on line 1: separate objects with a line `---`"
        );
    }
}
