#!/bin/sh
# What is checked on the cluster: one function each, in the order in which they stand; run.sh runs
# this inside. Each says what it saw; the first that fails ends the run with what is known of it.
set -eu

. "$HERE/parts.sh"
. "$HERE/images.sh"
DEPLOY=$ROOT/deploy/kubernetes
PREFIX=tke.cloud.tencent.com
QGPUCTL=$STATE/out/usr/bin/qgpuctl
TENANT=nvidia/cuda:12.2.2-base-ubuntu22.04
. "$HERE/several_nodes.sh"

fail() {
  echo "FAILED: $*" >&2
  { kubectl get pods -A -o wide | grep -v Running | head -n 15
    kubectl get events -A --sort-by=.lastTimestamp | tail -n 20
    kubectl -n kube-system logs -l app=qgpu-scheduler --tail=20
    kubectl -n kube-system logs -l app=qgpu-manager --tail=20
    kubectl -n kube-system logs -l app=qgpu-kube-scheduler --tail=20; } >&2 || true
  exit 1
}
saw() { echo "  $*"; }
has() { echo "$1" | grep -qF -e "$2" || fail "\"$2\" is not in: $1"; }

# pod NAME CLASS "RESOURCE=N ..." COMMAND...: on standard output. CLASS '' is an ordinary one.
pod() {
  name=$1 class=$2 limits=$3
  shift 3
  jq -n --arg name "$name" --arg class "$class" --arg limits "$limits" --arg image "$TENANT" \
    --arg prefix "$PREFIX" --arg priority "${PRIORITY:-}" --arg scheduler "${SCHEDULER:-}" \
    --arg group "${GROUP:-}" --arg size "${GROUP_SIZE:-}" '{
      apiVersion: "v1", kind: "Pod",
      metadata: {name: $name, labels: {check: "yes"}, annotations: (
        if $class == "" then {} else {($prefix + "/app-class"): $class} end +
        if $group == "" then {} else {"qgpu.io/group": $group, "qgpu.io/group-size": $size} end)},
      spec: ({restartPolicy: "Never", terminationGracePeriodSeconds: 1, containers: [
        {name: "main", image: $image, imagePullPolicy: "IfNotPresent", command: $ARGS.positional,
         resources: {limits: ([$limits | splits(" +") | select(. != "") | split("=")
           | {($prefix + "/qgpu-" + .[0]): .[1]}] | add)}}]} +
        if $priority == "" then {} else {priorityClassName: $priority} end +
        if $scheduler == "" then {} else {schedulerName: $scheduler} end)}' --args -- "$@"
}
run_pod() { pod "$@" | kubectl create -f - >/dev/null; }
phase() { kubectl get pod "$1" -o 'jsonpath={.status.phase}'; }
is() { [ "$(phase "$1")" = "$2" ]; }
await_phase() { await "${3:-60}" "pod $1 $2" is "$1" "$2" || fail "pod $1 is $(phase "$1")"; }
events_of() {
  kubectl get events --field-selector "involvedObject.name=$1" -o json |
    jq -r '[.items[]] | unique_by(.message)[] | "\(.type) \(.reason) " +
      "\(.source.component // .reportingComponent): \(.message)"'
}
has_event() { events_of "$1" | grep -qF -e "$2"; }
await_event() { await 30 "event $2 of $1" has_event "$1" "$2" || fail "$1 has: $(events_of "$1")"; }
clear_pods() {
  kubectl delete pods --all --grace-period=1 --wait=true >/dev/null
  await 60 "all tasks over" no_tasks || fail "$("$QGPUCTL" tasks)"
}
tasks() { "$QGPUCTL" -o json "$@" tasks | jq -c '.tasks[]?'; }
no_tasks() { [ -z "$(tasks)" ] && [ -z "$(tasks --cluster)" ]; }
allocatable() {
  kubectl get node "$NODE" -o json |
    jq -r --arg r "$PREFIX/qgpu-$1" '.status.allocatable[$r] // "0"'
}
daemons_ready() {
  kubectl -n kube-system rollout status deployment/qgpu-scheduler --timeout=60s &&
    kubectl -n kube-system rollout status daemonset/qgpu-manager --timeout=60s
}

# The clock is the machine's, which nobody may set here; and so is a kernel that gives cgroups no
# real-time of their own.
nothing_found() {
  "$QGPUCTL" doctor --quiet -o json | jq -e '[.findings[] | select(.code != "clock-unsynced" and
    (.what | contains("in spite of CAP_SYS_NICE") | not))] == []'
}

check_install() {
  "$DEPLOY/install.sh" --preloaded --mixed "$NODE" >"$STATE/install.log"
  await 90 "the daemons run" daemons_ready || fail "$(cat "$STATE/install.log")"
  await 30 "kubelet knows the card" sh -c "kubectl get node $NODE -o json |
    jq -e '.status.allocatable[\"$PREFIX/qgpu-core\"] == \"100\"'" || fail "no devices"
  again=$("$DEPLOY/install.sh" --preloaded --mixed "$NODE")
  if echo "$again" | grep -E ' (created|configured|labeled)$'; then fail "not the same again"; fi
  has "$again" "registered already: nothing to do"
  await 30 "doctor finds nothing" nothing_found || fail "$("$QGPUCTL" doctor)"
  saw "core $(allocatable core), memory $(allocatable memory), greedy $(allocatable core-greedy)"
}

# The example pods as they are; each ends by itself but the online one.
check_examples() {
  for one in ordinary offline; do
    kubectl apply -f "$DEPLOY/examples/$one.yaml" >/dev/null
    await_phase "qgpu-$one" Succeeded
    await_event "qgpu-$one" "Normal QGPUScheduled qgpu-scheduler: bound to node $NODE"
    await_event "qgpu-$one" "Normal QGPUAllocated qgpu-manager: container"
    container=$(kubectl get pod "qgpu-$one" -o 'jsonpath={.spec.containers[0].name}')
    has "$(kubectl logs "qgpu-$one" -c "$container")" '"checksum_ok":true'
    has "$(kubectl get pod "qgpu-$one" -o 'jsonpath={.metadata.annotations.qgpu\.io/assigned}')" \
      "{\"$container\":["
    saw "$one: $(events_of "qgpu-$one" | grep QGPUScheduled)"
  done
  kubectl apply -f "$DEPLOY/examples/online.yaml" >/dev/null
  await_phase qgpu-online Running
  await 10 "the online task" sh -c "$QGPUCTL tasks | grep -q default/qgpu-online/serve" ||
    fail "$("$QGPUCTL" tasks)"
  kubectl apply -f "$DEPLOY/examples/multi-card.yaml" >/dev/null
  await_event qgpu-multi-card "Insufficient $PREFIX/qgpu-core"
  clear_pods
}

check_quota() {
  run_pod greedy '' 'core=30 memory=1' qgpu-work --seconds=1 --memory-mib=1100
  await_phase greedy Failed
  code=$(kubectl get pod greedy \
    -o 'jsonpath={.status.containerStatuses[0].state.terminated.exitCode}')
  [ "$code" = 3 ] || fail "exit $code: $(kubectl logs greedy)"
  await_event greedy 'Warning QGPUMemoryOverrun qgpu-manager: container main'
  saw "$(events_of greedy | grep QGPUMemoryOverrun)"
  saw "1100 MiB of 1 GiB: exit 3, $(kubectl logs greedy | tail -n 1)"
  clear_pods
}

# A quota of the namespace bounds what its pods ask for together; whole cards count by hundreds.
quota_counts() { [ "$(kubectl get resourcequota cards -o json | jq -c '.status.used')" = "$1" ]; }
used() { echo "{\"requests.$PREFIX/qgpu-core\":\"$1\",\"requests.$PREFIX/qgpu-memory\":\"$2\"}"; }
check_namespace_quota() {
  kubectl create quota cards \
    "--hard=requests.$PREFIX/qgpu-core=100,requests.$PREFIX/qgpu-memory=4" >/dev/null
  await 30 "the quota is known" quota_counts "$(used 0 0)" || fail "$(kubectl describe quota cards)"
  run_pod first '' 'core=60 memory=2' sleep infinity
  await_phase first Running
  await 30 "the pod counts" quota_counts "$(used 60 2)" || fail "$(kubectl describe quota cards)"
  for more in 'core=60 memory=1' 'core=10 memory=3' 'core=200'; do
    said=$(pod second '' "$more" true | kubectl create -f - 2>&1) && fail "$more was created"
    has "$said" 'exceeded quota: cards'
    [ "$more" != core=200 ] || has "$said" "requests.$PREFIX/qgpu-core=200"
    saw "$more: $(echo "$said" | tail -n 1)"
  done
  run_pod second '' 'core=40 memory=2' qgpu-work --seconds=1
  await_phase second Succeeded
  kubectl delete quota cards >/dev/null
  clear_pods
}

# rule NAME CLASS LIMITS WORDS: what the user sees at once.
rule() {
  said=$(pod "$1" "$2" "$3" true | kubectl create -f - 2>&1) && fail "$1 was created"
  has "$said" "$4"
  saw "$(echo "$said" | tail -n 1)"
}
check_webhook() {
  rule online-core online 'core=30 memory=4' 'an online pod must not ask for'
  rule offline-core offline 'core=30 memory=4' 'an offline pod must not ask for'
  rule between '' 'core=150' 'qgpu-core is 150'
  rule part '' 'core=30' "a part of a card needs $PREFIX/qgpu-memory"
  rule no-core '' 'memory=4' 'qgpu-memory without qgpu-core'
  rule class both 'memory=4' "is 'both'"
  rule greedy '' 'core-greedy=30 memory=4' 'is for offline pods'
  pod plain '' '' true | kubectl create -f - >/dev/null
  # Where the webhook is not asked the scheduler says the same, of what a node could hold at all.
  kubectl label namespace default qgpu.io/webhook=ignore >/dev/null
  run_pod part '' 'core=30' true
  await_event part "Warning QGPURejected qgpu-scheduler: "
  saw "$(events_of part | grep QGPURejected)"
  kubectl label namespace default qgpu.io/webhook- >/dev/null
  clear_pods
}


policy_is() { "$QGPUCTL" -o json cards | jq -e --arg p "$1" '.cards[0].policy == $p'; }
label() { kubectl label --overwrite node "$NODE" "$1" >/dev/null; }
# Each within a second, with a program that runs on.
check_labels() {
  run_pod steady '' 'core=30 memory=1' qgpu-work --seconds=0
  await_phase steady Running
  for spelling in fs:fixed-share be:best-effort bs:burst-share fixed-share:fixed-share; do
    label "$PREFIX/qgpu-schedule-policy=${spelling%:*}"
    await 1 "policy" policy_is "${spelling#*:}" || fail "$("$QGPUCTL" cards)"
  done
  await_event steady 'Normal QGPUPolicyChanged qgpu-manager: the cards of its node follow'
  label "$PREFIX/qgpu-schedule-policy=fair"
  await 1 "policy" policy_is best-effort || fail "$("$QGPUCTL" cards)"
  await_event "$NODE" 'Warning QGPUPolicyUnknown qgpu-manager'
  saw "$(events_of "$NODE" | grep QGPUPolicyUnknown)"
  label "$PREFIX/qgpu-schedule-policy-"
  label mixed-qgpu-enable-
  run_pod lonely online 'memory=1' sleep infinity
  await_event lonely 'Warning FailedScheduling default-scheduler'
  saw "$(events_of lonely | grep FailedScheduling)"
  await 10 "no greedy devices" sh -c "kubectl get node $NODE -o json |
    jq -e '.status.allocatable[\"$PREFIX/qgpu-core-greedy\"] == \"0\"'" || fail "greedy devices"
  label mixed-qgpu-enable=enable
  await_event lonely 'WrongTenancy: card 0 WrongTenancy (holds ordinary tasks)'
  is steady Running || fail "the running pod"
  kubectl delete pod steady --wait=false >/dev/null
  await_phase lonely Running 90
  clear_pods
}

# The manager's DaemonSet, whichever version of it is there when it is put back: the cluster writes
# its status meanwhile.
managers_set() {
  kubectl -n kube-system get daemonset qgpu-manager -o json |
    jq 'del(.metadata.resourceVersion, .metadata.uid, .status)'
}

# cards SPEC: the manager has those instead.
cards() {
  managers_set |
    jq --arg cards "--cards=$1" '.spec.template.spec.containers[0].command |=
      (map(select(startswith("--cards=") | not)) + [$cards])' |
    kubectl apply -f - >/dev/null
  await 90 "the manager" daemons_ready
  await 30 "its cards" sh -c "[ \$($QGPUCTL -o json cards | jq '.cards | length') = $2 ]"
  await 60 "kubelet knows them" sh -c "kubectl get node $NODE -o json |
    jq -e '.status.allocatable[\"$PREFIX/qgpu-core\"] == \"${2}00\"'"
}
check_multi_card() {
  cards sim:8x64 8
  kubectl apply -f "$DEPLOY/examples/multi-card.yaml" >/dev/null
  await_phase qgpu-multi-card Failed   # there is no device behind imaginary cards
  assigned=$(kubectl get pod qgpu-multi-card \
    -o 'jsonpath={.metadata.annotations.qgpu\.io/assigned}')
  [ "$(echo "$assigned" | jq '.train | length')" = 2 ] || fail "$assigned"
  saw "$assigned"
  clear_pods
}

# The node with NVIDIA's cards that are none: a driver's libraries as a driver container has them,
# its files, and nodes of numbers that nothing of this machine serves.
stand_in_cards() {
  machine=$STATE/stand-in driver=/run/nvidia/driver/usr/lib/x86_64-linux-gnu
  mkdir -p "$machine/dev" "$driver"
  cp "$BUILD"/lib/stand_in/libcuda.so.1 "$BUILD"/lib/stand_in/libnvidia-ml.so.1 "$driver/"
  : >"$machine/cards"
  for minor in 0 1; do
    uuid=GPU-5f1b1b0c-0000-4000-8000-00000000000$minor
    echo "$uuid|Tesla T4|15843721216|0|0|0|0|0" >>"$machine/cards"
    mkdir -p "$machine/proc/driver/nvidia/gpus/0000:0$minor:00.0"
    printf 'GPU UUID: \t %s\nDevice Minor: \t %s\n' "$uuid" "$minor" \
      >"$machine/proc/driver/nvidia/gpus/0000:0$minor:00.0/information"
    [ -e "$machine/dev/nvidia$minor" ] || mknod -m 666 "$machine/dev/nvidia$minor" c 195 "$minor"
  done
  [ -e "$machine/dev/nvidiactl" ] || mknod -m 666 "$machine/dev/nvidiactl" c 195 255
  managers_set | jq --arg at "$machine" '
    .spec.template.spec |= (
      (.volumes[] | select(.name == "host-dev") | .hostPath.path) = $at + "/dev" |
      .volumes += [{name: "stand-in", hostPath: {path: $at}}] |
      .containers[0].env += [{name: "QGPU_STAND_IN_CARDS", value: "/stand-in/cards"}] |
      .containers[0].volumeMounts += [{name: "stand-in", mountPath: "/stand-in"},
        {name: "stand-in", mountPath: "/host/proc", subPath: "proc"}])' |
    kubectl apply -f - >/dev/null
  cards nvidia 2
}
# Each of two pods has the node of its own card, and its kernel lets it open no other one, also by a
# node that it makes. What it may open is none of a driver's here.
check_card_nodes() {
  [ -e "$BUILD/lib/stand_in/libcuda.so.1" ] || { saw "no stand-in of a driver is built"; return; }
  was=$(managers_set)
  stand_in_cards
  for one in first second; do
    # shellcheck disable=SC2016
    run_pod "$one" '' 'core=60 memory=2' sh -c 'echo has $(echo /dev/nvidia*)
      for n in 0 1; do
        mknod /tmp/$n c 195 $n
        echo $n: $( (: </tmp/$n) 2>&1)
      done
      sleep 60'
  done
  for one in first second; do
    await_phase "$one" Running
    card=$(kubectl get pod "$one" -o 'jsonpath={.metadata.annotations.qgpu\.io/assigned}' |
      jq -r '.main[0][-1:]')
    said=$(await 10 "its words" sh -c "kubectl logs $one | grep -q ^1:" && kubectl logs "$one")
    has "$said" "has /dev/nvidia$card /dev/nvidiactl"
    has "$(echo "$said" | grep "^$card:")" 'No such device or address'
    has "$(echo "$said" | grep "^$((1 - card)):")" 'Operation not permitted'
    saw "$one: $(echo "$said" | tr '\n' ' ')"
  done
  clear_pods
  rm -r "$driver"   # or the next manager finds a card of NVIDIA's by it
  printf '%s\n' "$was" | kubectl replace -f - >/dev/null
  await 90 "the manager" daemons_ready
}

# What is given of a card's time and memory is what live tasks have, for the node and the cluster.
sums() {
  node=$(tasks | jq -s 'map(.share_permille) | add // 0')
  cluster=$(tasks --cluster | jq -s 'map(.share_permille) | add // 0')
  live=$(kubectl get pods -o json | jq --arg r "$PREFIX/qgpu-core" '[.items[]
    | select(.status.phase == "Running") | .spec.containers[].resources.limits[$r] // "0"
    | tonumber * 10] | add // 0')
  [ "$node" = "$live" ] && [ "$cluster" = "$live" ]
}
await_sums() { await 30 "sums" sums || fail "node $node, cluster $cluster, live $live permille"; }

running() {   # how many; or those whose names begin so
  kubectl get pods -l check=yes -o json | jq --arg begin "${1:-}" '[.items[] |
    select(.status.phase == "Running" and (.metadata.name | startswith($begin)))] | length'
}
count_is() { [ "$(running)" = "$1" ]; }
starts_of() {
  kubectl get pod "$1" \
    -o 'jsonpath={.status.startTime} {.status.containerStatuses[0].restartCount}'
}

check_hundred() {
  cards sim:8x64 8
  at=$(date +%s%3N)
  for i in $(seq 100); do echo ---; pod "many-$i" '' 'core=8 memory=2' sleep infinity; done |
    kubectl create -f - >/dev/null
  all_bound() { [ "$(kubectl get pods -l check=yes -o json |
    jq '[.items[] | select(.spec.nodeName)] | length')" = "$1" ]; }
  await 120 "all that fit bound" all_bound 96 || fail "$(running) run"
  saw "96 of 100 bound after $(($(date +%s%3N) - at)) ms; 4 wait: $(events_of many-100 | grep -c .)"
  await 180 "96 run" count_is 96 || fail "$(running) run"
  saw "96 run after $(($(date +%s%3N) - at)) ms"
  await_sums
  clear_pods
}

# kubelet, the manager, the scheduler and the API server go and come back under a running pod; one
# that is created meanwhile waits, and then runs.
check_failures() {
  cards sim:8x64 8   # the CPU as a card has too few places
  run_pod stays '' 'core=30 memory=1' sleep infinity
  await_phase stays Running
  before=$(starts_of stays)
  n=0
  for part in kubelet manager manager_killed scheduler_killed api_server; do
    n=$((n + 1))
    "gone_$part"
    [ "$part" = api_server ] || run_pod "next-$n" '' 'core=5 memory=1' sleep infinity
    "back_$part"
    [ "$part" != api_server ] || run_pod "next-$n" '' 'core=5 memory=1' sleep infinity
    await_phase "next-$n" Running 120
    [ "$(starts_of stays)" = "$before" ] || fail "stays: $before, now $(starts_of stays)"
    await_sums
    saw "$part: the new pod runs, the old one was not touched"
  done
  clear_pods
}
takes_nothing() {
  kubectl get node "$NODE" -o json |
    jq -e '.metadata.annotations["qgpu.io/cards"] | fromjson | all(.cards[]; .health == "starting")'
}
gone_kubelet() {
  stop kubelet
  await 5 "the node takes nothing new" takes_nothing
}
back_kubelet() { start kubelet; }
gone_manager() { kubectl -n kube-system delete pod -l app=qgpu-manager --wait=true >/dev/null; }
back_manager() { await 60 "the manager" daemons_ready; }
# Between its death and its container's next start kubelet fails what is bound there, as with every
# device plugin.
gone_manager_killed() {
  kill -KILL "$(pidof qgpu-manager)"
  await 60 "the next one" pidof qgpu-kubelet-plugin
  sleep 2
}
back_manager_killed() { :; }
gone_scheduler_killed() { kill -KILL "$(pidof qgpu-scheduler)"; }
back_scheduler_killed() { :; }
gone_api_server() {
  stop kube-apiserver KILL
  sleep 60
}
back_api_server() { start kube-apiserver; }

# Offline pods of low priority give way to one that asks for what they have.
check_preemption() {
  cards sim:8x64 8
  for one in low:1 high:1000; do
    jq -n --arg n "${one%:*}" --argjson v "${one#*:}" '{apiVersion: "scheduling.k8s.io/v1",
      kind: "PriorityClass", metadata: {name: $n}, value: $v}' | kubectl apply -f - >/dev/null
  done
  for i in 1 2 3 4 5 6 7 8; do PRIORITY=low run_pod "whole-$i" '' 'core=100' sleep infinity; done
  for i in 1 2 3 4 5 6 7 8; do await_phase "whole-$i" Running; done
  PRIORITY=high run_pod urgent '' 'core=30 memory=4' sleep infinity
  await_phase urgent Running 90
  left=$(running whole)
  [ "$left" = 7 ] || fail "$left of 8 are left"
  saw "one of eight made room; $(kubectl get events -o json |
    jq -r '[.items[] | select(.reason == "Preempted")][0].message')"
  await_sums
  clear_pods
}

# --- pods of groups, whose names begin with their group's ---

bound_of() { kubectl get pods -o json | jq --arg begin "$1-" '[.items[] |
  select(.spec.nodeName and (.metadata.name | startswith($begin)))] | length'; }
bound_is() { [ "$(bound_of "$1")" = "$2" ]; }
# Of the groups x and y one is bound whole, $first, and of the other, $second, nobody.
one_is_whole() {   # SIZE
  first=x second=y
  bound_is x "$1" || first=y second=x
  bound_is $first "$1" && bound_is $second 0
}
each_is_whole() {   # SIZE GROUP...
  size=$1
  shift
  for group in "$@"; do
    bound_is "$group" 0 || bound_is "$group" "$size" ||
      fail "$(bound_of "$group") of group $group are bound"
  done
}

# Pods that start together: none before all are here and fit at once; of two groups that do not fit
# beside each other one runs whole and the other waits whole; many at once; and those of a Job.
check_groups() {
  cards sim:8x64 8
  GROUP=train GROUP_SIZE=4
  for i in 1 2 3; do run_pod "rank-$i" '' 'core=100' sleep infinity; done
  await_event rank-3 'GroupWaits: 3 of 4 pods of its group are here'
  [ "$(bound_of rank)" = 0 ] || fail "$(bound_of rank) of a group that is not here are bound"
  at=$(date +%s%3N)
  run_pod rank-4 '' 'core=100' sleep infinity
  await 60 "four bound" bound_is rank 4 || fail "$(bound_of rank) are bound"
  saw "four are bound $(($(date +%s%3N) - at)) ms after the fourth came"
  for i in 1 2 3 4; do await_phase "rank-$i" Running; done
  clear_pods

  GROUP_SIZE=6
  for i in 1 2 3 4 5 6; do
    for g in x y; do echo ---; GROUP=$g; pod "$g-$i" '' 'core=100' sleep infinity; done
  done | kubectl create -f - >/dev/null
  await 60 "one of two groups" one_is_whole 6 || fail "$(bound_of x) and $(bound_of y) are bound"
  # Each says what its last try found, and only the last of them found all here.
  told_of_room() { for i in 1 2 3 4 5 6; do events_of "$second-$i"; done |
    grep -o 'GroupWaits: 6 pods of its group are to start at once, and 2 fit'; }
  await 30 "a reason" told_of_room || fail "$(events_of "$second-1")"
  saw "of two groups of six on eight cards one is bound whole: $(told_of_room | head -n 1)"
  at=$(date +%s%3N)
  for i in 1 2 3 4 5 6; do echo "$first-$i"; done | xargs kubectl delete pod --wait=false >/dev/null
  await 60 "the other group" bound_is "$second" 6 || fail "$(bound_of "$second") are bound"
  saw "the other is bound $(($(date +%s%3N) - at)) ms after the first was deleted"
  clear_pods

  GROUP_SIZE=8 at=$(date +%s%3N)
  for g in 01 02 03 04 05 06 07 08 09 10 11 12 13; do
    for i in 1 2 3 4 5 6 7 8; do
      echo ---
      GROUP=$g
      pod "many-$g-$i" '' 'core=8 memory=2' sleep infinity
    done
  done | kubectl create -f - >/dev/null
  await 120 "twelve groups bound" bound_is many 96 || fail "$(bound_of many) are bound"
  saw "12 of 13 groups of 8, 96 pods, are bound after $(($(date +%s%3N) - at)) ms"
  # shellcheck disable=SC2046
  each_is_whole 8 $(seq -f many-%02g 13)
  await 180 "96 run" count_is 96 || fail "$(running) run"
  await_sums
  GROUP='' GROUP_SIZE=''
  clear_pods

  by=batch.kubernetes.io/controller-uid
  [ "$MINOR" -ge 27 ] || by=controller-uid
  pod rank '' 'core=100' sleep 1 | jq --arg by "$by" '{
    apiVersion: "batch/v1", kind: "Job", metadata: {name: "together"},
    spec: {parallelism: 3, completions: 3, template: {
      metadata: {annotations: {"qgpu.io/group-size": "3", "qgpu.io/group-by": $by}},
      spec: .spec}}}' |
    kubectl create -f - >/dev/null
  kubectl wait --for=condition=complete --timeout=90s job/together >/dev/null ||
    fail "$(kubectl get pods -o wide)"
  saw "a Job of three ran as a group: $(kubectl get pods -l job-name=together -o json |
    jq -r '[.items[].metadata.annotations["qgpu.io/assigned"]] | unique | length') places"
  kubectl delete job together --wait=true >/dev/null
  clear_pods
}

# A second scheduler, on a machine of another name, waits for the lease of the first; then the first
# waits for it, ready as a rollout wants it, and the Service leads to it only once it leads.
check_leaders() {
  holder() { kubectl -n kube-system get lease qgpu-scheduler -o 'jsonpath={.spec.holderIdentity}'; }
  [ "$(holder)" = "$NODE" ] || fail "$(holder) leads"
  mkdir -p /run/second
  kubectl -n kube-system patch deployment qgpu-scheduler -p '{"spec":{"replicas":1}}' >/dev/null
  # shellcheck disable=SC2016
  unshare --uts sh -c 'hostname second && exec "$0" "$@"' "$STATE/out/usr/bin/qgpu-scheduler" \
    --run-dir=/run/second --dbfile=/run/second/scheduler.db --http=127.0.0.1:22345 \
    --rpc=127.0.0.1:22346 >/run/second/log 2>&1 &
  second=$!
  sleep 5
  [ "$(holder)" = "$NODE" ] || fail "two lead"
  has "$(curl -s -d '{"Pod":{"metadata":{"name":"x"},"spec":{}},"NodeNames":["a"]}' \
    http://127.0.0.1:22345/scheduler/filter)" 'not all known yet'
  kubectl -n kube-system scale deployment qgpu-scheduler --replicas=0 >/dev/null
  led_by() { [ "$(holder)" = "$1" ]; }
  await 30 "the second leads" led_by second || fail "$(holder) leads: $(cat /run/second/log)"
  saw "the second leads: $(grep -c leader /run/second/log) time(s)"
  role() { kubectl -n kube-system get pods -l app=qgpu-scheduler -o \
    'jsonpath={.items[*].metadata.labels.qgpu\.io/scheduler}'; }
  served() { kubectl -n kube-system get endpoints qgpu-scheduler -o \
    'jsonpath={.subsets[*].addresses[*].ip}'; }
  kubectl -n kube-system scale deployment qgpu-scheduler --replicas=1 >/dev/null
  kubectl -n kube-system rollout status deployment qgpu-scheduler --timeout=90s >/dev/null ||
    fail "one that waits is not ready"
  [ "$(role)" = follows ] || fail "it says $(role)"
  [ -z "$(served)" ] || fail "the Service leads to $(served)"
  saw "$(kubectl -n kube-system get pods -l app=qgpu-scheduler --no-headers) $(role)"
  kill "$second"
  await 60 "the first leads again" led_by "$NODE" || fail "$(holder) leads"
  leads() { [ "$(role)" = leads ] && [ -n "$(served)" ]; }
  await 60 "the Service leads to it" leads || fail "it says $(role), the Service $(served)"
  await 60 "the daemons" daemons_ready
}

# The configuration of kube-scheduler before 1.19, which those to 1.22 read as well. The image's tag
# is what register.sh goes by.
check_policy_file() {
  [ "$MINOR" -le 22 ] || { saw "kube-scheduler 1.$MINOR reads no policy.json"; return; }
  # Changed where kubelet does not see it, which would start each state of it.
  manifest=/etc/kubernetes/kube-scheduler.yaml
  mv /etc/kubernetes/manifests/kube-scheduler.yaml "$manifest"
  await 60 "kube-scheduler ends" sh -c '! pidof kube-scheduler' || fail "kube-scheduler runs"
  "$DEPLOY/kube-scheduler/register.sh" --manifest "$manifest" --remove >/dev/null
  ctr -n k8s.io images tag "k8s.gcr.io/kube-scheduler:v1.$MINOR.0" \
    k8s.gcr.io/kube-scheduler:v1.18.0 >/dev/null 2>&1 || true
  sed -i "s/:v1.$MINOR.0/:v1.18.0/" "$manifest"
  "$DEPLOY/kube-scheduler/register.sh" --manifest "$manifest" | sed 's/^/  /'
  mv "$manifest" /etc/kubernetes/manifests/
  reads_policy() { kubectl -n kube-system get pod "kube-scheduler-$NODE" -o json | jq -e '
    (.spec.containers[0].command | index("--policy-config-file=/etc/kubernetes/qgpu/policy.json"))
    and .status.containerStatuses[0].ready'; }
  await 90 "kube-scheduler with policy.json" reads_policy || fail "kube-scheduler"
  run_pod by-policy '' 'core=30 memory=1' sleep infinity
  await_phase by-policy Running 120
  await_event by-policy 'Normal QGPUScheduled qgpu-scheduler'
  clear_pods
}

# claim NAME CLASS "CAPACITY=N ..." COMMAND...: a pod with a claim of its own, created.
claim() { claim_objects "$@" | kubectl create -f - >/dev/null; }
claim_objects() {
  name=$1 class=$2 capacity=$3
  shift 3
  jq -n --arg name "$name" --arg class "$class.qgpu.io" --arg capacity "$capacity" \
    --arg image "$TENANT" '
    {name: "gpu", exactly: ({deviceClassName: $class} + if $capacity == "" then {} else
      {capacity: {requests: ([$capacity | splits(" +") | split("=") | {(.[0]): .[1]}] | add)}}
      end)} as $request |
    {apiVersion: "v1", kind: "List", items: [
      {apiVersion: "resource.k8s.io/v1", kind: "ResourceClaimTemplate", metadata: {name: $name},
       spec: {spec: {devices: {requests: [$request]}}}},
      {apiVersion: "v1", kind: "Pod", metadata: {name: $name, labels: {check: "yes"}},
       spec: {restartPolicy: "Never", terminationGracePeriodSeconds: 1,
         resourceClaims: [{name: "gpu", resourceClaimTemplateName: $name}],
         containers: [{name: "main", image: $image, imagePullPolicy: "IfNotPresent",
           command: $ARGS.positional, resources: {claims: [{name: "gpu"}]}}]}}]}' \
    --args -- "$@"
}
slice_kind() { kubectl get resourceslices -o json |
  jq -r '.items[] | select(.spec.driver == "qgpu.io") | .spec.devices[0].attributes.kind.string'; }
kind_is() { [ "$(slice_kind)" = "$1" ]; }
no_slice() { [ -z "$(slice_kind)" ]; }
task_count() { [ "$(tasks | wc -l)" = "$1" ]; }
clear_claims() {
  kubectl delete pods,resourceclaimtemplates --all --grace-period=1 --wait=true >/dev/null
  await 60 "all claims taken back" task_count 0 || fail "$("$QGPUCTL" tasks)"
}
# The node's cards by claims, hybrid and ordinary, and back again.
check_claims() {
  if ! kubectl get --raw /apis/resource.k8s.io/v1 >/dev/null 2>&1; then
    saw "this API server has no resource.k8s.io/v1"
    return
  fi
  label mixed-qgpu-enable=enable
  label qgpu.io/claims=enable
  await 30 "a slice of hybrid cards" kind_is hybrid || fail "slice: $(slice_kind)"
  claim serve online memory=2Gi sleep infinity   # it has the card whenever it wants it
  claim batch offline 'memory=2Gi core=60' qgpu-work --seconds=3
  await_phase serve Running 60
  await_phase batch Succeeded 90
  has "$(kubectl logs batch)" ' 0 wrong'
  saw "online and offline: $(tasks | jq -rs 'map(.name + " on " + .card) | join(", ")')"
  clear_claims

  label mixed-qgpu-enable-
  await 30 "a slice of ordinary cards" kind_is ordinary || fail "slice: $(slice_kind)"
  for one in first second third; do
    claim "$one" ordinary 'memory=1Gi core=30' qgpu-work --seconds=0
  done
  claim fourth ordinary 'memory=1Gi core=30' qgpu-work --seconds=0
  for one in first second third; do
    await 60 "pod $one runs" is "$one" Running || is fourth Running || fail "$one: $(phase "$one")"
  done
  await 60 "three of four run" count_is 3 || fail "$(running) run"
  task_count 3 || fail "$("$QGPUCTL" tasks)"
  saw "3 of 4 of 30 percent run; the fourth: $(kubectl get events -o json | jq -r \
    '[.items[] | select(.reason == "FailedScheduling") | .message] | last')"
  kubectl delete pod first --grace-period=1 --wait=true >/dev/null
  await 30 "the fourth has its room" count_is 3 || fail "$(running) run"
  clear_claims

  claim greedy ordinary 'memory=1Gi core=30' qgpu-work --seconds=1 --memory-mib=1100
  await_phase greedy Failed
  code=$(kubectl get pod greedy \
    -o 'jsonpath={.status.containerStatuses[0].state.terminated.exitCode}')
  [ "$code" = 3 ] || fail "exit $code: $(kubectl logs greedy)"
  saw "1100 MiB of 1Gi: exit 3, $(kubectl logs greedy | tail -n 1)"
  claim whole ordinary '' qgpu-work --seconds=1
  await_phase whole Succeeded
  clear_claims

  label qgpu.io/claims-
  await 30 "the slice goes" no_slice || fail "slice: $(slice_kind)"
  label mixed-qgpu-enable=enable
  run_pod again '' 'core=30 memory=1' sleep infinity
  await_phase again Running
  clear_pods
}

# A claim that its driver would refuse is refused when it is created.
claim_rule() {   # CLASS CAPACITY=N WORDS
  said=$(claim wrong "$1" "$2" true 2>&1) && fail "$1 $2 was created"
  has "$said" "$3"
  saw "$(echo "$said" | grep -F 'claims.qgpu.io' | tail -n 1)"
  kubectl delete pod wrong --ignore-not-found --grace-period=1 >/dev/null
}
# The container's own word, and the request of the claim that it has.
ran_by_claim() {   # POD CONTAINER
  has "$(kubectl logs "$1" -c "$2")" '"checksum_ok":true'
  kubectl get pod "$1" -o json | jq -e --arg c "$2" --arg r "$PREFIX/" '
    .spec.containers[] | select(.name == $c).resources |
    .claims == [{name: "qgpu", request: $c}] and
    ([.limits // {}, .requests // {}] | add | keys | all(startswith($r) | not))' >/dev/null ||
    fail "$1: $(kubectl get pod "$1" -o yaml)"
}
templates() { kubectl get resourceclaimtemplates -o name | wc -l; }
# The example pods as they are, in a namespace whose pods ask by claims.
check_by_claims() {
  if ! kubectl get --raw /apis/resource.k8s.io/v1 >/dev/null 2>&1; then
    saw "this API server has no resource.k8s.io/v1"
    return
  fi
  await 60 "the webhook's path" sh -c "kubectl get mutatingwebhookconfigurations qgpu-scheduler \
    -o json | jq -e '.webhooks | all(.clientConfig.service.path and .matchConditions)'" ||
    fail "$(kubectl get mutatingwebhookconfigurations -o yaml)"
  claim_rule offline memory=2Gi 'core is 0: ask for 1 to 100'
  claim_rule online 'memory=2Gi core=30' 'an online task asks for no core'
  claim_rule ordinary mem=2Gi "a card has no capacity 'mem'"
  label mixed-qgpu-enable-
  label qgpu.io/claims=enable
  await 60 "a slice of ordinary cards" kind_is ordinary || fail "slice: $(slice_kind)"
  kubectl create namespace team >/dev/null
  kubectl label namespace team qgpu.io/claims=enable >/dev/null
  kubectl config set-context here --namespace=team >/dev/null
  await 30 "its service account" kubectl get serviceaccount default

  said=$(pod between '' 'core=150' true | kubectl create -f - 2>&1) && fail "between was created"
  has "$said" 'qgpu-core is 150'
  saw "$(echo "$said" | tail -n 1)"
  made=$(pod dry '' 'core=30 memory=1' true | kubectl create --dry-run=server -f - -o json)
  echo "$made" | jq -e '.spec.resourceClaims[0].name == "qgpu"' >/dev/null || fail "$made"
  [ "$(templates)" = 0 ] || fail "a dry run made a template"

  kubectl apply -f "$DEPLOY/examples/ordinary.yaml" >/dev/null
  await_phase qgpu-ordinary Succeeded 120
  for one in train evaluate; do ran_by_claim qgpu-ordinary "$one"; done
  for one in 1 2; do
    run_pod "again-$one" '' 'core=30 memory=1' qgpu-work --seconds=1
    await_phase "again-$one" Succeeded 90
  done
  [ "$(templates)" = 2 ] || fail "$(kubectl get resourceclaimtemplates)"
  saw "ordinary: two containers by one claim of two requests; two pods alike, one template"
  kubectl apply -f "$DEPLOY/examples/multi-card.yaml" >/dev/null
  await_event qgpu-multi-card FailedScheduling
  saw "multi-card on one card: $(events_of qgpu-multi-card | grep FailedScheduling)"
  clear_pods

  label mixed-qgpu-enable=enable
  await 60 "a slice of hybrid cards" kind_is hybrid || fail "slice: $(slice_kind)"
  kubectl apply -f "$DEPLOY/examples/offline.yaml" >/dev/null   # the card may be too small for both
  await_phase qgpu-offline Succeeded 120
  ran_by_claim qgpu-offline batch
  kubectl apply -f "$DEPLOY/examples/online.yaml" >/dev/null
  await_phase qgpu-online Running 90
  await 30 "the online task" task_count 1 || fail "$("$QGPUCTL" tasks)"
  saw "offline ran; online: $(tasks | jq -r '.name + " on " + .card + ", " + .class')"
  clear_pods

  kubectl label namespace team qgpu.io/claims- qgpu.io/scheduler-name=second >/dev/null
  run_pod other '' 'core=30 memory=1' true
  run_pod plain '' '' true
  for one in other:second plain:default-scheduler; do
    named=$(kubectl get pod "${one%:*}" -o 'jsonpath={.spec.schedulerName}')
    [ "$named" = "${one#*:}" ] || fail "${one%:*} goes to $named"
  done
  saw "a pod that asks goes to the scheduler of its namespace's label, another to the default one"
  kubectl config set-context here --namespace=default >/dev/null
  kubectl delete namespace team >/dev/null
  label qgpu.io/claims-
  await 60 "the slice goes" no_slice || fail "slice: $(slice_kind)"
}

# Waits for the pod that has a card, and leaves the node as it was.
check_uninstall() {
  run_pod last '' 'core=30 memory=1' sleep infinity
  await_phase last Running
  code=0
  POLL=1 "$DEPLOY/uninstall.sh" --timeout 2 >"$STATE/uninstall.log" 2>&1 || code=$?
  [ "$code" = 4 ] || fail "uninstall ended with $code: $(cat "$STATE/uninstall.log")"
  saw "$(grep 'still use' "$STATE/uninstall.log")"
  is last Running || fail "it harmed a pod"
  kubectl delete pod last --grace-period=1 >/dev/null
  "$DEPLOY/uninstall.sh" >"$STATE/uninstall.log" 2>&1 || fail "$(cat "$STATE/uninstall.log")"
  nothing_left
}

nothing_left() {
  left=$(kubectl get all,cm,sa,roles,rolebindings,clusterroles,clusterrolebindings,secrets,leases \
    -A -o name | grep -e qgpu -e helm | grep -v "$NODE" || true)
  left="$left$(kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name)"
  if kubectl get --raw /apis/resource.k8s.io/v1 >/dev/null 2>&1; then
    left="$left$(kubectl get resourceclaimtemplates,deviceclasses,resourceslices -A -o name)"
  fi
  [ -z "$left" ] || fail "left: $left"
  kubectl get node "$NODE" -o json | jq -e '[.spec.unschedulable, (.metadata | .labels, .annotations
    | keys[] | select(test("qgpu")))] | all(. == null)' >/dev/null ||
    fail "the node keeps something"
}

# By the chart as a release packs it, on a cluster whose kube-scheduler nobody changes: pods name
# the one that the chart brings. Nobody looks up names of Services here, so it gets an address.
check_chart() {
  HELM=$(command -v helm || echo "$BUILD/helm/helm")
  export HELM
  [ -x "$HELM" ] || { saw "no helm: sh tests/deploy/helm.sh build/helm"; return; }
  [ "$MINOR" -ge 19 ] || { saw "1.$MINOR has no second kube-scheduler of the chart"; return; }
  chart=$STATE/chart/qgpu-0.1.0.tgz
  sh "$ROOT/deploy/packaging/chart.sh" "$STATE/chart" 0.1.0
  values=images.pullPolicy=Never,kubeScheduler.enabled=true,scheduler.service.clusterIP=10.96.0.77
  values=$values,kubeScheduler.image.repository=k8s.gcr.io/kube-scheduler
  values=$values,kubeScheduler.image.tag=v1.$MINOR.0
  "$HELM" install qgpu "$chart" -n kube-system --set "$values" --wait --timeout 120s \
    >"$STATE/chart.log" 2>&1 || fail "$(cat "$STATE/chart.log")"
  kubectl -n kube-system rollout status deployment/qgpu-kube-scheduler --timeout=90s >/dev/null ||
    fail "$(kubectl -n kube-system logs -l app=qgpu-kube-scheduler)"
  saw "$("$HELM" version --short): $(grep STATUS "$STATE/chart.log")"
  label qgpu-device-enable=enable
  label mixed-qgpu-enable=enable
  await 60 "kubelet knows the card" sh -c "kubectl get node $NODE -o json |
    jq -e '.status.allocatable[\"$PREFIX/qgpu-core\"] == \"100\"'" || fail "no devices"

  said=$(pod part '' 'core=30' true | kubectl create -f - 2>&1) && fail "the webhook let it through"
  saw "$said"
  SCHEDULER=qgpu
  run_pod by-chart '' 'core=30 memory=1' qgpu-work --seconds=2
  await_phase by-chart Succeeded
  await_event by-chart "Normal QGPUScheduled qgpu-scheduler: bound to node $NODE"
  saw "ordinary: $(events_of by-chart | grep QGPUScheduled)"
  run_pod batch offline 'core-greedy=60 memory=1' qgpu-work --seconds=2
  await_phase batch Succeeded
  run_pod serve online 'memory=1' sleep infinity
  await_phase serve Running
  run_pod wide '' 'core=300' true
  await_event wide 'Warning FailedScheduling qgpu: '
  saw "too wide: $(events_of wide | grep FailedScheduling)"
  SCHEDULER=''

  secret() { kubectl -n kube-system get secret "$1" -o 'jsonpath={.data}' | sha256sum; }
  before="$(secret qgpu-scheduler-extender) $(secret qgpu-scheduler-webhook) $(starts_of serve)"
  "$HELM" upgrade qgpu "$chart" -n kube-system --wait --timeout 120s --set \
    "$values,manager.policy=fixed-share,webhook.enabled=false" >"$STATE/chart.log" 2>&1 ||
    fail "$(cat "$STATE/chart.log")"
  await 60 "the new policy" policy_is fixed-share || fail "$("$QGPUCTL" cards)"
  [ -z "$(kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name)" ] ||
    fail "a webhook is there"
  await 60 "the daemons" daemons_ready
  now="$(secret qgpu-scheduler-extender) $(secret qgpu-scheduler-webhook) $(starts_of serve)"
  [ "$now" = "$before" ] || fail "certificates or the running pod changed: $before, now $now"
  SCHEDULER=qgpu run_pod after offline 'core-greedy=60 memory=1' qgpu-work --seconds=1
  await_phase after Succeeded
  saw "upgraded: fixed-share, no webhook; certificates and the running pod are as they were"
  clear_pods
  "$DEPLOY/uninstall.sh" --no-register >"$STATE/uninstall.log" 2>&1 ||
    fail "$(cat "$STATE/uninstall.log")"
  saw "$(grep 'uninstalled' "$STATE/uninstall.log")"
  nothing_left
}

ALL='install examples quota namespace_quota webhook labels multi_card card_nodes claims by_claims
  hundred failures preemption groups leaders policy_file three_hundred waits wide_groups node_loss
  restarts leader uninstall chart'
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $ALL
for name in "$@"; do
  since=$(date +%s)
  echo "$name"
  "check_$name"
  saw "$(($(date +%s) - since)) s"
done
echo "all passed: $*"
