# Sourced by hack/classic-test: builds the programs of classic OLM and images of them, of bundles and of catalogs.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of hack/classic-test

# build_classic: builds the programs from $OLM_CLASSIC_SOURCE to $programs, unless they are of this source. Our own program
# is laid over the source, whose files stay as they are.
build_classic() {
  local name package overlay=$programs/overlay.json stamp
  stamp=$(cd "$OLM_CLASSIC_SOURCE" && find . -path ./vendor -prune -o -type f -name '*.go' -print0 | sort -z |
    xargs -0 cat go.mod go.sum "$OLDPWD/hack/classic.d/tool/main.go" "$OLDPWD/hack/classic.d/build.sh" | sha256sum)
  [ "$(cat "$programs/stamp" 2>/dev/null)" != "$stamp" ] || return 0
  mkdir -p "$programs/bin"
  jq --null-input --arg to "$OLM_CLASSIC_SOURCE/cmd/opm/main.go" --arg from "$PWD/hack/classic.d/tool/main.go" \
    '{Replace: {($to): $from}}' >"$overlay"
  for package in cmd/olm cmd/catalog cmd/package-server util/cpb cmd/opm; do
    name=${package##*/}
    (cd "$OLM_CLASSIC_SOURCE" && CGO_ENABLED=0 GOFLAGS='' GOWORK=off go build -buildvcs=false -mod=vendor -trimpath \
      -ldflags '-s -w' -tags json1 -overlay "$overlay" -o "$programs/bin/$name" "./$package")
  done
  ln -sf opm "$programs/bin/cp"
  ln -sf opm "$programs/bin/grpc_health_probe"
  echo "$stamp" >"$programs/stamp"
}

# push_image REPOSITORY CONFIG FOLDER...: pushes an image with a layer per FOLDER to the cluster's registry. CONFIG is the
# object `config` of its configuration. Prints the reference for pods.
push_image() {
  local repository=$1 config=$2 folder work layers='[]' ids='[]' manifest digest
  shift 2
  work=$(mktemp -d "$run/image.XXXXXX")
  for folder in "$@"; do
    tar --create --sort name --mtime @0 --owner 0 --group 0 --numeric-owner --directory "$folder" --file "$work/layer" .
    digest=$(push_blob "$repository" "$work/layer")
    layers=$(jq -c --arg digest "$digest" --argjson size "$(stat -c %s "$work/layer")" \
      '. + [{mediaType: "application/vnd.oci.image.layer.v1.tar", $digest, $size}]' <<<"$layers")
    ids=$(jq -c --arg digest "$digest" '. + [$digest]' <<<"$ids")
  done
  jq --null-input -c --argjson config "$config" --argjson ids "$ids" --arg architecture "$(go env GOARCH)" \
    '{$architecture, os: "linux", $config, rootfs: {type: "layers", diff_ids: $ids}}' >"$work/config"
  digest=$(push_blob "$repository" "$work/config")
  manifest=$(jq --null-input -c --arg digest "$digest" --argjson size "$(stat -c %s "$work/config")" --argjson layers "$layers" \
    '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
      config: {mediaType: "application/vnd.oci.image.config.v1+json", $digest, $size}, $layers}')
  digest=sha256:$(printf %s "$manifest" | sha256sum | cut -d' ' -f1)
  registry "v2/$repository/manifests/$digest" -X PUT --data-binary "$manifest" \
    -H 'Content-Type: application/vnd.oci.image.manifest.v1+json' >/dev/null
  rm -r "$work"
  echo "$OLM_REGISTRY/$repository@$digest"
}

# push_blob REPOSITORY FILE: pushes a blob unless the registry has it, and prints its digest.
push_blob() {
  local digest location
  digest=sha256:$(sha256sum "$2" | cut -d' ' -f1)
  if ! registry "v2/$1/blobs/$digest" --head >/dev/null 2>&1; then
    location=$(registry "v2/$1/blobs/uploads/" -X POST --dump-header - | tr -d '\r' | sed -n 's/^[Ll]ocation: //p')
    location=$(sed -E 's|^https?://[^/]*/||' <<<"$location")
    registry "$location&digest=$digest" -X PUT -H 'Content-Type: application/octet-stream' --data-binary "@$2" >/dev/null
  fi
  echo "$digest"
}

# registry PATH CURL-OPTION...: calls the cluster's registry.
registry() {
  curl --silent --show-error --fail --max-time 120 --cacert "$OLM_REGISTRY_CA" "${@:2}" "https://$OLM_REGISTRY_ADDRESS/$1"
}

# bundle PACKAGE VERSION TEMPLATE [DEPENDENCY]: writes and pushes a bundle of the sample operator from a folder of its
# templates. Sets ${images[PACKAGE.vVERSION]}.
bundle() {
  local package=$1 version=$2 template=$3 folder=$run/bundles/$1.v$2 file mode=idle
  [ "$template" != manifests ] || mode=serve
  rm -rf "$folder"
  mkdir -p "$folder/manifests" "$folder/metadata"
  cp tests/sample-operator/bundle/metadata/* "$folder/metadata"
  # The webhooks have a CRD of their own.
  [ "$template" = aggregated ] || cp tests/sample-operator/bundle/manifests/greetings.crd.yaml "$folder/manifests"
  cp "tests/sample-operator/bundle/$template"/* "$folder/manifests"
  [ ! -d "hack/classic.d/objects/$package" ] || cp "hack/classic.d/objects/$package"/* "$folder/manifests"
  if [ -n "${4:-}" ]; then
    printf 'dependencies:\n- type: olm.gvk\n  value: {group: %s.%s, version: v1, kind: Greeting}\n' "$4" "$sample_group" \
      >"$folder/metadata/dependencies.yaml"
    sed -i "s|^  customresourcedefinitions:|&\\n    required:\\n      - {name: greetings.$4.$sample_group, kind: Greeting, version: v1,\\
          displayName: Greeting, description: Greets.}|" "$folder/manifests/operator.clusterserviceversion.yaml"
  fi
  for file in "$folder"/*/*; do
    sed -i -e "s|\${PACKAGE}|$package|g" -e "s|\${GROUP}|$package.$sample_group|g" -e "s|\${IMAGE}|$sample_image|g" \
      -e "s|\${VERSION}|$version|g" -e "s|\${MODE}|$mode|g" "$file"
  done
  images[$package.v$version]=$(push_image "classic/$package" \
    '{"Labels": {"operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
      "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
      "operators.operatorframework.io.bundle.metadata.v1": "metadata/"}}' "$folder")
}

# entry PACKAGE VERSION...: prints the file-based catalog of a package whose versions follow each other in channel stable.
entry() {
  local package=$1 version previous='' entries='[]' dependency=${requires[$1]:-}
  jq --null-input -c --arg package "$package" '{schema: "olm.package", name: $package, defaultChannel: "stable"}'
  for version in "${@:2}"; do
    entries=$(jq -c --arg name "$package.v$version" --arg replaces "$previous" \
      '. + [{$name} + if $replaces == "" then {} else {$replaces} end]' <<<"$entries")
    previous=$package.v$version
    jq --null-input -c --arg package "$package" --arg version "$version" --arg image "${images[$package.v$version]}" \
      --arg group "$package.$sample_group" --arg requires "$dependency${dependency:+.$sample_group}" '
      {schema: "olm.bundle", name: "\($package).v\($version)", $package, $image, relatedImages: [], properties: (
        [{type: "olm.package", value: {packageName: $package, $version}},
         {type: "olm.gvk", value: {$group, version: "v1", kind: "Greeting"}}]
        + if $requires == "" then [] else [{type: "olm.gvk.required", value: {group: $requires, version: "v1", kind: "Greeting"}}] end)}'
  done
  jq --null-input -c --arg package "$package" --argjson entries "$entries" '{schema: "olm.channel", name: "stable", $package, $entries}'
}

# push_catalog NAME LINES: pushes a catalog that both systems read, and prints its reference.
push_catalog() {
  local folder=$run/catalogs/$1
  mkdir -p "$folder/configs" "$folder/tmp"
  chmod 1777 "$folder/tmp"
  printf '%s\n' "$2" >"$folder/configs/catalog.json"
  push_image "classic/$1" '{"Entrypoint": ["/bin/opm", "serve", "/configs"],
    "Labels": {"operators.operatorframework.io.index.configs.v1": "/configs"}}' "$run/tools" "$folder"
}
