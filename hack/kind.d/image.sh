# The node image, from Debian packages, kind's files for nodes and the binary of hack/cluster, and the registry's image.
# shellcheck shell=bash disable=SC2154

readonly node_packages=systemd,dbus,conntrack,iptables,nftables,iproute2,ethtool,kmod,util-linux,mount,jq,procps,curl,ca-certificates,containerd,runc,containernetworking-plugins,docker-registry

# make_images: sets $node_image, and builds it and the registry's image unless the engine has them.
make_images() {
  local root=$engine_dir/root hash
  build_binaries
  hash=$(cat "$bin_dir/source-hash" "$kind_d/image.sh" "$tools_source/go.sum" | sha256sum)
  node_image=olm.test/kind-node:${hash:0:12}
  [[ -z ${OLM_KIND_IMAGE:-} ]] || docker_cli image inspect "$OLM_KIND_IMAGE" >/dev/null 2>&1 ||
    fail "the engine does not have OLM_KIND_IMAGE=$OLM_KIND_IMAGE; see hack/kind --help for loading it"
  ! docker_cli image inspect "$node_image" registry:2 >/dev/null 2>&1 || return 0
  docker_cli images --quiet --filter 'reference=olm.test/*' | sort --unique |
    xargs --no-run-if-empty env DOCKER_HOST="unix://$docker_socket" "$engine_bin/docker" rmi --force >/dev/null
  rm -rf --one-file-system "$root"
  install_node_packages "$root"
  add_kubernetes "$root"
  add_kind_files "$root"
  step "building images"
  tar --create --directory "$root" . | docker_cli import - olm.test/node >/dev/null
  docker_cli build --quiet --tag registry:2 - >/dev/null <<'END'
FROM olm.test/node
ENV REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY=/var/lib/registry REGISTRY_HTTP_ADDR=0.0.0.0:5000
ENTRYPOINT ["/usr/bin/docker-registry", "serve", "/etc/docker/registry/plain.yml"]
END
  make_pod_images "$root"
  commit_node_image
  docker_cli rmi "${pod_images[@]}" >/dev/null
  rm -rf --one-file-system "$root"
  step "built the node image $node_image"
}

# install_node_packages ROOT
install_node_packages() {
  local log=$log_dir/packages.log
  step "installing Debian packages of a node in a folder (2 minutes; once)"
  mmdebstrap --variant=minbase --include="$node_packages" --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    bookworm "$1" >"$log" 2>&1 || fail_with_log "$log" "mmdebstrap failed"
}

# add_kubernetes ROOT: adds the programs of a node, which are one binary.
add_kubernetes() {
  local name
  install "$bin_dir/kubernetes" "$1/usr/bin/"
  for name in kubeadm kubectl kubelet; do
    ln -s kubernetes "$1/usr/bin/$name"
  done
}

# add_kind_files ROOT: adds the files of kind's image and configures them like kind's build.
add_kind_files() {
  local root=$1 name files
  files=$(kind_source)/images/base/files
  cp --recursive --no-preserve=mode "$files"/{etc,kind,usr} "$root"
  chmod 755 "$root"/usr/local/bin/{entrypoint,clean-install} "$root"/kind/bin/*
  ln -s /usr/bin/{containerd,ctr,containerd-shim-runc-v2} "$root/usr/local/bin/"
  ln -sf /usr/lib/systemd/systemd "$root/sbin/init"
  mkdir -p "$root/opt/cni" "$root/kind/manifests" "$root/etc/kubernetes/manifests" "$root/etc/docker/registry"
  ln -s /usr/lib/cni "$root/opt/cni/bin"
  # Without CAP_SYS_RESOURCE no process may lower its OOM score.
  sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$root/etc/containerd/config.toml"
  chroot "$root" ctr oci spec |
    jq 'del(.process.rlimits) | .hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}]' \
      >"$root/etc/containerd/cri-base.json"
  echo "ReadKMsg=no" >>"$root/etc/systemd/journald.conf"
  rm -f "$root"/lib/systemd/system/{multi-user,local-fs}.target.wants/* "$root"/etc/systemd/system/*.wants/* \
    "$root"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service \
    "$root"/lib/systemd/system/sockets.target.wants/*{udev,initctl}*
  chroot "$root" systemctl enable --quiet kubelet containerd undo-mount-hacks
  chroot "$root" systemctl mask --quiet systemd-binfmt
  chroot "$root" kubeadm version --output short >"$root/kind/version"
  # hack/cluster connects the nodes, and no test needs volumes.
  for name in cni storage; do
    printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: no-default-%s, namespace: kube-system}\n' $name \
      >"$root/kind/manifests/default-$name.yaml"
  done
  printf 'version: 0.1\nstorage: {filesystem: {}}\nhttp: {}\n' >"$root/etc/docker/registry/plain.yml"
}

# make_pod_images ROOT: builds the images that kubeadm runs in pods, with a common layer and different entrypoints, and sets
# $pod_images.
make_pod_images() {
  local root=$1 pod=$engine_dir/pod image name
  rm -rf --one-file-system "$pod"
  mkdir -p "$pod/usr/local/bin"
  install "$bin_dir/kubernetes" "$bin_dir/pause" "$pod/usr/local/bin/"
  # Programs of kube-proxy. Names in /usr/sbin are links to alternatives.
  # shellcheck disable=SC2016
  chroot "$root" sh -c '
    cd / && ldd usr/sbin/xtables-nft-multi usr/sbin/nft usr/lib/*/xtables/*.so | grep -o "[[:space:]]/[^ ]*" | sort -u |
      xargs tar -ch usr/sbin/nft usr/sbin/ip*tables-nft* usr/lib/*/xtables' 2>/dev/null |
    tar --extract --directory "$pod" --transform 's/tables-nft/tables/'
  mapfile -t pod_images < <(
    chroot "$root" kubeadm config images list --kubernetes-version "$(<"$root/kind/version")"
    sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$root/etc/containerd/config.toml"
  )
  for image in "${pod_images[@]}"; do
    name=$(basename "${image%:*}")
    [[ $name == pause ]] || ln -sf kubernetes "$pod/usr/local/bin/$name"
  done
  tar --create --directory "$pod" . | docker_cli import - olm.test/pod >/dev/null
  for image in "${pod_images[@]}"; do
    name=$(basename "${image%:*}")
    printf 'FROM olm.test/pod\nENTRYPOINT ["/usr/local/bin/%s"]\n' "$name" |
      docker_cli build --quiet --tag "$image" - >/dev/null
  done
  rm -rf --one-file-system "$pod"
}

# commit_node_image: imports the pod images into the containerd of the node image.
commit_node_image() {
  local container log=$log_dir/pod-images.log
  container=$(docker_cli run --detach --entrypoint sleep olm.test/node infinity)
  docker_cli save "${pod_images[@]}" | docker_cli exec --interactive "$container" bash -euc '
    containerd >/tmp/containerd.log 2>&1 &
    for try in {1..100}; do
      ctr version >/dev/null 2>&1 && break
      sleep 0.1
    done
    ctr --namespace k8s.io images import --all-platforms --no-unpack --digests - || { cat /tmp/containerd.log; exit 1; }
    kill %1 && wait
    rm /tmp/containerd.log' >"$log" 2>&1 || fail_with_log "$log" "the pod images could not be imported into the node image"
  docker_cli commit "$container" olm.test/node:pods >/dev/null
  docker_cli rm --force --volumes "$container" >/dev/null
  # systemd must know that it is in a container, and stops at a special signal.
  docker_cli build --quiet --tag "$node_image" - >/dev/null <<'END'
FROM olm.test/node:pods
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
END
}
