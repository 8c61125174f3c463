#include "actors/scheduler/waiting.h"

#include <utility>
#include <vector>

#include "actors/placement/group_fit.h"

namespace qgpu {
namespace {

constexpr TaskClass kClasses[] = {TaskClass::Online, TaskClass::Ordinary, TaskClass::Offline};

std::string sentence(const NodeVerdict& nearest, const std::string& name) {
  if (nearest.reason == Reason::Fits) return "fits on node " + name + " and is to be tried there";
  return "nearest: node " + name + (nearest.card ? ", " : " ") + nearest.text;
}

std::string ofSize(std::size_t count, const Groups::Group& group) {
  return std::to_string(count) + " of " + std::to_string(group.size) + " members of its group ";
}

}  // namespace

// Nothing where one task alone is looked for room for, or none of them has any.
std::optional<WaitQueue::Why> Waiting::whyGroupWaits(const ClusterAsk& ask) const {
  const Groups::Group* group = groups_.find(ask.group);
  if (group == nullptr) return std::nullopt;
  const std::vector<std::uint64_t> due = groups_.due(*group);
  if (due.empty()) {
    const std::size_t here = group->placed.size() + group->waiting.size();
    const bool starts = group->placed.size() >= group->size;
    return WaitQueue::Why{Reason::GroupWaits, starts ? ofSize(group->bound, *group) + "are bound"
                                                     : ofSize(here, *group) + "are here"};
  }
  if (due.size() == 1) return std::nullopt;
  std::vector<GroupMember> members;
  for (const std::uint64_t task : due) members.push_back({TaskId{task}, *queue_.ask(task)});
  const std::size_t fit = fitTogether(ledger_, members, [this](const GroupMember& member) {
                            return ledger_.place(member.ask);
                          }).fit;
  if (fit == 0) return std::nullopt;
  if (fit == due.size()) return WaitQueue::Why{Reason::Fits, "its group fits and is to be tried"};
  return WaitQueue::Why{Reason::GroupWaits, std::to_string(due.size()) +
                                                " members of its group are to start at once, and " +
                                                std::to_string(fit) + " fit"};
}

WaitQueue::Why Waiting::whyOf(const ClusterAsk& ask) const {
  if (const auto why = whyGroupWaits(ask)) return *why;
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
  if (why == nullptr) {
    const bool placed = job.state == PlaceState::Assumed || job.state == PlaceState::Bound;
    const Groups::Group* group = groups_.find(groupOf(job.spec));
    if (!placed || !job.awaitsGroup() || group == nullptr) return job.reason;
    return std::string(reasonName(Reason::GroupWaits)) + ": " + ofSize(group->bound, *group) +
           "are bound";
  }
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
