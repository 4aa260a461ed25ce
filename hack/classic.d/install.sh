# Sourced by hack/classic-test: installs classic OLM and operators with it.
# shellcheck shell=bash

# install_classic IMAGE: installs classic OLM, and waits until it is ready.
install_classic() {
  kubectl apply --server-side --force-conflicts -f "$OLM_CLASSIC_SOURCE/deploy/chart/crds" >/dev/null
  kubectl wait --for condition=Established --timeout 60s crd -l '!none' >/dev/null
  kubectl apply -f - >/dev/null <<EOT
apiVersion: v1
kind: Namespace
metadata: {name: olm}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: olm-operator-serviceaccount, namespace: olm}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:controller:operator-lifecycle-manager"}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
- {nonResourceURLs: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: olm-operator-binding-olm}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:controller:operator-lifecycle-manager"}
subjects:
- {kind: ServiceAccount, name: olm-operator-serviceaccount, namespace: olm}
---
apiVersion: operators.coreos.com/v1
kind: OLMConfig
metadata: {name: cluster}
---
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: olm-operators, namespace: olm}
spec: {targetNamespaces: [olm]}
$(classic_server olm-operator '[/bin/olm]' '[--namespace, olm, --writeStatusName, ""]' "$1")
$(classic_server catalog-operator '[/bin/catalog]' \
    "[--namespace, olm, --set-workload-user-id=true, --opmImage=$1, --util-image=$1]" "$1")
EOT
  kubectl -n olm rollout status --timeout 180s deployment/olm-operator deployment/catalog-operator
  install_package_server "$1"
}

# install_package_server IMAGE: installs the package server, which is an operator of classic OLM without Subscription, and waits
# until its API is served.
install_package_server() {
  kubectl apply -f - >/dev/null <<EOT
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: packageserver, namespace: olm}
spec:
  displayName: Package server
  version: 1.0.0
  installModes:
  - {type: OwnNamespace, supported: true}
  - {type: SingleNamespace, supported: true}
  - {type: MultiNamespace, supported: true}
  - {type: AllNamespaces, supported: true}
  apiservicedefinitions:
    owned:
    - {group: packages.operators.coreos.com, version: v1, kind: PackageManifest, name: packagemanifests,
       displayName: PackageManifest, description: Packages of CatalogSources., deploymentName: packageserver,
       containerPort: 5443}
  install:
    strategy: deployment
    spec:
      clusterPermissions:
      - serviceAccountName: olm-operator-serviceaccount
        rules: [{apiGroups: [operators.coreos.com], resources: [catalogsources], verbs: [get, list, watch]}]
      deployments:
      - name: packageserver
        spec:
          replicas: 1
          selector: {matchLabels: {app: packageserver}}
          template:
            metadata: {labels: {app: packageserver}}
            spec:
              serviceAccountName: olm-operator-serviceaccount
              containers:
              - name: packageserver
                image: $1
                command: [/bin/package-server, --secure-port, "5443", --global-namespace, olm]
                readinessProbe: {httpGet: {path: /healthz, port: 5443, scheme: HTTPS}, periodSeconds: 2}
                volumeMounts: [{name: tmp, mountPath: /tmp}]
              volumes: [{name: tmp, emptyDir: {}}]
EOT
  wait_for 180 kubectl -n olm wait --for 'jsonpath={.status.phase}=Succeeded' --timeout 60s csv/packageserver >/dev/null 2>&1
  kubectl wait --for condition=Available --timeout 60s apiservice/v1.packages.operators.coreos.com >/dev/null
}

# classic_server NAME COMMAND ARGUMENTS IMAGE: prints a Deployment.
classic_server() {
  cat <<EOT
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1, namespace: olm, labels: {app: $1}}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      serviceAccountName: olm-operator-serviceaccount
      containers:
      - name: $1
        image: $4
        command: $2
        args: $3
        env:
        - {name: OPERATOR_NAMESPACE, value: olm}
        - {name: OPERATOR_NAME, value: $1}
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2}
        volumeMounts: [{name: tmp, mountPath: /tmp}]
      volumes: [{name: tmp, emptyDir: {}}]
EOT
}

# install_catalog IMAGE: creates the CatalogSource of all packages, and waits until it is served.
install_catalog() {
  kubectl apply -f - >/dev/null <<EOT
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: classic, namespace: olm}
spec:
  sourceType: grpc
  image: $1
  displayName: Sample operators
  grpcPodConfig: {securityContextConfig: restricted}
EOT
  kubectl -n olm wait --for 'jsonpath={.status.connectionState.lastObservedState}=READY' --timeout 180s \
    catalogsource/classic >/dev/null
}

# subscribe PACKAGE: creates namespace, OperatorGroup and Subscription of a package, from the tables in scenarios.sh.
subscribe() {
  local package=$1 one namespace
  namespace=$(namespace_of "$1")
  for one in "$namespace" ${more_namespaces[$package]:-}; do
    kubectl create namespace "$one" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  done
  kubectl -n "$namespace" create configmap classic-config --from-literal=FROM_CONFIG=yes --dry-run=client -o yaml |
    kubectl apply -f - >/dev/null
  kubectl apply -f - >/dev/null <<EOT
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: group, namespace: $namespace}
spec: {${targets[$package]:-}}
---
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: $package, namespace: $namespace}
spec:
  name: $package
  source: classic
  sourceNamespace: olm
  startingCSV: $package.v1.0.0
  ${subscription[$package]:-channel: stable}
EOT
}

# await_installed PACKAGE: waits until classic OLM has installed a package. Approves the first InstallPlan.
await_installed() {
  local namespace plan
  namespace=$(namespace_of "$1")
  if [ "$1" = manual ] && ! is_installed "$1"; then
    wait_for 180 plan_exists "$namespace" "$1.v1.0.0"
    plan=$(plan_of "$namespace" "$1.v1.0.0")
    kubectl -n "$namespace" patch installplan "$plan" --type merge -p '{"spec": {"approved": true}}' >/dev/null
  fi
  wait_for 240 is_installed "$1"
  [ "$1" != manual ] || wait_for 120 plan_exists "$namespace" "$1.v1.1.0"
  kubectl -n "$namespace" rollout status --timeout 120s "deployment/$1" >/dev/null
}

is_installed() {
  local namespace phase installed
  namespace=$(namespace_of "$1")
  phase=$(kubectl -n "$namespace" get csv "$1.v1.0.0" -o 'jsonpath={.status.phase}' 2>/dev/null) || return 1
  installed=$(kubectl -n "$namespace" get subscriptions.operators.coreos.com "$1" -o 'jsonpath={.status.installedCSV}')
  [ "$phase:$installed" = "Succeeded:$1.v1.0.0" ]
}

plan_of() {
  kubectl -n "$1" get installplans -o json | jq -r --arg csv "$2" \
    '.items[] | select(.spec.clusterServiceVersionNames == [$csv]) | .metadata.name' | head -n 1
}

plan_exists() { [ -n "$(plan_of "$@")" ]; }

# wait_for SECONDS COMMAND...: waits until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    if [ $SECONDS -ge $end ]; then
      echo "hack/classic-test: timed out: $*" >&2
      return 1
    fi
    sleep 1
  done
}

# break_neighbor: creates a CRD whose conversion webhook does not exist, and an object that is stored in its older version.
break_neighbor() {
  kubectl apply -f - >/dev/null <<'EOT' || return
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wrecks.neighbor.example}
spec:
  group: neighbor.example
  scope: Namespaced
  names: {kind: Wreck, listKind: WreckList, plural: wrecks, singular: wreck}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
EOT
  kubectl wait --for condition=Established --timeout 60s crd/wrecks.neighbor.example >/dev/null || return
  wait_for 60 create_wreck || return
  kubectl patch crd wrecks.neighbor.example --type json -p '[
    {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
    {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
    {"op": "add", "path": "/spec/conversion", "value": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
      "clientConfig": {"service": {"namespace": "default", "name": "nowhere", "path": "/convert"}}}}}]' >/dev/null
}

create_wreck() {
  kubectl apply -f - >/dev/null 2>&1 <<<'{"apiVersion": "neighbor.example/v1", "kind": "Wreck",
    "metadata": {"name": "wreck", "namespace": "default"}}'
}

remove_neighbor() {
  kubectl patch crd wrecks.neighbor.example --type merge \
    -p '{"spec": {"conversion": {"strategy": "None", "webhook": null}}}' >/dev/null
  kubectl delete crd wrecks.neighbor.example --timeout 60s >/dev/null
}
