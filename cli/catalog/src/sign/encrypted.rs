//! Private keys encrypted by a password, in the format of cosign: scrypt derives the key of a NaCl secretbox
//! (XSalsa20 and Poly1305). Pure, except for random numbers.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit;
use salsa20::XSalsa20;
use salsa20::cipher::{KeyIvInit, StreamCipher};
use scrypt::Params;
use serde::{Deserialize, Serialize};

/// PEM labels: the present one first, then that of older versions of cosign.
const LABELS: [&str; 2] = ["ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY"];
const KDF: &str = "scrypt";
const CIPHER: &str = "nacl/secretbox";
/// Logarithm of the cost of new keys, as of cosign.
const LOG_COST: u8 = 16;
/// Largest accepted cost: 256 MiB with 8 blocks.
const MAX_LOG_COST: u32 = 18;
/// Length of the authentication tag before the ciphertext.
const TAG: usize = 16;

#[derive(Serialize, Deserialize)]
struct Envelope {
    kdf: Derivation,
    cipher: Encryption,
    ciphertext: String,
}

#[derive(Serialize, Deserialize)]
struct Derivation {
    name: String,
    params: Cost,
    salt: String,
}

#[derive(Serialize, Deserialize)]
struct Cost {
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
}

#[derive(Serialize, Deserialize)]
struct Encryption {
    name: String,
    nonce: String,
}

/// Content of the PEM block of an encrypted key in `text`, if there is one.
pub(super) fn block(text: &str) -> Option<&str> {
    LABELS.iter().find_map(|label| {
        let (_, after) = text.split_once(&format!("-----BEGIN {label}-----"))?;
        Some(after.split_once(&format!("-----END {label}-----"))?.0)
    })
}

/// Decrypts the content of a PEM block.
///
/// # Errors
/// The format is unknown, or the password is wrong.
pub(super) fn open(block: &str, password: &[u8]) -> Result<Vec<u8>, String> {
    let decode = |text: &str| BASE64_STANDARD.decode(text).ok();
    let text: String = block.split_whitespace().collect();
    let envelope: Option<Envelope> = decode(&text).and_then(|json| serde_json::from_slice(&json).ok());
    let malformed = || "the encrypted key is malformed".to_owned();
    let Envelope { kdf, cipher, ciphertext } = envelope.ok_or_else(malformed)?;
    if (kdf.name.as_str(), cipher.name.as_str()) != (KDF, CIPHER) {
        let error = format!("the key is encrypted with {:?} and {:?}", kdf.name, cipher.name);
        return Err(format!("{error}; only {KDF} with {CIPHER} is supported"));
    }
    let salt = decode(&kdf.salt).ok_or_else(malformed)?;
    let nonce: [u8; 24] =
        decode(&cipher.nonce).and_then(|nonce| nonce.try_into().ok()).ok_or_else(malformed)?;
    let mut sealed = decode(&ciphertext).filter(|text| text.len() >= TAG).ok_or_else(malformed)?;
    let secret = derive(password, &salt, &kdf.params).ok_or_else(malformed)?;
    let (mut stream, tag_key) = stream(&secret, &nonce);
    let mut content = sealed.split_off(TAG);
    let tag = Poly1305::new(&tag_key.into()).compute_unpadded(&content);
    verify_slices_are_equal(&tag, &sealed).map_err(|_| "wrong password".to_owned())?;
    stream.apply_keystream(&mut content);
    Ok(content)
}

/// Encrypts `content`, and returns a PEM block.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn seal(mut content: Vec<u8>, password: &[u8]) -> Result<String, String> {
    let (mut salt, mut nonce) = ([0; 32], [0; 24]);
    for bytes in [&mut salt[..], &mut nonce[..]] {
        aws_lc_rs::rand::fill(bytes).map_err(|_| "the system has no random numbers".to_owned())?;
    }
    let params = Cost { n: 1 << LOG_COST, r: 8, p: 1 };
    let secret = derive(password, &salt, &params).ok_or("the key cannot be derived")?;
    let (mut stream, tag_key) = stream(&secret, &nonce);
    stream.apply_keystream(&mut content);
    let mut sealed = Poly1305::new(&tag_key.into()).compute_unpadded(&content).to_vec();
    sealed.append(&mut content);
    let envelope = Envelope {
        kdf: Derivation { name: KDF.to_owned(), params, salt: BASE64_STANDARD.encode(salt) },
        cipher: Encryption { name: CIPHER.to_owned(), nonce: BASE64_STANDARD.encode(nonce) },
        ciphertext: BASE64_STANDARD.encode(sealed),
    };
    let json = serde_json::to_vec(&envelope).map_err(|error| error.to_string())?;
    let text = BASE64_STANDARD.encode(json);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    let label = LABELS[0];
    Ok(format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n")))
}

/// Key of the secretbox. `None` if the cost is invalid or too high.
fn derive(password: &[u8], salt: &[u8], cost: &Cost) -> Option<[u8; 32]> {
    let log = cost.n.is_power_of_two().then(|| cost.n.trailing_zeros())?;
    if log > MAX_LOG_COST || cost.r > 16 || cost.p > 8 {
        return None;
    }
    let params = Params::new(u8::try_from(log).ok()?, cost.r, cost.p).ok()?;
    let mut key = [0; 32];
    scrypt::scrypt(password, salt, &params, &mut key).ok()?;
    Some(key)
}

/// Key stream of a secretbox for its content. Its first bytes, which are returned, are the key of the tag.
fn stream(key: &[u8; 32], nonce: &[u8; 24]) -> (XSalsa20, [u8; 32]) {
    let mut stream = XSalsa20::new(key.into(), nonce.into());
    let mut tag_key = [0; 32];
    stream.apply_keystream(&mut tag_key);
    (stream, tag_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_content_opens_only_with_its_password() {
        let pem = seal(b"content".to_vec(), b"s3cret").unwrap();
        let inner = block(&pem).unwrap();
        assert_eq!(open(inner, b"s3cret").unwrap(), b"content");
        assert_eq!(open(inner, b"other").unwrap_err(), "wrong password");
        assert_eq!(block("-----BEGIN PRIVATE KEY-----"), None);
        assert!(block(&pem.replace("SIGSTORE", "COSIGN")).is_some());
    }

    #[test]
    fn malformed_envelope_is_refused() {
        let envelope = |name: &str, n: u64, nonce: usize, text: &str| {
            let json = serde_json::json!({
                "kdf": { "name": name, "params": { "N": n, "r": 8, "p": 1 }, "salt": "AA==" },
                "cipher": { "name": CIPHER, "nonce": BASE64_STANDARD.encode(vec![0; nonce]) },
                "ciphertext": text,
            });
            BASE64_STANDARD.encode(json.to_string())
        };
        let long = BASE64_STANDARD.encode([0; 20]);
        for (block, expected) in [
            ("%".to_owned(), "the encrypted key is malformed"),
            (BASE64_STANDARD.encode("{}"), "the encrypted key is malformed"),
            (
                envelope("argon2", 2, 24, &long),
                "the key is encrypted with \"argon2\" and \"nacl/secretbox\"; only scrypt with nacl/secretbox is supported",
            ),
            (envelope(KDF, 3, 24, &long), "the encrypted key is malformed"),
            (envelope(KDF, 1 << 40, 24, &long), "the encrypted key is malformed"),
            (envelope(KDF, 2, 23, &long), "the encrypted key is malformed"),
            (envelope(KDF, 2, 24, "AAAA"), "the encrypted key is malformed"),
            (envelope(KDF, 2, 24, &long), "wrong password"),
        ] {
            assert_eq!(open(&block, b"").unwrap_err(), expected);
        }
    }
}
