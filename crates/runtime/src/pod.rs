//! The identity of this process: pod name, UID and namespace.

use std::path::Path;

const SYSTEM_NAMESPACE: &str = "olmv1-system";
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The system namespace: the flag, else the pod's own, else `olmv1-system`.
pub fn system_namespace(flag: &str) -> String {
    namespace_from(flag, Path::new(NAMESPACE_FILE))
}

fn namespace_from(flag: &str, file: &Path) -> String {
    match flag.trim() {
        "" => own_from(file, SYSTEM_NAMESPACE),
        name => name.to_owned(),
    }
}

/// Namespace of our own Deployment: the pod's namespace, regardless of the flag. Outside of a pod it is `system`.
pub fn own_namespace(system: &str) -> String {
    own_from(Path::new(NAMESPACE_FILE), system)
}

fn own_from(file: &Path, system: &str) -> String {
    name_in(file).unwrap_or_else(|| system.to_owned())
}

fn name_in(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Lease identity `<pod name>_<pod UID>`: a restarted container has the same identity and leads again at once.
/// Without `POD_UID`, a random part makes every process a candidate of its own.
pub fn lease_identity() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("POD_NAME")
        .or_else(|| variable("HOSTNAME"))
        .or_else(|| name_in(Path::new("/proc/sys/kernel/hostname")));
    let unique = variable("POD_UID").unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    format!("{}_{unique}", name.as_deref().unwrap_or("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_namespace_takes_precedence_over_default_but_not_flag() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (pod, blank) = (file("pod", "here\n"), file("blank", "\n"));
        let missing = folder.path().join("missing");
        for (flag, file, system, own) in [
            ("a", &missing, "a", "a"),
            ("a", &blank, "a", "a"),
            ("a", &pod, "a", "here"),
            (" ", &pod, "here", "here"),
            ("", &pod, "here", "here"),
            ("", &missing, SYSTEM_NAMESPACE, SYSTEM_NAMESPACE),
            ("", &blank, SYSTEM_NAMESPACE, SYSTEM_NAMESPACE),
        ] {
            let found = namespace_from(flag, file);
            assert_eq!((found.as_str(), own_from(file, &found).as_str()), (system, own), "{flag:?} {file:?}");
        }
    }
}
