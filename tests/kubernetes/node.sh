#!/bin/sh
# The first process of a node's namespaces: makes the machine, starts Kubernetes, and stays. run.sh
# starts the first one's and sets ROOT, BUILD, STATE, CNI_BIN, NODE and NODES; that one starts the
# others'.
set -eu

. "$HERE/parts.sh"
. "$HERE/images.sh"

rm -f "$STATE/ready"
if [ "$NUMBER" = 1 ]; then
  for n in $(seq 2 "$NODES"); do add_node "$n"; done
  make_machine
  for n in $(seq 2 "$NODES"); do link_node "$n"; done
  make_credentials
  for part in etcd kube-apiserver kube-controller-manager containerd; do start "$part"; done
  make_images
  touch "$STATE/images.made"
  make_static_pod
  for part in kube-proxy kubelet; do start "$part"; done
  for n in $(seq 2 "$NODES"); do await 300 "node $n" test -e "$STATE/node-$n/ready"; done
else
  make_machine
  take_credentials
  start containerd
  await 300 "the first one's images" test -e "$CLUSTER/images.made"
  import_images "$CLUSTER"
  start kubelet
fi
await 60 "node Ready" sh -c "kubectl get node $NODE -o json | jq -e '.status.conditions[]
  | select(.type == \"Ready\" and .status == \"True\")'"
[ "$NUMBER" != 1 ] || kubectl label node "$NODE" node-role.kubernetes.io/control-plane= >/dev/null
touch "$STATE/ready"
# Whoever loses its parent becomes a child of this one.
while :; do wait; sleep 1; done
