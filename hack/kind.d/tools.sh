# Programs that the engine and the node image need.
# shellcheck shell=bash disable=SC2154

# kind and Docker have separate folders: machines with Docker need only kind.
readonly tools_dir=$engine_dir/tools engine_bin=$engine_dir/bin

readonly tools_source=${kind_d%/*}/tools

# build_kind: builds $tools_dir/kind in the version of go.mod.
build_kind() {
  [[ ! $tools_dir/kind -nt $tools_source/go.sum ]] || return 0
  command -v go >/dev/null || fail "Go is needed to build kind: install Go 1.21 or later"
  step "building kind from source"
  mkdir -p "$tools_dir"
  (cd "$tools_source" && CGO_ENABLED=0 GOWORK=off go build -o "$tools_dir/kind" sigs.k8s.io/kind) \
    >"$log_dir/kind.log" 2>&1 || fail_with_log "$log_dir/kind.log" "the Go build of kind failed"
  touch "$tools_dir/kind"
}

# kind_source: prints the folder of kind's module, which contains the files of a node.
kind_source() {
  (cd "$tools_source" && GOWORK=off go list -m -f '{{.Dir}}' sigs.k8s.io/kind)
}

# install_engine: unpacks Docker's programs in $engine_bin, and installs packages that they need.
install_engine() {
  # shellcheck disable=SC2034 # read by install_packages
  required_packages=(
    [/usr/bin/containerd]=containerd
    [/usr/sbin/runc]=runc
    [/usr/sbin/iptables]=iptables
    [/usr/bin/jq]=jq
    [/usr/bin/mmdebstrap]=mmdebstrap
    [/bin/ip]=iproute2
    [/sbin/dmsetup]=dmsetup # dockerd needs its library
  )
  install_packages
  [[ ! -x $engine_bin/dockerd ]] || return 0
  step "unpacking Debian's Docker"
  local dir=$engine_dir/unpacked log=$log_dir/apt.log
  rm -rf "$dir"
  mkdir -p "$dir" "$engine_bin"
  (cd "$dir" && apt-get update && apt-get -o APT::Sandbox::User=root download docker.io && dpkg -x docker.io_*.deb .) \
    >"$log" 2>&1 || fail_with_log "$log" "apt-get download docker.io failed"
  mv "$dir"/usr/bin/docker "$dir"/usr/sbin/{docker-proxy,dockerd} "$engine_bin"
  rm -rf "$dir"
}
