//! Sets the size of the program's stack on Windows.

fn main() {
    // As large as elsewhere: the futures of some commands exceed the 1 MiB that the main thread has on Windows.
    if std::env::var_os("CARGO_CFG_WINDOWS").is_some() {
        println!("cargo::rustc-link-arg-bins=-Wl,--stack,8388608");
    }
}
