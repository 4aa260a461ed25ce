//! Authorization for one repository: a password in each request, or a bearer token that is fetched and renewed
//! (docs/design/images.md#registry-tokens).

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode};
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

/// Login and current header for one repository. Shared by concurrent requests.
pub(crate) struct Authorization {
    login: Option<Login>,
    /// Repository within the registry.
    path: String,
    /// Requested actions: `pull`, or `pull,push`.
    actions: &'static str,
    grant: Mutex<Option<Grant>>,
}

struct Grant {
    header: HeaderValue,
    /// Challenge to repeat and time of the renewal, if the header is a token.
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
        Self { login, path: path.to_owned(), actions: "pull", grant: Mutex::new(None) }
    }

    /// Authorization that also permits pushes.
    pub(crate) fn for_push(self) -> Self {
        Self { actions: "pull,push", ..self }
    }

    /// `Authorization` header, renewed if due. `None` before the first challenge.
    pub(crate) async fn header(&self, client: &Client) -> Result<Option<HeaderValue>, RequestError> {
        let mut grant = self.grant.lock().await;
        let due =
            grant.as_ref().and_then(|grant| grant.renewal.as_ref()).filter(|(_, at)| *at <= Instant::now());
        if let Some((challenge, _)) = due {
            *grant = self.obtain(client, &challenge.clone()).await?;
        }
        Ok(grant.as_ref().map(|grant| grant.header.clone()))
    }

    /// Obtains a header for `challenge`. `false` if that needs a login and there is none.
    pub(crate) async fn answer(&self, client: &Client, challenge: &Challenge) -> Result<bool, RequestError> {
        let Some(grant) = self.obtain(client, challenge).await? else { return Ok(false) };
        *self.grant.lock().await = Some(grant);
        Ok(true)
    }

    async fn obtain(&self, client: &Client, challenge: &Challenge) -> Result<Option<Grant>, RequestError> {
        let Challenge::Bearer { realm, service, scope } = challenge else {
            let grant = |login: &Login| Ok(Grant { header: basic(login)?, renewal: None });
            return self.login.as_ref().map(grant).transpose();
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
            .ok_or_else(|| RequestError::fatal("the response of the token server contains no token"))?;
        let due = Instant::now() + lifetime(expires_in);
        let header = header_value(format!("Bearer {token}"))?;
        Ok(Some(Grant { header, renewal: Some((challenge.clone(), due)) }))
    }

    /// Token request: POST with an identity token, GET with a password, otherwise an anonymous GET.
    fn token_request(
        &self,
        client: &Client,
        realm: &str,
        service: &str,
        further: Option<&str>,
    ) -> Result<(Method, RequestBuilder), RequestError> {
        let scope = format!("repository:{}:{}", self.path, self.actions);
        let mut fields = vec![("service", service), ("scope", scope.as_str())];
        fields.extend(further.filter(|further| *further != scope).map(|further| ("scope", further)));
        let Some(login) = &self.login else {
            return Ok((Method::GET, client.request(&Method::GET, realm).query(&fields)));
        };
        if let Some(identity_token) = &login.identity_token {
            let grant =
                [("grant_type", "refresh_token"), ("client_id", "olm"), ("refresh_token", identity_token)];
            fields.extend(grant);
            return Ok((Method::POST, client.request(&Method::POST, realm).form(&fields)));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_image::registry::{Access, Registry};

    use super::*;
    use crate::client::Clients;
    use crate::{Config, ImageLimits, Proxies, RegistryPaths};

    #[tokio::test]
    async fn due_token_is_fetched_again() {
        // Fails if a provider is already installed, which serves as well.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let registry = Registry::start_plain().await.unwrap();
        registry.set_access(Access::Bearer(None));
        let clients = Clients::new(Arc::new(Config {
            paths: RegistryPaths::default(),
            proxies: Proxies::default(),
            ..Config::new(ImageLimits::BUNDLE)
        }));
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
