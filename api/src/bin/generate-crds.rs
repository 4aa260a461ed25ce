//! Writes every CRD to `DIR/<name of the CRD>.yaml`. `hack/generate` runs it for `manifests/crds`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

const HEADER: &str = "# Generated from the types in api/ by hack/generate. Do not edit.\n";

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: generate-crds DIRECTORY")?);
    fs::create_dir_all(&directory)?;
    for crd in olm_api::crds::crds() {
        let name = crd["metadata"]["name"].as_str().ok_or("a CRD has no name")?;
        fs::write(
            directory.join(format!("{name}.yaml")),
            format!("{HEADER}{}", serde_saphyr::to_string(&crd)?),
        )?;
    }
    Ok(())
}
