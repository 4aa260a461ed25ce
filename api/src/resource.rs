//! Implementation of Kubernetes resource traits for the root structs of this project.

use kube::core::ObjectMeta;
use serde::Serialize;

/// Serialized form of a resource: the two type fields, then the parts that are set.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wire<'a, S, T> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) metadata: &'a ObjectMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) spec: Option<&'a S>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<&'a T>,
}

/// Implements [`resource`] and [`conditions`] for a cluster-scoped root struct. Without a group, the resource belongs to
/// [`crate::names::GROUP`].
macro_rules! cluster_resource {
    ($kind:ident, $spec:ty, $status:ty, $plural:expr) => {
        cluster_resource!($kind, $spec, $status, $plural, $crate::names::GROUP, $crate::names::VERSION);
    };
    ($kind:ident, $spec:ty, $status:ty, $plural:expr, $group:expr, $version:expr) => {
        $crate::resource::resource!(
            kube::core::ClusterResourceScope,
            $kind,
            $spec,
            $status,
            $plural,
            $group,
            $version
        );
        $crate::resource::conditions!($kind);
    };
}

/// Implements condition lookup for a root struct whose status has conditions.
macro_rules! conditions {
    ($kind:ident) => {
        impl $kind {
            /// Finds the condition of this type.
            pub fn condition(&self, type_: &str) -> Option<&$crate::Condition> {
                $crate::conditions::find(&self.status.as_ref()?.conditions, type_)
            }

            /// Reports whether the condition of this type exists with status `True`.
            pub fn is_true(&self, type_: &str) -> bool {
                self.status
                    .as_ref()
                    .is_some_and(|status| $crate::conditions::is_true(&status.conditions, type_))
            }
        }
    };
}

/// Implements `kube::Resource`, `Serialize`, `new` and accessors of metadata for a root struct with the fields
/// `metadata`, `spec` (plain or optional) and `status` (optional). The plural is that of URLs.
///
/// The derive macro of `kube` requires a `spec`, but the API server admits extensions and object sets without one
/// (docs/design/api.md#optional-spec).
macro_rules! resource {
    ($scope:ty, $kind:ident, $spec:ty, $status:ty, $plural:expr, $group:expr, $version:expr) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }

        impl kube::core::object::HasStatus for $kind {
            type Status = $status;

            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }

            fn status_mut(&mut self) -> &mut Option<$status> {
                &mut self.status
            }
        }

        impl $kind {
            /// Creates an object with only a name and a spec.
            pub fn new(name: &str, spec: $spec) -> Self {
                Self {
                    metadata: kube::core::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
                    spec: spec.into(),
                    status: None,
                }
            }

            /// Value of an annotation.
            pub fn annotation(&self, key: &str) -> Option<&str> {
                self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
            }

            /// Owner reference with `controller: true`.
            pub fn controller(&self) -> Option<&$crate::OwnerReference> {
                let mut owners = self.metadata.owner_references.iter().flatten();
                owners.find(|owner| owner.controller == Some(true))
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::resource::Wire::<$spec, $status> {
                    api_version: &<Self as kube::Resource>::api_version(&()),
                    kind: stringify!($kind),
                    metadata: &self.metadata,
                    spec: Option::from(&self.spec),
                    status: self.status.as_ref(),
                }
                .serialize(serializer)
            }
        }
    };
}

pub(crate) use {cluster_resource, conditions, resource};
