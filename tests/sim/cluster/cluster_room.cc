#include "tests/sim/cluster/cluster_room.h"

#include <algorithm>

namespace qgpu::sim {
namespace {

constexpr Nanos kStepMax = millis(2);         // until somebody here answers
constexpr std::uint64_t kUsedPercent = 40;    // of tasks, that get a process
constexpr std::uint64_t kLeavesPercent = 50;  // of processes, before anybody ends them

}  // namespace

NodePeers RoomDouble::settle(ActorId node, std::size_t cards, std::size_t slots) {
  node_ = node;
  Host& host = site_.host;
  peers_.attach = host.add(*this, Home::Card);
  for (std::size_t i = 0; i < cards; ++i) peers_.cards.push_back(host.add(*this, Home::Card));
  for (std::size_t i = 0; i < slots; ++i) peers_.tasks.push_back(host.add(*this, Home::Card));
  slots_.assign(slots, 0);
  cards_.resize(cards);
  return peers_;
}

// All of them answer after a while, in the order in which they were asked.
void RoomDouble::say(ActorId from, std::function<void(schema::Envelope::Builder)> build) {
  waiting_.push_back({from, std::move(build)});
  if (armed_) return;
  armed_ = true;
  site_.host.after(Scope::Manager, dice_.magnitude(micros(1), kStepMax), [this] {
    armed_ = false;
    flush();
  });
}

void RoomDouble::flush() {
  while (!waiting_.empty()) {
    const Said& first = waiting_.front();
    if (site_.host.send(first.from, node_, first.build) == SendResult::Refused) {
      armed_ = true;
      site_.host.after(Scope::Manager, kStepMax, [this] {
        armed_ = false;
        flush();
      });
      return;
    }
    waiting_.pop_front();
  }
}

void RoomDouble::handle(schema::Envelope::Reader message, Turn& turn) {
  if (turn.self() == peers_.attach) return atAttach(message);
  for (std::size_t i = 0; i < peers_.cards.size(); ++i) {
    if (turn.self() == peers_.cards[i]) return atCard(i, message);
  }
  for (std::size_t i = 0; i < peers_.tasks.size(); ++i) {
    if (turn.self() == peers_.tasks[i]) return atSlot(i, message);
  }
}

void RoomDouble::atCard(std::size_t card, schema::Envelope::Reader message) {
  if (message.isJoined()) cards_[card].insert(message.getJoined().getTask());
  if (message.isLeft()) cards_[card].erase(message.getLeft().getTask());
  if (!message.isReportAsked()) return;
  const std::uint64_t corr = message.getReportAsked().getCorr();
  say(peers_.cards[card], [corr, card](schema::Envelope::Builder envelope) {
    auto report = envelope.initCardReport();
    report.setCorr(corr);
    report.initStatus().initInfo().setIndex(static_cast<std::uint32_t>(card));
  });
}

void RoomDouble::fact(std::uint64_t task) {
  const auto found = held_.find(task);
  if (found == held_.end()) return;
  const std::uint32_t processes = found->second.processes;
  say(peers_.tasks[found->second.slot], [task, processes](schema::Envelope::Builder envelope) {
    auto fact = envelope.initTaskFact();
    fact.setTask(task);
    fact.setState(processes == 0 ? schema::TaskState::BOUND : schema::TaskState::IDLE);
    fact.setProcesses(processes);
  });
}

void RoomDouble::setProcesses(std::uint64_t task, std::uint32_t processes) {
  const auto found = held_.find(task);
  if (found == held_.end() || found->second.processes == processes) return;
  found->second.processes = processes;
  fact(task);
}

void RoomDouble::atSlot(std::size_t slot, schema::Envelope::Reader message) {
  if (message.isTaskKnown()) {
    slots_[slot] = message.getTaskKnown().getTask();
    held_[slots_[slot]] = {slot, 0};
    fact(slots_[slot]);
  } else if (message.isTaskClosed()) {
    held_.erase(message.getTaskClosed().getTask());
    slots_[slot] = 0;
  } else if (message.isReportAsked() && slots_[slot] != 0) {
    const std::uint64_t corr = message.getReportAsked().getCorr();
    const std::uint32_t processes = held_[slots_[slot]].processes;
    say(peers_.tasks[slot], [corr, task = slots_[slot], processes](auto envelope) {
      auto report = envelope.initTaskReport();
      report.setCorr(corr);
      report.setTask(task);
      report.setState(processes == 0 ? schema::TaskState::BOUND : schema::TaskState::IDLE);
      report.initUse().setProcesses(processes);
    });
  }
}

void RoomDouble::atAttach(schema::Envelope::Reader message) {
  if (message.isTaskKnown()) {
    const auto known = message.getTaskKnown();
    say(peers_.attach, [task = known.getTask()](schema::Envelope::Builder envelope) {
      envelope.initGateOpened().setTask(task);
    });
    live(known);
  } else if (message.isTaskClosed() && message.getTaskClosed().getKill()) {
    const std::uint64_t task = message.getTaskClosed().getTask();
    site_.host.after(Scope::Manager, dice_.magnitude(micros(10), seconds(1)),
                     [this, task] { setProcesses(task, 0); });
  }
}

// What its people do with it.
void RoomDouble::live(schema::TaskKnown::Reader known) {
  const std::uint64_t task = known.getTask();
  const auto later = [this](Nanos low, Nanos high, std::function<void()> work) {
    site_.host.after(Scope::Manager, dice_.magnitude(low, high), std::move(work));
  };
  if (dice_.percent(kUsedPercent)) {
    later(millis(1), seconds(3), [this, task] { setProcesses(task, 1); });
    if (dice_.percent(kLeavesPercent)) {
      later(seconds(3), seconds(60), [this, task] { setProcesses(task, 0); });
    }
  }
  if (known.getOwnerPid() == 0 || !options_.has(ClusterFault::Endings)) return;
  later(seconds(1), seconds(60), [this, task] {
    if (calm_) return;
    say(peers_.attach,
        [task](schema::Envelope::Builder envelope) { envelope.initOwnerGone().setTask(task); });
  });
}

}  // namespace qgpu::sim
