#!/bin/sh
# Installs qgpu on the cluster that kubectl speaks to, and on the nodes that are named. It may run
# any number of times: what is right already is not touched. Needs kubectl 1.14 or later and the
# rights of an administrator; on a control-plane machine it also registers the extender there.
set -eu

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
KUBECTL=${KUBECTL:-kubectl}
nodes='' mixed='' dry=no register=auto webhook=yes

usage() {
  cat <<'TEXT'
usage: install.sh [--node NAME]... [--mixed NAME]... [--no-webhook] [--no-register] [--dry-run]

  --node NAME     a node whose cards qgpu shares from now on (label qgpu-device-enable=enable)
  --mixed NAME    likewise, and online and offline pods may run there (mixed-qgpu-enable=enable)
  --no-webhook    without the webhook that explains what is wrong with a pod when it is created
  --no-register   leaves this machine's kube-scheduler alone
  --dry-run       says what would be done

KUBECTL names another kubectl, with options of its own: KUBECTL="kubectl --context=test".
TEXT
}

say() { echo "install.sh: $*"; }
fail() {
  echo "install.sh: $*" >&2
  exit 1
}
# Asks only.
ask() { $KUBECTL "$@"; }
# Changes something.
run() {
  if [ "$dry" = yes ]; then say "would run: $KUBECTL $*"
  else $KUBECTL "$@"
  fi
}

while [ $# -gt 0 ]; do
  case "$1" in
    --node) nodes="$nodes ${2:?--node NAME}"; shift ;;
    --mixed) nodes="$nodes ${2:?--mixed NAME}" mixed="$mixed $2"; shift ;;
    --no-webhook) webhook=no ;;
    --no-register) register=no ;;
    --dry-run) dry=yes ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

version=$(ask get --raw /version) || fail "no cluster answers $KUBECTL: set KUBECONFIG or KUBECTL"
minor=$(printf %s "$version" | tr -d ' \n' | sed -n 's/.*"minor":"\([0-9]*\).*/\1/p')
[ -n "$minor" ] || fail "the cluster's version can't be read from: $version"
[ "$minor" -ge 14 ] || fail "Kubernetes 1.$minor is too old: 1.14 or later is needed"

# Every node before anything is changed.
for node in $nodes; do
  regular=$(ask get node "$node" -o 'jsonpath={.status.allocatable.nvidia\.com/gpu}') ||
    fail "there is no node $node: \`$KUBECTL get nodes\` shows them"
  case "$regular" in
    '' | 0) ;;
    *) fail "node $node offers $regular nvidia.com/gpu: qgpu's cards are not regular GPUs." \
      "Keep the NVIDIA device plugin away from it first, then run this again" ;;
  esac
done

run apply -k "$HERE"
if [ "$webhook" = no ]; then :
elif [ "$minor" -ge 16 ]; then run apply -f "$HERE/webhook.yaml"
else run apply -f "$HERE/webhook-v1beta1.yaml"
fi

# label NODE KEY VALUE, where it is not so already.
label() {
  now=$(ask get node "$1" -o "jsonpath={.metadata.labels.$(printf %s "$2" | sed 's/\./\\./g')}")
  [ "$now" = "$3" ] || run label --overwrite node "$1" "$2=$3"
}
for node in $nodes; do label "$node" qgpu-device-enable enable; done
for node in $mixed; do label "$node" mixed-qgpu-enable enable; done

status=0
if [ "$register" = auto ]; then
  set --
  [ "$dry" = no ] || set -- --dry-run
  "$HERE/kube-scheduler/register.sh" "$@" || status=$?
  [ "$status" = 0 ] || [ "$status" = 3 ] || fail "kube-scheduler was not registered"
fi
if [ "$dry" = no ]; then
  say "done. What is left to a person:"
  [ "$register" = auto ] && [ "$status" = 0 ] &&
    say "- run kube-scheduler/register.sh on every other control-plane machine"
  [ "$status" = 0 ] || say "- register the extender with kube-scheduler, as said above"
  [ -n "$nodes" ] || say "- name nodes: install.sh --node NAME"
  say "- look: $KUBECTL -n kube-system get pods -l 'app in (qgpu-manager, qgpu-scheduler)'"
  say "- try: $KUBECTL apply -f $HERE/examples/ordinary.yaml"
fi
