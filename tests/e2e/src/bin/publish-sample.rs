//! Pushes three versions of the sample operator's bundle and a catalog with two channels of them, for `hack/demo`.
//!
//! Needs the environment of `hack/cluster env` and `OLM_SAMPLE_IMAGE`. Prints the catalog's image reference.

use anyhow::Result;
use olm_image::Image;
use sample_operator::content::Sample;
use serde_json::json;
use std::collections::BTreeMap;

const VERSIONS: [&str; 3] = ["1.0.0", "1.1.0", "2.0.0"];

#[tokio::main]
async fn main() -> Result<()> {
    let cluster = olm_e2e::Cluster::connect().await?;
    let sample = Sample::serving("greeter", &cluster.operator_image);
    let mut bundles = Vec::new();
    for version in VERSIONS {
        let image = Image::bundle(&sample.bundle(version))?;
        bundles.push((version, cluster.push("demo/greeter-bundle", &format!("v{version}"), &image).await?));
    }
    let name = |version: &str| sample.bundle_name(version);
    let first = json!({"name": name("1.0.0")});
    let second = json!({"name": name("1.1.0"), "replaces": name("1.0.0")});
    let third = json!({"name": name("2.0.0"), "replaces": name("1.1.0"), "skipRange": ">=1.0.0 <2.0.0"});
    let channels = [("stable", vec![first.clone(), second.clone()]), ("fast", vec![first, second, third])];
    let text = sample.catalog(&channels, &bundles);
    let image = Image::catalog(&BTreeMap::from([("greeter/catalog.json".to_owned(), text.into_bytes())]))?;
    cluster.push("demo/catalog", "latest", &image).await?;
    println!("{}/demo/catalog:latest", cluster.registry);
    Ok(())
}
