#include "services/kubernetes/extender/pod_verdicts.h"

#include <algorithm>
#include <utility>

#include "services/kubernetes/extender/wire.h"

namespace qgpu {

PodVerdicts::Pod::Pod(PodVerdicts& all, const PodAsk& ask)
    : all_(all), fit_(all.ledger_, ask), kind_(all.kindOf(fit_, ask)) {
  for (const Shape& shape : fit_.shapes()) {
    chance_ = chance_ || (!fit_.single() && shape.cardScore == Score::Random);
  }
}

// The ledger's own index keeps the ranks of a single demand.
std::uint64_t PodVerdicts::Pod::rank(NodeId node) {
  if (fit_.single() || isApart(node)) return fit_.rank(node);
  Ranked& ranked = kind_.ranks[static_cast<std::size_t>(node)];
  const std::uint64_t changed = all_.ledger_.changedAt(node);
  if (ranked.at != changed) ranked = {changed, fit_.rank(node)};
  return ranked.rank;
}

const PodVerdicts::Refusal& PodVerdicts::Pod::refusal(NodeId node) {
  if (chance_ || isApart(node)) return all_.apart_.emplace_back(judged(node));
  if (!std::exchange(looked_, true)) lookAtFaces();
  const RoomFaces::Face face = all_.faces_.of(node);
  Told& told = kind_.told[face.place];
  if (told.face != face.number) {
    const std::size_t before = told.refusal.why.capacity();
    told = {face.number, judged(node)};
    all_.grow(kind_, before, told.refusal.why.capacity());
  }
  return told.refusal;
}

void PodVerdicts::Pod::lookAtFaces() {
  all_.faces_.refresh();
  const std::size_t places = std::max(kind_.told.size(), all_.faces_.places());
  all_.grow(kind_, kind_.told.size() * sizeof(Told), places * sizeof(Told));
  kind_.told.resize(places);
}

PodVerdicts::Refusal PodVerdicts::Pod::judged(NodeId node) {
  const PodRefusal found = fit_.refusal(node);
  return {found.hopeless, jsonText(found.text)};
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
    for (Ranked& ranked : kind.ranks) ranked.at = 0;
    for (Told& told : kind.told) told.face = 0;
  }
  if (!fit.single()) {
    const std::size_t before = kind.ranks.size() * sizeof(Ranked);
    kind.ranks.resize(ledger_.nodes());
    grow(kind, before, kind.ranks.size() * sizeof(Ranked));
  }
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
