#include "actors/placement/group_fit.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace qgpu {
namespace {

auto sizeOf(const ClusterAsk& ask) {
  return std::make_tuple(ask.task.cards, ask.task.share, ask.task.mem, ask.cpuMilli, ask.hostMem);
}

}  // namespace

GroupFit fitTogether(ClusterLedger& ledger, const std::vector<GroupMember>& members,
                     const PlaceMember& place) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sizeOf(members[a].ask) > sizeOf(members[b].ask);
  });
  std::vector<std::optional<Spot>> found(members.size());
  GroupFit result;
  ClusterLedger::Trial trial(ledger);
  for (const std::size_t i : order) {
    Result<Spot> spot = place(members[i]);
    if (!spot) continue;
    trial.bind(members[i].task, *spot, members[i].ask.application);
    found[i] = std::move(*spot);
    ++result.fit;
  }
  if (result.fit < members.size()) return result;
  for (std::optional<Spot>& spot : found) result.spots.push_back(std::move(*spot));
  return result;
}

}  // namespace qgpu
