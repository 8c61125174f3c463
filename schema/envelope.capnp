@0xb1a0c7d25e934f03;
# Every message between actors, in one union. capnpc-actor generates typed dispatch and the send
# helpers from it. Messages are nouns or participles and say what is or was, not what to do, but
# for the few that are orders.
#
# The life of a binding, each step caused by the one before, so that no order between different
# senders is assumed:
#   client -> node       request.bind
#   node: the row is committed
#   node -> task       taskKnown          the task actor takes the slot
#   task -> node       taskFact(bound)
#   node -> attach     taskKnown          token, quota, actor to tell of processes
#   attach -> node     gateOpened         pages exist, the token is good; its gate is still shut
#   node -> card(s)    joined
#   node -> client       reply.bound
#   card -> gate port  gateOrder          the first order; only from now on the port says busy of it
# and its end:
#   node -> attach     taskClosed(kill = false)  only when processes are attached: launches fail now
#   node -> attach     taskClosed(kill = true)   after a grace: the processes are killed
#   attach -> task     processGone; task -> node taskFact(processes = 0)
#   node: the row is erased
#   node -> card left, node -> task and attach taskClosed(kill = true): nothing of it remains
# After a restart the node tells every stored task in the same way; where the database is new, those
# that the run dir says live (D5). The attach server withholds gateOpened of a non-online task until
# each process that its run dir lists has re-attached and obeys its new gate page, is dead, or
# 500 ms have passed since the node started (HAZARDS 8).

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");
using R = import "rows.capnp";
using T = import "types.capnp";
using C = import "cluster.capnp";

struct Envelope {
  union {
    # --- time and lifecycle ---
    tick @0 :Tick;                      # a timer of the actor's own
    retired @1 :Void;                   # was never sent; its number stays taken

    # --- node -> card, task -> card: who is here ---
    joined @2 :Joined;                  # a task was bound to this card
    left @3 :Left;                      # its binding is over
    policyChosen @4 :PolicyChosen;

    # --- gate port -> card (control lane) ---
    busy @5 :Busy;                      # has work in flight or a launch that waits
    quiet @6 :Quiet;                    # nothing in flight, nothing waits
    settled @7 :Settled;                # after a hold: nothing of it runs any more
    ownerDied @8 :OwnerDied;            # the slice passes on; bytes come back at the pidfd
    retiredLate @9 :RetiredLate;       # a quarantined task retired work

    # --- card -> gate port (control lane) ---
    gateOrder @10 :GateOrder;

    # --- attach server -> task (to the actor that taskKnown named) ---
    processAttached @11 :ProcessAttached;
    processGone @12 :ProcessGone;
    gateOpened @13 :GateRegistered;     # -> node: a task's pages exist and can be driven
    used @14 :Used;                     # gate port -> task: counters read from the report page

    # --- card -> task: moves of the state table ---
    moved @15 :Moved;

    # --- asking and telling ---
    reportAsked @16 :ReportAsked;       # node -> card, task; task -> gate port, answered with used
    cardReport @17 :CardReport;
    taskReport @18 :TaskReport;

    # --- clients (admin, rpc, ctl, metrics) <-> node ---
    request @19 :Request;
    reply @20 :Reply;
    eventTold @21 :T.Event;             # node -> clients that watch; a gap in seq: ask `events`

    # --- node <-> attach server ---
    taskKnown @22 :TaskKnown;           # token and page data of a bound task
    taskClosed @23 :TaskClosed;
    taskFact @24 :TaskFact;             # task -> node: exited, lost, attached

    storageHealth @25 :StorageHealth;
    ownerGone @26 :Left;                # attach -> node: the process ownerPid is dead
    gateDone @27 :GateDone;             # gate port -> card (control lane): a caused hold is stored
    start @28 :Start;                   # composition -> node, once, when every actor is registered
    committed @29 :Committed;           # node -> node: the change of that turn is durable

    # --- node <-> attach server: the number of this manager (HAZARDS 23) ---
    incarnationSeen @30 :Incarnation;   # attach -> node: a guest has met this one or a later one
    incarnationChosen @31 :Incarnation; # node -> attach: the one in force, committed: at its start,
                                        # and whenever it was raised

    # --- cluster; see schema/cluster.capnp ---
    fromMember @32 :C.FromMember;       # member -> its link -> (network) -> scheduler
    toMember @33 :C.ToMember;           # scheduler -> its links -> (network) -> member
    linkUp @34 :Void;                   # link -> member: connected, say hello
    linkDown @35 :Text;                 # link -> member: why the connection is over;
                                        # member -> link: drop it for this reason, and start anew
    clusterRequest @36 :C.ClusterRequest;  # clients -> scheduler
    clusterReply @37 :C.ClusterReply;

    suspendLost @38 :SuspendLost;       # attach -> node: a card holds its tasks by `gate` now
    nodeLabelled @39 :NodeLabelled;     # composition -> node (control lane): its label was read

    traceAsked @40 :TraceAsked;         # node -> card, answered to the client itself by `reply`
    memoryRefused @41 :MemoryRefused;   # gate port -> card, for its trace

    reportRead @42 :ReportRead;         # composition -> node (control lane): a card's newest report

    # --- memory that leaves a card (docs/internals/paging.md), where it may be overcommitted ---
    pagingOrder @43 :PagingOrder;       # card -> gate port (control lane)
    paged @44 :Paged;                   # gate port -> card (control lane): how a task stands
    roomNeeded @45 :RoomNeeded;         # card -> node (control lane): end this task
  }
}

struct Tick { kind @0 :UInt32; value @1 :UInt64; }

struct Joined {
  task @0 :UInt64;
  class @1 :T.TaskClass;
  sharePermille @2 :UInt32;
  exclusive @3 :Bool;                   # whole cards: the gate is always open
  quotaBytes @4 :UInt64;
  actor @5 :UInt32;                     # ActorId of its task actor, which is told of moves
  name @6 :Text;                        # for the trace
  pageableBytes @7 :UInt64;             # of the quota, what may leave the card
}
struct Left {
  task @0 :UInt64;
  reason @1 :Text;
  drained @2 :Bool;                     # for the trace: it goes since its card is drained
}
struct PolicyChosen { policy @0 :T.Policy; }

struct Busy { task @0 :UInt64; sinceNs @1 :UInt64; inFlight @2 :UInt32; waiting @3 :UInt32; }
struct Quiet { task @0 :UInt64; sinceNs @1 :UInt64; }
struct Settled {
  task @0 :UInt64;
  epoch @1 :UInt32;
  atNs @2 :UInt64;                      # when it settled, bounded by the port to [hold, now]
  how @3 :How;
  enum How { retired @0; frozen @1; parked @2; dead @3; }
}
struct OwnerDied { task @0 :UInt64; atNs @1 :UInt64; }
struct RetiredLate { task @0 :UInt64; atNs @1 :UInt64; }

struct GateOrder {
  task @0 :UInt64;
  epoch @1 :UInt32;                     # counter of this order; the answer repeats it
  order @2 :Order;
  notify @3 :Bool;                      # open, but tell at the first submit: nobody uses the card
  contended @4 :Bool;                   # the window applies, look often
  causeNs @5 :UInt64;                   # the submit that led to a hold, for the record; 0: none
  patienceNs @6 :UInt64;                # of a hold: what is in flight may run on for so long first
  # close: left this card, no more orders for it. hasten: the patience of the hold with this epoch
  # is over.
  enum Order { open @0; hold @1; close @2; hasten @3; }
}

struct ProcessAttached { task @0 :UInt64; pid @1 :UInt32; slot @2 :UInt32; }
struct ProcessGone { task @0 :UInt64; pid @1 :UInt32; slot @2 :UInt32; last @3 :Bool; }
struct GateRegistered {
  task @0 :UInt64;
  failed @1 :Text;                      # not empty: no pages, and why; the binding is undone
}
struct Used {
  task @0 :UInt64;
  memBytes @1 :UInt64;
  memPeak @2 :UInt64;
  launches @3 :UInt64;
  gpuNs @4 :UInt64;
  fault @5 :Text;                       # what was nonsense in its page, empty: nothing
  pageableHeld @6 :UInt64;              # as TaskUse has them
  pageableOut @7 :UInt64;
}

struct NodeLabelled { mixed @0 :Bool; }   # online and offline tasks are allowed
struct SuspendLost { card @0 :UInt32; why @1 :Text; }
struct ReportRead {
  card @0 :Text;                        # its id
  madeUnixMs @1 :UInt64;                # 0: it does not hold
  why @2 :Text;                         # then: "kernel 6.1.0-18 is 6.1.0-20"
}

struct Moved { task @0 :UInt64; state @1 :T.TaskState; quarantined @2 :Bool; }

struct MemoryRefused { task @0 :UInt64; atNs @1 :UInt64; }

struct PagingOrder {
  task @0 :UInt64;
  what @1 :What;
  epoch @2 :UInt32;                     # word: what its processes are told, see services/wire
  phase @3 :UInt32;
  permille @4 :UInt32;
  limitBytes @5 :UInt64;                # limit: so much pageable memory it may have, in or out
  order @6 :UInt64;                     # of a limit: its number, which is told back
  # watch: from now on its card hears `paged` of it, now and at each change.
  enum What { watch @0; word @1; limit @2; }
}
struct Paged {                          # all of it each time; bounded by the port to the quota
  task @0 :UInt64;
  firmBytes @1 :UInt64;                 # what never leaves
  heldBytes @2 :UInt64;                 # pageable, in and out ...
  outBytes @3 :UInt64;                  # ... of these off the card ...
  moreBytes @4 :UInt64;                 # ... and for so much above the limit it waits
  limitOrder @5 :UInt64;                # this limit stood in the page when the bytes were read
  processes @6 :List(PagedProcess);     # those that can run
}
struct PagedProcess {
  process @0 :UInt32;                   # a number that no other of its task ever has
  epoch @1 :UInt32;                     # of the word that it answered last, and
  answer @2 :UInt32;                    # paging::Answer of services/wire
  outBytes @3 :UInt64;
  needBytes @4 :UInt64;                 # what the card refused it though its quota has room
  needSinceNs @5 :UInt64;               # first; bounded to now
}
struct RoomNeeded {                     # `task` gave none for what `needs` was refused
  task @0 :UInt64;
  needs @1 :UInt64;
  bytes @2 :UInt64;
}

struct TraceAsked {
  client @0 :UInt32;                    # ActorId of who asked the node, under `corr`
  corr @1 :UInt64;
  query @2 :TraceQuery;                 # `card`: the id, for the answer
}

struct ReportAsked { corr @0 :UInt64; }
struct CardReport {
  corr @0 :UInt64;
  status @1 :T.CardStatus;              # what the card actor knows of it
  shares @2 :List(TaskShare);
}
struct TaskShare {
  task @0 :UInt64;
  usedNs @1 :UInt64;
  heldNs @2 :UInt64;
  turns @3 :UInt64;
  overrunNs @4 :UInt64;
  quarantined @5 :Bool;
  note @6 :Text;
}
struct TaskReport { corr @0 :UInt64; task @1 :UInt64; state @2 :T.TaskState; use @3 :T.TaskUse; }

struct Request {                        # one question or order from a client
  corr @0 :UInt64;
  peerUid @1 :UInt32;
  peerPid @2 :UInt32;
  mayChange @3 :Bool;                   # root, the daemon's own user, or group qgpu; others may
                                        # read, and bind and end tasks of their own uid
  union {
    info @4 :Void;
    cards @5 :Void;
    tasks @6 :Void;
    events @7 :UInt64;                  # since
    bind @8 :T.TaskSpec;
    unbind @9 :UInt64;
    policy @10 :PolicyRequest;
    cordon @11 :Text;
    uncordon @12 :Text;
    drain @13 :Text;
    evict @14 :UInt64;
    snapshot @15 :Void;                 # the node permits and audits it; on `done` the client acts
    logLevel @16 :Text;                 # permitted and audited, as a snapshot is
    watch @17 :Bool;                    # eventTold to the sending client from now on, or no longer
    # From the member actor alone; a scheduler's word stands behind each.
    place @19 :C.OrderBind;             # bound, also when repeated; a stale epoch is a conflict
    end @20 :C.OrderEnd;                # done, or not-found where nothing of it is held
    clusterTerm @21 :UInt64;            # done when it is stored; a lower one changes nothing
    standing @22 :Text;                 # for status: "joined", "lease over: ...", ...
    trace @23 :TraceQuery;              # what a card did
    limits @24 :Void;
    save @25 :Void;                     # a copy of all rows: permitted and audited like a snapshot
    report @26 :ReportPlace;            # where the newest report of a card lies
  }
  peerName @18 :Text;                   # common name of a TLS peer's certificate; else empty
}
struct TraceQuery {                     # after this number; of an entry that never was: from the
  card @0 :Text;                        # oldest on, since the manager was started anew
  since @1 :UInt64;
}
struct ReportPlace { card @0 :Text; path @1 :Text; }             # card: id or index
struct PolicyRequest { card @0 :Text; policy @1 :T.Policy; }   # card: id, index or "all"

struct Reply {
  corr @0 :UInt64;
  union {
    failed @1 :T.Failure;
    info @2 :T.NodeInfo;
    cards @3 :List(T.CardStatus);
    tasks @4 :List(T.TaskInfo);
    events @5 :List(T.Event);
    bound @6 :Bound;
    done @7 :Text;                      # what was done, for a person
    trace @8 :T.CardTrace;              # the oldest entries, a part at a time: ask again
    limits @9 :List(T.Limit);
  }
}
struct Bound { task @0 :UInt64; token @1 :Text; cards @2 :List(Text); attachSocket @3 :Text; }

struct TaskKnown {
  task @0 :UInt64;
  token @1 :Text;
  class @2 :T.TaskClass;
  quotaBytes @3 :UInt64;                # over all its processes and all its cards
  cards @4 :List(UInt32);               # indices of its cards
  ownerUid @5 :UInt32;
  ownerPid @6 :UInt32;
  ownerStart @7 :UInt64;
  actor @8 :UInt32;                     # ActorId of its task actor: processAttached, Gone, used
  stored @9 :R.TaskRow;                 # to attach only: as committed, for the run dir (D5)
  pageableBytes @10 :UInt64;            # of the quota, what may leave the card; 0: nothing
  overcommitted @11 :Bool;              # on its card others may have memory that can leave
}
struct TaskClosed {
  task @0 :UInt64;
  kill @1 :Bool;                        # false: launches fail from now on; true: end its processes
  reason @2 :Text;
}
struct TaskFact {
  task @0 :UInt64;
  state @1 :T.TaskState;
  processes @2 :UInt32;                 # attached now
  text @3 :Text;                        # a fault of its report page, once for each
}
struct StorageHealth {
  ok @0 :Bool;
  text @1 :Text;
  unsent @2 :List(Unsent);              # replies that the failed commit kept from leaving
}
struct Unsent { to @0 :UInt32; corr @1 :UInt64; }
struct GateDone {                       # for orders with causeNs: when the gate word was stored
  task @0 :UInt64;
  epoch @1 :UInt32;
  storedNs @2 :UInt64;
  causeNs @3 :UInt64;                   # as the order had it
}
struct Start {}
struct Committed { change @0 :UInt64; }
struct Incarnation { value @0 :UInt32; }
