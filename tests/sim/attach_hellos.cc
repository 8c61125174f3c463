// Processes that come, or come back after a restart of the manager.
#include <algorithm>
#include <utility>

#include "tests/sim/attach_double.h"

namespace qgpu::sim {
namespace {

constexpr std::uint32_t kIncarnationRaise = 1'000'000;

}  // namespace

void AttachDouble::hello(SimHello said) {
  const std::uint64_t serial = said.serial;
  Hello& hello = hellos_[serial];
  hello.said = std::move(said);
  hello.timer = at(host_.now() + options_.helloWithin, [this, serial] { drop(serial); });
  soon([this, serial] {
    if (hellos_.contains(serial)) decide(serial);
  });
}

GuestTask* AttachDouble::byToken(const std::string& token) const {
  for (const auto& [id, task] : tasks_) {
    if (task->token == token) return task.get();
  }
  return nullptr;
}

qgpu::GuestProcess* AttachDouble::processOf(GuestTask& task, std::uint32_t pid) const {
  for (auto& [slot, process] : task.processes) {
    if (process->entry.pid == pid) return process.get();
  }
  return nullptr;
}

void AttachDouble::decide(std::uint64_t serial) {
  Hello& hello = hellos_.at(serial);
  GuestTask* task = byToken(hello.said.token);
  hello.task = task == nullptr ? 0 : task->id;
  hello.raises = false;
  hello.waits = recovering_ && (task == nullptr || (!hello.said.reattach && expects(task->id)));
  if (hello.waits) return;
  const bool gone = task == nullptr || task->pages.closed() || !machine_.lives(hello.said.pid);
  if (gone) return refuse(serial);
  if (hello.said.incarnationSeen >= incarnation_) {
    if (!askIncarnationAbove(hello.said.incarnationSeen)) return refuse(serial);
    hello.waits = true;
    hello.raises = true;
    return;
  }
  const Result<std::uint32_t> slot = giveSlot(hello, *task);
  if (!slot) return refuse(serial);
  admit(hello, *task, *slot);
  drop(serial);
  recoveryMoved();
}

Status AttachDouble::askIncarnationAbove(std::uint32_t seen) {
  if (seen >= options_.incarnation + kIncarnationRaise) {
    return fail(ErrorCode::Denied, "an incarnation that no manager had");
  }
  if (seen <= incarnationAsked_) return ok();
  incarnationAsked_ = seen;
  outlet_.sendUrgent(options_.node, [&](schema::Envelope::Builder message) {
    message.initIncarnationSeen().setValue(seen);
  });
  return ok();
}

Result<std::uint32_t> AttachDouble::giveSlot(Hello& hello, GuestTask& task) {
  if (hello.said.reattach) return giveSlotAgain(hello, task);
  if (const qgpu::GuestProcess* before = processOf(task, hello.said.pid)) {
    forgetProcess(task, before->slot);   // its answer was lost on the way: it begins anew
  }
  return task.pages.takeSlot(hello.said.pid, hello.said.start);
}

Result<std::uint32_t> AttachDouble::giveSlotAgain(Hello& hello, GuestTask& task) {
  const bool first = task.pages.usedSlots() == 0;
  const Status adopted = task.pages.adoptReport(std::move(hello.said.page));
  if (!adopted) return adopted.error();
  if (const qgpu::GuestProcess* before = processOf(task, hello.said.pid)) {
    if (before->slot == hello.said.slot) return before->slot;
    return fail(ErrorCode::Denied, "this process has another slot");
  }
  if (first) keepSlotsOfExpected(task);
  const Status claimed = task.pages.claimSlot(hello.said.slot, hello.said.pid, hello.said.start);
  if (!claimed) return claimed.error();
  return hello.said.slot;
}

// The page that the living are counted in, before anybody new is given a slot in another one.
void AttachDouble::findReport(GuestTask& task) {
  for (const Expected& expected : expected_) {
    if (expected.entry.task != task.id) continue;
    Fd page = machine_.reportOf(expected.entry.pid);
    if (page && task.pages.adoptReport(std::move(page))) return keepSlotsOfExpected(task);
  }
}

// The page of an earlier manager is back: slots whose process lives are kept for it, the others
// give their bytes back.
void AttachDouble::keepSlotsOfExpected(GuestTask& task) {
  const std::uint64_t marked = task.pages.markedSlots();
  for (std::uint32_t slot = 0; slot < QGPU_SLOTS; slot++) {
    if ((marked >> slot & 1u) == 0) continue;
    Expected* owner = nullptr;
    for (Expected& expected : expected_) {
      const bool its = expected.entry.task == task.id && expected.slot == QGPU_SLOTS &&
                       expected.entry.start == task.pages.slotStart(slot);
      if (its) owner = &expected;
    }
    if (owner != nullptr) {
      owner->slot = slot;
      task.pages.reserveSlot(slot);
    } else {
      task.pages.freeSlot(slot);
    }
  }
}

void AttachDouble::admit(const Hello& hello, GuestTask& task, std::uint32_t slot) {
  const bool had = task.processes.contains(slot);
  SimWelcome welcome;
  welcome.serial = hello.said.serial;
  welcome.pid = hello.said.pid;
  welcome.task = task.id;
  welcome.slot = slot;
  welcome.incarnation = incarnation_;
  welcome.life = options_.life;
  welcome.card = task.cards.front();
  welcome.pages = &task.pages;
  if (!machine_.answer(welcome) && !hello.said.reattach) {
    // Gone before it had its answer, and so before it had the pages. It starts anew.
    if (!had) task.pages.freeSlot(slot);
    return;
  }
  // Who came back has its bytes in this slot for as long as it lives, and comes again (A14).
  dropExpected(hello.said.pid);
  std::unique_ptr<qgpu::GuestProcess>& process = task.processes[slot];
  if (!had) {
    process = std::make_unique<qgpu::GuestProcess>();
    process->entry = {hello.said.pid, hello.said.start, task.id, task.cards};
    process->slot = slot;
    runDir_.remove(process->entry);
    runDir_.add(process->entry);
  }
  process->freezeSignal = hello.said.freezeSignal;
  process->incarnation = incarnation_;
  process->returned = hello.said.reattach;
  process->threads = ThreadIds(hello.said.pid, hello.said.pid);
  process->channels = false;
  if (!had) {
    outlet_.sendUrgent(task.actor, [&](schema::Envelope::Builder message) {
      auto attached = message.initProcessAttached();
      attached.setTask(task.id);
      attached.setPid(hello.said.pid);
      attached.setSlot(slot);
    });
  }
  port_.processAttached(task);
}

void AttachDouble::refuse(std::uint64_t serial) {
  SimWelcome welcome;
  welcome.serial = serial;
  welcome.pid = hellos_.at(serial).said.pid;
  welcome.refused = true;
  machine_.answer(welcome);
  drop(serial);
}

void AttachDouble::drop(std::uint64_t serial) {
  const auto found = hellos_.find(serial);
  if (found == hellos_.end()) return;
  cancel(found->second.timer);
  hellos_.erase(found);
}

// --- after a restart ---

bool AttachDouble::expects(std::uint64_t task) const {
  return std::any_of(expected_.begin(), expected_.end(),
                     [task](const Expected& e) { return e.entry.task == task; });
}

// Somebody may be using this card whom no hold of ours reaches yet; nobody after the recovery.
bool AttachDouble::awaited(std::uint32_t card) const {
  if (!recovering_) return false;
  const auto uses = [card](const std::vector<std::uint32_t>& cards) {
    return std::find(cards.begin(), cards.end(), card) != cards.end();
  };
  for (const Expected& expected : expected_) {
    if (uses(expected.entry.cards)) return true;
  }
  for (const auto& [id, task] : tasks_) {
    if (!uses(task->cards)) continue;
    for (const auto& [slot, process] : task->processes) {
      if (process->returned && task->pages.obeys(slot) != process->incarnation) return true;
    }
  }
  return false;
}

// It is attached again. The slot that was kept for it is its own now, or is given back.
void AttachDouble::dropExpected(std::uint32_t pid) {
  for (std::size_t i = 0; i < expected_.size(); i++) {
    if (expected_[i].entry.pid != pid) continue;
    const auto task = tasks_.find(expected_[i].entry.task);
    const bool kept = expected_[i].slot != QGPU_SLOTS && task != tasks_.end();
    if (kept && task->second->pages.slotDead(expected_[i].slot)) {
      task->second->pages.freeSlot(expected_[i].slot);
    }
    expected_.erase(expected_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

void AttachDouble::recoveryMoved() {
  moved_ = true;
  if (moving_) return;
  moving_ = true;
  while (std::exchange(moved_, false)) {
    for (auto& [id, task] : tasks_) announceIfReady(*task);
    std::vector<std::uint64_t> ended;
    for (const auto& [serial, hello] : hellos_) {
      if (!hello.waits) continue;
      const bool held = hello.task == 0 || (!hello.said.reattach && expects(hello.task));
      const bool waits = hello.raises ? hello.said.incarnationSeen >= incarnation_
                                      : recovering_ && held;
      if (!waits) ended.push_back(serial);
    }
    for (const std::uint64_t serial : ended) {
      if (hellos_.contains(serial)) decide(serial);
    }
  }
  moving_ = false;
}

}  // namespace qgpu::sim
