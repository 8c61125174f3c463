@0xb1a0c7d25e934f06;
# RPC of the scheduler: RUN_DIR/scheduler.rpc and --rpc=ADDR. Refusals are RPC exceptions FAILED
# with "code: message"; a full queue is OVERLOADED, a lost daemon DISCONNECTED.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");
using T = import "types.capnp";
using C = import "cluster.capnp";

interface Scheduler {
  info @0 () -> (info :C.ClusterInfo);
  # The cluster in a few figures: its nodes, cards, tasks, and what waits for what.
  nodes @1 (page :C.Page) -> (nodes :List(C.ClusterNode), next :UInt64);
  # Lists come whole, where `page` is absent, or page by page: a page may miss what changed since
  # the one before it. `next` is `after` of the next page; 0: this was the last.
  cards @2 (page :C.Page) -> (cards :List(C.ClusterCard), next :UInt64);
  # As nodes().
  submit @3 (spec :C.ClusterSpec) -> (assigned :C.Assigned);
  # Durable when it returns. A repeated spec.task.requestId of the same user gets the same answer.
  # A task that fits nowhere now waits: the answer says so, get() and watch() tell when it is bound.
  delete @4 (task :UInt64) -> (done :Text);
  # Ends a task, wherever it is. `done`, here and below: what is so now, for a person.
  get @5 (task :UInt64) -> (task :C.ClusterTask, assigned :C.Assigned);
  # One task. `assigned`, as its submit answered, is for its owner and for who may change; others
  # find it empty.
  list @6 (page :C.Page) -> (tasks :List(C.ClusterTask), next :UInt64);
  # Every task that lives, as nodes().
  watch @7 (watcher :ClusterWatcher, since :UInt64) -> (subscription :ClusterSubscription);
  # Events after number `since`, as far as they are remembered, and then as they happen; 0: from
  # now on. Dropping the subscription ends them. A watcher that holds an event back for 30 s, or
  # lags by more than 1024, is told "watch-dropped" as its last: watch again from the last seq.
  events @8 (since :UInt64) -> (events :List(T.Event));
  # Events after number `since`, as far as they are remembered, a part at a time: ask again.
  explain @9 (task :UInt64) -> (explanation :C.Explanation);
  # Why a task is where it is, or why it waits: what each node and card lacks.
  explainSpec @10 (spec :C.ClusterSpec) -> (explanation :C.Explanation);
  # The same of a task that was not submitted.
  whatIf @11 (question :C.WhatIf) -> (answer :C.WhatIfAnswer);
  # Where so many tasks would go, or what a drain would do. Nothing is changed.
  cordon @12 (target :C.Target) -> (done :Text);
  # The node, or the card of it, takes no new tasks; those that are bound stay.
  uncordon @13 (target :C.Target) -> (done :Text);
  # It takes new tasks again. A drain of it is over.
  drain @14 (target :C.Target, timeoutNs :UInt64) -> (done :Text);
  # A cordon, and its tasks are moved: those that are still there after timeoutNs are evicted.
  setPriority @15 (score :C.Score) -> (done :Text);
  # How tasks are placed from now on. Stored.
  preemptDryRun @16 (task :UInt64) -> (answer :C.WhatIfAnswer);
  # Whom a task that waits would evict. Nothing is changed.
  registry @17 () -> (registry :Registry);
  # For managers, which join by it.
  snapshot @18 () -> (done :Text);
  # Writes a snapshot of its store; returns when it is written.
  setLogLevel @19 (level :Text) -> (done :Text);
  # Of this daemon, until it ends: trace, debug, info, warn, error or off.
  ask @20 (request :C.ClusterRequest) -> (reply :C.ClusterReply);
  # Any command of the admin socket, by the member of the union that it stands for; those above are
  # some of them. What the caller writes into the other fields of the request is not looked at.
}

interface ClusterWatcher { event @0 (event :T.Event) -> stream; }
interface ClusterSubscription {}

# How a manager joins. Both ends tell messages one way; the session is over when the connection is.
# What one end says at once it tells in one call, in order, to an end that said that it `gathers`.
interface Registry {
  join @0 (node :MemberEnd, gathers :Bool)
       -> (scheduler :SchedulerEnd, gathers :Bool, beats :Bool);
}
interface MemberEnd {
  tell @0 (words :C.ToMember) -> stream;
  tellAll @1 (all :List(C.ToMember)) -> stream;
  trace @2 (card :Text, since :UInt64) -> (trace :T.CardTrace);
  # What a card of this node did, for who looks at the cluster: as the node's own `trace` answers.
}
interface SchedulerEnd {
  tell @0 (words :C.FromMember) -> stream;
  tellAll @1 (all :List(C.FromMember)) -> stream;
  beat @2 (words :C.FromMember) -> (seen :C.ToMember);
  # A beat, answered where it was asked: half the messages of two tells. For a scheduler that said
  # that it takes `beats`; to others a beat is told. No answer where the beat was of no session.
}
