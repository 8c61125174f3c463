#include "services/extender/pod_verdicts.h"

#include <algorithm>

#include "services/extender/wire.h"

namespace qgpu {

PodVerdicts::Pod::Pod(PodVerdicts& all, const PodAsk& ask)
    : all_(all), fit_(all.ledger_, ask), kind_(all.kindOf(fit_, ask)) {}

PodVerdicts::Verdict* PodVerdicts::Pod::kept(NodeId node) {
  if (!fit_.single() && fit_.isApart(node)) return nullptr;
  return &kind_.nodes[static_cast<std::size_t>(node)];
}

// The ledger's own index keeps the ranks of a single demand.
std::uint64_t PodVerdicts::Pod::rank(NodeId node) {
  Verdict* verdict = fit_.single() ? nullptr : kept(node);
  if (verdict == nullptr) return fit_.rank(node);
  const std::uint64_t changed = all_.ledger_.changedAt(node);
  if (verdict->rankedAt != changed) {
    verdict->rank = fit_.rank(node);
    verdict->rankedAt = changed;
  }
  return verdict->rank;
}

const PodVerdicts::Refusal& PodVerdicts::Pod::refusal(NodeId node) {
  Verdict* verdict = kept(node);
  const std::uint64_t changed = all_.ledger_.changedAt(node);
  if (verdict != nullptr && verdict->refusedAt == changed) return verdict->refusal;
  Refusal& refusal = verdict == nullptr ? all_.apart_.emplace_back() : verdict->refusal;
  const std::size_t before = refusal.why.capacity();
  const Refusal* like = likeTheLast(node);
  if (like != nullptr) {
    refusal = *like;
  } else {
    const PodRefusal found = fit_.refusal(node);
    refusal = {found.hopeless, jsonText(found.text)};
  }
  if (verdict == nullptr) return refusal;
  verdict->refusedAt = changed;
  all_.grow(kind_, before, refusal.why.capacity());
  last_ = node;
  return refusal;
}

// Empty nodes and full ones are often alike, and then so is what one container hears of them.
const PodVerdicts::Refusal* PodVerdicts::Pod::likeTheLast(NodeId node) const {
  if (!fit_.single() || !last_) return nullptr;
  const NodeRoom& one = all_.ledger_.nodeRoom(*last_);
  const NodeRoom& other = all_.ledger_.nodeRoom(node);
  const bool alike = one.life == other.life && one.mixed == other.mixed &&
                     one.cordoned == other.cordoned && one.cpuFree() == other.cpuFree() &&
                     one.hostMemFree() == other.hostMemFree() && one.cards == other.cards;
  return alike ? &kind_.nodes[static_cast<std::size_t>(*last_)].refusal : nullptr;
}

PodVerdicts::Kind& PodVerdicts::kindOf(const PodFit& fit, const PodAsk& ask) {
  apart_.clear();
  Key key{fit.shapes(), {}};
  if (!fit.single()) {
    for (const PodAsk::Demand& demand : ask.demands) key.second.push_back(demand.container);
  }
  Kind& kind = kinds_[std::move(key)];
  kind.usedAt = ++uses_;
  if (!fit.single() && kind.learnings != ledger_.learnings()) {
    kind.learnings = ledger_.learnings();
    for (Verdict& verdict : kind.nodes) verdict.rankedAt = verdict.refusedAt = 0;
  }
  const std::size_t before = kind.nodes.size() * sizeof(Verdict);
  kind.nodes.resize(ledger_.nodes());
  grow(kind, before, kind.nodes.size() * sizeof(Verdict));
  while (kinds_.size() > kKindsMax || (bytes_ > bytesMax_ && kinds_.size() > 1)) {
    forgetOldest(kind);
  }
  return kind;
}

void PodVerdicts::forgetOldest(const Kind& but) {
  auto oldest = kinds_.end();
  for (auto kind = kinds_.begin(); kind != kinds_.end(); ++kind) {
    if (&kind->second == &but) continue;
    if (oldest == kinds_.end() || kind->second.usedAt < oldest->second.usedAt) oldest = kind;
  }
  bytes_ -= oldest->second.bytes;
  kinds_.erase(oldest);
}

void PodVerdicts::grow(Kind& kind, std::size_t before, std::size_t after) {
  kind.bytes = kind.bytes - before + after;
  bytes_ = bytes_ - before + after;
}

}  // namespace qgpu
