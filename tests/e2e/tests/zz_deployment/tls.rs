//! TLS settings of catalogd: handshakes that its metrics endpoint accepts and rejects.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use olm_e2e::servers::{Before, SYSTEM, Server};
use olm_e2e::{Cluster, Forward};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, ClientConfig, ProtocolVersion, RootCertStore, SupportedCipherSuite, SupportedProtocolVersion,
};

use crate::alone;

/// TLS parameters of a client.
struct Offer {
    version: &'static SupportedProtocolVersion,
    suites: Vec<SupportedCipherSuite>,
    groups: Vec<&'static dyn SupportedKxGroup>,
}

impl Offer {
    fn of(version: &'static SupportedProtocolVersion) -> Self {
        let CryptoProvider { cipher_suites, kx_groups, .. } = default_provider();
        Self { version, suites: cipher_suites, groups: kx_groups }
    }

    fn config(self, trusted: RootCertStore) -> Result<ClientConfig> {
        let provider =
            CryptoProvider { cipher_suites: self.suites, kx_groups: self.groups, ..default_provider() };
        Ok(ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[self.version])?
            .with_root_certificates(trusted)
            .with_no_client_auth())
    }
}

async fn authority(cluster: &Cluster) -> Result<RootCertStore> {
    let secrets: Api<Secret> = cluster.within(SYSTEM);
    let data = secrets.get("olmv1-ca").await?.data.context("the Secret is empty")?;
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&data.get("ca.crt").context("no ca.crt")?.0) {
        trusted.add(certificate?)?;
    }
    Ok(trusted)
}

/// Negotiated version and cipher suite. `None` if the handshake fails.
async fn agreed(cluster: &Cluster, offer: Offer) -> Result<Option<(ProtocolVersion, CipherSuite)>> {
    let forward = Forward::to_service(SYSTEM, "catalogd-service", 7443).await?;
    let config = offer.config(authority(cluster).await?)?;
    let connection = forward.connect("catalogd-service.olmv1-system.svc", config).await;
    let Ok((connection, _)) = connection else { return Ok(None) };
    let suite = connection.negotiated_cipher_suite().context("no suite")?.suite();
    Ok(Some((connection.protocol_version().context("no version")?, suite)))
}

// Cases operations-a7, operations-a8, operations-a9
#[tokio::test(flavor = "multi_thread")]
async fn tls_settings_limit_versions_suites_and_groups() -> Result<()> {
    let _alone = alone().await;
    let cluster = Cluster::connect().await?;
    let newest = ["--tls-profile=custom", "--tls-custom-version=TLSv1.3"];
    let before = Before::with_args(&cluster, Server::Catalogd, &newest).await?;
    before.during(&cluster, async || only_the_newest(&cluster).await).await?;
    let narrow = [
        "--tls-profile=custom",
        "--tls-custom-version=TLSv1.2",
        "--tls-custom-ciphers=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "--tls-custom-curves=SecP256r1MLKEM768,secp256r1",
    ];
    let before = Before::with_args(&cluster, Server::Catalogd, &narrow).await?;
    before.during(&cluster, async || only_what_is_listed(&cluster).await).await
}

async fn only_the_newest(cluster: &Cluster) -> Result<()> {
    let found = agreed(cluster, Offer::of(&TLS12)).await?;
    ensure!(found.is_none(), "TLS 1.2 is accepted: {found:?}");
    let found = agreed(cluster, Offer::of(&TLS13)).await?;
    ensure!(found.is_some_and(|(version, _)| version == ProtocolVersion::TLSv1_3), "{found:?}");
    Ok(())
}

async fn only_what_is_listed(cluster: &Cluster) -> Result<()> {
    let found = agreed(cluster, Offer::of(&TLS12)).await?;
    let expected = (ProtocolVersion::TLSv1_2, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    ensure!(found == Some(expected), "{found:?}");
    let other = vec![cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384];
    let found = agreed(cluster, Offer { suites: other, ..Offer::of(&TLS12) }).await?;
    ensure!(found.is_none(), "a suite outside of the list is accepted: {found:?}");
    let found = agreed(cluster, Offer { groups: vec![kx_group::SECP384R1], ..Offer::of(&TLS12) }).await?;
    ensure!(found.is_none(), "a curve outside of the list is accepted: {found:?}");
    // A TLS 1.3 group, under a list without a cipher suite of TLS 1.3.
    let hybrid = vec![kx_group::SECP256R1MLKEM768];
    let found = agreed(cluster, Offer { groups: hybrid, ..Offer::of(&TLS13) }).await?;
    ensure!(found.is_some_and(|(version, _)| version == ProtocolVersion::TLSv1_3), "{found:?}");
    Ok(())
}
