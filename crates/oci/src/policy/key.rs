//! Public keys for signature verification.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA256_ASN1,
    ECDSA_P521_SHA512_ASN1, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, VerificationAlgorithm,
};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;

/// Reason of the verifiers in Go against a signature of an ECDSA key.
const ECDSA: &str = "invalid signature when validating ASN.1 encoded signature";

/// Algorithms that signers use with each type of key: SHA-256, or the hash with the length of the curve. With the reason
/// of the verifiers in Go against another signature.
static ALGORITHMS: [(&dyn VerificationAlgorithm, &str); 7] = [
    (&ECDSA_P256_SHA256_ASN1, ECDSA),
    (&ECDSA_P384_SHA256_ASN1, ECDSA),
    (&ECDSA_P384_SHA384_ASN1, ECDSA),
    (&ECDSA_P521_SHA256_ASN1, ECDSA),
    (&ECDSA_P521_SHA512_ASN1, ECDSA),
    (&RSA_PKCS1_2048_8192_SHA256, "crypto/rsa: verification error"),
    (&ED25519, "failed to verify signature"),
];

/// Public key with every algorithm that fits it.
#[derive(Debug)]
pub(super) struct Key {
    usable: Vec<ParsedPublicKey>,
    reason: &'static str,
}

impl Key {
    /// Parses the first PEM block `PUBLIC KEY` of a text.
    ///
    /// # Errors
    /// There is no such block, or its key is of an unknown type.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, &'static str> {
        let key = SubjectPublicKeyInfoDer::from_pem_slice(pem)
            .map_err(|_| "expected a PEM block \"PUBLIC KEY\" and found none")?;
        let fitting = ALGORITHMS.iter().filter_map(|(algorithm, reason)| {
            Some((ParsedPublicKey::new(*algorithm, key.as_ref()).ok()?, *reason))
        });
        let (usable, reasons): (Vec<_>, Vec<_>) = fitting.unzip();
        match reasons.first() {
            Some(reason) => Ok(Self { usable, reason }),
            None => Err("expected an ECDSA key (P-256, P-384, P-521), an RSA key or an Ed25519 key"),
        }
    }

    /// `true` if this key signed `message`.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.usable.iter().any(|key| key.verify_sig(message, signature).is_ok())
    }

    /// Reason against a signature that this key does not verify.
    pub(super) fn reason(&self) -> &'static str {
        self.reason
    }
}

#[cfg(test)]
pub(super) mod tests {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
        EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
    };
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    pub(crate) fn pem(der: &[u8]) -> String {
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64_STANDARD.encode(der))
    }

    fn public<K: KeyPair>(pair: &K) -> String
    where
        K::PublicKey: AsDer<aws_lc_rs::encoding::PublicKeyX509Der<'static>>,
    {
        pem(pair.public_key().as_der().unwrap().as_ref())
    }

    #[test]
    fn key_verifies_only_its_own_signatures() {
        let random = SystemRandom::new();
        let mut signed = Vec::new();
        for algorithm in [
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            &ECDSA_P384_SHA384_ASN1_SIGNING,
            &ECDSA_P521_SHA512_ASN1_SIGNING,
        ] {
            let pair = EcdsaKeyPair::generate(algorithm).unwrap();
            signed.push((public(&pair), pair.sign(&random, b"message").unwrap().as_ref().to_vec()));
        }
        let pair = Ed25519KeyPair::generate().unwrap();
        signed.push((public(&pair), pair.sign(b"message").as_ref().to_vec()));
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &random, b"message", &mut signature).unwrap();
        signed.push((public(&pair), signature.clone()));
        for (pem, signature) in &signed {
            let key = Key::parse(pem.as_bytes()).unwrap();
            assert!(key.verifies(b"message", signature));
            assert!(!key.verifies(b"massage", signature));
            assert!(!key.verifies(b"message", b""));
            for (other, _) in signed.iter().filter(|(other, _)| other != pem) {
                assert!(!Key::parse(other.as_bytes()).unwrap().verifies(b"message", signature));
            }
        }
        pair.sign(&RSA_PSS_SHA256, &random, b"message", &mut signature).unwrap();
        assert!(!Key::parse(public(&pair).as_bytes()).unwrap().verifies(b"message", &signature));
    }

    /// Signature of the `openssl` program, in skopeo's combination: SHA-256 with a P-384 key.
    #[test]
    fn p384_key_verifies_sha256_signature() {
        let Some(openssl) = olm_require::program("openssl", "openssl") else { return };
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        let openssl = |arguments: &[&str]| {
            let ran =
                std::process::Command::new(&openssl).current_dir(folder.path()).args(arguments).output();
            let output = ran.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        std::fs::write(path("message"), "message").unwrap();
        openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384", "-out", "key"]);
        openssl(&["pkey", "-in", "key", "-pubout", "-out", "public"]);
        openssl(&["dgst", "-sha256", "-sign", "key", "-out", "signature", "message"]);
        let key = Key::parse(&std::fs::read(path("public")).unwrap()).unwrap();
        assert!(key.verifies(b"message", &std::fs::read(path("signature")).unwrap()));
    }

    #[test]
    fn invalid_key_is_an_error() {
        for (text, expected) in [
            ("", "expected a PEM block \"PUBLIC KEY\" and found none"),
            ("ssh-ed25519 AAAA", "expected a PEM block \"PUBLIC KEY\" and found none"),
            (&pem(b"key"), "expected an ECDSA key (P-256, P-384, P-521), an RSA key or an Ed25519 key"),
        ] {
            assert_eq!(Key::parse(text.as_bytes()).unwrap_err(), expected);
        }
    }
}
