#include "actors/card/task_actor.h"

#include <algorithm>

#include "actors/base/tick.h"
#include "schema/envelope.actor.h"

namespace qgpu {

void TaskActor::handle(schema::Envelope::Reader message, Turn& turn) {
  dispatch(*this, message, turn);
}

void TaskActor::reset() {
  task_ = 0;
  cardPhase_ = TaskPhase::Attached;
  processes_.clear();
  use_ = TaskFigures();
  fault_.clear();
  faultOwed_ = false;
  factOwed_ = false;
  asks_.clear();
}

void TaskActor::tellFact(Turn& turn) {
  if (task_ == 0) return;
  const SendResult sent = turn.send(node_, [this](schema::Envelope::Builder envelope) {
    auto fact = envelope.initTaskFact();
    fact.setTask(task_);
    fact.setState(word(states_.phase()));
    fact.setProcesses(static_cast<std::uint32_t>(processes_.size()));
    if (faultOwed_) fact.setText(fault_);
  });
  if (sent == SendResult::Sent) {
    faultOwed_ = false;
    factOwed_ = false;
  } else if (!factOwed_) {
    factOwed_ = true;
    const std::uint64_t task = task_;
    turn.after(kResend, [task](schema::Envelope::Builder e) { e.initTick().setValue(task); });
  }
}

// Again for the same task: only the answer is repeated.
void TaskActor::onTaskKnown(schema::TaskKnown::Reader known, Turn& turn) {
  if (known.getTask() == 0) return;
  if (!mine(known.getTask())) {
    QGPU_CHECK(task_ == 0, "the node closes a slot's task before it gives the slot away");
    reset();
    task_ = known.getTask();
    states_.moveTo(TaskPhase::Bound);
  }
  tellFact(turn);
}

void TaskActor::onTaskClosed(schema::TaskClosed::Reader closed, Turn&) {
  if (!mine(closed.getTask())) return;
  states_.moveTo(processes_.empty() ? TaskPhase::Exited : TaskPhase::Lost);
  reset();
  states_.moveTo(TaskPhase::Pending);
}

void TaskActor::onProcessAttached(schema::ProcessAttached::Reader attached, Turn& turn) {
  if (!mine(attached.getTask()) || attached.getSlot() >= kProcessesMax) return;
  const bool first = processes_.empty();
  processes_[attached.getSlot()] = attached.getPid();
  if (first) {
    states_.moveTo(TaskPhase::Attached);
    states_.moveTo(cardPhase_);
  }
  tellFact(turn);
}

void TaskActor::onProcessGone(schema::ProcessGone::Reader gone, Turn& turn) {
  if (!mine(gone.getTask()) || processes_.empty()) return;
  processes_.erase(gone.getSlot());
  if (gone.getLast()) processes_.clear();
  if (processes_.empty()) {
    states_.moveTo(TaskPhase::Bound);
    use_.memBytes = use_.pageableHeld = use_.pageableOut = 0;
  }
  tellFact(turn);
}

// The card may speak before the first process is announced here: then what it said waits.
void TaskActor::onMoved(schema::Moved::Reader moved, Turn&) {
  if (!mine(moved.getTask())) return;
  const TaskPhase phase = readPhase(moved.getState());
  if (!isActive(phase)) return;
  cardPhase_ = phase;
  if (!processes_.empty()) states_.moveTo(phase);
}

void TaskActor::onUsed(schema::Used::Reader used, Turn& turn) {
  if (!mine(used.getTask())) return;
  use_.memBytes = used.getMemBytes();
  use_.memPeak = std::max({use_.memPeak, used.getMemPeak(), used.getMemBytes()});
  use_.pageableHeld = used.getPageableHeld();
  use_.pageableOut = used.getPageableOut();
  use_.launches = std::max(use_.launches, used.getLaunches());
  use_.gpuNs = std::max(use_.gpuNs, used.getGpuNs());
  reportAll(turn);
  const std::string fault = text(used.getFault()).substr(0, kFaultMax);
  if (fault.empty() || fault == fault_) return;
  fault_ = fault;
  faultOwed_ = true;
  tellFact(turn);
}

// Counters are read from the report page for each question, while there is somebody to count.
void TaskActor::onReportAsked(schema::ReportAsked::Reader asked, Turn& turn) {
  if (task_ == 0) return;
  const auto ask = [](schema::Envelope::Builder envelope) { envelope.initReportAsked(); };
  if (processes_.empty() || asks_.size() >= kAsksMax ||
      turn.send(attach_, ask) == SendResult::Refused) {
    return report(asked.getCorr(), turn);
  }
  asks_.push_back(asked.getCorr());
  if (asks_.size() > 1) return;
  tickAfter(turn, kUseMax, static_cast<std::uint32_t>(TickKind::Report), task_);
}

void TaskActor::reportAll(Turn& turn) {
  for (const std::uint64_t corr : asks_) report(corr, turn);
  asks_.clear();
}

void TaskActor::report(std::uint64_t corr, Turn& turn) {
  // A refusal is the node's own full mailbox: it answers with the last report instead.
  static_cast<void>(turn.send(node_, [this, corr](schema::Envelope::Builder envelope) {
    auto report = envelope.initTaskReport();
    report.setCorr(corr);
    report.setTask(task_);
    report.setState(word(states_.phase()));
    auto use = report.initUse();
    writeFigures(use_, use);
    use.setProcesses(static_cast<std::uint32_t>(processes_.size()));
  }));
}

void TaskActor::onTick(schema::Tick::Reader tick, Turn& turn) {
  if (!mine(tick.getValue())) return;
  if (TickKind{tick.getKind()} == TickKind::Report) return reportAll(turn);
  if (!factOwed_) return;
  factOwed_ = false;
  tellFact(turn);
}

}  // namespace qgpu
