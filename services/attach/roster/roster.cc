#include "services/attach/roster/roster.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::uint32_t kSlotsMax = 64;  // of one task: the bits of a mask

bool isSet(std::uint64_t mask, std::uint32_t slot) {
  return (mask >> slot & 1u) != 0;
}

}  // namespace

Roster::Roster(RosterPlatform& platform, std::uint32_t incarnation)
    : platform_(platform), firstIncarnation_(incarnation), incarnation_(incarnation) {}

// --- hellos ---

void Roster::hello(std::uint64_t id, const Said& said) {
  const bool isNew = hellos_.try_emplace(id, Hello{said, Waits::No}).second;
  QGPU_CHECK(isNew, "each hello has a number of its own");
  decide(id);
}

void Roster::giveUp(std::uint64_t id) {
  hellos_.erase(id);
}

// After a restart: for the processes that bring the page of its task.
bool Roster::mustWait(const Said& said) const {
  return recovering_ && !said.again && expects(said.task);
}

void Roster::decide(std::uint64_t id) {
  const Said said = hellos_.at(id).said;
  const auto found = tasks_.find(said.task);
  if (found == tasks_.end()) return refuse(id, "the task has ended");
  if (mustWait(said)) return wait(id, Waits::ForRecovery);
  Known& task = found->second;
  if (task.closed) return refuse(id, "the task was unbound or evicted");
  const Result<Peer> peer = platform_.identify(id);
  if (!peer) return refuse(id, peer.error().message);
  if (said.incarnationSeen >= incarnation_) {
    const Status asked = raiseIncarnation(said.incarnationSeen);
    if (!asked) return refuse(id, asked.error().message);
    return wait(id, Waits::ForIncarnation);
  }
  const Result<std::uint32_t> slot = giveSlot(id, said, task, *peer);
  if (!slot) return refuse(id, slot.error().message);
  attach(id, said, task, *peer, *slot);
  moved();
}

void Roster::wait(std::uint64_t id, Waits forWhat) {
  if (hellos_.size() > kWaitingMax) return refuse(id, tooManyWait());
  if (forWhat == Waits::ForRecovery) QGPU_MARK(HelloWaited);
  hellos_.at(id).waits = forWhat;
}

void Roster::refuse(std::uint64_t id, const std::string& reason) {
  counters_.refused++;
  hellos_.erase(id);
  platform_.refuse(id, reason);
}

// The store was an older copy, or the guest lies: either way its next page must not look to it
// like one that it had before.
Status Roster::raiseIncarnation(std::uint32_t seen) {
  const std::uint32_t raise = std::min(kIncarnationRaise, UINT32_MAX - firstIncarnation_);
  const std::uint32_t top = std::min(kIncarnationSeenMax, firstIncarnation_ + raise);
  if (seen >= top) {
    return fail(ErrorCode::Denied, "this process says it met incarnation " + std::to_string(seen) +
                                       " of the manager, beyond " + std::to_string(top) +
                                       "; start it anew");
  }
  if (seen <= incarnationAsked_) return ok();
  incarnationAsked_ = seen;
  platform_.askIncarnationAbove(seen);
  return ok();
}

void Roster::incarnationChosen(std::uint32_t incarnation) {
  if (incarnation <= incarnation_) return;
  incarnation_ = incarnation;
  for (auto& [id, task] : tasks_) task.pages.setIncarnation(incarnation_);
  moved();
}

// --- slots ---

std::optional<std::uint32_t> Roster::slotOf(const Known& task, const Peer& peer) const {
  for (const auto& [slot, process] : task.processes) {
    if (process.pid == peer.pid && process.start == peer.start) return slot;
  }
  return std::nullopt;
}

Result<std::uint32_t> Roster::giveSlot(std::uint64_t id, const Said& said, Known& task,
                                       const Peer& peer) {
  if (said.again) return giveSlotAgain(id, said, task, peer);
  if (const auto before = slotOf(task, peer)) {
    if (platform_.connected(task.task.id, *before) && !task.pages.slotDead(*before)) {
      return fail(ErrorCode::Conflict, "this process is attached already");
    }
    // It executed another program: the memory of the old one is gone, and so is its slot's claim.
    remove(task, *before, RosterPlatform::Leaves::ExecutedAnother);
  }
  const Status counted = allCounted(task, peer);
  if (!counted) return counted.error();
  return task.pages.takeSlot(said.pid, peer.start);
}

Result<std::uint32_t> Roster::giveSlotAgain(std::uint64_t id, const Said& said, Known& task,
                                            const Peer& peer) {
  const bool first = task.pages.usedSlots() == 0;
  const Status adopted = platform_.adoptPage(id);
  if (!adopted) return adopted.error();
  if (const auto before = slotOf(task, peer)) {
    if (*before == said.slot) return *before;
    return fail(ErrorCode::Denied, "this process has another slot");
  }
  if (first) keepSlotsOfExpected(task);
  const Status claimed = task.pages.claimSlot(said.slot, said.pid, peer.start);
  if (!claimed) return claimed.error();
  return said.slot;
}

// Who has memory of this task's is in its page, besides `comes` itself: a process that says hello
// anew has executed another program, and has none any more (A14).
Status Roster::allCounted(const Known& task, const Peer& comes) const {
  const auto expected = expected_.find(task.task.id);
  if (task.pages.adopted() || expected == expected_.end()) return ok();
  for (const Expected& one : expected->second) {
    const bool itself = one.entry.pid == comes.pid && one.entry.start == comes.start;
    if (!one.hidden || itself) continue;
    return fail(ErrorCode::Conflict,
                "process " + std::to_string(one.entry.pid) +
                    " of this task has not come back to "
                    "the manager, which may not see what it holds: end it, or give the manager "
                    "CAP_SYS_PTRACE");
  }
  return ok();
}

void Roster::attach(std::uint64_t id, const Said& said, Known& task, const Peer& peer,
                    std::uint32_t slot) {
  const bool isNew = !task.processes.contains(slot);
  const bool welcomed = platform_.welcome(id, slot);
  hellos_.erase(id);
  if (!welcomed && !said.again) {
    // Gone before it had its answer, and so before it had the pages. It starts anew.
    if (isNew) task.pages.freeSlot(slot);
    return platform_.drop(id);
  }
  // Who came back has its bytes in this slot for as long as it lives (A14). If it took no answer,
  // its connection ends at once, and it comes again.
  (said.again ? counters_.reattached : counters_.attached)++;
  noLongerExpect(task, peer);
  task.processes[slot] = {peer.pid, peer.start, incarnation_, said.again};
  platform_.attached(id, {peer.pid, peer.start, task.task.id, task.task.cards}, slot, isNew);
}

void Roster::remove(Known& task, std::uint32_t slot, RosterPlatform::Leaves how) {
  task.pages.freeSlot(slot);
  task.processes.erase(slot);
  platform_.gone(task.task.id, slot, how, task.processes.empty());
}

void Roster::died(std::uint64_t id, std::uint32_t slot) {
  const auto found = tasks_.find(id);
  if (found == tasks_.end() || !found->second.processes.contains(slot)) return;
  remove(found->second, slot, RosterPlatform::Leaves::Died);
  endIfKilled(id);
  if (recovering_) moved();
}

// --- after a restart ---

void Roster::expect(AttachedEntry process) {
  expected_[process.task].push_back({std::move(process), std::nullopt, false});
}

void Roster::expectedDied(const AttachedEntry& process) {
  const auto among = expected_.find(process.task);
  if (among == expected_.end()) return;
  const auto found = std::find_if(among->second.begin(), among->second.end(),
                                  [&](const Expected& one) { return one.entry == process; });
  if (found == among->second.end()) return;
  const auto task = tasks_.find(process.task);
  if (found->slot && task != tasks_.end()) {
    QGPU_MARK(DiedUnreturned);
    task->second.pages.freeSlot(*found->slot);
  }
  const std::uint64_t id = process.task;
  among->second.erase(found);
  if (among->second.empty()) expected_.erase(among);
  endIfKilled(id);
  moved();
}

// It is attached again. The slot that was kept for it is its own now, or is given back.
void Roster::noLongerExpect(Known& task, const Peer& peer) {
  const auto among = expected_.find(task.task.id);
  if (among == expected_.end()) return;
  for (auto it = among->second.begin(); it != among->second.end(); ++it) {
    if (it->entry.pid != peer.pid || it->entry.start != peer.start) continue;
    if (it->slot && task.pages.slotDead(*it->slot)) task.pages.freeSlot(*it->slot);
    const AttachedEntry entry = std::move(it->entry);
    among->second.erase(it);
    if (among->second.empty()) expected_.erase(among);
    return platform_.cameBack(entry);
  }
}

// The page that the living are counted in, before anybody new is given a slot in another one.
void Roster::findPage(Known& task) {
  const auto among = expected_.find(task.task.id);
  if (among == expected_.end()) return;
  std::vector<AttachedEntry> processes;
  for (const Expected& one : among->second) processes.push_back(one.entry);
  const RosterPlatform::FoundPage found = platform_.findPage(task.task.id, processes);
  if (found.adopted) return keepSlotsOfExpected(task);
  for (Expected& one : among->second) {
    one.hidden =
        std::find(found.hidden.begin(), found.hidden.end(), one.entry) != found.hidden.end();
  }
}

// The page of an earlier manager is back: slots whose process lives are kept for it, the others
// give their bytes back. Processes that start together have one start time.
void Roster::keepSlotsOfExpected(Known& task) {
  const auto among = expected_.find(task.task.id);
  const std::uint64_t marked = task.pages.markedSlots();
  for (std::uint32_t slot = 0; slot < kSlotsMax; slot++) {
    if (!isSet(marked, slot)) continue;
    Expected* owner = nullptr;
    if (among != expected_.end()) {
      for (Expected& one : among->second) {
        const bool its = !one.slot && one.entry.start == task.pages.slotStart(slot) &&
                         platform_.ownPid(one.entry) == task.pages.slotPid(slot);
        if (its) owner = &one;
      }
    }
    if (owner != nullptr) {
      QGPU_MARK(SlotKept);
      owner->slot = slot;
      if (!QGPU_PLANTED(KeptSlotGiven)) task.pages.reserveSlot(slot);
    } else {
      task.pages.freeSlot(slot);
    }
  }
}

// Cards that a process may be using which no hold of ours reaches yet; none after the recovery.
std::set<std::uint32_t> Roster::awaitedCards() const {
  std::set<std::uint32_t> awaited;
  if (!recovering_) return awaited;
  const auto mark = [&](const std::vector<std::uint32_t>& cards) {
    awaited.insert(cards.begin(), cards.end());
  };
  for (const auto& [task, processes] : expected_) {
    if (QGPU_PLANTED(ExpectedIgnored)) break;
    for (const Expected& one : processes) mark(one.entry.cards);
  }
  for (const auto& known : tasks_) {
    const Known& task = known.second;
    // It has its new page but reads the old one still, so a hold would not stop it.
    const auto disobeys = [&](const auto& process) {
      const auto& [slot, who] = process;
      if (QGPU_PLANTED(DisobedientIgnored)) return false;
      return who.returned && task.pages.obeys(slot) != who.incarnation;
    };
    if (std::any_of(task.processes.begin(), task.processes.end(), disobeys)) mark(task.task.cards);
  }
  return awaited;
}

// Online tasks never wait (A2). The others wait until who may be using their card is known.
void Roster::announceIfReady(Known& task, const std::set<std::uint32_t>& awaited) {
  if (task.announced) return;
  const bool waits = std::any_of(task.task.cards.begin(), task.task.cards.end(),
                                 [&](std::uint32_t card) { return awaited.contains(card); });
  if (!task.task.online && waits) {
    QGPU_MARK(GateWithheld);
    return;
  }
  task.announced = true;
  platform_.announce(task.task.id);
}

std::vector<std::uint64_t> Roster::endedWaits() const {
  std::vector<std::uint64_t> ended;
  for (const auto& [id, hello] : hellos_) {
    if (hello.waits == Waits::No) continue;
    const bool waits = hello.waits == Waits::ForIncarnation
                           ? hello.said.incarnationSeen >= incarnation_
                           : mustWait(hello.said);
    if (!waits) ended.push_back(id);
  }
  return ended;
}

// Who gets its answer moves the recovery on in turn; thousands may wait, so that is a loop.
void Roster::moved() {
  moved_ = true;
  if (moving_) return;
  moving_ = true;
  while (std::exchange(moved_, false)) {
    const std::set<std::uint32_t> awaited = awaitedCards();
    for (auto& [id, task] : tasks_) announceIfReady(task, awaited);
    for (const std::uint64_t id : endedWaits()) {
      if (hellos_.contains(id)) decide(id);
    }
  }
  moving_ = false;
}

void Roster::recoveryOver() {
  recovering_ = false;
  moved();
}

void Roster::reported() {
  if (recovering_) moved();
}

// --- the node's words ---

void Roster::known(Task task, RosterPages& pages) {
  const std::uint64_t id = task.id;
  const auto [entry, isNew] = tasks_.try_emplace(id, Known{std::move(task), pages, {}, {}, {}});
  QGPU_CHECK(isNew, "the pages of a task are made once");
  findPage(entry->second);
  moved();
}

void Roster::knownAgain(std::uint64_t id) {
  Known& task = tasks_.at(id);
  task.announced = false;
  announceIfReady(task, awaitedCards());
}

void Roster::closed(std::uint64_t id, bool kill) {
  if (const auto found = tasks_.find(id); found != tasks_.end()) found->second.closed = true;
  if (kill && deserted(id)) return end(id);
  platform_.ending(id);
  if (kill && killing_.insert(id).second) platform_.kill(id, RosterPlatform::Kill::Ask);
}

void Roster::killDue(std::uint64_t id) {
  if (killing_.contains(id)) platform_.kill(id, RosterPlatform::Kill::Force);
}

// Nobody lives of it, those included that have not come back yet.
bool Roster::deserted(std::uint64_t id) const {
  const auto found = tasks_.find(id);
  return (found == tasks_.end() || found->second.processes.empty()) && !expects(id);
}

void Roster::endIfKilled(std::uint64_t id) {
  if (killing_.contains(id) && deserted(id)) end(id);
}

void Roster::end(std::uint64_t id) {
  killing_.erase(id);
  tasks_.erase(id);
  platform_.ended(id);
}

}  // namespace qgpu
