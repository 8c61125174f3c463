#pragma once
// Between the messages of schema/cluster.capnp and the plain types that the scheduler decides with.
// Bounded like actors/base/codec.h: what is too long or too much is told apart here, once, so that
// no part of the scheduler checks a length again (C7). Read functions never fail on a value that a
// newer peer may have; they give what is safest, and the check functions refuse the rest.
//
// Units: memory in bytes, CPU in thousandths of a core, shares in permille.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/base/codec.h"
#include "actors/placement/cluster_ledger.h"
#include "schema/cluster.capnp.h"

namespace qgpu {

inline constexpr std::size_t kHeldMax = 4'096;      // tasks in one hello
inline constexpr std::size_t kEnvironmentMax = 64;  // variables of a node's tenants

// What is asked of a whole cluster, see schema::ClusterSpec: a task, and where it may go.
struct ClusterSpec {
  TaskSpec task;
  std::string node;                 // wanted; empty: any
  std::vector<std::string> models;  // of cards, allowed; empty: any. Sorted
  std::int64_t cpuMilli = 0;
  Bytes hostMem{0};
  std::string application;  // replicas of one are kept apart under spread
  Score nodeScore = Score::ClassDefault;
  Score cardScore = Score::ClassDefault;
  bool preempt = false;         // it may evict offline tasks
  std::string group;            // of its owner's, which starts as a whole; empty: none
  std::uint32_t groupSize = 0;  // tasks that make it whole; 0: no group
};
// A score that the enum does not have (a newer peer) reads as the default of the class.
Score readScore(schema::Score word);
schema::Score word(Score score);
ClusterSpec readClusterSpec(schema::ClusterSpec::Reader reader);
void writeClusterSpec(const ClusterSpec& spec, schema::ClusterSpec::Builder builder);
// The group of its owner that it starts with, as ClusterAsk has it; empty: none.
std::string groupOf(const ClusterSpec& spec);
ClusterAsk askOf(const ClusterSpec& spec);
// The rules that concern the outside alone: lengths, characters, and what goes only together.
// InvalidArgument.
Status checkClusterSpec(const ClusterSpec& spec);
// Whether two specs ask for the same, so that a repeated request is the same request.
bool sameAsk(const ClusterSpec& one, const ClusterSpec& other);

// A card of a node, and what its actor says of it.
struct CardLine {
  CardFacts facts;
  CardFigures figures;
};

// What a node says of itself at its hello and when it changes, see schema::NodeFacts.
struct MemberFacts {
  ClusterNodeFacts ledger;
  std::string version;
  std::uint32_t incarnation = 0;         // of its manager; a later one takes its session over
  std::vector<std::string> environment;  // NAME=VALUE for its tenants, listed names alone
  std::vector<CardLine> cards;           // as ledger.cards
};
// InvalidArgument where the name, a card or a length is not as it should be.
Result<MemberFacts> readMemberFacts(schema::NodeFacts::Reader reader);

// A binding as its node has it, see schema::HeldTask.
struct HeldTask {
  std::uint64_t nodeTask = 0;     // its number there
  std::uint64_t clusterTask = 0;  // 0: bound by its node alone
  std::uint32_t epoch = 0;        // of the decision that it was bound by
  TaskSpec spec;
  std::vector<std::string> cards;
  TaskPhase phase = TaskPhase::Bound;
  TaskFigures figures;
  std::uint64_t usedNs = 0;  // of its cards
  std::uint64_t heldNs = 0;
  bool ended = false;  // it is told for the last time
};
HeldTask readHeld(schema::HeldTask::Reader reader);

// At most `limit` of them.
std::vector<std::string> readTexts(capnp::List<capnp::Text>::Reader list, std::size_t limit);
// `list` has as many places as there are texts.
template <typename List>
void writeTexts(const std::vector<std::string>& texts, List list) {
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, texts[i]);
}

}  // namespace qgpu
