#!/bin/sh
# Installs qgpu on the cluster that kubectl speaks to, and on the nodes that are named. It may run
# any number of times: what is right already is not touched. Needs kubectl 1.14 or later and the
# rights of an administrator; on a control-plane machine it also registers the extender there.
set -eu

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
KUBECTL=${KUBECTL:-kubectl}
registry='' preloaded=no
nodes='' mixed='' claims='' dry=no register=auto webhook=yes certificates=once
SECRET=qgpu-scheduler-extender  # for kube-schedulers of other machines

usage() {
  cat <<'TEXT'
usage: install.sh --registry PREFIX | --preloaded
                  [--node NAME]... [--mixed NAME]... [--claims NAME]...
                  [--no-webhook] [--no-register] [--new-certificates] [--dry-run]

  --registry PREFIX  nodes pull the images PREFIX/qgpu/scheduler and PREFIX/qgpu/manager
  --preloaded     the images qgpu/scheduler and qgpu/manager are on every node; nothing is pulled
  --node NAME     a node whose cards qgpu shares from now on (label qgpu-device-enable=enable)
  --mixed NAME    as --node, and online and offline pods may run there (mixed-qgpu-enable=enable)
  --claims NAME   a node of --node or --mixed whose cards are given by ResourceClaims, and not by
                  the extender (qgpu.io/claims=enable); Kubernetes 1.36 or later
  --no-webhook    without the webhooks that explain what is wrong with a pod when it is created, and
                  change the pods of namespaces that want it
  --no-register   leaves this machine's kube-scheduler alone
  --new-certificates  others for the extender; then run register.sh anew where it was run
  --dry-run       says what would be done

Neither is needed where kustomization.yaml gives the images other names (newName).
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
    --registry) registry=${2:?--registry PREFIX}; shift ;;
    --preloaded) preloaded=yes ;;
    --node) nodes="$nodes ${2:?--node NAME}"; shift ;;
    --mixed) nodes="$nodes ${2:?--mixed NAME}" mixed="$mixed $2"; shift ;;
    --claims) claims="$claims ${2:?--claims NAME}"; shift ;;
    --no-webhook) webhook=no ;;
    --no-register) register=no ;;
    --new-certificates) certificates=new ;;
    --dry-run) dry=yes ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

# From where nodes get the images. A plain name would be pulled from a public registry, where
# anybody may own it.
case "$registry" in
  *[!A-Za-z0-9._:/-]* | /* | */) fail "--registry $registry is no PREFIX of images, like" \
    "registry.example.org/team" ;;
esac
[ -z "$registry" ] || [ "$preloaded" = no ] || fail "--registry and --preloaded exclude each other"
named=no
if grep -q '^ *newName:' "$HERE/kustomization.yaml"; then named=yes; fi
if [ "$named" = yes ] && { [ -n "$registry" ] || [ "$preloaded" = yes ]; }; then
  fail "kustomization.yaml gives the images names (newName): leave --registry and --preloaded out"
elif [ "$named" = no ] && [ -z "$registry" ] && [ "$preloaded" = no ]; then
  fail "where are the images? Push qgpu/scheduler and qgpu/manager to a registry and say" \
    "--registry PREFIX, or load them on every node and say --preloaded"
fi

version=$(ask get --raw /version) || fail "no cluster answers $KUBECTL: set KUBECONFIG or KUBECTL"
minor=$(printf %s "$version" | tr -d ' \n' | sed -n 's/.*"minor":"\([0-9]*\).*/\1/p')
[ -n "$minor" ] || fail "the cluster's version can't be read from: $version"
[ "$minor" -ge 14 ] || fail "Kubernetes 1.$minor is too old: 1.14 or later is needed"
[ "$minor" -ge 36 ] || [ -z "$claims" ] ||
  fail "--claims needs Kubernetes 1.36, whose claims may have parts of a card; this is 1.$minor"

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

# The certificates by which the extender and kube-schedulers of other machines know each other.
# Their CA's key is kept nowhere: nobody can sign more of them.
make_certificates() {
  command -v openssl >/dev/null || fail "there is no openssl, which makes the extender's" \
    "certificates: install it, and run this again"
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  for name in ca tls client; do
    openssl ecparam -name prime256v1 -genkey -noout -out "$dir/$name.key" 2>/dev/null
  done
  openssl req -x509 -new -key "$dir/ca.key" -days 3650 -subj /CN=qgpu-scheduler-ca \
    -out "$dir/ca.crt"
  for name in tls client; do
    case "$name" in
      tls) host=qgpu-scheduler.kube-system.svc usage=serverAuth ;;
      *) host=kube-scheduler usage=clientAuth ;;
    esac
    printf 'subjectAltName=DNS:%s\nextendedKeyUsage=%s\n' "$host" "$usage" >"$dir/$name.ext"
    openssl req -new -key "$dir/$name.key" -subj "/CN=$host" -out "$dir/$name.csr"
    openssl x509 -req -in "$dir/$name.csr" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -CAcreateserial \
      -days 3650 -extfile "$dir/$name.ext" -out "$dir/$name.crt" 2>/dev/null
  done
  run -n kube-system create secret generic "$SECRET" --from-file="$dir/ca.crt" \
    --from-file="$dir/tls.crt" --from-file="$dir/tls.key" \
    --from-file="$dir/client.crt" --from-file="$dir/client.key"
  rm -rf "$dir"
}
known=$(ask -n kube-system get secret "$SECRET" --ignore-not-found -o name) ||
  fail "the secrets of kube-system can't be read"
if [ -n "$known" ] && [ "$certificates" = new ]; then
  run -n kube-system delete secret "$SECRET"
  known=''
fi
[ -n "$known" ] || make_certificates

# With the images as they were named.
objects() {
  all=$(ask kustomize "$HERE") || fail "the objects can't be read from $HERE"
  if [ "$preloaded" = yes ]; then
    all=$(printf %s "$all" | sed 's/imagePullPolicy: IfNotPresent/imagePullPolicy: Never/')
  elif [ -n "$registry" ]; then
    all=$(printf %s "$all" | sed "s|image: qgpu/|image: $registry/qgpu/|")
  fi
  printf '%s\n' "$all"
}
if [ "$dry" = yes ]; then say "would run: $KUBECTL apply -f -, with these images:"
  objects | sed -n 's/^[ -]*\(image: .*\)/  \1/p' | sort -u
else objects | $KUBECTL apply -f -
fi
if [ "$webhook" = no ]; then :
elif [ "$minor" -ge 16 ]; then
  run apply -f "$HERE/webhook.yaml"
  run apply -f "$HERE/mutating-webhook.yaml"
else run apply -f "$HERE/webhook-v1beta1.yaml"
fi

# Device classes, where claims may name parts of a card.
if [ "$minor" -ge 36 ]; then run apply -f "$HERE/device-classes.yaml"; fi

# label NODE KEY VALUE, where it is not so already.
label() {
  now=$(ask get node "$1" -o "jsonpath={.metadata.labels.$(printf %s "$2" | sed 's/\./\\./g')}")
  [ "$now" = "$3" ] || run label --overwrite node "$1" "$2=$3"
}
for node in $nodes; do label "$node" qgpu-device-enable enable; done
for node in $mixed; do label "$node" mixed-qgpu-enable enable; done
for node in $claims; do label "$node" qgpu.io/claims enable; done

status=0
if [ "$register" = auto ]; then
  # With one control-plane machine qgpu-scheduler runs beside its kube-scheduler; with several it
  # may run on any of them.
  machines=0
  for role in control-plane master; do
    count=$(ask get nodes -l "node-role.kubernetes.io/$role" -o name | wc -l)
    [ "$count" -le "$machines" ] || machines=$count
  done
  set --
  [ "$machines" -le 1 ] || set -- --remote
  [ "$dry" = no ] || set -- "$@" --dry-run
  sh "$HERE/kube-scheduler/register.sh" "$@" || status=$?
  [ "$status" = 0 ] || [ "$status" = 3 ] || fail "kube-scheduler was not registered"
fi
if [ "$dry" = no ]; then
  say "done. What is left to a person:"
  [ "$register" = auto ] && [ "$status" = 0 ] &&
    say "- run kube-scheduler/register.sh --remote on every other control-plane machine"
  [ "$status" = 0 ] || say "- register the extender with kube-scheduler, as said above"
  [ -n "$nodes" ] || say "- name nodes: install.sh --node NAME"
  say "- look: $KUBECTL -n kube-system get pods -l 'app in (qgpu-manager, qgpu-scheduler)'"
  say "- try: $KUBECTL apply -f $HERE/examples/ordinary.yaml"
fi
