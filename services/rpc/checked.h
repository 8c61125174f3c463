#pragma once
// What a peer sent, copied and checked before any message of the actors is begun (C7): reading a
// peer's message may throw, and its texts and lists may be long. Every function here throws a
// refusal, "invalid-argument: ..." with the field and what it may be.

#include <string>
#include <vector>

#include "actors/model.h"
#include "schema/cluster.capnp.h"
#include "services/rpc/rpc_session.h"

namespace qgpu {

inline constexpr std::size_t kTextMax = 256;     // bytes of a name or id

std::string checkedText(capnp::Text::Reader text, const char* what);

// A TaskSpec as plain values. Without clusterTask and clusterEpoch: those are the member's to set.
struct CheckedSpec {
  // `peer` owns the task, or may say who does where it may change things. `local`: the peer is a
  // process of this machine, so that a task may end with one.
  CheckedSpec(schema::TaskSpec::Reader spec, const Peer& peer, bool local);
  void fill(schema::TaskSpec::Builder out) const;

  std::string name;
  std::string card;
  std::string requestId;
  schema::TaskClass taskClass;
  std::uint64_t memBytes;
  std::uint32_t sharePermille;
  std::uint32_t cards;
  std::uint32_t ownerPid;
  std::uint64_t ownerStart;
  std::uint32_t ownerUid;
};

struct CheckedClusterSpec {
  CheckedClusterSpec(schema::ClusterSpec::Reader spec, const Peer& peer);
  void fill(schema::ClusterSpec::Builder out) const;

  CheckedSpec task;
  std::string node;
  std::vector<std::string> models;
  std::uint64_t cpuMilli;
  std::uint64_t hostMemBytes;
  std::string application;
  schema::Score nodeScore;
  schema::Score cardScore;
  bool preempt;
};

struct CheckedTarget {
  explicit CheckedTarget(schema::Target::Reader target)
      : node(checkedText(target.getNode(), "target.node")),
        card(checkedText(target.getCard(), "target.card")) {}
  void fill(schema::Target::Builder out) const;

  std::string node;
  std::string card;
};

schema::Score checkedScore(schema::Score score, const char* what);

}  // namespace qgpu
