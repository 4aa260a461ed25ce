//! The names under which a configuration file can speak of an image, in `policy.json` and in `registries.d` alike.

use crate::Reference;

/// Most specific first: the image, its repository, every folder above it, the registry, then `*.` and each domain above the
/// registry's host. A port counts as part of the registry but not of the domains.
pub(super) fn scopes(image: &Reference) -> Vec<String> {
    let mut scopes = vec![image.to_string(), image.name()];
    let mut name = image.name();
    while let Some(slash) = name.rfind('/') {
        name.truncate(slash);
        scopes.push(name.clone());
    }
    let mut domain = image.host().split(':').next().unwrap_or_default();
    while let Some((_, above)) = domain.split_once('.') {
        scopes.push(format!("*.{above}"));
        domain = above;
    }
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_the_image_to_the_widest_domain() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (image, expected) in [
            (
                "r.example.com:5000/ns/app:v1".to_owned(),
                vec![
                    "r.example.com:5000/ns/app:v1".to_owned(),
                    "r.example.com:5000/ns/app".to_owned(),
                    "r.example.com:5000/ns".to_owned(),
                    "r.example.com:5000".to_owned(),
                    "*.example.com".to_owned(),
                    "*.com".to_owned(),
                ],
            ),
            (
                format!("localhost/app@{digest}"),
                vec![format!("localhost/app@{digest}"), "localhost/app".to_owned(), "localhost".to_owned()],
            ),
        ] {
            assert_eq!(scopes(&image.parse().unwrap()), expected);
        }
    }
}
