//! Bundles that an extension can be upgraded to, and the one that lets the platform move
//! (docs/design/operations.md#upgrade-targets).

use olm_api::cluster_upgrade_status::ExtensionVerdict;
use olm_api::conditions::Status;

use crate::platform::Platform;
use crate::property::{Declaration, of_entry};
use crate::revision::ConstrainedRevision;
use crate::verdict::{Verdict, evaluate, is_blocker};

/// Bundle of a catalog that an extension can be upgraded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeTarget {
    /// Version of the bundle with its release.
    version: String,
    /// Constraints in its catalog entry.
    declared: Vec<Declaration>,
}

impl UpgradeTarget {
    /// Creates the target from the properties of its catalog entry, given as type and raw value.
    pub fn new<'a>(version: &str, properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self { version: version.to_owned(), declared: of_entry(properties) }
    }

    /// Returns `true` if the bundle does not block the platform's next version.
    pub fn is_compatible(&self, platform: &Platform) -> bool {
        let revision = ConstrainedRevision {
            extension: String::new(),
            extension_uid: None,
            bundle: String::new(),
            version: self.version.clone(),
            declared: Ok(self.declared.clone()),
        };
        evaluate(platform, &[], [&revision]).status == Status::True
    }
}

impl Verdict {
    /// Sets `upgradeTo` of the extensions that block. `targets` returns the possible upgrades of an extension, best
    /// first, or `None` if they are not known (yet). Then the value in the `stored` rows is kept.
    pub fn with_upgrades<'a>(
        mut self,
        targets: impl Fn(&str) -> Option<&'a [UpgradeTarget]>,
        stored: &[ExtensionVerdict],
    ) -> Self {
        let Some(platform) = self.platform.clone() else { return self };
        for row in self.extensions.iter_mut().filter(|row| is_blocker(row)) {
            row.upgrade_to = match targets(&row.name) {
                Some(targets) => {
                    let best = targets.iter().find(|target| target.is_compatible(&platform));
                    best.map(|best| best.version.clone())
                }
                None => {
                    let is_same =
                        |old: &&ExtensionVerdict| (&old.name, &old.bundle) == (&row.name, &row.bundle);
                    stored.iter().find(is_same).and_then(|old| old.upgrade_to.clone())
                }
            };
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Facts;
    use crate::property::declarations;

    fn limit(value: &str) -> String {
        format!("[{{\"type\":\"olm.maxOpenShiftVersion\",\"value\":{value}}}]")
    }

    fn target(version: &str, value: &str) -> UpgradeTarget {
        UpgradeTarget::new(version, [("acme", "1"), ("olm.maxOpenShiftVersion", value)])
    }

    fn blocked(extension: &str) -> ConstrainedRevision {
        ConstrainedRevision {
            extension: extension.to_owned(),
            extension_uid: None,
            bundle: format!("{extension}.v1"),
            version: "1.0.0".to_owned(),
            declared: declarations(&limit("4.18"), None),
        }
    }

    #[test]
    fn best_compatible_target_is_reported() {
        let platform = Platform::of(&Facts {
            openshift_apis: true,
            cluster_version: "4.18".parse().ok(),
            ..Facts::default()
        });
        let free = UpgradeTarget::new("0.9.0", []);
        let rows: [(&[UpgradeTarget], Option<&str>); 5] = [
            (&[], None),
            (&[target("2.0.0", "4.18")], None),
            (&[target("2.0.0", "4.18"), target("1.5.0", "4.19"), target("1.4.0", "4.20")], Some("1.5.0")),
            (&[target("2.0.0", "\"x\""), free.clone()], Some("0.9.0")),
            (&[target("2.0.0", "4.20")], Some("2.0.0")),
        ];
        for (targets, expected) in rows {
            let verdict = evaluate(&platform, &[], &[blocked("a")]).with_upgrades(|_| Some(targets), &[]);
            assert_eq!(verdict.extensions[0].upgrade_to.as_deref(), expected, "{targets:?}");
        }
        // A compatible extension needs no upgrade.
        let fine = ConstrainedRevision { declared: declarations(&limit("4.19"), None), ..blocked("a") };
        let targets = [target("2.0.0", "4.20")];
        let verdict = evaluate(&platform, &[], &[fine]).with_upgrades(|_| Some(&targets), &[]);
        assert_eq!(verdict.extensions[0].upgrade_to, None);
    }

    #[test]
    fn unknown_targets_keep_the_stored_value_of_the_same_bundle() {
        let platform = Platform::of(&Facts {
            openshift_apis: true,
            cluster_version: "4.18".parse().ok(),
            ..Facts::default()
        });
        let fresh = || evaluate(&platform, &[], &[blocked("a"), blocked("b")]);
        let targets = [target("2.0.0", "4.19")];
        let stored = fresh().with_upgrades(|_| Some(&targets), &[]).extensions;
        let kept = fresh().with_upgrades(|_| None, &stored);
        assert_eq!(kept.extensions, stored);
        let other: Vec<_> =
            stored.into_iter().map(|row| ExtensionVerdict { bundle: "b.v0".to_owned(), ..row }).collect();
        let dropped = fresh().with_upgrades(|_| None, &other);
        assert!(dropped.extensions.iter().all(|row| row.upgrade_to.is_none()));
    }
}
