//! Serving pair in the memory of a process that may neither read nor write Secrets.

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::certificate::{CertificateError, PemPair};
use crate::issue::{Validity, new_ca, new_leaf};

/// Serving pair that no client can verify. Replaced when its certificate is due for renewal.
#[derive(Debug)]
pub struct EphemeralPair {
    names: Vec<String>,
    made: Mutex<Option<PemPair>>,
}

impl EphemeralPair {
    /// Pair for these DNS names and IP addresses. It is made when it is needed.
    pub fn new(names: Vec<String>) -> Self {
        Self { names, made: Mutex::default() }
    }

    /// Pair while there are no files. `before`, if it is from files, is kept until it expires: they may only be missing
    /// while their Secret is issued again.
    pub(crate) fn after(
        &self,
        before: Option<&PemPair>,
        now: Timestamp,
    ) -> Result<PemPair, CertificateError> {
        let mut made = self.made.lock();
        let is_valid =
            |pair: &PemPair| Validity::of(&pair.certificate).is_some_and(|validity| validity.contains(now));
        if let Some(pair) = before.filter(|pair| made.as_ref() != Some(*pair) && is_valid(pair)) {
            return Ok(pair.clone());
        }
        let is_fresh =
            |pair: &&PemPair| Validity::of(&pair.certificate).is_some_and(|validity| now < validity.due());
        if let Some(pair) = made.as_ref().filter(is_fresh) {
            return Ok(pair.clone());
        }
        // The key of the CA is dropped: nothing else must have a certificate of it.
        let ca = new_ca("ephemeral-ca", now)?;
        let pair = new_leaf(&ca, "ephemeral-ca", &self.names, now)?;
        *made = Some(pair.clone());
        Ok(pair)
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;

    #[test]
    fn pair_is_kept_until_its_renewal_is_due() {
        let now: Timestamp = "2026-01-10T12:00:00Z".parse().unwrap();
        let pair = EphemeralPair::new(vec!["console.example".to_owned(), "::1".to_owned()]);
        let first = pair.after(None, now).unwrap();
        assert!(pair.after(Some(&first), now + (24 * 58).hours()).unwrap() == first);
        let due = now + (24 * 60).hours();
        let second = pair.after(Some(&first), due).unwrap();
        assert!(second != first && Validity::of(&second.certificate).unwrap().contains(due));
    }

    #[test]
    fn pair_of_files_is_kept_until_it_expires() {
        let now: Timestamp = "2026-01-10T12:00:00Z".parse().unwrap();
        let names = ["console.example".to_owned()];
        let of_files = new_leaf(&new_ca("test", now).unwrap(), "test", &names, now).unwrap();
        let ephemeral = EphemeralPair::new(names.to_vec());
        let until = Validity::of(&of_files.certificate).unwrap().until;
        assert!(ephemeral.after(Some(&of_files), until).unwrap() == of_files);
        assert!(ephemeral.after(Some(&of_files), until + 1.second()).unwrap() != of_files);
    }
}
