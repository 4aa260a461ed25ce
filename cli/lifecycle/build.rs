//! Compresses install files for `olm system install`: those of the folder `OLM_BUILD_MANIFESTS`, which name the images of
//! a release, or those of the checkout.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=OLM_BUILD_MANIFESTS");
    let checkout = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../manifests");
    let folder = std::env::var_os("OLM_BUILD_MANIFESTS").map_or_else(checkout, PathBuf::from);
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    for variant in ["install", "hardened", "install-cert-manager", "experimental"] {
        let file = folder.join(format!("{variant}.yaml"));
        println!("cargo::rerun-if-changed={}", file.display());
        let text = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&text)?;
        fs::write(out.join(format!("{variant}.yaml.gz")), packed.finish()?)?;
    }
    Ok(())
}
