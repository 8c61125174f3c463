#!/bin/sh
# Takes qgpu off a cluster without harming what runs: no new pods on its nodes, wait until the last
# that uses a card has ended, then remove. It may run any number of times, and go on where it was
# stopped. Pods are never ended by it: who wants that deletes them, and it goes on.
set -eu

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
KUBECTL=${KUBECTL:-kubectl}
HELM=${HELM:-helm}       # for what the chart installed
POLL=${POLL:-5}          # seconds between two looks
OURS=qgpu.io/cordoned-by # annotation of a node that was cordoned here, and not by a person
OURS_PATH='qgpu\.io/cordoned-by'
timeout=600 dry=no register=auto

usage() {
  cat <<'TEXT'
usage: uninstall.sh [--timeout SECONDS] [--no-register] [--dry-run]

  --timeout SECONDS   wait so long for pods to end (600); then nodes stay cordoned, run it again
  --no-register       leaves this machine's kube-scheduler alone
  --dry-run           says what would be done, and which pods would be waited for

exit status: 0 done; 1 failed; 2 wrong use; 4 pods still use cards
TEXT
}

say() { echo "uninstall.sh: $*"; }
fail() {
  echo "uninstall.sh: $*" >&2
  exit 1
}
ask() { $KUBECTL "$@"; }
run() {
  if [ "$dry" = yes ]; then say "would run: $KUBECTL $*"
  else $KUBECTL "$@"
  fi
}

while [ $# -gt 0 ]; do
  case "$1" in
    --timeout) timeout=${2:?--timeout SECONDS}; shift ;;
    --no-register) register=no ;;
    --dry-run) dry=yes ;;
    -h | --help) usage; exit 0 ;;
    *) echo "uninstall.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
case "$timeout" in
  '' | *[!0-9]*) echo "uninstall.sh: --timeout $timeout is no number of seconds" >&2; exit 2 ;;
esac

NAMES='jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}'
nodes=$(ask get nodes -l qgpu-device-enable -o "$NAMES") ||
  fail "no cluster answers $KUBECTL: set KUBECONFIG or KUBECTL"

release=$(ask -n kube-system get deployment qgpu-scheduler --ignore-not-found \
  -o 'jsonpath={.metadata.annotations.meta\.helm\.sh/release-name}')
# shellcheck disable=SC2086
[ -z "$release" ] || command -v ${HELM%% *} >/dev/null || fail "the chart installed this, as" \
  "$release, and there is no ${HELM%% *} here, which has to remove it: install it, or set HELM"

# 1. No new pods. A node that a person cordoned stays cordoned at the end.
for node in $nodes; do
  closed=$(ask get node "$node" -o 'jsonpath={.spec.unschedulable}')
  [ "$closed" != true ] || continue
  run annotate --overwrite node "$node" "$OURS=uninstall"
  run cordon "$node"
done

# 2. The pods that hold cards: "namespace/name" of each. Every pod that holds one asks for memory or
# for whole cards.
# shellcheck disable=SC2016
HOLDERS='{{range .items}}{{$uses := false}}
{{- range .spec.containers}}{{range $name, $amount := .resources.limits}}
{{- if eq $name "tke.cloud.tencent.com/qgpu-core" "tke.cloud.tencent.com/qgpu-memory"}}
{{- $uses = true}}{{end}}{{end}}{{end}}
{{- range .spec.initContainers}}{{range $name, $amount := .resources.limits}}
{{- if eq $name "tke.cloud.tencent.com/qgpu-core" "tke.cloud.tencent.com/qgpu-memory"}}
{{- $uses = true}}{{end}}{{end}}{{end}}
{{- if and $uses .spec.nodeName (ne .status.phase "Succeeded") (ne .status.phase "Failed")}}
{{- .metadata.namespace}}/{{.metadata.name}}{{"\n"}}{{end}}{{end}}'
# And those that have one by a claim, where there are claims.
# shellcheck disable=SC2016
CLAIMANTS='{{range .items}}{{$space := .metadata.namespace}}{{$pods := .status.reservedFor}}
{{- $uses := false}}{{with .status.allocation}}{{range .devices.results}}
{{- if eq .driver "qgpu.io"}}{{$uses = true}}{{end}}{{end}}{{end}}
{{- if $uses}}{{range $pods}}{{$space}}/{{.name}}{{"\n"}}{{end}}{{end}}{{end}}'
claims=no
if ask get --raw /apis/resource.k8s.io/v1 >/dev/null 2>&1; then claims=yes; fi
holders() {
  ask get pods --all-namespaces -o "go-template=$HOLDERS" || return 1
  [ "$claims" = no ] || ask get resourceclaims --all-namespaces -o "go-template=$CLAIMANTS"
}
waited=0
while :; do
  left=$(holders) || fail "the pods can't be listed"
  [ -n "$left" ] || break
  if [ "$dry" = yes ]; then
    say "would wait for: $(echo "$left" | tr '\n' ' ')"
    break
  fi
  if [ "$waited" -ge "$timeout" ]; then
    say "after $timeout s these pods still use cards; their nodes stay cordoned. End them and run" \
      "this again:" >&2
    echo "$left" >&2
    exit 4
  fi
  [ "$waited" -gt 0 ] || say "waiting for these pods to end:" "$(echo "$left" | tr '\n' ' ')"
  sleep "$POLL"
  waited=$((waited + POLL))
done

# 3. kube-scheduler first: without its extender a pod that asks for a card would wait for nothing.
if [ "$register" = auto ]; then
  set -- --remove
  [ "$dry" = no ] || set -- "$@" --dry-run
  sh "$HERE/kube-scheduler/register.sh" "$@" || [ $? = 3 ] ||
    fail "kube-scheduler still has the extender"
fi

# 4. The guard in the kernel of each node, which would outlive its manager, by that manager's pod:
# it sees the node's first process, and by it the node's root.
PODS='jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}'
managers=$(ask -n kube-system get pods -l app=qgpu-manager -o "$PODS") ||
  fail "the managers' pods can't be listed"
echo "$managers" | while read -r pod node; do
  [ -n "$pod" ] || continue
  run -n kube-system exec "$pod" -c qgpu-manager -- \
    env HOST=/proc/1/root /usr/bin/unload-guard.sh </dev/null ||
    say "a guard on $node, if there is one, stays until its next start: rm -rf /sys/fs/bpf/qgpu" \
      "there ends it" >&2
done

# 5. The objects, the webhooks before what they ask. Helm keeps a record of what it installed.
run delete --ignore-not-found mutatingwebhookconfiguration qgpu-scheduler
run delete --ignore-not-found validatingwebhookconfiguration qgpu-scheduler
if [ -z "$release" ]; then :
elif [ "$dry" = yes ]; then say "would run: $HELM uninstall $release"
else $HELM uninstall "$release" --namespace kube-system || fail "helm did not uninstall $release"
fi
run delete --ignore-not-found -k "$HERE"
run delete --ignore-not-found -n kube-system secret qgpu-scheduler-webhook qgpu-scheduler-extender
run delete --ignore-not-found -n kube-system lease qgpu-scheduler qgpu-kube-scheduler

if [ "$claims" = yes ]; then
  run delete --ignore-not-found -f "$HERE/device-classes.yaml"
  run delete resourceclaimtemplates --all-namespaces -l app=qgpu-scheduler
fi

# 6. The nodes, as they were, once no manager is left that tells of its cards.
[ "$dry" = yes ] ||
  $KUBECTL -n kube-system wait --for=delete pod -l app=qgpu-manager --timeout=60s >/dev/null 2>&1 ||
  true   # there is none, as a rule
for node in $nodes; do
  ours=$(ask get node "$node" -o "jsonpath={.metadata.annotations.$OURS_PATH}")
  run label node "$node" qgpu-device-enable- mixed-qgpu-enable- qgpu.io/claims- \
    tke.cloud.tencent.com/qgpu-schedule-policy-
  run annotate node "$node" qgpu.io/cards- qgpu.io/cordoned- "$OURS-"
  [ "$ours" != uninstall ] || run uncordon "$node"
done
if [ "$claims" = yes ]; then run delete resourceslices --field-selector spec.driver=qgpu.io; fi
[ "$dry" = yes ] || say "done. On each node /var/lib/qgpu holds its state and may be removed." \
  "Their qgpu resources are shown as 0 until kubelet starts anew"
