//! Writes every CRD to `DIR/<name of the CRD>.yaml`, and `DIR/kustomization.yaml` with all of them. `hack/generate` runs
//! it for `manifests/crds`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

const HEADER: &str = "# Generated from the types in api/ by hack/generate. Do not edit.\n";

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: generate-crds DIRECTORY")?);
    fs::create_dir_all(&directory)?;
    let mut kustomization =
        format!("{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n");
    for crd in olm_api::crds::crds() {
        let file = format!("{}.yaml", crd["metadata"]["name"].as_str().ok_or("a CRD has no name")?);
        fs::write(directory.join(&file), format!("{HEADER}{}", serde_saphyr::to_string(&crd)?))?;
        kustomization += &format!("  - {file}\n");
    }
    fs::write(directory.join("kustomization.yaml"), kustomization)?;
    Ok(())
}
