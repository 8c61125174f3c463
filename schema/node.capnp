@0xb1a0c7d25e934f04;
# RPC of one node: RUN_DIR/manager.rpc, or --rpc=ADDR. Refusals are RPC exceptions FAILED with
# "code: message"; a full queue is OVERLOADED, a lost daemon DISCONNECTED.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");
using T = import "types.capnp";

interface Node {
  info @0 () -> (info :T.NodeInfo);
  cards @1 () -> (cards :List(T.CardStatus));
  tasks @2 () -> (tasks :List(T.TaskInfo));
  bind @3 (spec :T.TaskSpec) -> (task :UInt64, token :Text, cards :List(Text), attachSocket :Text);
  # Durable when it returns. The task ends with unbind, eviction, or the death of spec.ownerPid.
  unbind @4 (task :UInt64);
  watch @5 (watcher :EventWatcher) -> (subscription :Subscription);
  # Events from now on; dropping the subscription ends them.
  setPolicy @6 (card :Text, policy :T.Policy);   # card: id, index or "all"
  cordon @7 (card :Text);
  uncordon @8 (card :Text);
  events @9 (since :UInt64) -> (events :List(T.Event));
}

interface EventWatcher { event @0 (event :T.Event) -> stream; }
interface Subscription {}
