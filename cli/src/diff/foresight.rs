//! Summary of the changes that a bundle makes on a cluster, for commands that then install it.

use olm_api::ClusterExtension;

use super::next::with_image;
use super::objects::{Happening, ObjectChange};
use super::report::Diff;
use crate::bundle_source;
use crate::change::Controller;
use crate::crd_check::{CrdResult, Verdict};
use crate::failure::Failure;
use crate::output::counted;
use crate::render::{self, Wishes};
use crate::session::Session;
use crate::source::{Access, Cluster};

/// Highest number of objects or findings that a message names.
const NAMED: usize = 5;

/// Predicted effects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Foresight {
    /// One or two lines.
    pub(crate) changes: Vec<String>,
    /// Problems that prevent or delay the change.
    pub(crate) obstacles: Vec<String>,
    /// CRDs whose upgrade would break custom resources, each with its findings.
    pub(crate) unsafe_definitions: Vec<String>,
}

/// Predicts the effect of installing the bundle in `image` for the given extension. Without a namespace there is
/// nothing to compare with, and new objects are only counted.
///
/// # Errors
/// The image or the cluster cannot be read, or the bundle cannot be installed this way
/// ([`Code::Findings`](crate::failure::Code::Findings)).
pub(crate) async fn foresee(
    cluster: &Cluster,
    extension: &ClusterExtension,
    image: &str,
    controller: &Controller,
    has_namespace: bool,
    access: &Access,
    session: &Session,
) -> Result<Foresight, Failure> {
    if has_namespace {
        return Ok(Foresight::of(&with_image(cluster, extension, image, controller, access, session).await?));
    }
    let files = bundle_source::read(image, &access.images, session).await?;
    let wishes = Wishes::as_configured(extension, &controller.gates)?;
    let count = render::objects(&files, &wishes)?.objects.len();
    Ok(Foresight { changes: vec![format!("{} created", counted(count, "object"))], ..Foresight::default() })
}

impl Foresight {
    /// Summarizes a difference.
    pub(crate) fn of(diff: &Diff) -> Self {
        let count = |wanted| diff.objects.iter().filter(|object| object.change == wanted).count();
        let (created, changed, deleted) =
            (count(Happening::Created), count(Happening::Changed), count(Happening::Deleted));
        let mut changes =
            vec![format!("{} created, {changed} changed, {deleted} deleted", counted(created, "object"))];
        let gaining = diff.permissions.iter().filter(|change| !change.gained.is_empty()).count();
        if gaining > 0 {
            changes.push(format!("permissions gained by {}", counted(gaining, "subject")));
        }
        let dropped = diff.crds.iter().filter(|crd| crd.result == Verdict::OnlyInOld);
        changes.extend(
            dropped.map(|crd| format!("CustomResourceDefinition {} is no part of it any more", crd.name)),
        );
        let noted =
            |change: &ObjectChange| change.notes.first().map(|note| format!("{}: {note}", change.object));
        let breaking = |crd: &&CrdResult| crd.result == Verdict::Unsafe;
        Self {
            changes,
            obstacles: shortened(diff.objects.iter().filter_map(noted).collect()),
            unsafe_definitions: diff.crds.iter().filter(breaking).map(broken).collect(),
        }
    }
}

fn broken(crd: &CrdResult) -> String {
    let lines = crd.findings.iter().map(|finding| finding.line.clone()).collect();
    format!("CustomResourceDefinition {}: {}", crd.name, shortened(lines).join("; "))
}

/// First items, and the number of the others.
fn shortened(mut items: Vec<String>) -> Vec<String> {
    let more = items.len().saturating_sub(NAMED);
    items.truncate(NAMED);
    if more > 0 {
        items.push(format!("and {more} more"));
    }
    items
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::objects;
    use super::*;

    fn service_account(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "ns"}})
    }

    #[test]
    fn foresight_counts_created_changed_and_deleted_objects() {
        let (old, new) = (vec![service_account("a")], vec![service_account("b"), service_account("c")]);
        let mut changes = objects::changes(&old, &new);
        for change in &mut changes {
            change.notes = vec!["the API server refuses it".to_owned()];
        }
        let foresight = Foresight::of(&Diff::new(&old, &new, &old, changes));
        assert_eq!(foresight.changes, ["2 objects created, 0 changed, 1 deleted"]);
        assert_eq!(foresight.obstacles.len(), 3);
        assert_eq!(foresight.obstacles[0], "ServiceAccount ns/b: the API server refuses it");
        assert_eq!(foresight.unsafe_definitions, [""; 0]);
        let many: Vec<String> = (0..7).map(|n| n.to_string()).collect();
        assert_eq!(shortened(many), ["0", "1", "2", "3", "4", "and 2 more"]);
    }
}
