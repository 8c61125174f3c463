@0xb1a0c7d25e934f07;
# Messages of a cluster: what scheduler and nodes tell each other, what clients ask of the
# scheduler, and what it stores. Schemas only grow.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");
using T = import "types.capnp";

enum Score { classDefault @0; binpack @1; spread @2; fgd @3; random @4; bestFit @5; }

struct ClusterSpec {           # what is asked of a whole cluster
  task @0 :T.TaskSpec;         # spec.card only together with `node`
  node @1 :Text;               # name wanted; empty: the scheduler chooses
  models @2 :List(Text);       # card models allowed; empty: any
  cpuMilli @3 :UInt64;         # 0: not named, so not counted
  hostMemBytes @4 :UInt64;     # 0: not named, so not counted
  application @5 :Text;        # replicas of one are kept apart under spread; empty: none
  nodeScore @6 :Score;
  cardScore @7 :Score;
  preempt @8 :Bool;            # may evict offline tasks where it fits nowhere
  group @9 :Text;              # starts as a whole with the owner's others of this name; empty: none
  groupSize @10 :UInt32;       # how many tasks make it whole
}

enum PlaceState {
  waiting @0;                  # fits nowhere now
  assumed @1;                  # decided and stored; its node has not confirmed yet
  bound @2;                    # its node holds it
  ending @3;                   # its node was told to end it
  ended @4;
  lost @5;                     # its node is lost; it comes back with it, or is placed again
}

struct ClusterTask {
  id @0 :UInt64;
  epoch @1 :UInt32;            # grows with every decision; stale messages are refused (P3, P6)
  spec @2 :ClusterSpec;
  state @3 :PlaceState;
  node @4 :Text;
  cards @5 :List(Text);        # ids
  nodeTask @6 :UInt64;         # its number on that node, once bound
  submittedUnixMs @7 :UInt64;
  boundUnixMs @8 :UInt64;
  reason @9 :Text;             # why it waits or ended: a reason code and a sentence
  use @10 :T.TaskUse;          # the node's last report
  taskState @11 :T.TaskState;
}

struct Assigned {              # what a launcher on that node needs
  task @0 :UInt64;
  epoch @1 :UInt32;
  node @2 :Text;
  cards @3 :List(Text);
  nodeTask @4 :UInt64;
  token @5 :Text;
  attachSocket @6 :Text;       # empty: paths are the launcher's to know
  waiting @7 :Bool;            # nothing of the above yet: get() or watch() tells when
  environment @8 :List(Text);  # NAME=VALUE, for a process on that node; none is a path
  reason @9 :Text;             # while it waits: why, as ClusterTask has it
}

# --- scheduler and node ---
# Each connection is a session with a number of its own. Messages of another session are dropped, so
# what the network kept for long, or told twice, changes nothing (P6, A10). A node hears the
# scheduler through its member actor (actors/member/member_actor.h).

struct NodeFacts {
  name @0 :Text;
  version @1 :Text;
  incarnation @2 :UInt32;
  cards @3 :List(T.CardStatus);
  mixed @4 :Bool;
  maxTasksPerCard @5 :UInt32;  # 0: from each card's memory
  cpuMilli @6 :UInt64;
  hostMemBytes @7 :UInt64;
  attachSocket @8 :Text;       # for schedulers that still pass it on to launchers
  environment @9 :List(Text);  # of tenants on that node; a scheduler takes names that it knows
  leastTasksPerCard @10 :UInt32;  # of a small card, where maxTasksPerCard is 0; 0: one
}

struct HeldTask {              # a binding as its node has it
  nodeTask @0 :UInt64;
  clusterTask @1 :UInt64;      # 0: bound before the node joined; the scheduler adopts it
  epoch @2 :UInt32;
  spec @3 :T.TaskSpec;
  cards @4 :List(Text);
  state @5 :T.TaskState;
  use @6 :T.TaskUse;
  ended @7 :Bool;              # it is over and holds nothing any more
}

struct FromMember {
  link @0 :UInt32;             # set by the receiving side: the connection it came by
  session @1 :UInt64;          # 0 in hello
  seq @2 :UInt64;              # of this session, from 1, without gaps
  union {
    hello @3 :MemberHello;
    beat @4 :UInt64;           # ns of the node's clock when it left
    facts @5 :NodeFacts;       # changed: policy, marks, sums
    tasks @6 :List(HeldTask);  # changed since the last
    bound @7 :MemberBound;     # answer to an order to bind
    refused @8 :MemberRefused; # answer to an order that is not carried out
    forward @9 :MemberForward; # somebody on the node asks for a task here
    lost @10 :Void;            # the connection is over; made by the receiving side
  }
}
struct MemberHello {
  termSeen @0 :UInt64;         # the highest; a scheduler below it stands down
  facts @1 :NodeFacts;
  tasks @2 :List(HeldTask);    # all, and those whose end the scheduler may not have heard of
  nonce @3 :UInt64;            # of this attempt; the welcome repeats it
}
struct MemberBound { task @0 :UInt64; epoch @1 :UInt32; nodeTask @2 :UInt64; token @3 :Text;
                     cards @4 :List(Text); }
struct MemberRefused { task @0 :UInt64; epoch @1 :UInt32; failure @2 :T.Failure; }
struct MemberForward { corr @0 :UInt64; spec @1 :ClusterSpec; uid @2 :UInt32; }

struct ToMember {
  link @0 :UInt32;             # set by the sending side: the connection to use
  session @1 :UInt64;
  term @2 :UInt64;             # a node refuses any below the highest that it has seen (C1)
  union {
    welcome @3 :MemberWelcome;
    beatSeen @4 :UInt64;       # as the beat had it: the lease runs from then, on the node's clock
    bind @5 :OrderBind;
    end @6 :OrderEnd;
    forwarded @7 :MemberForwarded;
    mark @8 :OrderMark;
    turnedAway @9 :T.Failure;  # no session: the node tries again later, or a person must look
  }
}
struct MemberWelcome { nonce @0 :UInt64; leaseNs @1 :UInt64; beatNs @2 :UInt64; }
struct OrderBind { task @0 :UInt64; epoch @1 :UInt32; spec @2 :T.TaskSpec; cards @3 :List(Text); }
struct OrderEnd { task @0 :UInt64; epoch @1 :UInt32; nodeTask @2 :UInt64; reason @3 :Text; }
struct OrderMark { card @0 :Text; mark @1 :Mark; enum Mark { uncordon @0; cordon @1; drain @2; } }
struct MemberForwarded {
  corr @0 :UInt64;
  union { failed @1 :T.Failure; task @2 :UInt64; }   # task: the order to bind it came before
}

# --- what is asked of the scheduler ---

struct ClusterNode {
  name @0 :Text;
  state @1 :State;
  cards @2 :UInt32;
  tasks @3 :UInt32;
  cordoned @4 :Bool;
  mixed @5 :Bool;
  version @6 :Text;
  sinceUnixMs @7 :UInt64;      # of this state
  memBytes @8 :UInt64;
  memBound @9 :UInt64;
  shareBound @10 :UInt64;      # permille over all its cards
  greedyBound @11 :UInt64;
  cpuMilli @12 :UInt64;
  cpuBound @13 :UInt64;
  hostMemBytes @14 :UInt64;
  hostMemBound @15 :UInt64;
  draining @16 :Bool;
  enum State { joining @0; alive @1; suspect @2; lost @3; }
}

struct ClusterCard { node @0 :Text; status @1 :T.CardStatus; }

struct CardVerdict {           # why one card does or does not take a task
  node @0 :Text;
  card @1 :Text;               # empty: the whole node is out
  reason @2 :Text;             # stable code: "Fits", "MemShort", ... see actors/ledger/fit.h
  text @3 :Text;               # exactly what is missing
}
struct Explanation {
  task @0 :UInt64;
  fits @1 :Bool;               # now
  considered @2 :UInt32;       # cards
  nodes @3 :List(CardVerdict); # the nearest card of each node, nearest first; at most 256
  counts @4 :List(ReasonCount);
  remedy @5 :Text;             # proven by trying it on a copy; empty: none was found
  text @6 :Text;               # where it is, or the one sentence why it waits
}
struct ReasonCount { reason @0 :Text; cards @1 :UInt32; }

struct WhatIf {
  union {
    place @0 :Place;           # where `count` of these would land
    drain @1 :Target;          # what draining this node or card would do
  }
  struct Place { spec @0 :ClusterSpec; count @1 :UInt32; }
}
struct Target { node @0 :Text; card @1 :Text; }   # card empty: the whole node
struct WhatIfAnswer {
  landed @0 :List(Landing);
  stay @1 :List(Landing);      # that would fit nowhere else, and why
  allocatedBefore @2 :UInt32;  # permille of all cards' share
  allocatedAfter @3 :UInt32;
  fragmentBefore @4 :UInt32;   # permille of all cards' share that typical tasks can't use
  fragmentAfter @5 :UInt32;
  struct Landing { task @0 :UInt64; node @1 :Text; cards @2 :List(Text); evicts @3 :List(UInt64);
                   reason @4 :Text; }
}

struct ClusterInfo {
  term @0 :UInt64;
  version @1 :Text;
  pid @2 :UInt32;
  uptimeNs @3 :UInt64;
  nodes @4 :UInt32;
  alive @5 :UInt32;
  cards @6 :UInt32;
  tasks @7 :UInt32;
  waiting @8 :UInt32;
  priority @9 :Score;
  storage @10 :Text;
  decisions @11 :UInt64;
  pending @12 :List(Pending);  # tasks that wait, by class and reason; those that are not none
  decided @13 :List(Decided);  # since this scheduler started
  struct Pending { class @0 :T.TaskClass; reason @1 :Text; tasks @2 :UInt64; }
  struct Decided { result @0 :Result; reason @1 :Text; count @2 :UInt64; }
  enum Result { placed @0; waits @1; refused @2; }
}

struct Invite {                # a token by which one machine may join, once
  id @0 :Text;                 # its public part
  node @1 :Text;               # as which it joins
  hash @2 :Text;               # SHA-256 of its secret, which stays with who made it; hexadecimal
  ttlNs @3 :UInt64;
}
struct Admission {             # somebody shows a token
  id @0 :Text;
  node @1 :Text;
  hash @2 :Text;
}
struct TokenInfo {
  id @0 :Text;
  node @1 :Text;
  state @2 :State;
  triesLeft @3 :UInt32;
  untilUnixMs @4 :UInt64;
  enum State { open @0; used @1; expired @2; spent @3; }   # spent: too many wrong secrets
}

struct ClusterRequest {
  corr @0 :UInt64;
  peerUid @1 :UInt32;
  peerPid @2 :UInt32;
  mayChange @3 :Bool;
  union {
    info @4 :Void;
    nodes @5 :Void;
    cards @6 :Void;
    tasks @7 :List(UInt64);     # empty: all
    submit @8 :ClusterSpec;     # answered when bound, or at once with `waiting`
    delete @9 :UInt64;
    explain @10 :UInt64;        # of a task
    explainSpec @11 :ClusterSpec;
    whatIf @12 :WhatIf;
    cordon @13 :Target;
    uncordon @14 :Target;
    drain @15 :Drain;
    priority @16 :Score;
    events @17 :UInt64;         # since
    watch @18 :Bool;
    snapshot @19 :Void;
    logLevel @20 :Text;
    preempt @21 :UInt64;        # dry run: whom a waiting task would evict
    assigned @23 :UInt64;       # of a task: as its submit is answered; for its owner, or who may
                                # change
    limits @25 :Void;
    trace @26 :ClusterTrace;    # what a card did; its node answers, not the scheduler
    invite @27 :Invite;         # answered by `tokens`: the one that was made
    tokens @28 :Void;
    revoke @29 :Text;           # id
    admit @30 :Admission;       # the daemon itself asks it, no client
    save @31 :Void;             # a copy of all rows: permitted and audited, the daemon acts
  }
  peerName @22 :Text;           # common name of a TLS peer's certificate; else empty
  page @24 :Page;               # of nodes, cards, or all tasks; absent: all at once
}
struct Page {
  after @0 :UInt64;             # `next` of the page before; 0: from the begin
  most @1 :UInt32;              # entries; 0: as many as the scheduler gives at once
}
struct ClusterTrace { target @0 :Target; since @1 :UInt64; }   # `since` as TraceQuery has it
struct Drain { target @0 :Target; timeoutNs @1 :UInt64; }   # tasks that remain then are evicted

struct ClusterReply {
  corr @0 :UInt64;
  union {
    failed @1 :T.Failure;
    info @2 :ClusterInfo;
    nodes @3 :List(ClusterNode);
    cards @4 :List(ClusterCard);
    tasks @5 :List(ClusterTask);
    assigned @6 :Assigned;
    done @7 :Text;
    explanation @8 :Explanation;
    whatIf @9 :WhatIfAnswer;
    events @10 :List(T.Event);
    limits @12 :List(T.Limit);
    trace @13 :T.CardTrace;     # times of its node's clock, tasks by their numbers there
    tokens @14 :List(TokenInfo);
  }
  next @11 :UInt64;             # of a page: where the one after it begins; 0: it was the last
}

# --- what the scheduler stores ---

struct ClusterRow {            # key: (cluster, 0)
  term @0 :UInt64;             # committed before anybody is served
  nextTask @1 :UInt64;
  nextEvent @2 :UInt64;        # a ceiling: no event has had this number yet
  priority @3 :Score;
  firstTask @4 :UInt64;        # of this store: numbers below it are of stores before
  tokens @5 :List(JoinToken);  # by which machines may join
  gathers @6 :Bool;            # older than what nodes hold, or without it: nobody is placed before
                               # they had the time to say so
}
struct JoinToken {
  id @0 :Text;
  node @1 :Text;
  hash @2 :Text;
  untilUnixMs @3 :UInt64;
  triesLeft @4 :UInt32;
  used @5 :Bool;
}
struct ClusterNodeRow {        # key: (clusterNode, number)
  number @0 :UInt64;
  name @1 :Text;
  cordoned @2 :Bool;
  draining @3 :Bool;
  drains @4 :List(DrainMark);  # of the whole node and of single cards
  struct DrainMark { card @0 :Text; untilUnixMs @1 :UInt64; }   # card empty: the whole node
}
struct ClusterTaskRow {        # key: (clusterTask, id)
  task @0 :ClusterTask;        # without use and taskState
  requestId @1 :Text;
  uid @2 :UInt32;
  token @3 :Text;              # so that a repeated submit gets the same answer
  again @4 :Bool;              # ending: it waits again once its node has ended it
  adopted @5 :Bool;            # bound by its node alone, and counted here
  forwarded @6 :Bool;          # asked for on its node, by somebody who waits there
  endedUnixMs @7 :UInt64;      # it is over, and kept for its request id; 0: it lives
  making @8 :RoomMaking;       # of one that waits; without victims: nobody makes room for it
  groupStarted @9 :Bool;       # its group was whole while it had its place
  struct RoomMaking {
    node @0 :Text;
    cards @1 :List(Text);      # closed to everybody else
    victims @2 :List(Victim);
  }
  struct Victim { task @0 :UInt64; epoch @1 :UInt32; }   # that was told to end
}
