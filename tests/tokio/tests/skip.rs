//! A fixture ends a `#[tokio::test]`.

extern crate olm_tokio as tokio;

#[tokio::test]
async fn missing_requirement_ends_test() {
    olm_require::end();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_requirement_ends_test_with_result() -> std::io::Result<()> {
    olm_require::end();
}

#[tokio::test]
#[should_panic(expected = "failed")]
async fn failure_is_not_skipped() {
    panic!("failed");
}
