@0xb1a0c7d25e934f08;
# What a scheduler was told and what it did, in the order in which it happened: one life in one file
# (services/replay/recording_file.h). Told again to the same binary, the same comes out.
#
#   began  row ..  turn what it did ..  turn what it did ..  ended
#
# What a turn did stands behind it in the order of its calls. A file that its writer could not end
# has no `ended`.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");
using C = import "cluster.capnp";
using E = import "envelope.capnp";
using R = import "rows.capnp";

struct Recorded {
  union {
    began @0 :Began;           # the first of a file
    row @1 :KeyedRow;          # what the store had, in its order
    turn @2 :Turn;             # a message to the scheduler
    sent @3 :Sent;             # by it; ...
    refused @4 :UInt32;        # ... and where the mailbox of this actor was full
    timer @5 :Timer;
    cancelled @6 :UInt64;      # a timer
    stored @7 :KeyedRow;       # all of one turn are one commit, whose outcome is a message
    ended @8 :Text;            # the last of a file: why there is no more
  }
}

struct Began {
  version @0 :Text;
  build @1 :Text;              # of the binary, hexadecimal; empty: it has none
  host @2 :Text;
  unixMs @3 :Int64;
  unixMsAtZero @4 :Int64;      # Unix ms when CLOCK_MONOTONIC was 0, as the clock was set then
  seed @5 :UInt64;             # of its random numbers
  self @6 :UInt32;             # ActorId
  links @7 :UInt32;            # ActorId of who has the connections to the nodes
  options @8 :DecisionOptions;
}

struct DecisionOptions {       # as SchedulerOptions of actors/scheduler/model.h
  version @0 :Text;
  pid @1 :UInt32;
  priority @2 :C.Score;
  firstTask @3 :UInt64;
  rebuilds @4 :Bool;
  endedKept @5 :UInt64;
  beatNs @6 :Int64;
  leaseNs @7 :Int64;
  fenceNs @8 :Int64;
  assumeMaxNs @9 :Int64;
  refusedPauseNs @10 :Int64;
  lookEveryNs @11 :Int64;
  probeEveryNs @12 :Int64;
  reportMsMax @13 :Int64;
}

struct KeyedRow { kind @0 :UInt16; id @1 :UInt64; row @2 :R.Row; }

struct Turn {
  nowNs @0 :Int64;             # CLOCK_MONOTONIC
  unixMsAtZero @1 :Int64;      # as `began` has it
  sender @2 :UInt32;           # ActorId; 0: nobody
  message @3 :E.Envelope;
}

struct Sent {
  to @0 :UInt32;               # ActorId
  urgent @1 :Bool;             # on the control lane
  message @2 :E.Envelope;
}

struct Timer {
  id @0 :UInt64;               # as the loop has given it
  delayNs @1 :Int64;
  message @2 :E.Envelope;
}
