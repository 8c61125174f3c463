#include "actors/placement/index.h"

#include <algorithm>

namespace qgpu {
namespace {

constexpr std::uint32_t kNobody = UINT32_MAX;
constexpr std::size_t kLogMax = 16'384;  // beyond it a look at every node's number is as cheap

}  // namespace

void PlacementIndex::changed(std::size_t node) {
  if (node >= changedAt_.size()) changedAt_.resize(node + 1, 0);
  if (log_.size() == kLogMax) {
    // Half of it goes at once, so that the cost is spread.
    log_.erase(log_.begin(), log_.begin() + kLogMax / 2);
    logStart_ += kLogMax / 2;
  }
  changedAt_[node] = logStart_ + log_.size();
  log_.push_back(static_cast<std::uint32_t>(node));
}

void PlacementIndex::clear() {
  entries_.clear();
}

PlacementIndex::Entry& PlacementIndex::entryFor(const Shape& shape, std::size_t nodes) {
  const auto known = entries_.find(shape);
  Entry& entry = known != entries_.end() ? known->second : entries_[shape];
  entry.usedAt = ++uses_;
  const std::size_t most =
      std::clamp(kRanksMax / std::max<std::size_t>(nodes, 1), kShapesMin, kShapesMax);
  while (entries_.size() > most) {
    entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](auto& a, auto& b) {
      return a.second.usedAt < b.second.usedAt;
    }));
  }
  return entry;
}

// Who wins at this place of the tree; leaves are from width on.
std::uint32_t PlacementIndex::winner(const Entry& entry, std::size_t at) {
  const std::size_t width = entry.winners.size();
  if (at < width) return entry.winners[at];
  const std::size_t node = at - width;
  return node < entry.ranks.size() ? static_cast<std::uint32_t>(node) : kNobody;
}

namespace {

// The left one wins a tie: it is the lower position.
std::uint32_t better(const std::vector<std::uint64_t>& ranks, std::uint32_t left,
                     std::uint32_t right) {
  if (right == kNobody) return left;
  return ranks[right] < ranks[left] ? right : left;
}

}  // namespace

void PlacementIndex::build(Entry& entry) {
  std::size_t width = 1;
  while (width < entry.ranks.size()) width *= 2;
  entry.winners.assign(width, kNobody);
  for (std::size_t at = width; at-- > 1;) {
    entry.winners[at] = better(entry.ranks, winner(entry, 2 * at), winner(entry, 2 * at + 1));
  }
}

void PlacementIndex::update(Entry& entry, std::size_t node) {
  for (std::size_t at = (entry.winners.size() + node) / 2; at >= 1; at /= 2) {
    const std::uint32_t now = better(entry.ranks, winner(entry, 2 * at), winner(entry, 2 * at + 1));
    // Where another won and wins again, nothing above has changed.
    if (now == entry.winners[at] && now != node) return;
    entry.winners[at] = now;
  }
}

void PlacementIndex::refresh(Entry& entry, const Shape& shape, const std::vector<NodeRoom>& nodes,
                             const Fragments& fragments) {
  const std::uint64_t last = logStart_ + log_.size() - 1;
  const std::size_t known = entry.ranks.size();
  if (entry.seen == last && known == nodes.size()) return;
  entry.ranks.resize(nodes.size(), kNeverRank);
  std::size_t renewed = 0;
  const bool rebuilds = known != nodes.size() || last - entry.seen > nodes.size() / 4;
  Pick pick;
  const auto renew = [&](std::size_t node) {
    const std::uint64_t rank = rankNode(nodes[node], node, shape, fragments, {}, pick);
    ++renewed;
    if (rank == entry.ranks[node]) return;
    entry.ranks[node] = rank;
    if (!rebuilds) update(entry, node);
  };
  if (known == nodes.size() && entry.seen + 1 >= logStart_) {
    for (std::uint64_t n = entry.seen + 1; n <= last; ++n) {
      const std::size_t node = log_[n - logStart_];
      if (changedAt_[node] == n) renew(node);  // its last change
    }
  } else {
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      if (node >= known || changedAt_[node] > entry.seen) renew(node);
    }
  }
  if (rebuilds) build(entry);
  entry.seen = last;
  ranked_ += renewed;
}

// The best of positions [from, to).
PlacementIndex::Best PlacementIndex::among(const Entry& entry, std::size_t from, std::size_t to) {
  Best best;
  bool any = false;
  const auto meet = [&](std::uint32_t node) {
    if (node == kNobody) return;
    const std::uint64_t rank = entry.ranks[node];
    if (any && (rank > best.rank || (rank == best.rank && node > best.node))) return;
    best = {node, rank};
    any = true;
  };
  const std::size_t width = entry.winners.size();
  for (std::size_t l = from + width, r = to + width; l < r; l /= 2, r /= 2) {
    if (l % 2 == 1) meet(winner(entry, l++));
    if (r % 2 == 1) meet(winner(entry, --r));
  }
  return best;
}

const std::vector<std::uint64_t>& PlacementIndex::ranks(const Shape& shape,
                                                        const std::vector<NodeRoom>& nodes,
                                                        const Fragments& fragments) {
  Entry& entry = entryFor(shape, nodes.size());
  refresh(entry, shape, nodes, fragments);
  return entry.ranks;
}

PlacementIndex::Best PlacementIndex::best(const Shape& shape, const std::vector<NodeRoom>& nodes,
                                          const Fragments& fragments,
                                          const std::vector<std::size_t>& except) {
  if (nodes.empty()) return {};
  Entry& entry = entryFor(shape, nodes.size());
  refresh(entry, shape, nodes, fragments);
  Best best;
  std::size_t from = 0;
  const auto consider = [&](std::size_t to) {
    if (from >= to) return;
    const Best found = among(entry, from, to);
    if (found.rank < best.rank) best = found;
  };
  for (const std::size_t node : except) {
    consider(node);
    from = node + 1;
  }
  consider(nodes.size());
  return best;
}

}  // namespace qgpu
