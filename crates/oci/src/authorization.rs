//! Authorization for one repository: a password in each request, or a bearer token that is fetched and renewed
//! (docs/design/images.md#registry-tokens).

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::Login;
use crate::challenge::Challenge;
use crate::client::Client;
use crate::request_error::{RequestError, read_capped};

const MAX_TOKEN: u64 = 1 << 20;
/// Shortest assumed token lifetime, also where `expires_in` is shorter or missing.
const MIN_LIFETIME: Duration = Duration::from_secs(60);
/// A token is renewed when a sixth of its lifetime is left.
const RENEWAL: u32 = 6;
const FORM: &str = "application/x-www-form-urlencoded";

/// Login and current header for one repository. Shared by concurrent requests.
pub(crate) struct Authorization {
    login: Option<Login>,
    /// Repository within the registry.
    path: String,
    grant: Mutex<Option<Grant>>,
}

struct Grant {
    header: HeaderValue,
    /// For a token: the challenge to repeat and the time of the renewal.
    renewal: Option<(Challenge, Instant)>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
    /// Lifetime in seconds.
    expires_in: Option<u64>,
}

impl Authorization {
    pub(crate) fn new(login: Option<Login>, path: &str) -> Self {
        Self { login, path: path.to_owned(), grant: Mutex::new(None) }
    }

    /// `true` if a login exists, or the challenge needs none.
    pub(crate) fn can_answer(&self, challenge: &Challenge) -> bool {
        self.login.is_some() || *challenge != Challenge::Basic
    }

    /// `Authorization` header, renewed if due. `None` before the first challenge.
    pub(crate) async fn header(&self, client: &Client) -> Result<Option<HeaderValue>, RequestError> {
        let mut grant = self.grant.lock().await;
        let due =
            grant.as_ref().and_then(|grant| grant.renewal.as_ref()).filter(|(_, at)| *at <= Instant::now());
        if let Some((challenge, _)) = due {
            *grant = Some(self.obtain(client, &challenge.clone()).await?);
        }
        Ok(grant.as_ref().map(|grant| grant.header.clone()))
    }

    /// Obtains a header for `challenge`. Does nothing if there is no login for it.
    pub(crate) async fn answer(&self, client: &Client, challenge: &Challenge) -> Result<(), RequestError> {
        if self.can_answer(challenge) {
            let grant = self.obtain(client, challenge).await?;
            *self.grant.lock().await = Some(grant);
        }
        Ok(())
    }

    async fn obtain(&self, client: &Client, challenge: &Challenge) -> Result<Grant, RequestError> {
        let Challenge::Bearer { realm, service, scope } = challenge else {
            let login = self.login.as_ref().ok_or_else(|| RequestError::fatal("there is no password"))?;
            return Ok(Grant { header: basic(login)?, renewal: None });
        };
        let (method, request) = self.token_request(client, realm, service, scope.as_deref())?;
        let response = client.send(request, &method, realm).await?;
        if !response.status().is_success() {
            let about = match response.status() {
                StatusCode::UNAUTHORIZED => "unable to retrieve auth token: invalid username/password",
                _ => "requesting bearer token",
            };
            return Err(RequestError::from_response(response).await.within(about));
        }
        let body = read_capped(response, MAX_TOKEN).await?;
        let answer = serde_json::from_slice::<Token>(&body).ok();
        let (token, expires_in) = answer
            .and_then(|answer| {
                let token = answer.token.or(answer.access_token).filter(|token| !token.is_empty());
                Some((token?, answer.expires_in.unwrap_or_default()))
            })
            .ok_or_else(|| RequestError::fatal("the answer of the token server holds no token"))?;
        let due = Instant::now() + lifetime(expires_in);
        Ok(Grant {
            header: header_value(format!("Bearer {token}"))?,
            renewal: Some((challenge.clone(), due)),
        })
    }

    /// Token request: POST with an identity token, GET with a password, otherwise an anonymous GET.
    fn token_request(
        &self,
        client: &Client,
        realm: &str,
        service: &str,
        further: Option<&str>,
    ) -> Result<(Method, RequestBuilder), RequestError> {
        let scope = format!("repository:{}:pull", self.path);
        let mut fields = vec![("service", service), ("scope", scope.as_str())];
        fields.extend(further.filter(|further| *further != scope).map(|further| ("scope", further)));
        let Some(login) = &self.login else {
            return Ok((Method::GET, client.request(&Method::GET, realm).query(&fields)));
        };
        if let Some(identity_token) = &login.identity_token {
            let grant =
                [("grant_type", "refresh_token"), ("client_id", "olm"), ("refresh_token", identity_token)];
            fields.extend(grant);
            let request = client.request(&Method::POST, realm).header(CONTENT_TYPE, FORM);
            return Ok((Method::POST, request.body(encode(&fields)?)));
        }
        fields.push(("account", &login.username));
        let request = client.request(&Method::GET, realm).query(&fields).header(AUTHORIZATION, basic(login)?);
        Ok((Method::GET, request))
    }
}

/// Time until the renewal of a token that is valid for `seconds`.
fn lifetime(seconds: u64) -> Duration {
    // Capped: an `Instant` in the far future overflows.
    let lifetime = Duration::from_secs(seconds.min(u64::from(u32::MAX))).max(MIN_LIFETIME);
    lifetime - lifetime / RENEWAL
}

/// Header value marked sensitive, so that debug output hides it.
fn header_value(secret: String) -> Result<HeaderValue, RequestError> {
    let mut value = HeaderValue::try_from(secret)
        .map_err(|_| RequestError::fatal("the credentials do not fit into a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn basic(login: &Login) -> Result<HeaderValue, RequestError> {
    header_value(format!(
        "Basic {}",
        BASE64_STANDARD.encode(format!("{}:{}", login.username, login.password))
    ))
}

fn encode(form: &[(&str, &str)]) -> Result<String, RequestError> {
    let url = Url::parse_with_params("https://form.invalid", form);
    let url = url.map_err(|error| RequestError::fatal(format!("encoding a token request: {error}")))?;
    Ok(url.query().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use olm_image::registry::{Access, Registry};

    use super::*;
    use crate::client::Clients;
    use crate::{DeniedNetworks, Proxies, RegistryPaths};

    #[tokio::test]
    async fn due_token_is_fetched_again() {
        // Fails if a provider is already installed, which serves as well.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let registry = Registry::start_plain().await.unwrap();
        registry.set_access(Access::Bearer(None));
        let clients = Clients::new(
            None,
            &RegistryPaths::default(),
            MIN_LIFETIME,
            Proxies::default(),
            DeniedNetworks::default(),
        );
        let client = clients.client(&registry.host(), true).unwrap();
        let realm = format!("http://{}/token", registry.host());
        let challenge = Challenge::Bearer { realm, service: "test".to_owned(), scope: None };
        let authorization = Authorization::new(None, "a/cat");
        assert_eq!(authorization.header(&client).await.unwrap(), None);
        authorization.answer(&client, &challenge).await.unwrap();
        for _ in 0..2 {
            assert!(authorization.header(&client).await.unwrap().is_some_and(|header| header.is_sensitive()));
        }
        assert_eq!(registry.take_requests(), ["GET /token"]);
        if let Some(Grant { renewal: Some((_, due)), .. }) = authorization.grant.lock().await.as_mut() {
            *due = Instant::now();
        }
        for _ in 0..2 {
            authorization.header(&client).await.unwrap();
        }
        assert_eq!(registry.take_requests(), ["GET /token"]);
    }

    #[test]
    fn token_lifetime_leaves_a_sixth_for_renewal() {
        for (seconds, expected) in [(0, 50), (10, 50), (60, 50), (300, 250), (u64::MAX, 3_579_139_412)] {
            assert_eq!(lifetime(seconds).as_secs(), expected, "{seconds}");
        }
    }
}
