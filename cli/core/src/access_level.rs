//! Names for lists of verbs. Pure.

use std::collections::BTreeSet;

use olm_bundle::api_roles::{EDIT, VIEW};

/// All verbs, groups or resources.
pub const ANY: &str = "*";

/// `none`, `view`, `edit` or `admin` for the verbs of these roles of Kubernetes, else the list of verbs.
pub fn level<'a>(verbs: impl IntoIterator<Item = &'a str>) -> String {
    let verbs: BTreeSet<&str> = verbs.into_iter().collect();
    let has = |all: &[&str]| all.iter().all(|verb| verbs.contains(verb));
    let is_only = |verb: &&str| [&VIEW[..], &EDIT, &["deletecollection"]].concat().contains(verb);
    if verbs.is_empty() {
        "none".to_owned()
    } else if verbs.contains(ANY) {
        "admin".to_owned()
    } else if has(&VIEW) && has(&EDIT) && verbs.iter().all(is_only) {
        "edit".to_owned()
    } else if has(&VIEW) && verbs.len() == VIEW.len() {
        "view".to_owned()
    } else {
        verbs.into_iter().collect::<Vec<_>>().join(",")
    }
}
