@0xb1a0c7d25e934f01;
# Types that messages, rows, RPC and config share. Times are ns of CLOCK_MONOTONIC unless a name
# says otherwise, memory is bytes, shares are permille of one card. Schemas only grow.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");

enum TaskClass { online @0; offline @1; ordinary @2; }
enum Policy { bestEffort @0; fixedShare @1; burstShare @2; }
enum Tenancy { free @0; ordinary @1; hybrid @2; }
enum Suspend { gate @0; freeze @1; rm @2; }
enum Isolation { library @0; guarded @1; capped @2; }
# what keeps a task to its part of a card: libqgpu.so in its programs; the kernel as well, which
# refuses the card to who left that out (services/guard); capped: and memory past the quota

enum Counting { calls @0; driver @1; driverUnknown @2; }
# where memory of a card's tasks counts: at the calls of CUDA, HIP or OpenCL; where the card's
# driver in the kernel is asked for it; at CUDA's calls, since qgpu does not know those of this
# NVIDIA driver, which also leaves the card without `rm` and without `capped`

enum TaskState {
  pending @0; bound @1; attached @2; idle @3; ready @4; running @5; suspending @6; suspended @7;
  exited @8; lost @9;
}

enum CardState { ready @0; cordoned @1; draining @2; quarantined @3; starting @4; unproven @5; }
# starting: said of a Kubernetes node alone, while its kubelet does not count the card's devices
# unproven: said by a scheduler that wants a report, and has none of the card that is new enough

struct CardInfo {              # what a backend found; only `suspend` may change, to `gate`
  id @0 :Text;                 # stable over restarts: "opencl-<platform>-<index>", "sim-<index>"
  index @1 :UInt32;            # position on this node
  model @2 :Text;
  backend @3 :Text;            # "opencl", "sim", "nvidia"
  memBytes @4 :UInt64;
  suspend @5 :Suspend;
  platform @6 :Text;           # OpenCL: CL_PLATFORM_NAME
  device @7 :UInt32;           # OpenCL: index in the platform's CL_DEVICE_TYPE_ALL list
  suspendWhy @8 :Text;         # why `suspend` is that, for people; empty: nothing to say
  memoryCounted @9 :Text;      # NVIDIA: where its tenants' memory is counted, for people
  isolation @10 :Isolation;    # of its tasks, while this manager lives
  driver @11 :Text;            # version of its driver, as that says it; empty: it does not
  linkGroup @12 :UInt32;       # NVLink joins cards of a node with the same one; 0: not known
  numaNode @13 :Int32 = -1;    # of the machine's memory that it is plugged in at; -1: not known
  counting @14 :Counting;      # of its tasks' memory
}

struct TaskSpec {              # what a person or program asks for
  name @0 :Text;
  class @1 :TaskClass;
  memBytes @2 :UInt64;         # per card, a whole number of MiB, at least one
  sharePermille @3 :UInt32;    # 0 for online
  cards @4 :UInt32 = 1;        # more than 1, or a share of 1000: whole cards, exclusive
  card @5 :Text;               # id wanted; empty: the node chooses
  ownerPid @6 :UInt32;         # the process whose death ends the task; 0: ended by hand
  ownerStart @7 :UInt64;       # its start time in clock ticks (/proc/PID/stat field 22)
  ownerUid @8 :UInt32;         # who may end it
  requestId @9 :Text;          # a repeated one gets the remembered answer; empty: none
  clusterTask @10 :UInt64;     # its number at the scheduler; 0: bound by this node alone
  clusterEpoch @11 :UInt32;    # of the decision that put it here
  pageableBytes @12 :UInt64;   # of memBytes, what it lends while it is held; offline alone
}

struct TaskUse {               # what a task did since it was bound
  usedNs @0 :UInt64;           # gate open to settled: what it is charged
  gpuNs @1 :UInt64;            # measured by profiling, 0 where the device has none
  heldNs @2 :UInt64;           # wanted the card and was held
  turns @3 :UInt64;            # slices it had
  launches @4 :UInt64;
  memBytes @5 :UInt64;         # allocated now, over all its processes
  memPeak @6 :UInt64;
  processes @7 :UInt32;        # attached now
  overrunNs @8 :UInt64;        # ran on after a hold, beyond the settle bound
  pageableHeld @9 :UInt64;     # pageable memory that it has, on its card and off it
  pageableOut @10 :UInt64;     # of that, off its card; memBytes has none of it
}

struct TaskInfo {
  id @0 :UInt64;
  spec @1 :TaskSpec;
  card @2 :Text;               # ids joined by commas where a task holds several
  state @3 :TaskState;
  use @4 :TaskUse;
  quarantined @5 :Bool;
  note @6 :Text;               # e.g. "share 0 under burst-share: lives on idle time only"
  evicting @7 :Bool;
}

struct CardStatus {
  info @0 :CardInfo;
  state @1 :CardState;
  policy @2 :Policy;
  tenancy @3 :Tenancy;
  tasks @4 :UInt32;
  memBound @5 :UInt64;
  shareBound @6 :UInt32;       # qgpu-core of ordinary tasks
  greedyBound @7 :UInt32;      # of offline tasks, a pool of its own
  # From here on what the card actor counts. A number more is kept by node and scheduler and shown
  # in JSON by the name of its field; xP50Ns, xP99Ns and xCount are shown together, as x_us.
  holder @8 :UInt64;           # task whose gate is open, 0: none
  onlineActive @9 :Bool;
  usedNs @10 :UInt64;          # labels of A9: they add up to the time since the start
  idleNs @11 :UInt64;
  onlineNs @12 :UInt64;
  holds @13 :UInt64;
  overruns @14 :UInt64;
  settleP50Ns @15 :UInt64;     # from hold to settled, over the recent ones
  settleP99Ns @16 :UInt64;
  preemptP50Ns @17 :UInt64;    # online submit to last other gate shut
  preemptP99Ns @18 :UInt64;
  preemptCount @19 :UInt64;
  releaseP50Ns @20 :UInt64;    # last retired work of online to the others' resume
  releaseP99Ns @21 :UInt64;
  releaseCount @22 :UInt64;
  settleCount @23 :UInt64;
  preemptTimes @24 :LatencyTimes;
  releaseTimes @25 :LatencyTimes;
  report @26 :Text;            # where the newest report of `qgpuctl prove` lies; empty: none
  reportUnixMs @27 :UInt64;    # when that was made; 0: there is none, or it holds no longer
}

struct LatencyTimes {          # since the manager's start
  sumNs @0 :UInt64;
  counts @1 :List(UInt64);     # of each of kLatencyBounds, then of those above the last
}

struct NodeInfo {
  name @0 :Text;
  version @1 :Text;
  incarnation @2 :UInt32;
  pid @3 :UInt32;
  uptimeNs @4 :UInt64;
  cards @5 :UInt32;
  tasks @6 :UInt32;
  policy @7 :Policy;
  mixed @8 :Bool;
  maxTasksPerCard @9 :UInt32;  # 0: from each card's memory
  realtime @10 :Text;          # what the card loop got: "fifo", "slice", "nice" or "none", and
                               # where it is told why it is no more, ": " and that
  storage @11 :Text;           # "ok", or why binds are refused
  onlineIdleNs @12 :UInt64;
  sliceMinNs @13 :UInt64;
  sliceMaxNs @14 :UInt64;
  cluster @15 :Text;           # "none", or how it stands with its scheduler: a word, ": ", details
  clusterTerm @16 :UInt64;     # the highest that a scheduler has shown, as stored
  leastTasksPerCard @17 :UInt32;  # of a small card, where maxTasksPerCard is 0; 0: one
}

struct Limit {                 # how near a daemon is to one of its bounds
  what @0 :Text;               # that there are at most so many of
  now @1 :UInt64;
  most @2 :UInt64;
  beyond @3 :Text;             # what happens where there would be more
}

struct Event {                 # one line of the node's story
  seq @0 :UInt64;
  unixMs @1 :UInt64;
  kind @2 :Text;               # "task-bound", "task-exited", "policy-changed", ...
  task @3 :UInt64;
  card @4 :Text;
  text @5 :Text;
  actor @6 :Text;              # who asked: "uid 0 pid 12", or "node"
}

enum TraceKind {               # what a card's trace tells of a task, as its moves are
  joined @0;
  left @1;                     # its binding is over
  drained @2;                  # the same, since its card is drained
  ready @3;                    # wants the card and waits; since: its work came
  running @4;                  # a slice begins; or an online task woke; since: its submit
  idle @5;                     # wants nothing any more; a slice or a hold of it is over
  suspending @6;               # held; since: the online submit that caused it, 0: none
  suspended @7;                # the hold took effect, and it waits for its next slice
  overrun @8;                  # the hold did not take effect in time: the card goes on, it is
                               # quarantined
  quarantineOver @9;
  onlineActive @10;            # this online task woke first: nobody else gets a slice
  released @11;                # online is idle, of no task; since: its last submit or retired work
  gateShut @12;                # a hold's gate was stored; since: the online submit that caused it
  memoryRefused @13;           # allocations of it failed for its quota; told within some seconds
}
struct TraceEntry {
  kind @0 :TraceKind;
  task @1 :UInt64;             # 0: of none
  atNs @2 :UInt64;             # when the card actor handled it; where a gate stamped it, that
  sinceNs @3 :UInt64;          # as the kind says; 0: nothing
}
struct TraceTask { id @0 :UInt64; name @1 :Text; class @2 :TaskClass; }
struct CardTrace {             # what happened on one card, from its bounded ring
  card @0 :Text;
  nowNs @1 :UInt64;            # the card actor's clock, CLOCK_MONOTONIC, as all times here
  first @2 :UInt64;            # number of entries[0]; the others follow it one by one
  newest @3 :UInt64;           # number of the newest entry there is; 0: none yet
  lost @4 :UInt64;             # entries that were asked for and are overwritten
  entries @5 :List(TraceEntry);
  tasks @6 :List(TraceTask);   # those that the entries name, as far as the card remembers them
}

struct Failure { code @0 :Text; message @1 :Text; }   # code: errorName() of runtime/result.h
