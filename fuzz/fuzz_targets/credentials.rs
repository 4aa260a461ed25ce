//! Fuzzes credentials files: any bytes yield logins or an error, and neither shows a secret.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_oci::Credentials;

fuzz_target!(|input: &[u8]| match Credentials::parse(input) {
    Ok(credentials) => {
        for (host, path) in [("r.example.com:5000", "a/b/c"), ("docker.io", "library/a"), ("localhost", "a")]
        {
            if let Ok(Some(login)) = credentials.lookup(host, path) {
                let secret = &login.password;
                assert!(
                    secret.len() < 8
                        || login.username.contains(secret)
                        || !format!("{login:?}").contains(secret)
                );
            }
        }
    }
    Err(error) => assert!(!error.to_string().is_empty()),
});
