//! Files of layers in memory.

use std::collections::BTreeMap;

use bytes::Bytes;
use olm_oci::{ImageLimits, unpack_layers};

fn layer(files: &[(&str, &str)]) -> Bytes {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().into()
}

#[tokio::test]
async fn layers_in_memory_are_applied_in_order_within_limits() {
    let layers = vec![
        layer(&[("manifests/a.yaml", "old"), ("bin/program", "elf"), ("tests/a", "t")]),
        layer(&[("manifests/a.yaml", "new"), ("tests/.wh.a", "")]),
    ];
    let files = unpack_layers(layers.clone(), &["manifests", "tests"], ImageLimits::BUNDLE).await.unwrap();
    assert_eq!(files, BTreeMap::from([("manifests/a.yaml".to_owned(), b"new".to_vec())]));
    let small = ImageLimits { file_bytes: 2, ..ImageLimits::BUNDLE };
    let error = unpack_layers(layers, &["manifests"], small).await.unwrap_err();
    assert!(error.is_of_the_content() && error.to_string().contains("file-bytes"), "{error}");
}
