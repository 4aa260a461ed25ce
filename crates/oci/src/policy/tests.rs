//! Tests of signature verdicts and policy files, without a registry.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tempfile::TempDir;

use super::identity::Identity;
use super::signature::{Attached, Signature};
use super::*;

const REJECT: &str = r#"{"default":[{"type":"reject"}]}"#;

struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap())
    }

    fn key(&self) -> Key {
        let der = self.0.public_key().as_der().unwrap();
        Key::parse(key::tests::pem(der.as_ref()).as_bytes()).unwrap()
    }

    fn sign(&self, payload: &str) -> Signature {
        let bytes = self.0.sign(&SystemRandom::new(), payload.as_bytes()).unwrap();
        Signature { payload: payload.to_owned().into(), encoded: Some(BASE64_STANDARD.encode(bytes)) }
    }
}

fn digest(digit: &str) -> Digest {
    format!("sha256:{}", digit.repeat(64)).parse().unwrap()
}

fn payload(reference: &str, digest: &Digest) -> String {
    format!(
        r#"{{"critical":{{"identity":{{"docker-reference":"{reference}"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"cosign container image signature"}},"optional":null}}"#
    )
}

#[test]
fn one_valid_signature_suffices_otherwise_reasons_are_listed() {
    let (ours, theirs) = (Signer::new(), Signer::new());
    let image: Reference = "r.io/app:v1".parse().unwrap();
    let (index, own, other) = (digest("1"), digest("2"), digest("3"));
    let good = ours.sign(&payload("r.io/app:v1", &own));
    let verdict = |signatures: &[Signature], others: usize| {
        let (keys, identity) = ([Signer::new().key(), ours.key()], Identity::default());
        let requirement = SignatureRequirement {
            keys: &keys,
            identity: &identity,
            image: &image,
            digests: &[index.clone(), own.clone()],
        };
        requirement.check(&Attached { signatures: signatures.to_vec(), others }).err().unwrap_or_default()
    };
    let failed = "cryptographic signature verification failed: \
                  invalid signature when validating ASN.1 encoded signature";
    let unsigned = Signature { encoded: None, ..good.clone() };
    let garbled = Signature { encoded: Some("?".to_owned()), ..good.clone() };
    let moved = Signature { payload: payload("r.io/app:v2", &own).into(), ..good.clone() };
    for (signatures, others, expected) in [
        (vec![], 0, "A signature was required, but no signature exists"),
        (
            vec![],
            2,
            "A signature was required, but no signature exists (2 sigstore non-signature attachments)",
        ),
        (vec![good.clone()], 0, ""),
        (vec![ours.sign(&payload("r.io/app:v1", &index))], 1, ""),
        (vec![unsigned.clone(), garbled.clone(), good.clone()], 0, ""),
        (vec![unsigned.clone()], 0, "missing dev.cosignproject.cosign/signature annotation"),
        (vec![garbled.clone()], 0, "the signature is not base64"),
        (vec![moved.clone()], 0, failed),
        (vec![theirs.sign(&payload("r.io/app:v1", &own))], 0, failed),
        (
            vec![ours.sign(&payload("r.io/app:v1", &other))],
            0,
            &format!("Signature for digest {other} does not match"),
        ),
        (
            vec![ours.sign(&payload("r.io/app:v2", &own))],
            0,
            "Signature for identity \"r.io/app:v2\" is not accepted",
        ),
        (
            vec![moved.clone(), unsigned.clone(), moved],
            0,
            &format!(
                "None of the signatures were accepted, reasons: {failed}; missing dev.cosignproject.cosign/signature annotation"
            ),
        ),
    ] {
        assert_eq!(verdict(&signatures, others), expected);
    }
    let many: Vec<_> = (0..8).map(|n| ours.sign(&payload(&format!("r.io/app:other{n}"), &own))).collect();
    let text = verdict(&many, 0);
    assert!(text.ends_with("\"r.io/app:other4\" is not accepted; and 3 more"), "{text}");
}

#[test]
fn signature_payload_is_parsed_strictly() {
    let signer = Signer::new();
    let good = payload("r.io/app:v1", &digest("1"));
    let image: Reference = "r.io/app:v1".parse().unwrap();
    let reason = |payload: &str| {
        let (keys, identity, digests) = ([signer.key()], Identity::default(), [digest("1")]);
        let requirement =
            SignatureRequirement { keys: &keys, identity: &identity, image: &image, digests: &digests };
        requirement.check(&Attached { signatures: vec![signer.sign(payload)], others: 0 }).err()
    };
    assert_eq!(reason(&good), None);
    assert_eq!(reason(&good.replace("null", r#"{"creator":"me","timestamp":1}"#)), None);
    for (from, to) in [
        ("{", "["),
        (r#","optional":null"#, ""),
        ("null", "1"),
        (r#""optional""#, r#""optionally""#),
        ("null", r#"null,"optional":null"#),
        (r#""critical":{"#, r#""critical":{"more":1,"#),
        (r#""critical":{"#, r#""critical":{"type":"cosign container image signature","#),
        ("docker-reference", "docker_reference"),
        ("docker-manifest-digest", "digest"),
        ("cosign container image signature", "atomic container signature"),
        ("null}", "null} x"),
    ] {
        let reason = reason(&good.replacen(from, to, 1)).unwrap();
        assert!(reason.starts_with("invalid signature payload: "), "{to}: {reason}");
    }
}

struct Folders(TempDir);

impl Folders {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn source(&self, file: Option<&str>) -> PolicySource {
        let folders = vec![self.path("own"), self.path("etc")];
        PolicySource::new(file.map(|file| self.path(file)), folders, false)
    }
}

fn policy_of(source: &PolicySource) -> Result<Option<bool>, String> {
    let image = "r.io/app:v1".parse().unwrap();
    let files = Files::read(source);
    let policy = files.policy()?;
    Ok(policy.map(|policy| policy.requirements(&image) == [Requirement::Reject]))
}

#[test]
fn first_existing_policy_file_wins() {
    const ACCEPT: &str = r#"{"default":[{"type":"insecureAcceptAnything"}]}"#;
    let folders = Folders::new();
    assert_eq!(policy_of(&folders.source(None)), Ok(None));
    assert_eq!(policy_of(&folders.source(Some("named.json"))), Ok(None));
    folders.write("etc/policy.json", REJECT);
    assert_eq!(policy_of(&folders.source(None)), Ok(Some(true)));
    folders.write("own/policy.json", ACCEPT);
    assert_eq!(policy_of(&folders.source(None)), Ok(Some(false)));
    folders.write("named.json", REJECT);
    assert_eq!(policy_of(&folders.source(Some("named.json"))), Ok(Some(true)));
    // A configured file replaces all others, even if it does not exist.
    assert_eq!(policy_of(&folders.source(Some("other.json"))), Ok(None));
}

#[test]
fn unreadable_or_malformed_policy_is_an_error() {
    let folders = Folders::new();
    folders.write("etc/policy.json", REJECT);
    let path = folders.path("own/policy.json").display().to_string();
    let refused = |problem: &str| {
        let error = policy_of(&folders.source(None)).unwrap_err();
        assert_eq!(error, format!("invalid policy in {path:?}: {problem}"));
    };
    folders.write("own/policy.json", "{}");
    refused("missing field `default` at line 1 column 2");
    folders.write("own/policy.json", &" ".repeat(2 << 20));
    refused("larger than 1048576 bytes");
    std::fs::remove_file(folders.path("own/policy.json")).unwrap();
    std::fs::create_dir(folders.path("own/policy.json")).unwrap();
    refused("not a regular file");
}

/// Root can read everything, so this test runs itself again as another user.
#[test]
fn unreadable_system_folder_is_an_error_but_one_in_home_is_skipped() {
    const FOLDERS: &str = "OLM_TEST_CLOSED_FOLDERS";
    if let Some(folders) = std::env::var_os(FOLDERS).map(PathBuf::from) {
        let source = |names: &[&str]| {
            PolicySource::new(None, names.iter().map(|name| folders.join(name)).collect(), false)
        };
        let (home, open, closed) = ("home/.config", "open", "closed");
        assert_eq!(policy_of(&source(&[home, open])), Ok(Some(true)));
        let error = policy_of(&source(&[home, closed, open])).unwrap_err();
        assert!(error.starts_with("invalid policy in ") && error.contains("Permission denied"), "{error}");
        let error = Files::read(&source(&[home, closed])).attachments().unwrap_err();
        assert!(error.contains("registries.d: Permission denied"), "{error}");
        return;
    }
    let folders = Folders::new();
    let open_to_all =
        |path: &Path, mode: u32| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open_to_all(folders.0.path(), 0o755);
    for (folder, mode) in [("home/.config", 0o700), ("closed", 0o700), ("open", 0o755)] {
        folders.write(&format!("{folder}/policy.json"), REJECT);
        open_to_all(&folders.path(folder), mode);
    }
    let program = folders.path("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let name = "policy::tests::unreadable_system_folder_is_an_error_but_one_in_home_is_skipped";
    let mut again = Command::new(program);
    again.args(["--exact", name]).env(FOLDERS, folders.0.path()).env("HOME", folders.path("home"));
    let output = again.env_remove("XDG_CONFIG_HOME").uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn key_and_registries_files_are_read_and_named_in_errors() {
    let folders = Folders::new();
    let key = folders.path("key.pub");
    folders.write(
        "etc/policy.json",
        &format!(r#"{{"default":[{{"type":"sigstoreSigned","keyPaths":[{key:?},"/absent/key"]}}]}}"#),
    );
    folders.write("key.pub", "key");
    folders.write("etc/registries.d/a.yaml", "default-docker: {use-sigstore-attachments: true}");
    folders.write("etc/registries.d/b.yaml", "docker: {r.io: {use-sigstore-attachments: true}}");
    folders.write("etc/registries.d/b.json", "no YAML: [");
    folders.write("own/registries.d/b.yaml", "docker: {r.io: {use-sigstore-attachments: false}}");
    let files = Files::read(&folders.source(None));
    assert_eq!(files.key(&key), Ok(&b"key"[..]));
    assert_eq!(files.key(Path::new("/absent/key")), Err("No such file or directory (os error 2)".to_owned()));
    let attachments = files.attachments().unwrap();
    assert!(attachments.enabled(&"s.io/app:v1".parse().unwrap()));
    assert!(!attachments.enabled(&"r.io/app:v1".parse().unwrap()));
    let loaded = |path: &Path| load(&files, &KeySource::Path(path.to_owned())).unwrap_err();
    assert_eq!(
        loaded(&key),
        format!("public key {}: expected a PEM block \"PUBLIC KEY\" and found none", key.display())
    );
    assert_eq!(
        loaded(Path::new("/absent/key")),
        "public key /absent/key: No such file or directory (os error 2)"
    );

    folders.write("own/registries.d/c.yaml", "[");
    let error = Files::read(&folders.source(None)).attachments().unwrap_err();
    let expected = format!("parsing {}: ", folders.path("own/registries.d/c.yaml").display());
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn fingerprint_changes_with_every_relevant_file() {
    let folders = Folders::new();
    let source = folders.source(None);
    let mut seen = vec![source.fingerprint()];
    let mut changed = |what: &str| {
        let now = source.fingerprint();
        assert_eq!(now, source.fingerprint(), "{what}");
        assert!(!seen.contains(&now), "{what}");
        seen.push(now);
    };
    let key = folders.path("key.pub");
    folders.write(
        "etc/policy.json",
        &format!(r#"{{"default":[{{"type":"sigstoreSigned","keyPath":{key:?}}}]}}"#),
    );
    changed("new policy");
    folders.write("key.pub", "key");
    changed("new key");
    folders.write("key.pub", "kez");
    changed("changed key");
    folders.write("own/registries.d/a.yaml", "docker: {}");
    changed("new registries.d file");
    folders.write("own/policy.json", REJECT);
    changed("policy of higher precedence");
    folders.write("own/policy.json", "{");
    changed("malformed policy");
    folders.write("key.pub", "a key that is not used any more");
    assert_eq!(Some(&source.fingerprint()), seen.last());
}

#[test]
fn environment_variable_replaces_policy_folders() {
    let paths = || RegistryPaths { containers: vec!["/a".into(), "/b".into()], ..RegistryPaths::default() };
    let candidates = |file: Option<&str>| {
        let source = PolicySource::of(file.map(Into::into), paths(), false);
        source.candidates().collect::<Vec<_>>()
    };
    let in_folders = ["/a/policy.json", "/b/policy.json"].map(PathBuf::from);
    assert_eq!(candidates(None), in_folders);
    assert_eq!(candidates(Some("")), in_folders);
    assert_eq!(candidates(Some("/c.json")), [PathBuf::from("/c.json")]);
}

#[test]
fn verification_is_specific_to_policy_name_and_digest() {
    let folder = TempDir::new().unwrap();
    let source = PolicySource::new(None, vec![folder.path().to_owned()], false);
    let of = |reference: &str, digit: &str| {
        let image = CanonicalRef { reference: reference.parse().unwrap(), digest: digest(digit) };
        (source.verification(&image).ok().unwrap(), image)
    };
    let (none, image) = of("r.io/app:v1", "1");
    assert!(!none.is_signed());
    assert_eq!(none.image(), Some(image));
    let write = |policy: &str| std::fs::write(folder.path().join("policy.json"), policy).unwrap();
    write(r#"{"default":[{"type":"sigstoreSigned","keyPath":"/key"}]}"#);
    let (signed, _) = of("r.io/app:v1", "1");
    assert!(signed.is_signed());
    assert!(!signed.is_of_same_policy(&none));
    assert_eq!(of("r.io/app:v1", "1").0, signed);
    for (reference, digit) in [("r.io/app:v2", "1"), ("r.io/copy:v1", "1"), ("r.io/app:v1", "2")] {
        let (other, _) = of(reference, digit);
        assert_ne!(other, signed, "{reference} {digit}");
        assert!(other.is_of_same_policy(&signed));
    }
    write(REJECT);
    let image = CanonicalRef { reference: "r.io/app:v1".parse().unwrap(), digest: digest("1") };
    assert!(source.verification(&image).is_err_and(|error| error.is_rejected()));
}
