#!/bin/sh
# What is checked on a cluster of three nodes, while checker/checker.py looks on: sourced by
# checks.sh, which has what they share.

CHECKER=$HERE/checker/checker.py
OTHERS=$(seq 2 "$NODES")

# Each node shares eight imaginary cards of 64 GiB and allows online and offline pods.
join_nodes() {
  for n in $OTHERS; do
    kubectl label --overwrite node "$NODE-$n" qgpu-device-enable=enable >/dev/null
  done
  every_node mixed-qgpu-enable=enable
  cards sim:8x64 8
  for n in $OTHERS; do
    await 60 "kubelet $n knows its cards" sh -c "kubectl get node $NODE-$n -o json |
      jq -e '.status.allocatable[\"$PREFIX/qgpu-core\"] == \"800\"'" || fail "node $n"
  done
}
every_node() { kubectl label --overwrite nodes -l kubernetes.io/os=linux "$1" >/dev/null; }
several() {
  [ "$NODES" -ge 3 ] && return
  saw "needs NODES=3"
  return 1
}

# watching NAME, until watched: what is wrong meanwhile ends the run.
watching() {
  watched=$STATE/checker/$1
  set -- "$NODE=/"
  for n in $OTHERS; do set -- "$@" "$NODE-$n=/proc/$(cat "$STATE/node-$n/pid")/root"; done
  mkdir -p "$watched"
  python3 "$CHECKER" watch --kubeconfig "$KUBECONFIG" --out "$watched" --stuck 45 "$@" \
    >"$watched.log" 2>&1 &
  checker=$!
  await 10 "the checker" test -s "$watched/moments" || fail "$(cat "$watched.log")"
}
watched() {
  kill "$checker"
  code=0
  wait "$checker" || code=$?
  [ "$code" = 0 ] || fail "$(cat "$watched/wrong" "$watched.log")"
  saw "nothing was wrong: $(cat "$watched/sum")"
}
moments() { grep -c " $1 default/$2" "$watched/moments"; }
reached() { [ "$(moments "$1" "$2")" -ge "$3" ]; }
create() { python3 "$CHECKER" create --kubeconfig "$KUBECONFIG"; }
times_of() { python3 "$CHECKER" times "$watched" "$1"; }
in_use() { awk '/MemTotal/ { all = $2 } /MemAvailable/ { print int((all - $2) / 1024) }' \
  /proc/meminfo; }
manager_tasks() {   # of node NUMBER
  if [ "$1" = 1 ]; then tasks
  else tasks --socket "/proc/$(cat "$STATE/node-$1/pid")/root/run/qgpu/manager.sock"
  fi
}
no_tasks_anywhere() { for n in 1 $OTHERS; do [ -z "$(manager_tasks "$n")" ] || return 1; done; }
clear_all() {
  kubectl delete jobs,deployments,pods,resourceclaimtemplates --all --grace-period=1 --wait=true \
    >/dev/null 2>&1
  await 120 "all tasks over" no_tasks_anywhere || fail "tasks are left"
}

# The same pod, or claim, N times: BEGIN-1 and so on.
many() {   # N BEGIN CLASS LIMITS COMMAND...
  number=$1
  shift
  pod "$@" | jq --argjson n "$number" '. as $pod | range($n) as $i |
    $pod | .metadata.name += "-\($i + 1)"' | create
}
many_claims() {   # N BEGIN CLASS CAPACITY COMMAND...
  number=$1
  shift
  objects=$(claim_objects "$@")
  echo "$objects" | jq '.items[0]' | create
  echo "$objects" | jq --argjson n "$number" '.items[1] as $pod | range($n) as $i |
    $pod | .metadata.name += "-\($i + 1)"' | create
}
by_claims() {
  every_node qgpu.io/claims=enable
  await 60 "slices" slices_are "$NODES" || fail "$(kubectl get resourceslices)"
}
by_pods() {
  every_node qgpu.io/claims-
  await 60 "no slices" slices_are 0 || fail "$(kubectl get resourceslices)"
  await 30 "cards of pods" all_told || fail "nodes"
}
slices_are() { [ "$(kubectl get resourceslices -o json | jq '.items | length')" = "$1" ]; }
all_told() {
  kubectl get nodes -o json |
    jq -e 'all(.items[]; .metadata.annotations["qgpu.io/cards"] // "{}" | fromjson
      | .cards // [] | length == 8)'
}

# All at once, by the extender and by claims, with the same asks: 14 to a card.
check_three_hundred() {
  several || return 0
  join_nodes
  watching three-hundred
  many 300 pods '' 'core=7 memory=4' sleep infinity
  await 300 "300 bound" reached bound pods- 300 || fail "$(moments bound pods-) bound"
  await 600 "300 run" reached running pods- 300 || fail "$(moments running pods-) run"
  saw "by the extender: $(times_of pods-); $(in_use) MiB of the machine in use"
  clear_all
  every_node mixed-qgpu-enable-
  by_claims
  many_claims 300 claims ordinary 'core=7 memory=4Gi' sleep infinity
  await 300 "300 bound" reached bound claims- 300 || fail "$(moments bound claims-) bound"
  await 600 "300 run" reached running claims- 300 || fail "$(moments running claims-) run"
  saw "by claims: $(times_of claims-); $(in_use) MiB of the machine in use"
  clear_all
  by_pods
  watched
}

# What waits is bound within a second of the room for it: twelve times a pod ends on full cards.
check_waits() {
  several || return 0
  join_nodes
  watching waits
  many 24 full '' 'core=100' sleep infinity
  await 300 "all cards full" reached running full- 24 || fail "$(moments running full-) run"
  many 12 full-waits '' 'core=100' sleep infinity
  waits_end full-
  clear_all
  every_node mixed-qgpu-enable-
  by_claims
  many_claims 24 whole ordinary '' sleep infinity
  await 300 "all cards full" reached running whole- 24 || fail "$(moments running whole-) run"
  many_claims 12 whole-waits ordinary '' sleep infinity
  waits_end whole- --claims
  clear_all
  by_pods
  watched
}
waits_end() {   # BEGIN [--claims]
  await 30 "twelve wait" reached seen "$1waits-" 12 || fail "they are not there"
  sleep 5
  for i in $(seq 12); do
    kubectl delete pod "$1$i" --wait=false >/dev/null
    await 60 "one more bound" reached bound "$1waits-" "$i" || fail "$(events_of "$1waits-$i")"
  done
  waited=$(python3 "$CHECKER" waits "$watched" "$@")
  saw "bound after room was there: $waited"
  [ "$(echo "$waited" | jq .most_ms)" -le 1000 ] || fail "later than a second: $waited"
}

# Groups whose pods need cards of several nodes, while the scheduler dies, and more groups than
# there is room for: each is bound whole or not at all.
check_wide_groups() {
  several || return 0
  join_nodes
  watching wide-groups
  at=$(date +%s%3N)
  GROUP=wide GROUP_SIZE=20 many 20 wide '' 'core=100' sleep infinity
  await 120 "20 bound" bound_is wide 20 || fail "$(bound_of wide) are bound"
  saw "20 whole cards of 24 for one group after $(($(date +%s%3N) - at)) ms, on" \
    "$(kubectl get pods -o json | jq '[.items[].spec.nodeName] | unique | length') nodes"
  clear_all

  for g in x y; do GROUP=$g GROUP_SIZE=14 many 14 "$g" '' 'core=100' sleep infinity; done
  await 120 "one of two groups" one_is_whole 14 || fail "$(bound_of x) and $(bound_of y) are bound"
  at=$(date +%s%3N)
  for i in $(seq 14); do echo "$first-$i"; done | xargs kubectl delete pod --wait=false >/dev/null
  gone_scheduler_killed
  await 120 "the other group" bound_is "$second" 14 || fail "$(bound_of "$second") are bound"
  saw "one of two groups of 14 is bound whole; the other $(($(date +%s%3N) - at)) ms after the" \
    "first was deleted and the scheduler killed"
  clear_all

  at=$(date +%s%3N)
  for g in $(seq 11 42); do
    GROUP=$g GROUP_SIZE=8 many 8 "many-$g" '' 'core=10 memory=6' sleep infinity
  done
  await 300 "30 groups bound" bound_is many 240 || fail "$(bound_of many) are bound"
  saw "30 of 32 groups of 8, 240 pods, are bound after $(($(date +%s%3N) - at)) ms"
  # shellcheck disable=SC2046
  each_is_whole 8 $(seq -f many-%g 11 42)
  await 600 "240 run" reached running many- 240 || fail "$(moments running many-) run"
  clear_all
  watched
}

# deployment NAME REPLICAS CLASS LIMITS: of pods that leave a lost node after 5 s, and sleep.
deployment() {
  name=$1 replicas=$2
  pod "$name" "$3" "$4" sleep infinity | jq --argjson n "$replicas" '
    def gone($key): {key: ("node.kubernetes.io/" + $key), operator: "Exists",
      effect: "NoExecute", tolerationSeconds: 5};
    {apiVersion: "apps/v1", kind: "Deployment", metadata: {name: .metadata.name},
     spec: {replicas: $n, selector: {matchLabels: {of: .metadata.name}},
       template: {metadata: {annotations: .metadata.annotations,
           labels: (.metadata.labels + {of: .metadata.name})},
         spec: (.spec + {restartPolicy: "Always",
           tolerations: [gone("not-ready"), gone("unreachable")]})}}}' |
    kubectl apply -f - >/dev/null
}
available() {
  [ "$(kubectl get deployment "$1" -o 'jsonpath={.status.availableReplicas}')" = "$2" ]
}
all_available() { available usual 12 && available serve 6 && available batch 6; }
node_ready() {   # NODE STATUS
  kubectl get node "$1" -o json | jq -e --arg s "$2" \
    '.status.conditions[] | select(.type == "Ready") | .status == $s'
}
none_ending() {
  kubectl get pods -o json | jq -e 'all(.items[]; .metadata.deletionTimestamp == null)'
}

# A node is cut off with all that runs there: its pods run elsewhere, and when it is back it has
# none of them.
check_node_loss() {
  several || return 0
  join_nodes
  watching node-loss
  for one in 'usual 12 "" core=30 memory=4' 'serve 6 online memory=4' \
    'batch 6 offline core-greedy=30 memory=4'; do
    eval "set -- $one"
    name=$1 replicas=$2 class=$3
    shift 3
    deployment "$name" "$replicas" "$class" "$*"
  done
  await 120 "24 run" all_available || fail "$(kubectl get pods)"
  lost=$(kubectl get pods -o json | jq -r --arg first "$NODE" '[.items[].spec.nodeName
    | select(. != $first)] | group_by(.) | max_by(length)[0]')
  had=$(kubectl get pods -o json | jq --arg n "$lost" \
    '[.items[] | select(.spec.nodeName == $n)] | length')
  at=$(date +%s%3N)
  ip link set "node${lost##*-}" down
  await 120 "the node is lost" node_ready "$lost" Unknown || fail "$lost"
  unknown=$(date +%s%3N)
  away() { all_available && ! kubectl get pods -o json | jq -e --arg n "$lost" 'any(.items[];
    .spec.nodeName == $n and .metadata.deletionTimestamp == null)'; }
  await 120 "all run elsewhere" away || fail "$(kubectl get pods -o wide)"
  saw "$lost with $had pods cut off: NotReady after $((unknown - at)) ms, all run elsewhere" \
    "$(($(date +%s%3N) - unknown)) ms later"
  sleep 10
  ip link set "node${lost##*-}" up
  back=$(date +%s%3N)
  await 120 "the node is back" node_ready "$lost" True || fail "$lost"
  await 120 "what it had is over" none_ending || fail "$(kubectl get pods -o wide)"
  nothing_there() { [ -z "$(manager_tasks "${lost##*-}")" ]; }
  await 30 "its manager's tasks" nothing_there || fail "$(manager_tasks "${lost##*-}")"
  saw "back: nothing is left there after $(($(date +%s%3N) - back)) ms"
  await 60 "all run" all_available
  clear_all
  watched
}

# Work that comes and goes: COUNT pods, some at a time, made anew where one fails.
job() {   # NAME COUNT AT-A-TIME
  name=$1 count=$2 parallel=$3
  pod "$name" '' 'core=20 memory=4' sleep 2 | jq --argjson n "$count" --argjson p "$parallel" '
    {apiVersion: "batch/v1", kind: "Job", metadata: {name: .metadata.name},
     spec: {completions: $n, parallelism: $p, backoffLimit: 1000,
       template: {metadata: {labels: .metadata.labels}, spec: .spec}}}' |
    kubectl create -f - >/dev/null
}
done_of() { kubectl get job "$1" -o 'jsonpath={.status.succeeded}'; }
done_is() { [ "$(done_of "$1")" -ge "$2" ]; }
failed_of() { kubectl get job "$1" -o json | jq '.status.failed // 0'; }
untouched() {
  kubectl get pods -l of=usual -o json | jq -cS '[.items[] |
    [.metadata.uid, .status.containerStatuses[0].restartCount, .status.phase]] | sort'
}
restart_on_all() {
  for n in 1 $OTHERS; do on "$n" stop "$1" && on "$n" start "$1" || return 1; done
}
# Each part goes and comes back while work goes on; long-running pods are not touched.
check_restarts() {
  several || return 0
  join_nodes
  watching restarts
  deployment usual 12 '' 'core=30 memory=4'
  await 120 "12 run" available usual 12 || fail "$(kubectl get pods)"
  before=$(untouched)
  job churn 2000 6
  for part in manager scheduler kube-scheduler kube-apiserver kube-controller-manager etcd \
    kubelet containerd; do
    finished=$(done_of churn)
    at=$(date +%s%3N)
    restart_part "$part" || fail "$part does not come back"
    took=$(($(date +%s%3N) - at))
    await 120 "ten more pods" done_is churn "$((${finished:-0} + 10))" || fail "$(kubectl get pods)"
    [ "$(untouched)" = "$before" ] || fail "before $before, now $(untouched)"
    saw "$part: back after $took ms, ten more pods $(($(date +%s%3N) - at - took)) ms later;" \
      "$(failed_of churn) pods failed so far"
  done
  clear_all
  watched
}
restart_part() {
  case "$1" in
    manager) daemon=daemonset/qgpu-manager ;;
    scheduler) daemon=deployment/qgpu-scheduler ;;
    kube-scheduler)
      kill -KILL "$(pidof kube-scheduler)"
      await 60 "kube-scheduler" pidof kube-scheduler
      return
      ;;
    kubelet | containerd) restart_on_all "$1"; return ;;
    *) stop "$1" KILL && start "$1"; return ;;   # an API server ends by itself after a minute
  esac
  kubectl -n kube-system rollout restart "$daemon" >/dev/null
  kubectl -n kube-system rollout status "$daemon" --timeout=120s >/dev/null
}

# Two schedulers, of which the one that acts is killed under load, and then deleted.
check_leader() {
  several || return 0
  join_nodes
  watching leader
  "$DEPLOY/kube-scheduler/register.sh" --remove >/dev/null
  "$DEPLOY/kube-scheduler/register.sh" --remote | sed 's/^/  /'
  kubectl -n kube-system scale deployment qgpu-scheduler --replicas=2 >/dev/null
  await 90 "two schedulers" daemons_ready || fail "$(kubectl -n kube-system get pods -o wide)"
  leading() { kubectl -n kube-system get pods -l qgpu.io/scheduler=leads -o name; }
  node_of_leader() { kubectl -n kube-system get "$(leading)" -o 'jsonpath={.spec.nodeName}'; }
  job churn 2000 6
  await 120 "work" done_is churn 10 || fail "$(kubectl get pods -A)"
  for how in killed deleted; do
    finished=$(done_of churn) where=$(node_of_leader)
    at=$(date +%s%3N)
    if [ "$how" = deleted ]; then
      kubectl -n kube-system delete "$(leading)" --wait=false >/dev/null
    else
      number=${where##*-}
      [ "$where" != "$NODE" ] || number=1
      # shellcheck disable=SC2046
      on "$number" kill -KILL $(on "$number" pidof qgpu-scheduler | tr ' ' '\n' | tail -n 1)
    fi
    await 120 "ten more pods" done_is churn "$((finished + 10))" || fail "$(kubectl get pods -A)"
    saw "the leader on $where $how: the longest time without a bind" \
      "$(longest_pause "$at") ms; $(node_of_leader) leads; $(failed_of churn) pods failed"
  done
  clear_all
  # The one that is left belongs beside kube-scheduler, which asks it there again.
  kubectl -n kube-system scale deployment qgpu-scheduler --replicas=1 >/dev/null
  kubectl -n kube-system rollout restart deployment qgpu-scheduler >/dev/null
  "$DEPLOY/kube-scheduler/register.sh" --remove >/dev/null
  "$DEPLOY/kube-scheduler/register.sh" >/dev/null
  await 60 "one scheduler" daemons_ready
  watched
}
longest_pause() {   # since SINCE, in milliseconds
  awk -v since="$1" '$2 == "bound" && $1 >= since { if (last && $1 - last > most) most = $1 - last
    last = $1 } { if ($2 == "bound" && $1 < since) last = $1 } END { print most + 0 }' \
    "$watched/moments"
}
