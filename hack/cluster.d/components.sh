# Components of the cluster: start_NAME starts one, ready_NAME reports whether
# it is ready. Both are idempotent. registry.sh has the registry.
# shellcheck shell=bash disable=SC2154

# start_component NAME, wait_until_ready NAME: NAME as in `hack/cluster status`.
start_component() {
  "start_${1//-/_}"
}

wait_until_ready() {
  wait_for 120 "$1" ready "ready_${1//-/_}"
}

# admin_kubectl ARGUMENT...: runs kubectl as the administrator, without files in $HOME.
admin_kubectl() {
  timeout 20 "$bin_dir/kubectl" --kubeconfig "$admin_kubeconfig" \
    --cache-dir "$kubectl_cache" --request-timeout 10s "$@"
}

port_open() {
  timeout 5 bash -c ": </dev/tcp/$1/$2"
}

start_etcd() {
  local client=https://127.0.0.1:$etcd_port peer=http://127.0.0.1:$etcd_peer_port
  start_process etcd "$bin_dir/kubernetes" etcd --name olm --data-dir "$state_dir/etcd" \
    --listen-client-urls "$client" --advertise-client-urls "$client" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "olm=$peer" \
    --cert-file "$pki_dir/etcd.crt" --key-file "$pki_dir/etcd.key" \
    --trusted-ca-file "$pki_dir/ca.crt" --client-cert-auth \
    --unsafe-no-fsync --log-level warn
}

ready_etcd() {
  port_open 127.0.0.1 "$etcd_port"
}

start_kube_apiserver() {
  start_process kube-apiserver "$bin_dir/kubernetes" kube-apiserver \
    --bind-address "$api_address" --advertise-address "$api_address" --secure-port "$api_port" \
    --endpoint-reconciler-type "$endpoint_reconciler" \
    --service-cluster-ip-range "$service_cidr" \
    --etcd-servers "https://127.0.0.1:$etcd_port" --etcd-cafile "$pki_dir/ca.crt" \
    --etcd-certfile "$pki_dir/etcd.crt" --etcd-keyfile "$pki_dir/etcd.key" \
    --tls-cert-file "$pki_dir/kube-apiserver.crt" --tls-private-key-file "$pki_dir/kube-apiserver.key" \
    --client-ca-file "$pki_dir/ca.crt" --authorization-mode Node,RBAC \
    --enable-admission-plugins NodeRestriction,OwnerReferencesPermissionEnforcement \
    --service-account-issuer https://kubernetes.default.svc.cluster.local \
    --service-account-key-file "$pki_dir/service-accounts.key" \
    --service-account-signing-key-file "$pki_dir/service-accounts.key" \
    --kubelet-certificate-authority "$pki_dir/ca.crt" \
    --kubelet-client-certificate "$pki_dir/kubelet-client.crt" \
    --kubelet-client-key "$pki_dir/kubelet-client.key" \
    --kubelet-preferred-address-types InternalIP \
    --requestheader-client-ca-file "$pki_dir/front-proxy-ca.crt" \
    --requestheader-allowed-names front-proxy-client \
    --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
    --requestheader-extra-headers-prefix X-Remote-Extra- \
    --proxy-client-cert-file "$pki_dir/front-proxy-client.crt" \
    --proxy-client-key-file "$pki_dir/front-proxy-client.key" \
    --allow-privileged
}

ready_kube_apiserver() {
  admin_kubectl get --raw /readyz && admin_kubectl get namespace default
}

start_containerd() {
  start_process containerd containerd --config "$config_dir/containerd.toml"
}

ready_containerd() {
  node_ctr version
}

start_kube_controller_manager() {
  start_process kube-controller-manager "$bin_dir/kubernetes" kube-controller-manager \
    --bind-address 127.0.0.1 --kubeconfig "$config_dir/kube-controller-manager.kubeconfig" \
    --root-ca-file "$pki_dir/ca.crt" --use-service-account-credentials --leader-elect=false \
    --service-account-private-key-file "$pki_dir/service-accounts.key" \
    --flex-volume-plugin-dir "$state_dir/kubelet/volume-plugins" \
    --cluster-signing-cert-file "$pki_dir/ca.crt" --cluster-signing-key-file "$pki_dir/ca.key"
}

# Pods can be created when their namespace has the service account.
ready_kube_controller_manager() {
  port_open 127.0.0.1 10257 && admin_kubectl get serviceaccount --namespace default default
}

start_kube_scheduler() {
  start_process kube-scheduler "$bin_dir/kubernetes" kube-scheduler \
    --bind-address 127.0.0.1 --kubeconfig "$config_dir/kube-scheduler.kubeconfig" --leader-elect=false
}

ready_kube_scheduler() {
  port_open 127.0.0.1 10259
}

start_kubelet() {
  start_process kubelet "$bin_dir/kubernetes" kubelet --config "$config_dir/kubelet.yaml" \
    --kubeconfig "$config_dir/node.kubeconfig" --hostname-override "$node_name" \
    --node-ip "$bridge_address" --root-dir "$state_dir/kubelet" --cert-dir "$state_dir/kubelet/pki"
}

# A node remains Ready for a while after its kubelet was killed. The condition
# must be newer than the process.
ready_kubelet() {
  local ready started
  started=$(date --utc --reference="$run_dir/kubelet.pid" +%FT%TZ)
  ready=$(admin_kubectl get node "$node_name" --output \
    jsonpath='{range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime}{end}') || return 1
  echo "node $node_name Ready: ${ready:-unknown}"
  [[ $ready == True* && ! ${ready#True } < $started ]]
}

start_kube_proxy() {
  start_process kube-proxy "$bin_dir/kubernetes" kube-proxy \
    --config "$config_dir/kube-proxy.yaml" --hostname-override "$node_name"
}

ready_kube_proxy() {
  nft list map ip kube-proxy service-ips | grep --fixed-strings "$kubernetes_service_address"
}

start_coredns() {
  start_process coredns "$bin_dir/kubernetes" coredns -conf "$config_dir/Corefile"
}

ready_coredns() {
  timeout 5 busybox nslookup kubernetes.default.svc.cluster.local "$bridge_address" &&
    timeout 5 busybox nslookup "$registry_host" "$bridge_address"
}
