//! Finalizers (docs/design/api.md#finalizers).

/// Catalog: served content must be removed first.
pub const DELETE_SERVER_CACHE: &str = "olm.operatorframework.io/delete-server-cache";
/// Extension: the unpacked bundle must be removed first.
pub const CLEANUP_UNPACK_CACHE: &str = "olm.operatorframework.io/cleanup-unpack-cache";
/// Extension: drift watches must be stopped first.
pub const CLEANUP_CONTENTMANAGER_CACHE: &str = "olm.operatorframework.io/cleanup-contentmanager-cache";
/// Revision: watches must be stopped, or an archived revision torn down, first.
pub const TEARDOWN: &str = "olm.operatorframework.io/teardown";
/// On an object that is deleted in the foreground, set by the API server.
pub const FOREGROUND: &str = "foregroundDeletion";
/// On an object whose deletion orphans its dependents, set by the API server.
pub const ORPHAN: &str = "orphan";
