//! Scopes under which `policy.json` and `registries.d` can refer to an image.

use crate::Reference;

/// Scopes of `image`, most specific first: the image, its repository, every parent path, the registry, then `*.`
/// with each parent domain of the registry's host. The port is part of the registry but not of the domains.
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
    fn scopes_range_from_image_to_top_level_domain() {
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
