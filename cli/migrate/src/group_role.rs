//! Names of the ClusterRoles that classic OLM generates for the users of an OperatorGroup. Pure.

use aws_lc_rs::digest::{SHA224, digest};

/// Access that the roles of an OperatorGroup give. API roles have the same suffixes.
const ACCESS: [&str; 3] = ["admin", "edit", "view"];
/// Longest name.
const MAX_NAME: usize = 253;
const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Access that the ClusterRole `role` gives, if it is one of the OperatorGroup `group` of `namespace`.
pub(super) fn access(namespace: &str, group: &str, role: &str) -> Option<&'static str> {
    ACCESS.into_iter().find(|access| name(namespace, group, access) == role)
}

/// `olm.og.<group>.<access>-<hash>`, with the hash of namespace, name and access. A long name is cut.
pub(super) fn name(namespace: &str, group: &str, access: &str) -> String {
    let hash = base_62(digest(&SHA224, format!("{namespace}/{group}/{access}").as_bytes()).as_ref());
    let limit = MAX_NAME.saturating_sub("olm.og..-".len() + access.len() + hash.len());
    let group = group.get(..limit.min(group.len())).unwrap_or(group);
    format!("olm.og.{group}.{access}-{hash}")
}

/// The number with these bytes, the most significant first, in base 62.
fn base_62(bytes: &[u8]) -> String {
    let mut number = bytes.to_vec();
    let mut digits = Vec::new();
    while number.iter().any(|byte| *byte != 0) {
        let mut rest = 0_usize;
        for byte in &mut number {
            let value = rest << 8 | usize::from(*byte);
            // The quotient of a number below 62 * 256 fits.
            *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
            rest = value % 62;
        }
        digits.push(DIGITS[rest]);
    }
    digits.reverse();
    String::from_utf8_lossy(&digits).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_base_62() {
        for (bytes, expected) in [
            (&[][..], ""),
            (&[0, 0], ""),
            (&[9], "9"),
            (&[10], "a"),
            (&[61], "Z"),
            (&[62], "10"),
            (&[1, 0], "48"),
        ] {
            assert_eq!(base_62(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn role_belongs_to_one_group_of_one_namespace() {
        let role = name("ops", "global", "view");
        assert!(role.starts_with("olm.og.global.view-") && role.len() > 50, "{role}");
        assert_eq!(access("ops", "global", &role), Some("view"));
        for (namespace, group) in [("team", "global"), ("ops", "other")] {
            assert_eq!(access(namespace, group, &role), None);
        }
        assert_eq!(access("ops", "global", "view"), None);
        assert_eq!(name("ops", &"g".repeat(253), "admin").len(), 253);
    }
}
