//! Requirements of tests beyond the Rust toolchain.
//!
//! A test that misses a requirement prints a line `SKIPPED NAME: REASON` and passes, unless `OLM_REQUIRE` lists the
//! requirement: then it fails. `hack/test unit` prints these lines at its end.
//!
//! ```
//! # fn field_catalog_is_valid() {
//! let Some(data) = olm_require::field_data() else { return };
//! # drop(data);
//! # }
//! ```
//!
//! Code that a test calls, such as a fixture, calls [`skip`], which ends the test if it runs in [`skippable`]. The crate
//! `olm-tokio` does this for each `#[tokio::test]`.

// It makes tests fail.
#![allow(clippy::panic)]

use std::any::Any;
use std::cell::Cell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;

/// Environment variable with the names of requirements, separated by commas.
const REQUIRED: &str = "OLM_REQUIRE";

/// Requirement of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// chromedriver with a browser, and npm.
    Browser,
    /// Cluster for end-to-end tests with several nodes, or one that may be disturbed.
    Cluster,
    /// etcd, kube-apiserver and kubectl.
    ControlPlane,
    /// kube-controller-manager and kube-scheduler.
    Controllers,
    /// Real catalogs and bundles.
    Field,
    /// Rights of root.
    Root,
    /// Another program or library of the system.
    Tools,
}

impl Need {
    const ALL: [Self; 7] = [
        Self::Browser,
        Self::Cluster,
        Self::ControlPlane,
        Self::Controllers,
        Self::Field,
        Self::Root,
        Self::Tools,
    ];

    /// Name in `OLM_REQUIRE`.
    fn name(self) -> &'static str {
        match self {
            Self::Browser => "browser",
            Self::Cluster => "cluster",
            Self::ControlPlane => "control-plane",
            Self::Controllers => "controllers",
            Self::Field => "field",
            Self::Root => "root",
            Self::Tools => "tools",
        }
    }

    /// `true` if `required`, the value of `OLM_REQUIRE`, has its name. An unknown name is an error.
    fn is_in(self, required: &str) -> Result<bool, String> {
        let mut found = false;
        for name in required.split(',').filter(|name| !name.is_empty()) {
            let known = Self::ALL.into_iter().find(|need| need.name() == name);
            let all = || Self::ALL.map(Self::name).join(",");
            found |= self == known.ok_or_else(|| format!("{REQUIRED}: {name} is not one of {}", all()))?;
        }
        Ok(found)
    }
}

/// Payload of the unwinding that ends a skipped test.
struct Skipped;

thread_local! {
    static IS_SKIPPABLE: Cell<bool> = const { Cell::new(false) };
}

/// Result of a test.
pub trait Outcome {
    /// Result of a test without a failure.
    fn passed() -> Self;
}

impl Outcome for () {
    fn passed() -> Self {}
}

impl<E> Outcome for Result<(), E> {
    fn passed() -> Self {
        Ok(())
    }
}

/// Runs a test that ends when it calls [`skip`] on this thread.
pub fn skippable<T: Outcome>(test: impl FnOnce() -> T) -> T {
    let before = IS_SKIPPABLE.replace(true);
    let result = catch_unwind(AssertUnwindSafe(test));
    IS_SKIPPABLE.set(before);
    result.unwrap_or_else(|payload: Box<dyn Any + Send>| match payload.is::<Skipped>() {
        true => T::passed(),
        false => resume_unwind(payload),
    })
}

/// Reports that the test of this thread is skipped. `reason` says what is missing, and how to get it. The caller ends
/// the test.
///
/// # Panics
/// `OLM_REQUIRE` lists the requirement, or an unknown one.
pub fn report(need: Need, reason: &str) {
    match need.is_in(&std::env::var(REQUIRED).unwrap_or_default()) {
        Ok(false) => {}
        Ok(true) => panic!("{REQUIRED} lists {}: {reason}", need.name()),
        Err(error) => panic!("{error}"),
    }
    let thread = std::thread::current();
    // The test runner captures what print! writes. It prints the name of the test before, if it runs no other.
    let line = format!("SKIPPED {}: {reason}\n", thread.name().unwrap_or("?"));
    let _ = std::io::stdout().write_all(line.as_bytes());
}

/// Reports like [`report`] and ends the test. Returns only outside of [`skippable`], without a report: the caller fails
/// with an error then.
///
/// # Panics
/// Like [`report`].
pub fn skip(need: Need, reason: &str) {
    if IS_SKIPPABLE.get() {
        report(need, reason);
        end();
    }
}

/// Ends a test in [`skippable`], without the message of a panic.
pub fn end() -> ! {
    resume_unwind(Box::new(Skipped))
}

/// Folder of real catalogs and bundles. `None` if the test is skipped.
///
/// # Panics
/// Like [`report`].
pub fn field_data() -> Option<PathBuf> {
    let found = std::env::var_os("OLM_FIELD_DATA").filter(|path| !path.is_empty()).map(PathBuf::from);
    if found.is_none() {
        report(Need::Field, "OLM_FIELD_DATA, the folder of real catalogs and bundles, is not set");
    }
    found
}

/// Path of a program in `PATH`. `None` if the test is skipped. `package` is that of Debian.
///
/// # Panics
/// Like [`report`].
pub fn program(name: &str, package: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        report(Need::Tools, &format!("there is no {name}: install the Debian package {package}"));
    }
    found
}

/// Path of a program in `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirement_is_read_from_list_of_names() {
        for (required, need, expected) in [
            ("", Need::Browser, Ok(false)),
            ("browser", Need::Browser, Ok(true)),
            ("field,control-plane", Need::ControlPlane, Ok(true)),
            ("field,control-plane", Need::Controllers, Ok(false)),
            (
                "field,brwser",
                Need::Field,
                Err("OLM_REQUIRE: brwser is not one of browser,cluster,control-plane,controllers,field,root,tools"
                    .to_owned()),
            ),
        ] {
            assert_eq!(need.is_in(required), expected, "{required}");
        }
    }

    #[test]
    fn skip_ends_test_and_failure_passes_through() {
        skippable(|| -> () {
            assert!(IS_SKIPPABLE.get());
            end();
        });
        assert!(!IS_SKIPPABLE.get());
        assert!(skippable(|| -> Result<(), String> { Err("failed".to_owned()) }).is_err());
        let failed = catch_unwind(|| skippable(|| -> () { resume_unwind(Box::new("failed")) }));
        assert_eq!(failed.unwrap_err().downcast_ref(), Some(&"failed"));
        // Outside, the caller fails with an error.
        skip(Need::Tools, "this line is not printed");
    }

    #[test]
    fn program_is_found_in_path() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program"), None);
    }
}
