//! tokio for test programs whose fixtures call [`olm_require::skip`]. The root of the program contains
//! `extern crate olm_tokio as tokio`: `#[tokio::test]` then runs its test in [`olm_require::skippable`].

pub use tokio::*;

/// `tokio::runtime` with the items that `#[tokio::test]` uses in place of tokio's.
pub mod runtime {
    use std::io;

    use olm_require::{Outcome, skippable};
    pub use tokio::runtime::*;

    /// Builder of a [`TestRuntime`].
    pub struct Builder(tokio::runtime::Builder);

    impl Builder {
        /// See [`tokio::runtime::Builder::new_current_thread`].
        #[must_use]
        pub fn new_current_thread() -> Self {
            Self(tokio::runtime::Builder::new_current_thread())
        }

        /// See [`tokio::runtime::Builder::new_multi_thread`].
        #[must_use]
        pub fn new_multi_thread() -> Self {
            Self(tokio::runtime::Builder::new_multi_thread())
        }

        /// See [`tokio::runtime::Builder::worker_threads`].
        pub fn worker_threads(&mut self, number: usize) -> &mut Self {
            self.0.worker_threads(number);
            self
        }

        /// See [`tokio::runtime::Builder::enable_all`].
        pub fn enable_all(&mut self) -> &mut Self {
            self.0.enable_all();
            self
        }

        /// See [`tokio::runtime::Builder::build`].
        ///
        /// # Errors
        /// Those of tokio.
        pub fn build(&mut self) -> io::Result<TestRuntime> {
            self.0.build().map(TestRuntime)
        }
    }

    /// Runtime of one test.
    pub struct TestRuntime(Runtime);

    impl TestRuntime {
        /// Runs the test until its end, or until it is skipped.
        pub fn block_on<F: Future<Output: Outcome>>(&self, test: F) -> F::Output {
            skippable(|| self.0.block_on(test))
        }
    }
}
