// What nodes hold although it was decided otherwise since: a node that was lost comes back with
// tasks that were placed again meanwhile. They are ended there, and until that is known their room
// counts as taken, and nothing of the same task is ordered onto that node: it would refuse it, and
// each refusal uses an epoch up. Not durable: each hello tells it anew.
#include <algorithm>

#include "actors/scheduler/scheduler_actor.h"

namespace qgpu {
namespace {

// Such room is held under numbers that no task has.
constexpr std::uint64_t kOlderBits = std::uint64_t{3} << 62;

}  // namespace

void SchedulerActor::noteOlder(MemberId member, const Held& held) {
  const auto [entry, isNew] = at(member).older.try_emplace(held.clusterTask);
  Older& older = entry->second;
  older.epoch = std::max(older.epoch, held.epoch);
  if (!isNew) return;
  olderAt_[held.clusterTask].insert(member);
  ClusterSpec spec;
  spec.task = held.spec;
  const std::optional<Spot> spot = spotOf(at(member), spec, held.cards);
  if (!spot) return;
  older.room = TaskId{kOlderBits | ++lastOlder_};
  ledger_.bind(*older.room, *spot, "");
}

// The node has ended it, up to this epoch.
void SchedulerActor::olderGone(MemberId member, std::uint64_t task, std::uint32_t epoch) {
  std::map<std::uint64_t, Older>& held = at(member).older;
  const auto found = held.find(task);
  if (found == held.end() || found->second.epoch > epoch) return;
  if (found->second.room) ledger_.release(*found->second.room);
  held.erase(found);
  const auto nodes = olderAt_.find(task);
  nodes->second.erase(member);
  if (nodes->second.empty()) olderAt_.erase(nodes);
  gain(*at(member).node);
}

// Its next hello names what is left.
void SchedulerActor::forgetOlder(MemberId member) {
  const std::map<std::uint64_t, Older> held = at(member).older;
  for (const auto& [task, older] : held) olderGone(member, task, older.epoch);
}

SchedulerActor::ShutNodes::ShutNodes(ClusterLedger& ledger, const std::vector<NodeId>& nodes)
    : ledger_(ledger) {
  for (const NodeId node : nodes) {
    if (ledger_.cordoned(node)) continue;
    ledger_.setCordoned(node, true);
    shut_.push_back(node);
  }
}

SchedulerActor::ShutNodes::~ShutNodes() {
  for (const NodeId node : shut_) ledger_.setCordoned(node, false);
}

// Those that may not get this task now: `avoided`, and those that hold an earlier epoch of it.
std::vector<NodeId> SchedulerActor::nodesShutTo(std::uint64_t task,
                                                std::optional<MemberId> avoided) const {
  std::vector<NodeId> nodes;
  if (avoided && at(*avoided).node) nodes.push_back(*at(*avoided).node);
  const auto found = olderAt_.find(task);
  if (found == olderAt_.end()) return nodes;
  for (const MemberId member : found->second) nodes.push_back(*at(member).node);
  return nodes;
}

Result<Spot> SchedulerActor::placeFor(std::uint64_t task, const ClusterAsk& ask,
                                      std::optional<MemberId> avoided) {
  ++decisions_;
  const ShutNodes shut(ledger_, nodesShutTo(task, avoided));
  Result<Spot> spot = ledger_.place(ask);
  if (spot || shut.empty() || spot.error().code != ErrorCode::Cordoned) return spot;
  return fail(ErrorCode::NoRoom, "the only nodes that it fits have just refused it, or still end "
                                 "an earlier epoch of it");
}

}  // namespace qgpu
