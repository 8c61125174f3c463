#include "actors/scheduler/places.h"

#include <algorithm>

namespace qgpu {
namespace {

// Such room is held under numbers that no task has.
constexpr std::uint64_t kOlderBits = std::uint64_t{3} << 62;

}  // namespace

Result<Spot> Places::place(std::uint64_t task, const ClusterAsk& ask,
                           std::optional<MemberId> avoided) {
  ++decisions_;
  if (gathers_) {
    return fail(ErrorCode::NoRoom, "nodes say first what they hold: the store is a copy, or new");
  }
  const ShutNodes shut(ledger_, shutTo(task, avoided));
  Result<Spot> spot = ledger_.place(ask);
  if (spot || shut.empty() || spot.error().code != ErrorCode::Cordoned) return spot;
  return fail(ErrorCode::NoRoom,
              "the only nodes that it fits have just refused it, or still end "
              "an earlier epoch of it");
}

std::vector<NodeId> Places::shutTo(std::uint64_t task, std::optional<MemberId> avoided) const {
  std::vector<NodeId> nodes;
  if (avoided && members_.at(*avoided).node) nodes.push_back(*members_.at(*avoided).node);
  const auto found = olderAt_.find(task);
  if (found == olderAt_.end()) return nodes;
  for (const MemberId member : found->second) nodes.push_back(*members_.at(member).node);
  return nodes;
}

Places::ShutNodes::ShutNodes(ClusterLedger& ledger, const std::vector<NodeId>& nodes)
    : ledger_(ledger) {
  for (const NodeId node : nodes) {
    if (ledger_.cordoned(node)) continue;
    ledger_.setCordoned(node, true);
    shut_.push_back(node);
  }
}

Places::ShutNodes::~ShutNodes() {
  for (const NodeId node : shut_) ledger_.setCordoned(node, false);
}

void Places::noteOlder(MemberId member, const HeldTask& held) {
  const auto [entry, isNew] = older_[member].try_emplace(held.clusterTask);
  Older& older = entry->second;
  older.epoch = std::max(older.epoch, held.epoch);
  if (!isNew) return;
  olderAt_[held.clusterTask].insert(member);
  ClusterSpec spec;
  spec.task = held.spec;
  const std::optional<Spot> spot = members_.spotOf(member, spec, held.cards);
  if (!spot) return;
  older.room = TaskId{kOlderBits | ++lastOlder_};
  ledger_.bind(*older.room, *spot, "");
}

void Places::olderGone(MemberId member, std::uint64_t task, std::uint32_t epoch) {
  std::map<std::uint64_t, Older>& held = older_[member];
  const auto found = held.find(task);
  if (found == held.end() || found->second.epoch > epoch) return;
  if (found->second.room) ledger_.release(*found->second.room);
  held.erase(found);
  const auto nodes = olderAt_.find(task);
  nodes->second.erase(member);
  if (nodes->second.empty()) olderAt_.erase(nodes);
  freed_.gain(*members_.at(member).node);
}

bool Places::holdsOlder(MemberId member, std::uint64_t task) const {
  const auto found = olderAt_.find(task);
  return found != olderAt_.end() && found->second.contains(member);
}

void Places::forgetOlder(MemberId member) {
  const std::map<std::uint64_t, Older> held = older_[member];
  for (const auto& [task, older] : held) olderGone(member, task, older.epoch);
}

}  // namespace qgpu
