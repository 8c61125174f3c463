#!/bin/sh
# The first process of the cluster's namespaces: makes the machine, starts Kubernetes, and stays.
# run.sh starts it and sets ROOT, BUILD, STATE, CNI_BIN and NODE.
set -eu

. "$HERE/parts.sh"
. "$HERE/images.sh"

rm -f "$STATE/ready"
make_machine
make_credentials
for part in etcd kube-apiserver kube-controller-manager containerd; do start "$part"; done
make_images
make_static_pod
for part in kube-proxy kubelet; do start "$part"; done
await 60 "node Ready" sh -c "kubectl get node $NODE -o json | jq -e '.status.conditions[]
  | select(.type == \"Ready\" and .status == \"True\")'"
kubectl label node "$NODE" node-role.kubernetes.io/control-plane= >/dev/null
touch "$STATE/ready"
# Whoever loses its parent becomes a child of this one.
while :; do wait; sleep 1; done
