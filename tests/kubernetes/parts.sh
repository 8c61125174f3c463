#!/bin/sh
# The machine and the parts of Kubernetes on it. Sourced by node.sh and checks.sh.
#
# A node has a number: the first also has the control plane. NODE is its name and STATE its folder,
# which lies in the first one's for the others.

NUMBER=${NUMBER:-1}
CONTROL_PLANE=10.0.77.1           # the first node's address
ADDRESS=10.0.77.$NUMBER           # of the node
PODS=10.0.$((77 + NUMBER)).0/24   # of its pods
export KUBECONFIG=/etc/kubernetes/admin.conf
MINOR=$(kube-apiserver --version | sed 's/^Kubernetes v1\.\([0-9]*\).*/\1/')

# await SECONDS WHAT COMMAND...: until it succeeds.
await() {
  limit=$(($(date +%s) + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$(date +%s)" -lt "$limit" ] || { echo "not in time: $what" >&2; return 1; }
    sleep 0.2
  done
}

make_machine() {
  mount --make-rprivate /
  for folder in etc var; do
    upper=$STATE/$folder
    mkdir -p "$upper" "$upper.work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$upper,workdir=$upper.work" "/$folder"
  done
  mount -t tmpfs tmpfs /run
  # No overlay below: containers lie on overlays of their own.
  for folder in /var/lib/containerd /var/lib/kubelet /var/log /var/lib/qgpu; do
    mkdir -p "$STATE/disk$folder" "$folder"
    mount --bind "$STATE/disk$folder" "$folder"
  done
  mount --make-rshared /
  mkdir -p /etc/kubernetes/manifests /etc/cni/net.d /run/kubernetes
  hostname "$NODE"
  make_network
}

# node0 is every node's link: the first one's is a bridge; its ports are the others' other ends, and
# one that gives it a carrier. The others reach Services through the first, where kube-proxy is.
make_network() {
  ip link set lo up
  if [ "$NUMBER" = 1 ]; then
    ip link add node0 type bridge
    ip link add node1 type veth peer name port0
    ip link set port0 up
    ip link set node1 master node0 up
  else
    await 60 "a link" ip link show node0
  fi
  ip link set node0 up
  ip address add "$ADDRESS/24" dev node0
  ip route add default via "$CONTROL_PLANE"
  echo 1 >/proc/sys/net/ipv4/ip_forward
}

# add_node NUMBER: one more, in namespaces of its own below the first one's. Its machine is the one
# that is seen now, so nothing may be mounted yet.
add_node() {
  home=$STATE/node-$1
  mkdir -p "$home"
  CLUSTER=$STATE NUMBER=$1 NODE=$NODE-$1 STATE=$home \
    unshare --mount --net --pid --uts --fork --mount-proc sh "$HERE/node.sh" \
    >"$home/node.log" 2>&1 </dev/null &
  parent=$!
  until [ -n "$(ps -o pid= --ppid "$parent")" ]; do sleep 0.1; done
  ps -o pid= --ppid "$parent" | tr -d ' ' >"$home/pid"
}
link_node() {   # NUMBER
  ip link add "node$1" type veth peer name node0 netns "$(cat "$STATE/node-$1/pid")"
  ip link set "node$1" master node0 up
  ip route add "10.0.$((77 + $1)).0/24" via "10.0.77.$1"
}
# on NUMBER COMMAND...: what is here or a program, at that node.
on() {
  number=$1
  shift
  if [ "$number" = 1 ]; then "$@"; return; fi
  home=$STATE/node-$number
  # shellcheck disable=SC2016
  nsenter -t "$(cat "$home/pid")" -m -n -p -u \
    env NUMBER="$number" NODE="$NODE-$number" STATE="$home" \
    sh -c '. "$HERE/parts.sh" && "$@"' sh "$@"
}

kubeconfig() {   # FILE TOKEN
  cat >"$1" <<TEXT
apiVersion: v1
kind: Config
clusters:
  - name: here
    cluster: {server: "https://$CONTROL_PLANE:6443", certificate-authority: /etc/kubernetes/ca.pem}
users:
  - {name: me, user: {token: "$2"}}
contexts:
  - {name: here, context: {cluster: here, user: me}}
current-context: here
TEXT
}

make_credentials() {
  cd /etc/kubernetes || return 1
  ec='ec -pkeyopt ec_paramgen_curve:prime256v1'
  # shellcheck disable=SC2086
  openssl req -x509 -newkey $ec -nodes -days 30 -subj /CN=ca -keyout ca.key -out ca.pem 2>/dev/null
  # shellcheck disable=SC2086
  openssl req -newkey $ec -nodes -subj /CN=kube-apiserver -keyout server.key \
    -out server.csr 2>/dev/null
  echo "subjectAltName=IP:$ADDRESS,IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes.default.svc" >server.ext
  openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 \
    -extfile server.ext -out server.pem 2>/dev/null
  openssl genrsa -out accounts.key 2048 2>/dev/null
  openssl rsa -in accounts.key -pubout -out accounts.pub 2>/dev/null
  : >tokens.csv
  while read -r file user groups; do
    [ -n "$file" ] || continue
    token=$(openssl rand -hex 16)
    echo "$token,$user,$user,\"$groups\"" >>tokens.csv
    kubeconfig "$file.conf" "$token"
  done <<TEXT
admin admin system:masters
kubelet system:node:$NODE system:nodes
$(for n in $(seq 2 "$NODES"); do echo "kubelet-$n system:node:$NODE-$n system:nodes"; done)
scheduler system:kube-scheduler
controllers system:kube-controller-manager
proxy system:kube-proxy
TEXT
  cd /
}
# The others have theirs from the first.
take_credentials() {
  from=$CLUSTER/etc/kubernetes
  await 120 "credentials" test -s "$from/proxy.conf"
  cp "$from/ca.pem" "$from/admin.conf" /etc/kubernetes/
  cp "$from/kubelet-$NUMBER.conf" /etc/kubernetes/kubelet.conf
}

etcd_command() {
  echo etcd --data-dir=/run/etcd --listen-client-urls=http://127.0.0.1:2379 \
    --advertise-client-urls=http://127.0.0.1:2379
}
kube_apiserver_command() {
  echo kube-apiserver --etcd-servers=http://127.0.0.1:2379 --service-cluster-ip-range=10.96.0.0/16 \
    --authorization-mode=Node,RBAC --token-auth-file=/etc/kubernetes/tokens.csv \
    --tls-cert-file=/etc/kubernetes/server.pem --tls-private-key-file=/etc/kubernetes/server.key \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-signing-key-file=/etc/kubernetes/accounts.key \
    --service-account-key-file=/etc/kubernetes/accounts.pub --advertise-address="$ADDRESS" \
    --kubelet-preferred-address-types=InternalIP --secure-port=6443 --allow-privileged=true \
    --enable-admission-plugins=NodeRestriction --cert-dir=/run/kubernetes
}
kube_controller_manager_command() {
  echo kube-controller-manager --kubeconfig=/etc/kubernetes/controllers.conf --leader-elect=false \
    --use-service-account-credentials=true \
    --service-account-private-key-file=/etc/kubernetes/accounts.key \
    --root-ca-file=/etc/kubernetes/ca.pem --cert-dir=/run/kubernetes
}
kube_proxy_command() {
  echo kube-proxy --kubeconfig=/etc/kubernetes/proxy.conf --hostname-override="$NODE" \
    --proxy-mode=iptables --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 \
    --conntrack-tcp-timeout-close-wait=0
}
containerd_command() {
  cat >/etc/containerd.toml <<TEXT
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "qgpu-test/pause:1"
  restrict_oom_score_adj = true  # root of a container can't lower it
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "$CNI_BIN"
  conf_dir = "/etc/cni/net.d"
TEXT
  cat >/etc/cni/net.d/10-bridge.conflist <<'TEXT'
{"cniVersion": "0.3.1", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isDefaultGateway": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "PODS"}]]}}]}
TEXT
  sed -i "s|PODS|$PODS|" /etc/cni/net.d/10-bridge.conflist
  # What a claim gives comes by CDI, which containerd has since 1.7 and 2.0 does unasked.
  case "$(containerd --version)" in
    *' 1.'[0-6].*) ;;
    *) sed -i '/^\[plugins."io.containerd.grpc.v1.cri"\]$/a enable_cdi = true' \
      /etc/containerd.toml ;;
  esac
  echo containerd --config=/etc/containerd.toml
}
kubelet_command() {
  cat >/etc/kubernetes/kubelet.yaml <<TEXT
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
clusterDNS: [10.96.0.10]
failSwapOn: false
maxPods: 200
staticPodPath: /etc/kubernetes/manifests
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: 100Mi}
imageGCHighThresholdPercent: 100
TEXT
  # From 1.35 on it does not start on cgroups of version 1 unless it is told to; 1.31 knew the word.
  [ "$MINOR" -lt 31 ] || echo 'failCgroupV1: false' >>/etc/kubernetes/kubelet.yaml
  # Each kubelet ends what it finds below its own root and does not know.
  if [ "$NUMBER" != 1 ]; then
    mkdir -p $(cgroup_roots)
    echo "cgroupRoot: /$NODE" >>/etc/kubernetes/kubelet.yaml
  fi
  old=
  [ "$MINOR" -ge 24 ] || old=--container-runtime=remote
  echo kubelet --config=/etc/kubernetes/kubelet.yaml $old \
    --kubeconfig=/etc/kubernetes/kubelet.conf \
    --container-runtime-endpoint=unix:///run/containerd/containerd.sock \
    --hostname-override="$NODE" --node-ip="$ADDRESS"
}

cgroup_roots() {
  for hierarchy in $(awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/mounts | sort -u); do
    echo "$hierarchy/$NODE"
  done
}

ready_etcd() { curl -sf http://127.0.0.1:2379/health; }
ready_kube_apiserver() { kubectl get --raw /readyz; }
ready_kube_controller_manager() { kubectl -n default get serviceaccount default; }
ready_containerd() { ctr version; }
ready_kube_proxy() { iptables -t nat -L KUBE-SERVICES; }
ready_kubelet() { kubectl get node "$NODE"; }

# start PART, and wait until it serves; stop PART [SIGNAL].
start() {
  name=$(echo "$1" | tr - _)
  # shellcheck disable=SC2046
  setsid $("${name}_command") >>"$STATE/$1.log" 2>&1 </dev/null &
  echo $! >"$STATE/$1.pid"
  await 60 "$1 serves, see $STATE/$1.log" "ready_$name"
}
stop() {
  pid=$(cat "$STATE/$1.pid")
  kill "-${2:-TERM}" "$pid"
  await 30 "$1 ends" sh -c "! kill -0 $pid 2>/dev/null"
}

# kube-scheduler as kubeadm writes it.
make_static_pod() {
  cat >/etc/kubernetes/manifests/kube-scheduler.yaml <<TEXT
apiVersion: v1
kind: Pod
metadata:
  labels:
    component: kube-scheduler
    tier: control-plane
  name: kube-scheduler
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-scheduler
    - --authentication-kubeconfig=/etc/kubernetes/scheduler.conf
    - --authorization-kubeconfig=/etc/kubernetes/scheduler.conf
    - --bind-address=127.0.0.1
    - --kubeconfig=/etc/kubernetes/scheduler.conf
    - --leader-elect=true
    image: k8s.gcr.io/kube-scheduler:v1.$MINOR.0
    imagePullPolicy: IfNotPresent
    name: kube-scheduler
    resources:
      requests:
        cpu: 100m
    volumeMounts:
    - mountPath: /etc/kubernetes/scheduler.conf
      name: kubeconfig
      readOnly: true
    - mountPath: /etc/kubernetes/ca.pem
      name: ca
      readOnly: true
  hostNetwork: true
  priorityClassName: system-node-critical
  volumes:
  - hostPath:
      path: /etc/kubernetes/scheduler.conf
      type: FileOrCreate
    name: kubeconfig
  - hostPath:
      path: /etc/kubernetes/ca.pem
      type: File
    name: ca
TEXT
}
