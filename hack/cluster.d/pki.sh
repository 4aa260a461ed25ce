# The cluster's certificate authorities, their certificates and kubeconfigs.
# shellcheck shell=bash disable=SC2154

readonly certificate_days=3650

# make_ca NAME SUBJECT: creates the certificate authority NAME.key and NAME.crt
# unless it exists.
make_ca() {
  local name=$1 subject=$2
  [[ ! -e $pki_dir/$name.crt ]] || return 0
  mkdir -p "$pki_dir"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days $certificate_days \
    -config <(request_config \
      'basicConstraints = critical, CA:TRUE' \
      'keyUsage = critical, digitalSignature, keyCertSign, cRLSign' \
      'subjectKeyIdentifier = hash') \
    -subj "$subject" -keyout "$pki_dir/$name.key" -out "$pki_dir/$name.crt.new" 2>/dev/null ||
    fail "openssl could not create the certificate authority $pki_dir/$name.crt"
  mv "$pki_dir/$name.crt.new" "$pki_dir/$name.crt"
}

# request_config EXTENSION...: prints an OpenSSL configuration, because that of
# the machine may add extensions.
request_config() {
  printf '[req]\ndistinguished_name = name\nx509_extensions = extensions\n[name]\n[extensions]\n'
  printf '%s\n' "$@"
}

# make_certificate NAME SUBJECT USAGE [SAN [CA]]: creates NAME.key and NAME.crt
# unless they exist. USAGE is clientAuth, serverAuth or both. SAN has OpenSSL's
# syntax.
make_certificate() {
  local name=$1 subject=$2 usage=$3 san=${4:-} ca=${5:-ca}
  [[ ! -e $pki_dir/$name.crt ]] || return 0
  local -a extensions=('basicConstraints = critical, CA:FALSE'
    'keyUsage = critical, digitalSignature' "extendedKeyUsage = $usage"
    'authorityKeyIdentifier = keyid')
  [[ -z $san ]] || extensions+=("subjectAltName = $san")
  openssl req -x509 -CA "$pki_dir/$ca.crt" -CAkey "$pki_dir/$ca.key" \
    -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days $certificate_days \
    -config <(request_config "${extensions[@]}") -subj "$subject" \
    -keyout "$pki_dir/$name.key" -out "$pki_dir/$name.crt.new" 2>/dev/null ||
    fail "openssl could not create the certificate $pki_dir/$name.crt"
  mv "$pki_dir/$name.crt.new" "$pki_dir/$name.crt"
}

# make_kubeconfig FILE CERTIFICATE_NAME: writes a file with embedded certificates.
make_kubeconfig() {
  cat >"$1" <<END
apiVersion: v1
kind: Config
current-context: olm
contexts:
- name: olm
  context: {cluster: olm, user: $2}
clusters:
- name: olm
  cluster:
    server: https://$api_address:$api_port
    certificate-authority-data: $(base64 -w0 "$pki_dir/ca.crt")
users:
- name: $2
  user:
    client-certificate-data: $(base64 -w0 "$pki_dir/$2.crt")
    client-key-data: $(base64 -w0 "$pki_dir/$2.key")
END
}

make_registry_certificate() {
  make_certificate registry "/CN=$registry_host" serverAuth \
    "DNS:$registry_host, DNS:localhost, IP:$bridge_address, IP:127.0.0.1"
}

# make_pki: creates all certificates, keys and kubeconfigs of the profile.
make_pki() {
  make_ca ca /CN=olm-cluster-ca
  # With a CA of its own, no other client can act as the front proxy of aggregated APIs.
  make_ca front-proxy-ca /CN=olm-cluster-front-proxy-ca
  make_certificate front-proxy-client /CN=front-proxy-client clientAuth '' front-proxy-ca
  local names='DNS:kubernetes, DNS:kubernetes.default, DNS:kubernetes.default.svc'
  names+=', DNS:kubernetes.default.svc.cluster.local, DNS:localhost'
  make_certificate kube-apiserver /CN=kube-apiserver serverAuth \
    "$names, IP:$bridge_address, IP:$kubernetes_service_address, IP:127.0.0.1"
  make_certificate etcd /CN=etcd serverAuth,clientAuth "DNS:localhost, IP:127.0.0.1"
  make_certificate admin /O=system:masters/CN=admin clientAuth
  make_certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
  if [[ ! -e $pki_dir/service-accounts.key ]]; then
    # Kubernetes reads elliptic keys only in this format.
    openssl ecparam -name prime256v1 -genkey -noout -out "$pki_dir/service-accounts.key"
  fi
  make_kubeconfig "$admin_kubeconfig" admin
  [[ $profile == node ]] || return 0

  make_certificate kubelet "/CN=$node_name" serverAuth "DNS:$node_name, IP:$bridge_address"
  make_registry_certificate
  make_client kube-controller-manager /CN=system:kube-controller-manager
  make_client kube-scheduler /CN=system:kube-scheduler
  make_client kube-proxy /CN=system:kube-proxy
  make_client coredns /CN=system:coredns
  make_client node "/O=system:nodes/CN=system:node:$node_name"
}

# make_client NAME SUBJECT: creates a client certificate and its kubeconfig.
make_client() {
  make_certificate "$1" "$2" clientAuth
  make_kubeconfig "$config_dir/$1.kubeconfig" "$1"
}
