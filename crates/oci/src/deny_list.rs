//! Networks in which no registry may be, so that an image reference cannot make a server connect to services of its
//! own machine or cloud (docs/design/operations.md#hardening). Checked after name resolution, for each connection
//! and each redirect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::proxies::Proxies;
use crate::request_error::DeniedAddress;

/// Denied networks. [`DeniedNetworks::default`] denies none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeniedNetworks(Arc<[IpNet]>);

impl DeniedNetworks {
    /// Default of the servers: link-local addresses, where clouds serve credentials, loopback, and the addresses of
    /// Azure and Alibaba Cloud that serve the node and are not link-local.
    pub const OF_SERVERS: &str =
        "169.254.0.0/16,fe80::/10,127.0.0.0/8,::1/128,168.63.129.16/32,100.100.100.200/32";

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn check(&self, address: IpAddr) -> Result<(), DeniedAddress> {
        let target = connection_target(address);
        let network = self.0.iter().find(|network| network.contains(&target));
        network.map_or(Ok(()), |network| Err(DeniedAddress { address, network: *network }))
    }

    /// Checks a URL whose host is an IP address, which never reaches the resolver.
    pub(crate) fn check_url(&self, url: &str) -> Result<(), DeniedAddress> {
        let url = Url::parse(url).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host.parse().map_or(Ok(()), |address| self.check(address))
    }
}

/// Cloud metadata addresses: over IPv4 in all clouds, over IPv6 in AWS, Google Cloud and Oracle Cloud.
const IPV4_METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
const IPV6_METADATA: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

/// Effective target of a connection to `address`. All metadata addresses map to the IPv4 one.
fn connection_target(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(six) if IPV6_METADATA.contains(&six) => IPV4_METADATA.into(),
        IpAddr::V6(six) => {
            embedded_ipv4(six).map_or(IpAddr::V6(six), |four| connection_target(IpAddr::V4(four)))
        }
        four @ IpAddr::V4(_) => four,
    }
}

/// IPv4 address embedded in a translated one: NAT64 (RFC 6052 §2.1, RFC 8215), 6to4 (RFC 3056) and the deprecated
/// IPv4-compatible form (RFC 4291 §2.5.5.1).
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = address.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match parts {
        [0x2002, high, low, ..] => Some(of(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, _, _, _, high, low] => Some(of(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) > (0, 1) => Some(of(high, low)),
        _ => None,
    }
}

impl FromStr for DeniedNetworks {
    type Err = String;

    /// Parses networks as `ADDRESS/BITS` or single addresses, separated by commas. An empty text denies none.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(network).collect::<Result<_, _>>().map(Self)
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| format!("invalid CIDR address: {text}"))
}

/// DNS resolver that removes denied addresses. Proxies are exempt, since the administrator configures them.
pub(crate) struct GuardedResolver {
    pub(crate) denied: DeniedNetworks,
    pub(crate) proxies: Proxies,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (denied, is_proxy) = (self.denied.clone(), self.proxies.is_proxy(name.as_str()));
        Box::pin(async move {
            let all: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let error = all.iter().find_map(|one| denied.check(one.ip()).err());
            let kept: Vec<SocketAddr> =
                all.into_iter().filter(|one| is_proxy || denied.check(one.ip()).is_ok()).collect();
            match error {
                Some(error) if kept.is_empty() => Err(error.into()),
                _ => Ok(Box::new(kept.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_with_address_in_denied_network_is_rejected() {
        let denied: DeniedNetworks = DeniedNetworks::OF_SERVERS.parse().unwrap();
        let text = |address: &str| {
            format!(
                "dial tcp {address}: the address is in 169.254.0.0/16, which --registry-deny-cidrs forbids"
            )
        };
        let metadata = denied.check_url("https://169.254.169.254/v2/").unwrap_err();
        assert_eq!(metadata.to_string(), text("169.254.169.254"));
        for (url, is_allowed) in [
            ("https://10.0.0.1:5000/v2/", true),
            ("https://registry.example/v2/", true),
            ("https://[2001:db8::1]/v2/", true),
            ("https://127.8.8.8/", false),
            ("https://[::1]:5000/", false),
            ("https://[fe80::1]/", false),
            ("https://[::ffff:169.254.169.254]/", false),
            ("https://[64:ff9b::a9fe:a9fe]/", false),
            ("https://[64:ff9b:1::7f00:1]/", false),
            ("https://[2002:a9fe:a9fe::1]/", false),
            ("https://[::7f00:1]/", false),
            ("https://[64:ff9b::808:808]/", true),
            ("https://[fd00:ec2::254]/", false),
            ("https://[fd20:ce::254]/", false),
            ("https://[fd00:c1::a9fe:a9fe]/", false),
            ("https://[fd00:ec2::253]/", true),
            ("http://168.63.129.16/machine", false),
            ("https://100.100.100.200/latest/meta-data", false),
            ("https://[::ffff:100.100.100.200]/", false),
            ("https://100.100.100.201/", true),
            ("https://0.0.0.0/", false),
            ("https://[::]/", false),
            // Hexadecimal IPv4, as the URL standard parses it.
            ("https://0x7f000001/", false),
        ] {
            assert_eq!(denied.check_url(url).is_ok(), is_allowed, "{url}");
        }
        assert!(DeniedNetworks::default().check_url("https://127.0.0.1/").is_ok());
    }

    #[test]
    fn cidr_list_parses_or_reports_invalid_part() {
        let parse = |text: &str| text.parse::<DeniedNetworks>();
        assert_eq!(parse(""), Ok(DeniedNetworks::default()));
        assert_eq!(parse("10.0.0.1, ::1").unwrap(), parse("10.0.0.1/32,::1/128,").unwrap());
        assert!(parse("0.0.0.0/0").unwrap().check_url("http://8.8.8.8/").is_err());
        for wrong in ["10.0.0.0/33", "10.0.0/8", "example.com", "::/x"] {
            assert_eq!(parse(wrong).unwrap_err(), format!("invalid CIDR address: {wrong}"));
        }
    }

    // Case operations-a55 for a name: checked after resolution.
    #[tokio::test]
    async fn name_resolving_to_denied_address_is_rejected() {
        let resolver =
            |proxies: Proxies| GuardedResolver { denied: "127.0.0.0/8,::1".parse().unwrap(), proxies };
        let name = || "localhost".parse::<Name>().unwrap();
        let refused = resolver(Proxies::default()).resolve(name()).await.err().unwrap();
        assert!(refused.downcast_ref::<DeniedAddress>().is_some(), "{refused}");
        let proxy = Proxies::new(None, Url::parse("http://localhost:3128").ok(), "");
        assert!(resolver(proxy).resolve(name()).await.unwrap().next().is_some());
    }
}
