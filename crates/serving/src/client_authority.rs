//! Client certificates: the CA that the API server accepts, and the user that a certificate names
//! (docs/design/operations.md#metrics-endpoint).

use std::sync::Arc;

use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use olm_runtime::cluster::{describe, within_deadline};
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer, X509Certificate};

use crate::certificate::{SECRET_POLL, roots};
use crate::https::RustlsConfig;
use crate::serving_certificate::ServingCertificate;

/// ConfigMap in which the API server publishes the CA.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const KEY: &str = "client-ca-file";
/// Group of every authenticated user.
const AUTHENTICATED: &str = "system:authenticated";

/// Accepts client certificates of the cluster's client CA on `tls`, and follows its changes until `stop`. On an
/// error the last CA stays in use. Before the first success, no certificate is requested.
pub(crate) async fn follow(
    client: Client,
    certificate: Arc<ServingCertificate>,
    tls: RustlsConfig,
    stop: CancellationToken,
) {
    let maps = Api::namespaced(client, NAMESPACE);
    let mut trusted = String::new();
    loop {
        let read = read(&maps).await.and_then(|authority| {
            if authority != trusted {
                let config = certificate.server_config(Some(roots(authority.as_bytes())));
                tls.reload_from_config(config.map_err(|error| format!("{KEY}: {error}"))?);
                tracing::info!("loaded client CA of the cluster");
                trusted = authority;
            }
            Ok(())
        });
        if let Err(error) = read {
            tracing::error!(error, "failed to load client CA of the cluster");
        }
        if stop.run_until_cancelled(tokio::time::sleep(SECRET_POLL)).await.is_none() {
            return;
        }
    }
}

/// The CA certificates as PEM text.
async fn read(maps: &Api<ConfigMap>) -> Result<String, String> {
    let named = |why: &str| format!("ConfigMap {NAMESPACE}/{CONFIG_MAP}: {why}");
    let map = within_deadline(maps.get(CONFIG_MAP)).await.map_err(|error| named(&describe(&error)))?;
    map.data.and_then(|mut data| data.remove(KEY)).ok_or_else(|| named(&format!("has no {KEY}")))
}

/// The user of a certificate, as the API server derives it: the common name is the user, organizations are groups.
pub(crate) fn user_of(certificate: &CertificateDer<'_>) -> Option<UserInfo> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
    let name = parsed.subject().iter_common_name().last().and_then(text)?;
    let groups = parsed.subject().iter_organization().filter_map(text);
    let groups = groups.chain([AUTHENTICATED.to_owned()]).collect();
    (!name.is_empty()).then_some(UserInfo {
        username: Some(name),
        groups: Some(groups),
        ..UserInfo::default()
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    /// Subject of a certificate, and the expected user with groups.
    type Row<'a> = (&'a [(DnType, &'a str)], Option<(&'a str, &'a [&'a str])>);

    #[test]
    fn certificate_subject_maps_to_user_and_groups() {
        let rows: [Row<'_>; 4] = [
            (&[(DnType::CommonName, "prometheus")], Some(("prometheus", &[AUTHENTICATED]))),
            (
                &[(DnType::OrganizationName, "monitoring"), (DnType::CommonName, "prometheus")],
                Some(("prometheus", &["monitoring", AUTHENTICATED])),
            ),
            (&[(DnType::OrganizationName, "monitoring")], None),
            (&[(DnType::CommonName, "")], None),
        ];
        for (attributes, expected) in rows {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            for (kind, value) in attributes {
                params.distinguished_name.push(kind.clone(), *value);
            }
            let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let user = user_of(made.der());
            let expected = expected.map(|(name, groups)| UserInfo {
                username: Some(name.to_owned()),
                groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()),
                ..UserInfo::default()
            });
            assert_eq!(user, expected, "{attributes:?}");
        }
        assert_eq!(user_of(&CertificateDer::from_slice(b"none")), None);
    }
}
