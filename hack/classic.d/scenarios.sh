# Sourced by hack/classic-test: the operators that classic OLM installs. Each has its own package and API group.
# shellcheck shell=bash disable=SC2034 # tables of the other parts

readonly sample_group=sample.olm.example
readonly scenarios=(all own single multi hooks config dependency manual nochannel optional neighbor kills reader finish)

# Folder of templates in tests/sample-operator/bundle. Default: scoped, with all install modes.
declare -A template=([all]=manifests [hooks]=webhooks [lower]=manifests [upper]=manifests)

# Fields of the OperatorGroup. Default: all namespaces.
declare -A targets=(
  [own]='targetNamespaces: [classic-own]'
  [single]='targetNamespaces: [classic-single-target]'
  [multi]='targetNamespaces: [classic-multi-one, classic-multi-two]'
  [config]='targetNamespaces: [classic-config]'
  [manual]='targetNamespaces: [classic-manual]'
  [kills]='targetNamespaces: [classic-kills]'
)
declare -A more_namespaces=([single]=classic-single-target [multi]='classic-multi-one classic-multi-two')

# Package whose API another one requires.
declare -A requires=([upper]=lower)

# Fields of the Subscription. Default: its channel.
declare -A subscription=(
  [nochannel]='installPlanApproval: Automatic'
)
subscription[manual]='installPlanApproval: Manual
  channel: stable'
subscription[config]='channel: stable
  config:
    selector: {matchLabels: {app: config}}
    nodeSelector: {kubernetes.io/os: linux}
    tolerations: [{key: classic, operator: Exists, effect: NoSchedule}]
    resources: {requests: {cpu: 11m, memory: 17Mi}, limits: {memory: 200Mi}}
    envFrom: [{configMapRef: {name: classic-config}}]
    env: [{name: CLASSIC, value: "yes"}, {name: OPERATOR_VERSION, value: overridden}]
    volumes: [{name: extra, configMap: {name: classic-config}}]
    volumeMounts: [{name: extra, mountPath: /extra}]
    affinity:
      nodeAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 1
          preference: {matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}
    annotations: {example.com/note: kept}'
subscription[kills]='channel: stable
  config: {env: [{name: CLASSIC, value: "yes"}], resources: {requests: {cpu: 11m}}}'

# namespace_of PACKAGE: prints its namespace. Classic OLM finds requirements only in the namespace of the Subscription.
namespace_of() {
  case $1 in
  upper | lower) echo classic-dependency ;;
  *) echo "classic-$1" ;;
  esac
}

# packages_of SCENARIO: prints its packages, dependents first.
packages_of() {
  case $1 in
  dependency) echo upper lower ;;
  finish) ;;
  *) echo "$1" ;;
  esac
}
