@0xb1a0c7d25e934f06;
# RPC of the scheduler: RUN_DIR/scheduler.rpc and --rpc=ADDR. Refusals are RPC exceptions FAILED
# with "code: message"; a full queue is OVERLOADED, a lost daemon DISCONNECTED.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");
using T = import "types.capnp";
using C = import "cluster.capnp";

interface Scheduler {
  info @0 () -> (info :C.ClusterInfo);
  # Lists come whole, or page by page: a page may miss what changed since the one before it.
  nodes @1 (page :C.Page) -> (nodes :List(C.ClusterNode), next :UInt64);
  cards @2 (page :C.Page) -> (cards :List(C.ClusterCard), next :UInt64);
  submit @3 (spec :C.ClusterSpec) -> (assigned :C.Assigned);
  # Durable when it returns. A repeated spec.task.requestId of the same user gets the same answer.
  # A task that fits nowhere now waits: the answer says so, get() and watch() tell when it is bound.
  delete @4 (task :UInt64) -> (done :Text);   # `done`, here and below: what is so now, for a person
  get @5 (task :UInt64) -> (task :C.ClusterTask, assigned :C.Assigned);
  list @6 (page :C.Page) -> (tasks :List(C.ClusterTask), next :UInt64);
  watch @7 (watcher :ClusterWatcher, since :UInt64) -> (subscription :ClusterSubscription);
  # Events after number `since`, as far as they are remembered, and then as they happen; 0: from
  # now on. Dropping the subscription ends them. A watcher that holds an event back for 30 s, or
  # lags by more than 1024, is told "watch-dropped" as its last: watch again from the last seq.
  events @8 (since :UInt64) -> (events :List(T.Event));
  explain @9 (task :UInt64) -> (explanation :C.Explanation);
  explainSpec @10 (spec :C.ClusterSpec) -> (explanation :C.Explanation);
  whatIf @11 (question :C.WhatIf) -> (answer :C.WhatIfAnswer);
  cordon @12 (target :C.Target) -> (done :Text);
  uncordon @13 (target :C.Target) -> (done :Text);
  drain @14 (target :C.Target, timeoutNs :UInt64) -> (done :Text);
  setPriority @15 (score :C.Score) -> (done :Text);
  preemptDryRun @16 (task :UInt64) -> (answer :C.WhatIfAnswer);
  registry @17 () -> (registry :Registry);   # for managers
  snapshot @18 () -> (done :Text);           # of its store; returns when it is written
  setLogLevel @19 (level :Text) -> (done :Text);
  ask @20 (request :C.ClusterRequest) -> (reply :C.ClusterReply);
  # Any command of the admin socket, by the member of the union that it stands for; those above are
  # some of them. Who asks, and the number of the request, are not the caller's to say.
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
