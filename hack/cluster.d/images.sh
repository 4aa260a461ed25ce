# Images on the node.
# shellcheck shell=bash disable=SC2154

node_ctr() {
  timeout 300 ctr --address "$containerd_socket" --connect-timeout 5s --namespace k8s.io "$@"
}

# load_image FILE: FILE is an OCI archive whose index names the image with the
# annotation io.containerd.image.name.
load_image() {
  [[ -r $1 ]] || fail "cannot read the image archive $1"
  node_ctr images import "$1" >&2 || fail "containerd rejected the OCI image archive $1"
}

# load_pause_image: builds the image that every pod needs, without a registry.
load_pause_image() {
  local archive=$state_dir/pause.tar
  pack_pause_image "$archive"
  load_image "$archive" 2>>"$log_dir/containerd.log"
  rm -f "$archive"
}

# pack_pause_image ARCHIVE: writes an OCI archive with the pause program as its
# only layer.
pack_pause_image() {
  local dir diff_id layer config manifest
  dir=$(mktemp -d "$state_dir/pause.XXXXXX")
  mkdir -p "$dir/blobs/sha256"
  tar --create --file "$dir/layer" --directory "$bin_dir" --owner=0 --group=0 --numeric-owner \
    --mtime=@0 --mode=0755 pause
  diff_id=$(sha256sum <"$dir/layer" | cut -d' ' -f1)
  layer=$(add_blob "$dir" layer application/vnd.oci.image.layer.v1.tar)
  cat >"$dir/config" <<END
{"architecture": "$(image_architecture)", "os": "linux",
 "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$diff_id"]}}
END
  config=$(add_blob "$dir" config application/vnd.oci.image.config.v1+json)
  cat >"$dir/manifest" <<END
{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
 "config": {$config}, "layers": [{$layer}]}
END
  manifest=$(add_blob "$dir" manifest application/vnd.oci.image.manifest.v1+json)
  cat >"$dir/index.json" <<END
{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
 "manifests": [{$manifest, "annotations": {"io.containerd.image.name": "$pause_image"}}]}
END
  echo '{"imageLayoutVersion": "1.0.0"}' >"$dir/oci-layout"
  tar --create --file "$1" --directory "$dir" oci-layout index.json blobs
  rm -rf "$dir"
}

# add_blob DIR FILE MEDIA_TYPE: moves DIR/FILE to the blobs of DIR and prints the
# members of its descriptor.
add_blob() {
  local hash size
  hash=$(sha256sum <"$1/$2" | cut -d' ' -f1)
  size=$(stat --format=%s "$1/$2")
  mv "$1/$2" "$1/blobs/sha256/$hash"
  printf '"mediaType": "%s", "digest": "sha256:%s", "size": %d' "$3" "$hash" "$size"
}

image_architecture() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
  esac
}
