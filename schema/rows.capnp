@0xb1a0c7d25e934f02;
# What is stored. A row is one actor's durable state under (kind, id); the journal holds rows in
# commit order, the snapshot holds the newest of each. Format changes only add fields.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");
using T = import "types.capnp";
using C = import "cluster.capnp";

struct Row {
  union {
    erased @0 :Void;           # the row of this key is gone
    node @1 :NodeRow;          # key: (node, 0)
    card @2 :CardRow;          # key: (card, a number that its id keeps)
    task @3 :TaskRow;          # key: (task, id)
    audit @4 :T.Event;         # key: (audit, seq): who changed what
    cluster @5 :C.ClusterRow;  # the scheduler's own, see schema/cluster.capnp
    clusterNode @6 :C.ClusterNodeRow;
    clusterTask @7 :C.ClusterTaskRow;
  }
}

struct NodeRow {
  incarnation @0 :UInt32;      # committed before the first grant of a new manager
  nextTask @1 :UInt64;
  nextEvent @2 :UInt64;        # a ceiling: no event has had this number yet
  # Tasks from `unknownFrom` up to, not including, `unknownTo` that lived when the store, an older
  # copy or a new one, had no number for them yet: without a row they did not end for certain.
  unknownFrom @3 :UInt64;
  unknownTo @4 :UInt64;
  clusterTerm @5 :UInt64;      # the highest that a scheduler has shown: lower ones are refused
  restored @6 :Bool;           # from a copy, and no manager has started on it yet
}

struct CardRow {
  id @0 :Text;
  policy @1 :T.Policy;
  cordoned @2 :Bool;
  policyChosen @3 :Bool;       # false: the policy of the daemon's flag applies, not the stored one
  draining @4 :Bool;           # cordoned, and whoever is on it is being evicted
  report @5 :Text;             # where its newest report lies
}

struct TaskRow {
  id @0 :UInt64;
  spec @1 :T.TaskSpec;
  token @2 :Text;
  cards @3 :List(Text);        # ids of the cards it holds
  boundUnixMs @4 :UInt64;
  evicting @5 :Bool;           # it ends as soon as its processes are gone, also after a restart
}
