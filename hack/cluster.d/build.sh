# Debian packages, and binaries built from Go.
# shellcheck shell=bash disable=SC2154

# Files of programs, and their packages.
declare -A required_packages=(
  [/usr/bin/containerd]=containerd
  [/usr/sbin/runc]=runc
  [/usr/lib/cni/bridge]=containernetworking-plugins
  [/usr/sbin/nft]=nftables
  [/bin/busybox]=busybox-static
  [/usr/bin/docker-registry]=docker-registry
  [/usr/bin/openssl]=openssl
  [/bin/ip]=iproute2
  [/etc/ssl/certs/ca-certificates.crt]=ca-certificates
)

install_packages() {
  local file
  local -a missing=()
  for file in "${!required_packages[@]}"; do
    [[ -e $file ]] || missing+=("${required_packages[$file]}")
  done
  ((${#missing[@]} > 0)) || return 0
  step "installing Debian packages: ${missing[*]}"
  command -v apt-get >/dev/null ||
    fail "apt-get not found; install the equivalents of these packages: ${missing[*]}"
  local log=$log_dir/apt.log
  refuse_service_starts
  apt-get update >"$log" 2>&1 || fail_with_log "$log" "apt-get update failed"
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" \
    >>"$log" 2>&1 || fail_with_log "$log" "apt-get install ${missing[*]} failed"
  allow_service_starts "${missing[@]}"
}

# refuse_service_starts: keeps Debian from starting the service of an installed
# package, with a policy unless the administrator has one.
refuse_service_starts() {
  [[ ! -e /usr/sbin/policy-rc.d ]] || return 0
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
  chmod 755 /usr/sbin/policy-rc.d
}

# allow_service_starts PACKAGE...: ends refuse_service_starts, and disables the
# services of newly installed packages.
allow_service_starts() {
  local package
  if [[ -n $(trap -p EXIT) ]]; then
    rm -f /usr/sbin/policy-rc.d
    trap - EXIT
  fi
  [[ -d /run/systemd/system ]] || return 0
  for package in "$@"; do
    case $package in
      containerd | docker-registry) systemctl disable --quiet "$package" ;;
    esac
  done
}

# build_binaries: builds $bin_dir from the Go module, unless it was built from
# the same sources. A running cluster keeps its open files.
build_binaries() {
  local source=$cluster_d/kubernetes${OLM_KUBERNETES:+-$OLM_KUBERNETES} hash
  [[ -e $source/go.mod ]] || fail "OLM_KUBERNETES may be 'oldest' or unset, not '$OLM_KUBERNETES'"
  hash=$(cd "$source" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d' ' -f1)
  mkdir -p "$cache_dir"
  (
    flock 8
    [[ $(cat "$bin_dir/source-hash" 2>/dev/null) == "$hash" ]] || build_from "$source" "$hash"
  ) 8>"$cache_dir/build.lock"
}

build_from() {
  local source=$1 hash=$2 new=$bin_dir.new log=$bin_dir.log version
  command -v go >/dev/null || fail "Go is needed to build Kubernetes: install Go 1.21 or later"
  step "building Kubernetes, etcd and CoreDNS from source (5 to 20 minutes on 2 cores; once)"
  rm -rf "$new"
  mkdir -p "$new"
  version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' "$source/go.mod")
  local package=k8s.io/component-base/version
  local flags="-s -w -X $package.gitVersion=$version -X $package.gitMajor=1"
  flags+=" -X $package.gitMinor=$(cut -d. -f2 <<<"$version") -X $package.gitTreeState=clean"
  (cd "$source" && export CGO_ENABLED=0 GOWORK=off &&
    go build -mod=readonly -buildvcs=false -trimpath -gcflags=all=-dwarf=false -ldflags "$flags" -o "$new/kubernetes" . &&
    { [[ ! -e pause ]] || go build -mod=readonly -buildvcs=false -trimpath -ldflags '-s -w' -o "$new/pause" ./pause; }
  ) >"$log" 2>&1 || fail_with_log "$log" "the Go build failed"
  ln -s kubernetes "$new/kubectl"
  echo "$hash" >"$new/source-hash"
  rm -rf "$bin_dir"
  mv "$new" "$bin_dir"
  step "built $bin_dir"
}
