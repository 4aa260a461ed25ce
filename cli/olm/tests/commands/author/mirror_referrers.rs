//! `olm catalog mirror` with signatures and referrers of images.

use olm_image::Image;
use olm_image::registry::Fault;
use olm_image::signing::{Signer, signatures};
use serde_json::Value;

use super::mirror::{INDEX, Source, image, index, sent};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signatures_and_referrers_that_only_the_target_has_are_kept() {
    let source = Source::new().await;
    let registry = &source.fixture.registry;
    let tag = source.operand.replace(':', "-");
    let signature = |digest: &str| {
        let signed = Signer::new().unwrap().sign("r.example/operand", digest).unwrap();
        signatures(&[signed])
    };
    let sig = format!("{tag}.sig");
    let [upstream, company] = [(); 2].map(|()| signature(&source.operand));
    registry.add_image("team/operand", &sig, &upstream);
    let sbom = image("sbom");
    let list = |image: &Image| index(&[(&image.digest(), image.manifest.len())]);
    source
        .fixture
        .works(&format!("mirror {}/team/lamp-catalog:v1 --to-dir layout --ca-dir cas", source.host()))
        .await;
    for (name, from) in
        [("one", format!("{}/team/lamp-catalog:v1", source.host())), ("two", "layout".to_owned())]
    {
        let target = source.target(name).await;
        target.add_image("m/team/operand", &sbom.digest(), &sbom);
        target.add_manifest("m/team/operand", &tag, INDEX, list(&sbom));
        target.add_image("m/team/operand", &sig, &company);
        let line = format!("mirror {from} --to {}/m --output-dir {name} --ca-dir cas", target.host());
        source.fixture.works(&line).await;
        let listed = |tag: &str, list: &str, field: &str| {
            let manifest: Value =
                serde_json::from_slice(&target.manifest("m/team/operand", tag).unwrap()).unwrap();
            let all = manifest[list].as_array().unwrap().clone();
            all.into_iter().map(|mut entry| entry[field].take()).collect::<Vec<_>>()
        };
        let annotations = |image: &Image| {
            let manifest: Value = serde_json::from_slice(&image.manifest).unwrap();
            manifest["layers"][0]["annotations"].clone()
        };
        assert_eq!(listed(&sig, "layers", "annotations"), [annotations(&company), annotations(&upstream)]);
        assert_eq!(listed(&tag, "manifests", "digest"), [sbom.digest(), image("attestation").digest()]);
        let _ = sent(&target);
        source.fixture.works(&line).await;
        assert_eq!(sent(&target), Vec::<String>::new());

        target.add_manifest("m/team/operand", &sig, INDEX, list(&sbom));
        let ran = source.fixture.olm(&line).await;
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.contains(&format!("tag {sig}: expected an OCI image manifest")), "{}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_list_of_referrers_fails_the_image() {
    let source = Source::new().await;
    let registry = &source.fixture.registry;
    let request = format!("/team/operand/referrers/{}", source.operand);
    let sbom = image("sbom");
    let digest = registry.add_image("team/operand", &sbom.digest(), &sbom);
    registry.add_image("team/operand", &format!("{}.sig", digest.replace(':', "-")), &image("of the sbom"));
    let list = String::from_utf8(index(&[(&digest, sbom.manifest.len())]).to_vec()).unwrap();
    let page = |header: &'static str, value: &str| {
        let kind = ("content-type", format!("{INDEX}; charset=utf-8"));
        Fault::Status(200, vec![kind, (header, value.to_owned())], list.clone())
    };
    let status = |status| Fault::Status(status, Vec::new(), String::new());
    for (number, fault, expected) in [
        (1, status(403), Err("reading referrers: denied")),
        (
            2,
            page("link", "<https://other.example/>; rel=\"next\""),
            Err("at another server, other.example:443"),
        ),
        (3, status(405), Ok(false)),
        (4, page("x", ""), Ok(true)),
    ] {
        registry.clear_faults();
        registry.add_fault(&request, usize::MAX, fault);
        let target = source.target(&number.to_string()).await;
        let (code, _, stderr) =
            source.mirror(&format!("--to {}/m --output-dir {number}", target.host())).await;
        match expected {
            Ok(_) => assert_eq!((code, stderr.as_str()), (0, "")),
            Err(why) => assert!(code == 1 && stderr.contains(why), "{stderr}"),
        }
        // The referrer is copied with its own signature.
        for tag in [digest.clone(), format!("{}.sig", digest.replace(':', "-"))] {
            assert_eq!(target.manifest("m/team/operand", &tag).is_some(), expected == Ok(true), "{number}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_referrers_are_copied_and_tagged_only_where_the_target_lists_none() {
    let source = Source::new().await;
    let registry = &source.fixture.registry;
    let sbom = image("sbom");
    let digest = registry.add_image("team/operand", &sbom.digest(), &sbom);
    let list = index(&[(&digest, sbom.manifest.len())]);
    let listed = || {
        let text = String::from_utf8(list.to_vec()).unwrap();
        Fault::Status(200, vec![("content-type", INDEX.to_owned())], text)
    };
    let request = format!("/referrers/{}", source.operand);
    registry.add_fault(&request, usize::MAX, listed());
    let tag = source.operand.replace(':', "-");
    for (name, is_listed) in [("one", false), ("two", true)] {
        let target = source.target(name).await;
        if is_listed {
            target.add_fault(&request, usize::MAX, listed());
        }
        let to = format!("--to {}/m --output-dir {name}", target.host());
        let (code, _, stderr) = source.mirror(&to).await;
        assert_eq!((code, stderr.as_str()), (0, ""));
        let manifests = target.manifests();
        let of = |name: &str| manifests.get(&("m/team/operand".to_owned(), name.to_owned()));
        assert_eq!(of(&digest), Some(&sbom.manifest));
        assert_eq!(of(&tag), Some(&list).filter(|_| !is_listed));
    }
}
