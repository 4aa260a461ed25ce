//! Who this process is: pod name, UID and namespace.

use std::path::Path;

const SYSTEM_NAMESPACE: &str = "olmv1-system";
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The system namespace: the flag, else the pod's own, else `olmv1-system` (spec 06 §2.2).
pub fn system_namespace(flag: Option<&str>) -> String {
    namespace_from(flag, Path::new(NAMESPACE_FILE))
}

fn namespace_from(flag: Option<&str>, file: &Path) -> String {
    let flag = flag.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    flag.or_else(|| std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned()))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| SYSTEM_NAMESPACE.to_owned())
}

/// Lease identity `<pod name>_<pod UID>`: a restarted container is its own predecessor and leads at once.
/// Where `POD_UID` is not given, a random part makes every process its own candidate.
pub fn lease_identity() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("POD_NAME").or_else(|| variable("HOSTNAME")).or_else(kernel_hostname);
    let unique = variable("POD_UID").unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    format!("{}_{unique}", name.as_deref().unwrap_or("localhost"))
}

fn kernel_hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace() {
        let missing = Path::new("/nonexistent");
        assert_eq!(namespace_from(Some("a"), missing), "a");
        assert_eq!(namespace_from(Some(""), missing), SYSTEM_NAMESPACE);
        assert_eq!(namespace_from(None, missing), SYSTEM_NAMESPACE);
    }
}
