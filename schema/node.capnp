@0xb1a0c7d25e934f04;
# RPC of one node: RUN_DIR/manager.rpc, or --rpc=ADDR. Refusals are RPC exceptions FAILED with
# "code: message"; a full queue is OVERLOADED, a lost daemon DISCONNECTED.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");
using T = import "types.capnp";
using E = import "envelope.capnp";

interface Node {
  info @0 () -> (info :T.NodeInfo);
  # The node in a few figures: its name, version, storage, and how it stands with its scheduler.
  cards @1 () -> (cards :List(T.CardStatus));
  # Every card: memory, shares, policy, who is on it, what was counted.
  tasks @2 () -> (tasks :List(T.TaskInfo));
  # Every task that is bound here.
  bind @3 (spec :T.TaskSpec) -> (task :UInt64, token :Text, cards :List(Text), attachSocket :Text);
  # A task on a card with room for it. spec.card may name several cards, by index, joined by commas:
  # as many as spec.cards says. A program with the token in QGPU_TOKEN and attachSocket in
  # QGPU_SOCKET is the task. Durable when it returns. The task ends with unbind, eviction, or the
  # death of spec.ownerPid.
  unbind @4 (task :UInt64);
  # Ends a task. Launches of its processes fail from then on.
  watch @5 (watcher :EventWatcher) -> (subscription :Subscription);
  # Events from now on; dropping the subscription ends them. A watcher that holds an event back for
  # 30 s, or lags by more than 1024, is told "watch-dropped" as its last.
  setPolicy @6 (card :Text, policy :T.Policy);
  # card: id, index or "all". Also refused where what is bound there does not allow it.
  cordon @7 (card :Text);
  # The card takes no new tasks; those that are bound stay.
  uncordon @8 (card :Text);
  # The card takes new tasks again. A drain of it is over.
  events @9 (since :UInt64) -> (events :List(T.Event));
  # Events after number `since`, as far as they are remembered, a part at a time: ask again.
  kubelet @10 () -> (handler :KubeletHandler);
  # For qgpu-kubelet-plugin. Only of a manager with --kubelet=on.
  ask @11 (request :E.Request) -> (reply :E.Reply);
  # Any command of the admin socket, by the member of the union that it stands for; those above are
  # some of them. What the caller writes into the other fields of the request is not looked at.
}

interface EventWatcher { event @0 (event :T.Event) -> stream; }
interface Subscription {}

# Containers of pods as tasks of this node: what the scheduler decided for a pod and what kubelet
# starts meet here. Nothing is guessed: a container that nobody told of is refused.
interface KubeletHandler @0xec40f8c62da9c12f {   # the id is that of its first name
  node @0 () -> (cards :List(T.CardStatus), mixed :Bool, environment :List(Text), runtime :Text,
                 claims :Bool);
  # `environment`: NAME=VALUE that every tenant's process needs beside library, socket and token.
  # `runtime`: of its containers, "containerd://1.7.2"; empty: the API server has not told.
  # `claims`: its cards are given by ResourceClaims, and not as devices that kubelet counts.
  assign @1 (pod :PodPlan);
  # What was decided for a pod of this node. A later one of the same uid replaces it.
  forget @2 (uid :Text);         # the pod is over; its tasks end when kubelet says so
  start @3 (container :PodContainer, devices :List(DeviceCount), resource :Text)
      -> (task :UInt64, token :Text, cards :List(Text));
  # Its task, bound now or before: the same one for a repeated start, while it lives. Durable.
  # `resource`: the one that kubelet asks for; empty: none in particular. A container without a name
  # is an init container of the pod, which kubelet does not list; `devices` is then that one alone.
  # task 0: other containers of the pod may have the same devices of this resource, and another
  # resource of the container says which of them starts.
  tasks @4 () -> (tasks :List(ContainerTask));
  end @5 (task :UInt64);         # refused while its processes live
  counted @6 (cards :List(Text));
  # The cards whose devices kubelet counts, all of them: what is bound elsewhere fails for good. It
  # replaces what this connection said before, and ends with it.
  prepare @7 (claim :ClaimName) -> (parts :List(ClaimPart));
  # What an allocated ResourceClaim gives on this node: of each of its requests here a task, bound
  # now or before. Durable.
  unprepare @8 (uid :Text);      # of a claim: its tasks end; refused while processes of them live
}

struct ClaimName { namespace @0 :Text; name @1 :Text; uid @2 :Text; }
struct ClaimPart {               # one request of a claim
  request @0 :Text;
  devices @1 :List(ClaimDevice);
  cards @2 :List(Text);          # ids, in the order of `devices`
  admin @3 :Bool;                # it looks at its cards and has no task
  task @4 :UInt64;
  token @5 :Text;
}
struct ClaimDevice { device @0 :Text; share @1 :Text; }   # as the claim's status names it

struct PodPlan {
  uid @0 :Text;
  namespace @1 :Text;
  name @2 :Text;
  class @3 :T.TaskClass;
  containers @4 :List(ContainerPlan);
}
struct ContainerPlan {           # of a container that asks for a card
  name @0 :Text;
  cards @1 :List(Text);          # ids; more than one: whole cards
  memBytes @2 :UInt64;           # of each card; 0: all of it, for whole cards alone
  sharePermille @3 :UInt32;      # qgpu-core or, offline, qgpu-core-greedy; 1000: a whole card
  uses @4 :Text;                 # container whose cards and room it uses; empty: its own
  init @5 :Bool;                 # an init container that ends before the next one starts
}
struct PodContainer { namespace @0 :Text; pod @1 :Text; name @2 :Text; }
struct DeviceCount { resource @0 :Text; count @1 :UInt32; }   # "qgpu-core", ...: as kubelet gave
struct ContainerTask { task @0 :UInt64; name @1 :Text; processes @2 :UInt32; }
