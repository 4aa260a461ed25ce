//! Users of the console: login, session cookies, CSRF tokens (docs/design/console.md#sessions).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use aws_lc_rs::rand;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use maud::{DOCTYPE, Markup, html};
use serde::Deserialize;

use super::app::{App, Console};
use super::assets;
use super::page::PageError;
use crate::error::CliError;
use crate::progress::say;
use crate::source::Cluster;

/// Name of the session cookie.
const COOKIE: &str = "olm-console";
/// Time from a login until the next one.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Largest body of a request, in bytes.
const BODY_LIMIT: usize = 1 << 20;
/// Field of a form that contains the CSRF token.
const CSRF_FIELD: &str = "csrf";

/// Source of the user's rights.
pub(super) enum Identity {
    /// Connection of the kubeconfig, if the console uses a cluster. The printed address contains the secret.
    Local(Option<Arc<Cluster>>),
}

/// User of a request.
#[derive(Clone)]
pub(crate) struct Visitor {
    cluster: Option<Arc<Cluster>>,
    csrf: String,
}

impl Visitor {
    /// User of the process itself, for work between requests.
    pub(super) fn of_process(console: &Console) -> Self {
        let Identity::Local(cluster) = &console.identity;
        Self { cluster: cluster.clone(), csrf: String::new() }
    }

    /// Connection with the rights of the user. `None` if the console uses no cluster.
    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.as_ref()
    }

    /// Hidden field that every form with the method POST contains.
    pub(crate) fn csrf_field(&self) -> Markup {
        html! { input type="hidden" name=(CSRF_FIELD) value=(self.csrf); }
    }
}

/// Keys of this process. They are never stored.
pub(super) struct Keys {
    /// Secret of the address that was printed last.
    secret: Mutex<String>,
    cookies: RandomizedNonceKey,
    csrf: hmac::Key,
}

impl Keys {
    /// # Errors
    /// There are no random numbers.
    pub(super) fn new() -> Result<Self, CliError> {
        let failed = |_| CliError::operational("cannot create the keys of the console");
        let (cookies, csrf) = (random::<32>()?, random::<32>()?);
        Ok(Self {
            secret: Mutex::new(random_text(32)?),
            cookies: RandomizedNonceKey::new(&AES_256_GCM, &cookies).map_err(failed)?,
            csrf: hmac::Key::new(HMAC_SHA256, &csrf),
        })
    }

    /// Path and query that begin a session.
    pub(super) fn login_path(&self) -> String {
        format!("/login?secret={}", self.secret())
    }

    fn secret(&self) -> MutexGuard<'_, String> {
        self.secret.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether `given` is the secret, and replaces it: others may see the address later, such as in the
    /// history of the browser.
    ///
    /// # Errors
    /// There are no random numbers.
    fn redeem(&self, given: &str) -> Result<bool, CliError> {
        let next = random_text(32)?;
        let mut secret = self.secret();
        let is_secret = verify_slices_are_equal(given.as_bytes(), secret.as_bytes()).is_ok();
        if is_secret {
            *secret = next;
        }
        Ok(is_secret)
    }

    /// Encrypted session that ends after [`LIFETIME`].
    fn seal(&self, now: SystemTime) -> Option<String> {
        let mut text = (seconds(now) + LIFETIME.as_secs()).to_be_bytes().to_vec();
        let nonce = self.cookies.seal_in_place_append_tag(Aad::from(COOKIE.as_bytes()), &mut text).ok()?;
        Some(BASE64_URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), &text].concat()))
    }

    /// Reports whether `cookie` is a session of this process that has not ended.
    fn open(&self, cookie: &str, now: SystemTime) -> bool {
        let Ok(mut sealed) = BASE64_URL_SAFE_NO_PAD.decode(cookie) else { return false };
        let Some((nonce, text)) = sealed.split_at_mut_checked(NONCE_LEN) else { return false };
        let Ok(nonce) = Nonce::try_assume_unique_for_key(nonce) else { return false };
        let aad = Aad::from(COOKIE.as_bytes());
        let Ok(text) = self.cookies.open_in_place(nonce, aad, text) else { return false };
        <[u8; 8]>::try_from(&*text).is_ok_and(|end| seconds(now) < u64::from_be_bytes(end))
    }

    pub(super) fn csrf_token(&self, credential: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&self.csrf, credential.as_bytes()))
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn random<const N: usize>() -> Result<[u8; N], CliError> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| CliError::operational("no random numbers"))?;
    Ok(bytes)
}

/// Text with `bytes` (at most 32) random bytes.
///
/// # Errors
/// There are no random numbers.
pub(super) fn random_text(bytes: usize) -> Result<String, CliError> {
    let random = random::<32>()?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(&random[..bytes.min(32)]))
}

/// Value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lists = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lists.flat_map(|list| list.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Finds the user of a request. A request that may change something also needs the CSRF token.
pub(super) async fn require(State(console): State<App>, request: Request, next: Next) -> Response {
    let session = cookie(request.headers(), COOKIE).filter(|text| console.keys.open(text, SystemTime::now()));
    let Some(session) = session else {
        let text = "the console does not know you yet; open the address that `olm console` printed";
        return PageError::new(StatusCode::UNAUTHORIZED, text).into_response();
    };
    let csrf = console.keys.csrf_token(session);
    let Identity::Local(cluster) = &console.identity;
    let visitor = Visitor { cluster: cluster.clone(), csrf };
    let mut request = match request.method().is_safe() {
        true => request,
        false => match with_csrf_token(request, &visitor.csrf).await {
            Ok(request) => request,
            Err(error) => return error.into_response(),
        },
    };
    request.extensions_mut().insert(visitor.clone());
    let mut response = next.run(request).await;
    response.extensions_mut().insert(visitor);
    response
}

/// Reads the body, checks its CSRF token, and returns the request with the body.
///
/// # Errors
/// The body is too large, or lacks the token.
async fn with_csrf_token(request: Request, expected: &str) -> Result<Request, PageError> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_LIMIT).await.map_err(|_| {
        PageError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the form has more than {BODY_LIMIT} bytes"))
    })?;
    let sent = form_field(&body, CSRF_FIELD);
    if verify_slices_are_equal(&sent, expected.as_bytes()).is_err() {
        let text = "the form is from an earlier session; load its page again";
        return Err(PageError::new(StatusCode::FORBIDDEN, text));
    }
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// Value of a field of a URL-encoded form. CSRF tokens need no decoding.
fn form_field(body: &[u8], name: &str) -> Vec<u8> {
    let mut pairs = body.split(|byte| *byte == b'&');
    let field = pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    field.unwrap_or_default().to_vec()
}

/// Query of the login address.
#[derive(Deserialize)]
pub(super) struct Login {
    #[serde(default)]
    secret: String,
}

/// Begins a session. The answer is a page that loads the first one, because browsers send no strict cookie when a
/// redirect follows the link of a file or another site.
///
/// # Errors
/// The secret is not that of the console.
pub(super) async fn login(
    State(console): State<App>,
    Query(login): Query<Login>,
) -> Result<Response, PageError> {
    if !console.keys.redeem(&login.secret)? {
        let text = "the address was used already or is not that of this console; open the one that `olm console` \
                    printed last";
        return Err(PageError::new(StatusCode::UNAUTHORIZED, text));
    }
    let next = format!("http://{}{}", console.hosts.address(), console.keys.login_path());
    say(&format!("a browser signed in; the address is valid once, the next one is {next}"));
    let session = console.keys.seal(SystemTime::now());
    let cookie = session.map(|session| format!("{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict"));
    let cookie = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok());
    let cookie = cookie.ok_or_else(|| PageError::from(CliError::operational("cannot create a session")))?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                title { "OLM console" }
                link rel="icon" href=(assets::FAVICON.path());
                meta http-equiv="refresh" content="0;url=/";
            }
            body { p { a href="/" { "Open the console" } } }
        }
    };
    Ok(([(header::SET_COOKIE, cookie)], Html(page.into_string())).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_of_other_process_changed_or_expired_is_refused() {
        let (keys, other) = (Keys::new().unwrap(), Keys::new().unwrap());
        let now = SystemTime::now();
        let sealed = keys.seal(now).unwrap();
        assert!(keys.open(&sealed, now));
        assert!(!other.open(&sealed, now));
        assert!(!keys.open(&sealed, now + LIFETIME));
        let changed = format!("{}{}", if sealed.starts_with('A') { 'B' } else { 'A' }, &sealed[1..]);
        for text in [changed.as_str(), "", "%", "AAAA", &"A".repeat(4096)] {
            assert!(!keys.open(text, now), "{text}");
        }
        assert_ne!(keys.csrf_token(&sealed), other.csrf_token(&sealed));
    }

    #[test]
    fn cookie_and_form_field_are_found_by_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("xolm-console=1; olm-console=2"));
        assert_eq!(cookie(&headers, COOKIE), Some("2"));
        assert_eq!(form_field(b"a=1&csrf=x&b=2", "csrf"), b"x");
        assert_eq!(form_field(b"acsrf=1", "csrf"), b"");
    }
}
