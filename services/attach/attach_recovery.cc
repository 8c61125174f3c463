// After a restart (HAZARDS 8): who was attached under an earlier manager, in which page their bytes
// are counted, who has come back, and from when on a card may be driven.
#include <algorithm>
#include <set>
#include <utility>

#include "services/attach/attach_server.h"
#include "services/attach/page_search.h"

namespace qgpu {

Status AttachServer::readAttachedList() {
  for (AttachedEntry& entry : list_.read()) {
    Result<Fd> opened = openProcess(entry.pid, entry.start);
    if (!opened) return opened.error();
    if (!*opened) {
      list_.remove(entry);
      continue;
    }
    const std::uint64_t key = ++lastId_;
    Expected& expected = expected_[key];
    expected.entry = std::move(entry);
    expected.pidfd = std::move(*opened);
    expected.death = loop_.fds().watchLevel(
        expected.pidfd.get(), EPOLLIN, [this, key](std::uint32_t) { onExpectedDeath(key); });
  }
  return ok();
}

// The page that the living are counted in, before anybody new is given a slot in another one.
void AttachServer::findReport(GuestTask& task) {
  SearchBound bound;
  for (auto& [key, expected] : expected_) {
    if (expected.entry.task != task.id) continue;
    const PageSearch found = adoptReportOf(expected.entry.pid, expected.pidfd, task.pages, bound);
    if (found == PageSearch::Adopted) return keepSlotsOfExpected(task);
    expected.hidden = found == PageSearch::Hidden;
  }
}

// The page of an earlier manager is back: slots whose process lives are kept for it, the others
// give their bytes back. Processes that start together have one start time.
void AttachServer::keepSlotsOfExpected(GuestTask& task) {
  const std::uint64_t marked = task.pages.markedSlots();
  for (std::uint32_t slot = 0; slot < QGPU_SLOTS; slot++) {
    if ((marked >> slot & 1u) == 0) continue;
    Expected* owner = nullptr;
    for (auto& [key, expected] : expected_) {
      const bool its = expected.entry.task == task.id && expected.slot == QGPU_SLOTS &&
                       expected.entry.start == task.pages.slotStart(slot) &&
                       ownPid(expected.entry.pid) == task.pages.slotPid(slot);
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

// Who has memory of this task's is in its page, besides `comes` itself: a process that says hello
// anew has executed another program, and has none any more (A14).
Status AttachServer::allCounted(const GuestTask& task, const AttachedEntry& comes) const {
  if (task.pages.adopted()) return ok();
  for (const auto& [key, expected] : expected_) {
    const AttachedEntry& entry = expected.entry;
    const bool itself = entry.pid == comes.pid && entry.start == comes.start;
    if (!expected.hidden || itself || entry.task != task.id) continue;
    return fail(ErrorCode::Conflict,
                "process " + std::to_string(entry.pid) + " of this task has not come back to the "
                "manager, which may not see what it holds: end it, or give the manager "
                "CAP_SYS_PTRACE");
  }
  return ok();
}

void AttachServer::onExpectedDeath(std::uint64_t key) {
  const auto found = expected_.find(key);
  const Expected& expected = found->second;
  const auto task = tasks_.find(expected.entry.task);
  if (expected.slot != QGPU_SLOTS && task != tasks_.end()) {
    task->second->pages.freeSlot(expected.slot);
  }
  const std::uint64_t id = expected.entry.task;
  list_.remove(expected.entry);
  expected_.erase(found);
  eraseIfKilled(id);
  recoveryMoved();
}

// It is attached again. The slot that was kept for it is its own now, or is given back.
void AttachServer::dropExpected(const AttachedEntry& entry) {
  for (auto it = expected_.begin(); it != expected_.end(); ++it) {
    const Expected& expected = it->second;
    if (expected.entry.pid != entry.pid || expected.entry.start != entry.start) continue;
    const auto task = tasks_.find(expected.entry.task);
    const bool kept = expected.slot != QGPU_SLOTS && task != tasks_.end();
    if (kept && task->second->pages.slotDead(expected.slot)) {
      task->second->pages.freeSlot(expected.slot);
    }
    expected_.erase(it);
    return;
  }
}

bool AttachServer::expects(std::uint64_t task) const {
  return std::any_of(expected_.begin(), expected_.end(), [task](const auto& pair) {
    return pair.second.entry.task == task;
  });
}

// It has its new page but reads the old one still, so a hold would not stop it.
bool AttachServer::awaits(const GuestTask& task, const GuestProcess& process) const {
  return process.returned && task.pages.obeys(process.slot) != process.incarnation;
}

// Cards that a process may be using which no hold of ours reaches yet; none after the recovery.
std::vector<bool> AttachServer::awaitedCards() const {
  std::vector<bool> awaited(cards_.size(), false);
  if (!recovering_) return awaited;
  const auto mark = [&](const std::vector<std::uint32_t>& cards) {
    for (const std::uint32_t card : cards) {
      if (card < awaited.size()) awaited[card] = true;
    }
  };
  for (const auto& [key, expected] : expected_) mark(expected.entry.cards);
  for (const auto& [id, task] : tasks_) {
    for (const auto& [slot, process] : task->processes) {
      if (awaits(*task, *process)) mark(task->cards);
    }
  }
  return awaited;
}

// Who gets its answer moves the recovery on in turn; thousands may wait, so that is a loop.
void AttachServer::recoveryMoved() {
  moved_ = true;
  if (moving_) return;
  moving_ = true;
  while (std::exchange(moved_, false)) {
    const std::vector<bool> awaited = awaitedCards();
    for (auto& [id, task] : tasks_) announceIfReady(*task, awaited);
    for (const std::uint64_t id : endedWaits()) {
      if (hellos_.contains(id)) decide(id);
    }
  }
  moving_ = false;
}

// As mustWait() says it, but without a look at every task's token for each of them.
std::vector<std::uint64_t> AttachServer::endedWaits() const {
  std::vector<std::uint64_t> ended;
  if (hellos_.empty()) return ended;
  std::set<std::uint64_t> expecting;
  for (const auto& [key, expected] : expected_) expecting.insert(expected.entry.task);
  for (const auto& [id, hello] : hellos_) {
    if (!hello.waits) continue;
    const bool held = hello.said.reattach == 0 && expecting.contains(hello.task);
    const bool waits = hello.raises ? hello.said.incarnation_seen >= incarnation_
                                    : recovering_ && held;
    if (!waits) ended.push_back(id);
  }
  return ended;
}

void AttachServer::endRecovery() {
  recoveryTimer_ = 0;
  recovering_ = false;
  book_.complete();
  booked_({});
  recoveryMoved();
}

// Online tasks never wait (A2). The others wait until who may be using their card is known.
void AttachServer::announceIfReady(GuestTask& task, const std::vector<bool>& awaited) {
  if (task.announced) return;
  const bool waits = std::any_of(task.cards.begin(), task.cards.end(),
                                 [&](std::uint32_t card) { return awaited[card]; });
  if (task.taskClass != QGPU_ONLINE && waits) return;
  task.announced = true;
  outlet_.sendUrgent(node_, [&](schema::Envelope::Builder message) {
    message.initGateOpened().setTask(task.id);
  });
}

}  // namespace qgpu
