#include "actors/scheduler/waiting.h"

#include <utility>
#include <vector>

namespace qgpu {
namespace {

constexpr TaskClass kClasses[] = {TaskClass::Online, TaskClass::Ordinary, TaskClass::Offline};

std::string sentence(const NodeVerdict& nearest, const std::string& name) {
  if (nearest.reason == Reason::Fits) return "fits on node " + name + " and is to be tried there";
  return "nearest: node " + name + (nearest.card ? ", " : " ") + nearest.text;
}

}  // namespace

WaitQueue::Why Waiting::whyOf(const ClusterAsk& ask) const {
  const std::optional<NodeVerdict> nearest = ledger_.nearest(ask);
  if ((!nearest || isHopeless(nearest->reason)) && members_.missing()) {
    return {Reason::StaleState, "nodes that are known by name have not said yet what they are"};
  }
  if (!nearest) {
    return {Reason::NoQgpuNode,
            ask.node.empty() ? "no node has joined" : "no node '" + ask.node + "'"};
  }
  return {nearest->reason, sentence(*nearest, ledger_.facts(nearest->node).name)};
}

const WaitQueue::Why& Waiting::why(std::uint64_t task, const Job& job) {
  if (!queue_.hasWhy(task)) {
    const ClusterAsk ask = askOf(job.spec);
    queue_.setWhy(ask, whyOf(ask));
  }
  return *queue_.why(task);
}

std::string Waiting::reason(std::uint64_t task, const Job& job) const {
  const WaitQueue::Why* why = queue_.why(task);
  if (why == nullptr) return job.reason;
  const std::string code = std::string(reasonName(why->reason)) + ": ";
  if (job.making) return code + job.reason;
  return code + (job.reason.empty() ? "" : job.reason + "; ") + why->text;
}

void Waiting::look() {
  if (!next_ && std::exchange(judgedAt_, ledger_.changes()) == ledger_.changes()) return;
  const auto all = static_cast<std::size_t>(ledger_.sums().cards) + 1;
  for (std::size_t judged = 0; judged < kJudgedPerLook;) {
    const ClusterAsk* ask = queue_.shapeAfter(next_);
    if (ask == nullptr) return;
    queue_.setWhy(*ask, whyOf(*ask));
    judged += ask->node.empty() ? all : kNodeCardsMax;
  }
}

void Waiting::count(Decided result, Reason reason) {
  ++decided_[static_cast<std::size_t>(result)][static_cast<std::size_t>(reason)];
}

void Waiting::writeReasons(schema::ClusterInfo::Builder info) const {
  static_assert(static_cast<int>(Decided::Refused) ==
                static_cast<int>(schema::ClusterInfo::Result::REFUSED));
  struct Line {
    std::size_t of = 0;  // a class, or a result
    std::size_t reason = 0;
    std::uint64_t count = 0;
  };
  std::vector<Line> pending, decided;
  for (std::size_t reason = 0; reason < kReasons; ++reason) {
    for (const TaskClass one : kClasses) {
      const std::size_t tasks = queue_.waitingFor(one, static_cast<Reason>(reason));
      if (tasks != 0) pending.push_back({static_cast<std::size_t>(one), reason, tasks});
    }
    for (std::size_t result = 0; result < decided_.size(); ++result) {
      const std::uint64_t count = decided_[result][reason];
      if (count != 0) decided.push_back({result, reason, count});
    }
  }
  auto waits = info.initPending(static_cast<unsigned>(pending.size()));
  for (unsigned i = 0; i < waits.size(); ++i) {
    waits[i].setClass(word(static_cast<TaskClass>(pending[i].of)));
    waits[i].setReason(reasonName(static_cast<Reason>(pending[i].reason)));
    waits[i].setTasks(pending[i].count);
  }
  auto counts = info.initDecided(static_cast<unsigned>(decided.size()));
  for (unsigned i = 0; i < counts.size(); ++i) {
    counts[i].setResult(static_cast<schema::ClusterInfo::Result>(decided[i].of));
    counts[i].setReason(reasonName(static_cast<Reason>(decided[i].reason)));
    counts[i].setCount(decided[i].count);
  }
}

}  // namespace qgpu
