//! Leadership, from the acquisition of the Lease to its loss, and the fence of its requests
//! (docs/design/operations.md#lease).

use std::io;
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

/// End of a leadership that no Lease limits.
const ENDLESS: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// One leadership of this process. Another one follows after the Lease was lost and acquired again.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// Cancelled when the Lease is lost, not at the end of the process.
    pub lost: CancellationToken,
    /// Time at which it ends unless the Lease is renewed.
    expires: watch::Receiver<Instant>,
}

impl Leadership {
    pub(crate) fn new(expires: watch::Receiver<Instant>) -> Self {
        Self { lost: CancellationToken::new(), expires }
    }

    /// Leadership of the only process.
    pub fn endless() -> Self {
        Self::new(watch::channel(Instant::now() + ENDLESS).1)
    }

    /// A client whose requests fail once this leadership has ended, including those that wait for an answer. Needed
    /// because a task that is aborted still runs until it waits, and because a process that was paused does not know
    /// yet that its Lease has expired. Must be called within a Tokio runtime.
    pub fn fence(&self, client: &Client) -> Client {
        let (inner, leadership) = (client.clone(), self.clone());
        let fenced = service_fn(move |request: Request<Body>| {
            let (client, leadership) = (inner.clone(), leadership.clone());
            async move {
                let is_over = Instant::now() >= *leadership.expires.borrow();
                let answer = match is_over {
                    true => None,
                    false => leadership.lost.run_until_cancelled(client.send(request)).await,
                };
                answer.unwrap_or_else(|| {
                    Err(kube::Error::Service(io::Error::other("this process no longer leads").into()))
                })
            }
        });
        Client::new(fenced, client.default_namespace())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use axum::Router;
    use k8s_openapi::api::core::v1::Namespace;
    use kube::{Api, Config};
    use tokio::sync::Notify;

    use super::*;
    use crate::cluster;
    use crate::metrics::Metrics;

    /// Client of a server that answers only after `answer`, and the number of requests that it received.
    async fn server(answer: &Arc<Notify>) -> (Client, Arc<AtomicUsize>) {
        let (received, answer) = (Arc::new(AtomicUsize::new(0)), Arc::clone(answer));
        let counted = Arc::clone(&received);
        let respond = async move || {
            counted.fetch_add(1, SeqCst);
            answer.notified().await;
            r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}"#
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async { axum::serve(listener, Router::new().fallback(respond)).await });
        let config = Config::new(format!("http://{address}").parse().unwrap());
        (cluster::client_without_retry(&config, &Arc::new(Metrics::new())).unwrap(), received)
    }

    #[tokio::test]
    async fn request_fails_once_lease_is_lost_or_expired() {
        let answer = Arc::new(Notify::new());
        let (client, received) = server(&answer).await;
        let (renew, expires) = watch::channel(Instant::now() + ENDLESS);
        let leadership = Leadership::new(expires);
        let namespaces: Api<Namespace> = Api::all(leadership.fence(&client));
        let refused = async || {
            let error = namespaces.get("default").await.unwrap_err();
            assert_eq!(cluster::describe(&error), "ServiceError: this process no longer leads");
        };

        answer.notify_one();
        assert!(namespaces.get("default").await.is_ok());
        // As in a process that was paused for longer than the Lease is valid.
        renew.send_replace(Instant::now());
        refused().await;
        assert_eq!(received.load(SeqCst), 1);
        renew.send_replace(Instant::now() + ENDLESS);
        let lose = async {
            while received.load(SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
            leadership.lost.cancel();
        };
        tokio::join!(refused(), lose);
        refused().await;
        assert_eq!(received.load(SeqCst), 2);
    }
}
