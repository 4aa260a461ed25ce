//! Fields of the ClusterServiceVersion and of CRDs that are not installed as written
//! (docs/design/bundles.md#typed-conversion, docs/design/bundles.md#author-checks).

use olm_bundle::{Loss, losses};

use crate::content::{Content, Object};
use crate::findings::Findings;
use crate::place::Place;
use crate::rule;

/// Maximum number of losses reported per object.
const LOSSES: usize = 200;

/// Checks every object of a known type.
pub(crate) fn check(content: &Content, findings: &mut Findings) {
    // CRDs of v1beta1 have other fields and are refused as a whole.
    let is_ancient = |object: &&Object| {
        object.kind() == "CustomResourceDefinition" && object.api_version() != "apiextensions.k8s.io/v1"
    };
    for object in content.objects.iter().filter(|object| !is_ancient(object)) {
        for loss in losses(&object.value, LOSSES) {
            match loss {
                Loss::Unknown(path) if is_release(object, &path) => {}
                Loss::Unknown(path) => {
                    let what = "unknown field, dropped when the bundle is installed: check its spelling and its indentation";
                    findings.add(&rule::FIELD_1, below(object, path), what);
                }
                Loss::Wrapped(path) => {
                    let what =
                        "the number is too large for this field: -2147483648 to 2147483647 are allowed";
                    findings.add(&rule::FIELD_2, below(object, path), what);
                }
            }
        }
    }
}

fn below(object: &Object, path: Vec<String>) -> Place {
    let mut place = object.place();
    place.path.extend(path);
    place
}

/// Reports whether this is `spec.release`, which catalogs read although it is not installed.
fn is_release(object: &Object, path: &[String]) -> bool {
    object.kind() == "ClusterServiceVersion" && path.iter().eq(["spec", "release"])
}
