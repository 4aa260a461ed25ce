//! Pages of the referrers API.

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LINK};
use reqwest::{Method, Url};

use super::{MAX_MANIFEST, Session};
use crate::Digest;
use crate::request_error::{RequestError, authority, read_capped};

/// Most pages of the referrers API.
const MAX_PAGES: usize = 32;

impl Session {
    /// Pages of the referrers API for `digest`. `None` if the registry does not have the API: it reports an unknown path
    /// (400, 404, 405), or sends no JSON.
    pub(crate) async fn referrers(&self, digest: &Digest) -> Result<Option<Vec<Bytes>>, RequestError> {
        let mut url = format!("{}/v2/{}/referrers/{digest}", self.base, self.path);
        let mut pages = Vec::new();
        loop {
            let read = || async {
                let response = self.send(Method::GET, &url, None).await?;
                let next = next_page(response.url(), response.headers());
                // Other servers answer unknown paths with a page.
                let page = match is_json(response.headers()) {
                    true => Some(read_capped(response, MAX_MANIFEST).await?),
                    false => None,
                };
                Ok((page, next))
            };
            let (page, next) = match self.retried(read).await {
                Ok((Some(page), next)) => (page, next),
                Ok((None, _)) if pages.is_empty() => return Ok(None),
                Ok((None, _)) => return Err(RequestError::fatal("a page of the referrers is not JSON")),
                Err(error) if error.unknown_path && pages.is_empty() => return Ok(None),
                Err(error) => return Err(error),
            };
            pages.push(page);
            match next {
                None => return Ok(Some(pages)),
                Some(_) if pages.len() == MAX_PAGES => {
                    return Err(RequestError::fatal(format!("there are more than {MAX_PAGES} pages")));
                }
                Some(next) if self.is_registry_origin(&next) => url = next.into(),
                Some(next) => {
                    let host = authority(&next);
                    return Err(RequestError::fatal(format!("the next page is at another server, {host}")));
                }
            }
        }
    }
}

/// `true` for content in JSON, whatever the parameters of the type are.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().ends_with("json")
}

/// Next page of a list, in the header `Link`.
fn next_page(base: &Url, headers: &HeaderMap) -> Option<Url> {
    let links = headers.get_all(LINK).into_iter().filter_map(|link| link.to_str().ok());
    let mut next = links.flat_map(|links| links.split(',')).filter_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = parameters.split(';').any(|one| matches!(one.trim(), "rel=\"next\"" | "rel=next"));
        is_next.then_some(target)
    });
    base.join(next.next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_page_is_that_of_the_link_header() {
        let base = Url::parse("https://r.example/v2/a/referrers/sha256:1").unwrap();
        for (value, expected) in [
            ("</v2/a/x?last=1>; rel=\"next\"", Some("https://r.example/v2/a/x?last=1")),
            ("<https://o.example/>;rel=next", Some("https://o.example/")),
            ("<a>; rel=\"prev\", <b>; rel=\"next\"", Some("https://r.example/v2/a/referrers/b")),
            ("<a>; rel=\"prev\"", None),
            ("a; rel=next", None),
        ] {
            let headers = HeaderMap::from_iter([(LINK, value.parse().unwrap())]);
            let next = next_page(&base, &headers).map(String::from);
            assert_eq!(next.as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn json_is_detected_with_parameters() {
        for (value, expected) in [
            ("application/vnd.oci.image.index.v1+json", true),
            ("application/vnd.oci.image.index.v1+JSON; charset=utf-8", true),
            ("text/html; charset=json", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, value.parse().unwrap())]);
            assert_eq!(is_json(&headers), expected, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
