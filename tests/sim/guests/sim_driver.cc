// The threads that take tasks' channels off NVIDIA cards: the product's decisions (Holds), with a
// driver whose calls take a seeded time and may be refused.
#include <algorithm>
#include <utility>

#include "tests/sim/guests/sim_attach.h"

namespace qgpu::sim {
namespace {

constexpr Nanos kTellsAfterMax = millis(8);  // a note of who is back, of its channels
constexpr Nanos kCallMin = micros(30);       // of the driver
constexpr Nanos kCallMax = micros(600);
constexpr Nanos kCallLongest = millis(6);
constexpr Nanos kCheckMin = millis(50);
constexpr Nanos kCheckMax = seconds(3);
constexpr Nanos kUndoneAfterMin = micros(100);
constexpr Nanos kUndoneAfterMax = seconds(1);

}  // namespace

void SimAttach::takeOff(const GuestTask& task) {
  driverOf(task).holds.hold(task.id, task.gate.ask, host_.now());
  wakeDriver(driverOf(task));
}

void SimAttach::takeOffAgain(const GuestTask& task) {
  driverOf(task).holds.again(task.id);
  wakeDriver(driverOf(task));
}

void SimAttach::putBack(const GuestTask& task) {
  driverOf(task).holds.release(task.id, host_.now());
  wakeDriver(driverOf(task));
}

void SimAttach::wakeDriver(DriverThread& driver) {
  soon([this, &driver] { drive(driver); });
}

// What its thread does, with calls that take effect at some moment of their time.
void SimAttach::drive(DriverThread& driver) {
  for (const suspend::News& news : driver.holds.news(host_.now())) {
    if (news.what == suspend::News::What::kCardDoubted) {
      check(driver);
    } else {
      soon([this, news] { heard(news); });
    }
  }
  if (driver.calls) return;
  const auto order = driver.holds.next(host_.now());
  cancel(std::exchange(driver.retry, 0));
  if (!order) {
    const Nanos retry = driver.holds.retryAt();
    if (retry != kNever) driver.retry = at(retry, [this, &driver] { drive(driver); });
    return;
  }
  driver.calls = true;
  const Nanos takes = dice_.percent(97) ? dice_.magnitude(kCallMin, kCallMax)
                                        : dice_.magnitude(kCallMax, kCallLongest);
  at(host_.now() + dice_.between(Nanos(0), takes), [this, &driver, order = *order, takes] {
    const suspend::Outcome outcome = carryOut(order);
    at(host_.now() + dice_.between(Nanos(0), takes), [this, &driver, outcome] {
      driver.calls = false;
      driver.holds.answered(outcome, host_.now());
      drive(driver);
    });
  });
}

// A card in doubt is tested, beside all else.
void SimAttach::check(DriverThread& driver) {
  const auto says = static_cast<suspend::Verdict::Says>(dice_.below(3));
  at(host_.now() + dice_.magnitude(kCheckMin, kCheckMax), [this, &driver, says] {
    driver.holds.checked({says, "it is simulated"}, host_.now());
    drive(driver);
  });
}

bool SimAttach::happens(std::uint32_t permille) {
  return permille != 0 && dice_.below(1'000) < permille;
}

// A call that is not done may be half done, and ends at the first channel that is gone.
suspend::Outcome SimAttach::carryOut(const suspend::Order& order) {
  using suspend::Answer;
  using suspend::Step;
  const bool off = order.step == Step::kDisable;
  const bool refused = off && happens(options_.refusals);
  const bool busy = !refused && happens(options_.busy);
  std::size_t left = order.channels.size();
  if (refused || busy) left = dice_.below(left + 1);
  suspend::Outcome outcome{refused ? Answer::kFailed
                           : busy  ? Answer::kLater
                                   : Answer::kDone,
                           {},
                           "it is simulated"};
  for (const suspend::Channel& channel : order.channels) {
    const bool proves = order.step == Step::kProve;
    if (!(proves ? machine_.lives(channel.process) : machine_.hasChannel(channel))) {
      outcome.gone.push_back(channel);
    }
    if (proves || left == 0 || !outcome.gone.empty()) continue;
    left--;
    machine_.setChannel(channel, off);
    if (!off || !happens(options_.undoes)) continue;
    at(host_.now() + dice_.magnitude(kUndoneAfterMin, kUndoneAfterMax),
       [this, channel] { machine_.undo(channel); });
  }
  if (!outcome.gone.empty()) outcome.answer = Answer::kGone;
  return outcome;
}

void SimAttach::heard(const suspend::News& news) {
  const auto found = tasks_.find(news.task);
  if (found == tasks_.end()) return;
  if (news.what == suspend::News::What::kStopped) {
    return port_.stopped(*found->second, news.hold, news.at);
  }
  // A driver that refuses nothing has nobody in doubt.
  QGPU_CHECK(options_.refusals != 0, news.why.c_str());
  port_.doubted(*found->second, news.why);
}

// In the order in which it said them.
void SimAttach::note(std::uint32_t pid, Nanos most,
                     std::function<void(GuestTask&, suspend::Holds&)> work) {
  if (options_.suspend != schema::Suspend::RM) return;
  Nanos& when = heardAt_[pid];
  when = std::max(when, host_.now() + dice_.magnitude(kHeardAfterMin, most));
  at(when, [this, pid, work = std::move(work)] {
    for (auto& [id, task] : tasks_) {
      if (task->heldBy != QGPU_SUSPEND_RM || processOf(*task, pid) == nullptr) continue;
      work(*task, driverOf(*task).holds);
      wakeDriver(driverOf(*task));
    }
  });
}

// Who comes back, with work in flight it may be, is heard of it a little later.
void SimAttach::channelsThere(std::uint32_t pid, bool again) {
  note(pid, again ? kTellsAfterMax : kHeardAfterMax,
       [this, pid, again, all = machine_.channelsOf(pid)](GuestTask& task, suspend::Holds& holds) {
         for (const suspend::Channel& channel : all) holds.made(task.id, channel, again);
         port_.channelsTold(task, *processOf(task, pid));
       });
}

void SimAttach::channelsOn(std::uint32_t pid) {
  note(pid, kHeardAfterMax, [pid](GuestTask& task, suspend::Holds& holds) {
    holds.enabled(task.id, clientOf(pid), clientOf(pid));
  });
}

void SimAttach::channelMade(const suspend::Channel& channel) {
  note(channel.process, kHeardAfterMax,
       [channel](GuestTask& task, suspend::Holds& holds) { holds.made(task.id, channel, false); });
}

void SimAttach::channelEnded(std::uint32_t pid, std::uint32_t name) {
  note(pid, kHeardAfterMax, [pid, name](GuestTask& task, suspend::Holds& holds) {
    holds.ended(task.id, clientOf(pid), name);
  });
}

}  // namespace qgpu::sim
