//! Users of the console: login, session cookies, CSRF tokens (docs/design/console.md#sessions).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use aws_lc_rs::rand;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Form, Router};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};
use maud::{DOCTYPE, Markup, html};
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::source::{Access, ClusterConnection};
use serde::Deserialize;
use tokio::time::timeout;

use super::app::{App, Console};
use super::assets;
use super::page::{Page, PageError, Section};
use super::users::{User, Users, bearer};

/// Name of the session cookie.
const COOKIE: &str = "olm-console";
/// Time from a login until the next one.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Largest body of a request, in bytes.
const BODY_LIMIT: usize = 1 << 20;
/// Largest body of the form to sign in, in bytes. Anyone may send it.
const SIGN_IN_LIMIT: usize = 16 << 10;
/// Longest token of a session, in bytes. Browsers store cookies of up to 4096 bytes.
const TOKEN_LIMIT: usize = 2900;
/// Time to name the user. Pages wait for it once.
const NAME_DEADLINE: Duration = Duration::from_secs(2);
/// Field of a form that contains the CSRF token.
const CSRF_FIELD: &str = "csrf";

/// Source of the user's rights.
pub(super) enum Identity {
    /// Connection of the kubeconfig, if the console uses a cluster. The printed address contains the secret.
    Local(Option<Arc<ClusterConnection>>),
    /// Users of the cluster of the pod, each with a token.
    Users(Users),
}

/// User of a request.
#[derive(Clone)]
pub(crate) struct Visitor {
    cluster: Option<Arc<ClusterConnection>>,
    access: Arc<Access>,
    csrf: String,
    /// User of a console in the cluster.
    user: Option<User>,
    /// `true` if the cookie contains the token of the user.
    has_session: bool,
}

impl Visitor {
    /// User of a console on loopback, also for work between requests. `None` in the cluster.
    pub(super) fn of_process(console: &Console, csrf: String) -> Option<Self> {
        let Identity::Local(cluster) = &console.identity else { return None };
        let (cluster, access) = (cluster.clone(), Arc::clone(console.library.flags()));
        Some(Self { cluster, access, csrf, user: None, has_session: false })
    }

    fn of_user(console: &Console, user: User, csrf: String, has_session: bool) -> Self {
        let access = Arc::new(console.library.flags().connected_to(&user.cluster));
        Self { cluster: Some(Arc::clone(&user.cluster)), access, csrf, user: Some(user), has_session }
    }

    /// Connection with the rights of the user. `None` if the console uses no cluster.
    pub(crate) fn cluster(&self) -> Option<&Arc<ClusterConnection>> {
        self.cluster.as_ref()
    }

    /// Flags for access to sources, with the rights of the user.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Name of the user of a console in the cluster.
    pub(super) fn user_name(&self) -> Option<&str> {
        self.user.as_ref().map(|user| user.name.as_str())
    }

    /// Name of the user for the head of pages. On loopback, the API server is asked until it has answered once.
    pub(super) async fn shown_name(&self, console: &Console) -> Option<String> {
        if let Some(user) = &self.user {
            return Some(user.name.clone());
        }
        let client = self.cluster()?.client().clone();
        let ask = async {
            let review = async {
                let api: Api<SelfSubjectReview> = Api::all(client);
                api.create(&PostParams::default(), &SelfSubjectReview::default()).await
            };
            let answer = timeout(NAME_DEADLINE, review).await.ok().and_then(Result::ok).ok_or(())?;
            Ok::<_, ()>(answer.status.and_then(|status| status.user_info?.username).unwrap_or_default())
        };
        let name = console.local_user.get_or_try_init(|| ask).await.ok();
        name.filter(|name| !name.is_empty()).cloned()
    }

    /// Checks that the user may get the ClusterCatalog `name`. Local users read it with their own rights.
    ///
    /// # Errors
    /// The user may not, or the API server does not answer.
    pub(super) async fn check_catalog(&self, name: &str, console: &Console) -> Result<(), CliError> {
        match (&console.identity, &self.user) {
            (Identity::Local(_), _) => Ok(()),
            (Identity::Users(users), Some(user)) => users.check_catalog(user, name).await,
            (Identity::Users(_), None) => Err(CliError::operational("no user is signed in")),
        }
    }

    /// Button that ends the session.
    pub(super) fn account(&self) -> Markup {
        html! {
            @if self.user.is_some() && self.has_session {
                form method="post" action="/logout" {
                    (self.csrf_field())
                    button.quiet type="submit" { "Sign out" }
                }
            }
        }
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

    /// Encrypted session with the token of a user, which is empty on loopback. It ends after [`LIFETIME`].
    pub(super) fn seal(&self, token: &str, now: SystemTime) -> Option<String> {
        let mut text = (seconds(now) + LIFETIME.as_secs()).to_be_bytes().to_vec();
        text.extend_from_slice(token.as_bytes());
        let nonce = self.cookies.seal_in_place_append_tag(Aad::from(COOKIE.as_bytes()), &mut text).ok()?;
        Some(BASE64_URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), &text].concat()))
    }

    /// Token of a session of this process that has not ended.
    fn open(&self, cookie: &str, now: SystemTime) -> Option<String> {
        let mut sealed = BASE64_URL_SAFE_NO_PAD.decode(cookie).ok()?;
        let (nonce, text) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let aad = Aad::from(COOKIE.as_bytes());
        let text = self.cookies.open_in_place(nonce, aad, text).ok()?;
        let (end, token) = text.split_first_chunk::<8>()?;
        let token = String::from_utf8(token.to_vec()).ok()?;
        (seconds(now) < u64::from_be_bytes(*end)).then_some(token)
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
    rand::fill(&mut bytes).map_err(|_| CliError::operational("the system has no random numbers"))?;
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
    let visitor = match identify(&console, request.headers()).await {
        Ok(visitor) => visitor,
        Err(refusal) => return refusal,
    };
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

/// User of the request, or the response without one.
async fn identify(console: &Console, headers: &HeaderMap) -> Result<Visitor, Response> {
    let session = cookie(headers, console.identity.cookie());
    let session = session.and_then(|text| Some((text, console.keys.open(text, SystemTime::now())?)));
    let users = match &console.identity {
        Identity::Users(users) => users,
        Identity::Local(_) => {
            let csrf = session.map(|(text, _)| console.keys.csrf_token(text));
            return csrf.and_then(|csrf| Visitor::of_process(console, csrf)).ok_or_else(|| {
                let text = "you are not signed in; open the address that `olm console` printed";
                PageError::new(StatusCode::UNAUTHORIZED, text).into_response()
            });
        }
    };
    let (user, csrf, has_session) = match (bearer(headers), session) {
        // A proxy may renew the token while a form is open.
        (Some(token), _) => users.identify(token).await.map(|user| {
            let csrf = console.keys.csrf_token(&user.name);
            (user, csrf, false)
        }),
        (None, Some((text, token))) => {
            users.identify(&token).await.map(|user| (user, console.keys.csrf_token(text), true))
        }
        (None, None) => return Err(sign_in_page("").into_response()),
    }
    .map_err(refusal)?;
    Ok(Visitor::of_user(console, user, csrf, has_session))
}

/// Page for a token that is not accepted: the one to sign in, or the error of the API server.
fn refusal(error: PageError) -> Response {
    match error.status() {
        StatusCode::UNAUTHORIZED => sign_in_page(error.message()).into_response(),
        _ => error.into_response(),
    }
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

/// Routes that begin a session.
pub(super) fn login_routes(console: &Console) -> Router<App> {
    let route = match &console.identity {
        Identity::Local(_) => get(login),
        Identity::Users(_) => get(async || Redirect::to("/")).post(sign_in),
    };
    Router::new().route("/login", route).layer(DefaultBodyLimit::max(SIGN_IN_LIMIT))
}

/// Page with the form for a token, with status 401.
fn sign_in_page(problem: &str) -> Page {
    let body = html! {
        h1 { "Sign in" }
        @if !problem.is_empty() { p.notice.bad role="alert" { (problem) } }
        form.install method="post" action="/login" {
            div.field {
                label for="token" { "Token" }
                input #token type="password" name="token" required autocomplete="off" spellcheck="false"
                    aria-describedby="token-help";
                p.soft #token-help {
                    "The console acts with the permissions of this token. A ServiceAccount gets one by "
                    code { "kubectl create token NAME" } "."
                }
            }
            button type="submit" { "Sign in" }
        }
        // Browsers send no strict cookie after a link of another site, but after this one.
        @if problem.is_empty() { p.soft { "Signed in already? " a href="" { "Open this page again" } } }
    };
    Page::new(Section::None, "Sign in", body).with_status(StatusCode::UNAUTHORIZED)
}

/// Form of [`sign_in_page`].
#[derive(Deserialize)]
struct SignIn {
    token: String,
}

/// Begins a session with the token of the form.
async fn sign_in(State(console): State<App>, Form(form): Form<SignIn>) -> Result<Response, Response> {
    let Identity::Users(users) = &console.identity else {
        return Err(StatusCode::NOT_FOUND.into_response());
    };
    let token = form.token.trim();
    if token.len() > TOKEN_LIMIT {
        let why = format!("the token has more than {TOKEN_LIMIT} bytes; use an authenticating proxy");
        return Err(sign_in_page(&why).into_response());
    }
    users.identify(token).await.map_err(refusal)?;
    let cookie = console.session_cookie(token).map_err(IntoResponse::into_response)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response())
}

/// Ends the session of the browser.
pub(super) async fn logout(State(console): State<App>) -> Response {
    let cookie = format!("{}=; Max-Age=0; {}", console.identity.cookie(), console.identity.attributes());
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

impl Identity {
    /// Name of the session cookie. Other hosts of the same domain cannot set one with the prefix.
    fn cookie(&self) -> &'static str {
        match self {
            Self::Local(_) => COOKIE,
            Self::Users(_) => "__Host-olm-console",
        }
    }

    /// Attributes of the session cookie.
    fn attributes(&self) -> &'static str {
        match self {
            Self::Local(_) => "Path=/; HttpOnly; SameSite=Strict",
            Self::Users(_) => "Path=/; HttpOnly; SameSite=Strict; Secure",
        }
    }
}

impl Console {
    /// Value of `Set-Cookie` for a new session.
    fn session_cookie(&self, token: &str) -> Result<HeaderValue, PageError> {
        let session = self.keys.seal(token, SystemTime::now());
        let cookie = session
            .map(|session| format!("{}={session}; {}", self.identity.cookie(), self.identity.attributes()));
        let cookie = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok());
        cookie.ok_or_else(|| PageError::from(CliError::operational("cannot create a session")))
    }
}

/// Query of the login address.
#[derive(Deserialize)]
struct Login {
    #[serde(default)]
    secret: String,
}

/// Begins a session. The answer is a page that loads the first one, because browsers send no strict cookie when a
/// redirect follows the link of a file or another site.
///
/// # Errors
/// The secret is not that of the console.
async fn login(State(console): State<App>, Query(login): Query<Login>) -> Result<Response, PageError> {
    if !console.keys.redeem(&login.secret)? {
        let text = "the address was already used or is that of another console; open the address that `olm console` \
                    printed last";
        return Err(PageError::new(StatusCode::UNAUTHORIZED, text));
    }
    let next = format!("http://{}{}", console.hosts.address(), console.keys.login_path());
    say(&format!("a browser has signed in; for another browser, use {next}"));
    let cookie = console.session_cookie("")?;
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
        let sealed = keys.seal("token", now).unwrap();
        assert_eq!(keys.open(&sealed, now).as_deref(), Some("token"));
        assert_eq!(other.open(&sealed, now), None);
        assert_eq!(keys.open(&sealed, now + LIFETIME), None);
        let changed = format!("{}{}", if sealed.starts_with('A') { 'B' } else { 'A' }, &sealed[1..]);
        for text in [changed.as_str(), "", "%", "AAAA", &"A".repeat(4096)] {
            assert_eq!(keys.open(text, now), None, "{text}");
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
