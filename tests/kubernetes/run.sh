#!/bin/sh
# A Kubernetes cluster of one node or several from the binaries of this machine, and qgpu on it
# as docs/operate/kubernetes.md says. Everything runs in namespaces of its own (mounts, network,
# processes, host name), each further node in some below those of the first: /var, /etc and /run
# below are copies, no port is taken, and all of it ends with its first process. Needs root, and
# cgroups as the kubelet at hand understands them (v1 before 1.19).
set -eu

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
ROOT=$(CDPATH='' cd -- "$HERE/../.." && pwd)
BUILD=${BUILD:-$ROOT/build}
STATE=${STATE:-/tmp/qgpu-kubernetes}
CNI_BIN=${CNI_BIN:-/usr/lib/cni}
NODE=qgpu-node
NODES=${NODES:-1}
PATH=${KUBE_BIN:+$KUBE_BIN:}$PATH
export HERE ROOT BUILD STATE CNI_BIN NODE NODES PATH

usage() {
  cat <<'TEXT'
usage: run.sh [check [NAME...]]   the cluster, every check or those named, and down again
       run.sh up                  the cluster alone
       run.sh in COMMAND...       in that cluster, with KUBECONFIG set
       run.sh down                ends it

KUBE_BIN=DIR holds kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubelet and
kubectl where PATH does not; BUILD=DIR is the build, STATE=DIR where all of it lives
(/tmp/qgpu-kubernetes), CNI_BIN=DIR holds bridge, host-local and loopback. NODES=N, 1 to 9, is how
many nodes there are: qgpu-node, which has the control plane too, qgpu-node-2 and so on.
exit status: 0 all checks passed; 1 one did not; 77 something is missing
TEXT
}

TOOLS='kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl etcd
  containerd ctr runc conntrack iptables ip openssl jq curl unshare nsenter apt-cache dpkg-query'

require() {
  missing=
  for tool in $TOOLS; do command -v "$tool" >/dev/null || missing="$missing $tool"; done
  for plugin in bridge host-local loopback; do
    [ -x "$CNI_BIN/$plugin" ] || missing="$missing $CNI_BIN/$plugin"
  done
  [ -x "$BUILD/bin/qgpu-scheduler" ] || missing="$missing $BUILD/bin (./dev build)"
  [ "$(id -u)" = 0 ] || missing="$missing root"
  case "$NODES" in
    [1-9]) ;;
    *) echo "run.sh: NODES is '$NODES': 1 to 9" >&2; exit 2 ;;
  esac
  [ -z "$missing" ] && return
  echo "run.sh: missing:$missing" >&2
  exit 77
}

first() { cat "$STATE/pid" 2>/dev/null; }
alive() { [ -n "$(first)" ] && kill -0 "$(first)" 2>/dev/null; }
inside() {
  nsenter -t "$(first)" -m -n -p -u env KUBECONFIG=/etc/kubernetes/admin.conf "$@"
}

# What kubelet sets for the whole machine.
SETTINGS='vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops
  kernel/keys/root_maxkeys kernel/keys/root_maxbytes'

up() {
  require
  if alive; then echo "run.sh: a cluster runs already: run.sh down"; return; fi
  mkdir -p "$STATE"
  for setting in $SETTINGS; do echo "$setting $(cat "/proc/sys/$setting")"; done >"$STATE/settings"
  unshare --mount --net --pid --uts --fork --mount-proc sh "$HERE/node.sh" \
    >"$STATE/node.log" 2>&1 </dev/null &
  parent=$!
  until [ -n "$(ps -o pid= --ppid "$parent")" ]; do sleep 0.1; done
  ps -o pid= --ppid "$parent" | tr -d ' ' >"$STATE/pid"
  tries=0
  until [ -e "$STATE/ready" ]; do
    kill -0 "$parent" 2>/dev/null || { tail -n 20 "$STATE/node.log" >&2; exit 1; }
    tries=$((tries + 1))
    [ "$tries" -le 600 ] || { echo "run.sh: not ready after 600 s: $STATE/node.log" >&2; exit 1; }
    sleep 1
  done
  echo "run.sh: $(inside kubectl get nodes --no-headers)"
}

down() {
  if alive; then
    kill -KILL "$(first)"
    while alive; do sleep 0.1; done
  fi
  if [ -f "$STATE/settings" ]; then
    while read -r setting value; do echo "$value" >"/proc/sys/$setting"; done <"$STATE/settings"
  fi
  find /sys/fs/cgroup -depth -type d \
    \( -path '*/kubepods*' -o -path '*/k8s.io*' -o -name "$NODE-[2-9]" \) \
    -exec rmdir {} + 2>/dev/null || true
  rm -rf "$STATE"
}

command=${1:-check}
[ $# -eq 0 ] || shift
case "$command" in
  up) up ;;
  down) down ;;
  in)
    alive || { echo "run.sh: no cluster runs: run.sh up" >&2; exit 1; }
    inside "$@"
    ;;
  check)
    trap down EXIT
    up
    inside sh "$HERE/checks.sh" "$@"
    ;;
  -h | --help | help) usage ;;
  *) usage >&2; exit 2 ;;
esac
