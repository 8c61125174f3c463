#include "services/kubernetes/extender/waiting_pods.h"

#include <algorithm>

#include "runtime/check.h"

namespace qgpu {

WaitingPods::WaitingPods(const ClusterLedger& ledger, PodVerdicts& verdicts, PodGroups& groups,
                         kj::Timer& timer, std::uint64_t boot)
    : ledger_(ledger),
      verdicts_(verdicts),
      groups_(groups),
      timer_(timer),
      boot_(boot),
      tasks_(*this) {}

WaitingPods::~WaitingPods() noexcept(false) = default;

void WaitingPods::start() {
  if (std::exchange(started_, true)) return;
  tasks_.add(lookForEver());
}

// --- who waits ---

void WaitingPods::waits(SeenPod seen) {
  if (pods_.size() >= kPodsMax && !pods_.contains(seen.pod.uid)) return;
  Waiting& waiting = pods_[seen.pod.uid];
  if (waiting.kind == nullptr) {
    waiting.quietUntil = timer_.now() + kUnjudged;
    waiting.place.second = ++lastPlace_;
  }
  waiting.pod = std::move(seen.pod);
  const Place place{-std::int64_t{waiting.pod.priority}, waiting.place.second};
  Kind& kind = kindOf(seen.ask);
  if (waiting.kind == &kind && waiting.place == place) return;
  leaveKind(waiting);
  waiting.place = place;
  waiting.kind = &kind;
  kind.pods[place] = &waiting;
}

void WaitingPods::waitsNoMore(const std::string& uid) {
  const auto found = pods_.find(uid);
  if (found == pods_.end()) return;
  leaveKind(found->second);
  pods_.erase(found);
}

const PodDemands* WaitingPods::find(const std::string& uid) const {
  const auto found = pods_.find(uid);
  return found == pods_.end() ? nullptr : &found->second.pod;
}

void WaitingPods::leaveKind(Waiting& waiting) {
  if (waiting.kind == nullptr) return;
  Kind& kind = *std::exchange(waiting.kind, nullptr);
  kind.pods.erase(waiting.place);
  if (!kind.pods.empty()) return;
  std::erase_if(kinds_, [&](const auto& entry) { return &entry.second == &kind; });
}

WaitingPods::Kind& WaitingPods::kindOf(const PodAsk& ask) {
  Key key{{}, ask.models};
  for (const PodAsk::Demand& demand : ask.demands) {
    ClusterAsk one;
    one.task = demand.ask;
    one.models = ask.models;
    key.first.push_back(ledger_.shape(one));
  }
  const auto [found, isNew] = kinds_.try_emplace(std::move(key));
  Kind& kind = found->second;
  if (!isNew) return kind;
  kind.ask = ask;
  kind.ask.application.clear();
  kind.fits.resize(ledger_.nodes());
  PodVerdicts::Pod fit = verdicts_.of(kind.ask);
  for (std::size_t i = 0; i < kind.fits.size(); ++i) {
    kind.fits[i] = fitsAt(fit.rank(static_cast<NodeId>(i)));
  }
  return kind;
}

// --- what became of it ---

void WaitingPods::judged(const std::string& uid, bool fits) {
  const auto found = pods_.find(uid);
  if (found == pods_.end()) return;
  // A node that is closed now may be open again at the next look.
  if (!fits) takeChanges();
  Waiting& waiting = found->second;
  waiting.judged = !fits;
  waiting.judgedAt = ledger_.changes();
  waiting.quietUntil = timer_.now() + (fits ? kBinds : kj::Duration());
}

// kube-scheduler tries it again by itself, soon or in five minutes.
void WaitingPods::notBound(const std::string& uid) {
  const auto found = pods_.find(uid);
  if (found == pods_.end()) return;
  found->second.judged = false;
  found->second.quietUntil = timer_.now() + kUnjudged;
}

// --- looks ---

kj::Promise<void> WaitingPods::lookForEver() {
  look();
  return timer_.afterDelay(kLook).then([this]() { return lookForEver(); });
}

void WaitingPods::look() {
  takeChanges();
  for (const std::string& uid : groups_.opened()) {
    const auto found = pods_.find(uid);
    if (found != pods_.end()) found->second.judged = false;
  }
  for (auto& [key, kind] : kinds_) wakeOf(kind);
}

void WaitingPods::takeChanges() {
  const std::vector<std::size_t> nodes = changedNodes();
  for (auto& [key, kind] : kinds_) judge(kind, nodes);
}

std::vector<std::size_t> WaitingPods::changedNodes() {
  std::vector<std::size_t> nodes;
  if (ledger_.changes() == lookedAt_) return nodes;
  for (std::size_t i = 0; i < ledger_.nodes(); ++i) {
    if (ledger_.changedAt(static_cast<NodeId>(i)) > lookedAt_) nodes.push_back(i);
  }
  lookedAt_ = ledger_.changes();
  return nodes;
}

void WaitingPods::judge(Kind& kind, const std::vector<std::size_t>& nodes) {
  if (nodes.empty()) return;
  kind.fits.resize(ledger_.nodes());
  PodVerdicts::Pod fit = verdicts_.of(kind.ask);
  for (const std::size_t at : nodes) {
    const auto node = static_cast<NodeId>(at);
    const bool fits = fitsAt(fit.rank(node));
    if (fits && !kind.fits[at]) kind.opened[at] = ledger_.changedAt(node);
    if (!fits) kind.opened.erase(at);
    kind.fits[at] = fits;
  }
}

void WaitingPods::wakeOf(Kind& kind) {
  if (std::find(kind.fits.begin(), kind.fits.end(), true) == kind.fits.end()) return;
  std::uint64_t newest = 0;
  for (const auto& [node, since] : kind.opened) newest = std::max(newest, since);
  std::size_t left = kAtOnce;
  for (auto& [place, waiting] : kind.pods) {
    if (left == 0) return;
    if (!isDue(*waiting, newest)) continue;
    wake(*waiting);
    --left;
  }
}

bool WaitingPods::isDue(const Waiting& waiting, std::uint64_t newest) const {
  if (timer_.now() < waiting.quietUntil || !groups_.mayGo(waiting.pod.uid)) return false;
  return !waiting.judged || newest > waiting.judgedAt;
}

void WaitingPods::wake(Waiting& waiting) {
  const PodDemands& pod = waiting.pod;
  waiting.judged = true;
  waiting.judgedAt = ledger_.changes();
  const kj::TimePoint until = waiting.quietUntil = timer_.now() + kBinds;
  const std::string mark = std::to_string(boot_) + "-" + std::to_string(++woken_);
  tasks_.add(api_->annotatePod({pod.nameSpace, pod.name, pod.uid}, {{kWokenAnnotation, mark}}, "")
                 .then([this, uid = pod.uid, until](Status done) {
                   const auto found = pods_.find(uid);
                   // kube-scheduler may have tried it before this answer came.
                   if (found == pods_.end() || found->second.quietUntil != until) return;
                   if (done) {
                     found->second.quietUntil = timer_.now();
                   } else if (done.error().code == ErrorCode::Denied) {
                     found->second.judged = false;  // after that pause
                   } else {
                     notBound(uid);
                   }
                 }));
}

void WaitingPods::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "a look and an update handle their own failures");
}

}  // namespace qgpu
