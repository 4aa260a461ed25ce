# The TLS image registry of the cluster on the bare machine. It listens only on
# the bridge, which the machine and the pods reach and other machines do not.
# shellcheck shell=bash disable=SC2154

start_registry() {
  start_process registry docker-registry serve "$config_dir/registry.yaml"
}

# ready_registry: connects as a client does, and verifies the certificate and its address.
ready_registry() {
  timeout 5 openssl s_client -connect "$registry_address" -CAfile "$pki_dir/ca.crt" \
    -verify_return_error -verify_ip "$bridge_address" </dev/null
}
