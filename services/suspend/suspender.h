#pragma once
// Keeps the held tasks of one card off its hardware. Calls to the driver block, so they are made on
// a thread of its own, which has the ladder of each task. What is wanted, and what a task's
// processes did, comes in by calls that return at once and are heeded in order; what became of it
// is told, on that thread, by News.
//
// It keeps: a hold is told stopped at most once, and never after the task was released; holds go
// before what is to be put back, and no task waits for another's whole ladder; before it ends it
// puts back what it took off, as long as the driver does so in kPatience.
//
// A task whose ladder is in doubt is told so once, and is not held any more. Where the driver
// refuses three tasks in a row, all of it is given up: it is the card that is in doubt, not a task
// that names what it has not.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/fd.h"
#include "runtime/loop.h"
#include "services/suspend/calls.h"

namespace qgpu::suspend {

struct News {
  enum class What : std::uint8_t {
    kStopped,   // nothing of the task can run any more, since `at`
    kDoubted,   // the task can't be held so, and why
    kCardLost,  // no task can: `task` is 0
  };
  What what = What::kStopped;
  std::uint64_t task = 0;
  std::uint32_t hold = 0;  // the hold's number that was given
  Nanos at{0};
  std::string why;
};

class Suspender {
 public:
  static constexpr Nanos kPatience = seconds(2);
  static constexpr std::size_t kRefusedInARow = 3;  // tasks, before the card is given up

  // `tell` runs on the thread of this, and is not called any more once this is gone. `begin` runs
  // there first.
  Suspender(std::unique_ptr<Calls> calls, Rung rung, std::function<void(News)> tell,
            std::function<void()> begin = {});
  Suspender(const Suspender&) = delete;
  Suspender& operator=(const Suspender&) = delete;
  ~Suspender();

  void hold(std::uint64_t task, std::uint32_t number);
  void release(std::uint64_t task);
  // Puts back what is left of it, and forgets it.
  void removed(std::uint64_t task);

  // `process` names one of the task's as long as it lives, no other task has it too; its pidfd.
  void attached(std::uint64_t task, std::uint32_t process, Fd pidfd);
  void gone(std::uint64_t task, std::uint32_t process);
  // See Ladder.
  void made(std::uint64_t task, const Channel& channel, bool touched);
  void ended(std::uint64_t task, std::uint32_t client, std::uint32_t name);
  void enabled(std::uint64_t task, std::uint32_t client, std::uint32_t name);

 private:
  struct Task {
    explicit Task(Rung rung) : ladder(rung) {}
    Ladder ladder;
    std::uint32_t hold = 0;
    bool toldStopped = false, toldDoubt = false, removed = false;
  };

  void with(std::uint64_t task, std::function<void(Ladder&)> change);
  Task& find(std::uint64_t id);
  void advance();
  bool advanceOne(bool held);
  void carryOut(std::uint64_t id, Task& task, const Order& order);
  void refused(std::uint64_t id, const std::string& why);
  void tellOf(std::uint64_t id, Task& task);
  void wakeForRetries();
  void end();

  // Of the thread.
  std::unique_ptr<Calls> calls_;
  const Rung rung_;
  const std::function<void(News)> tell_;
  std::map<std::uint64_t, Task> tasks_;
  std::map<std::uint32_t, Fd> pidfds_;
  std::set<std::uint64_t> refused_;  // since a task was last stopped
  std::string lost_;                 // why the card was given up; empty: it was not
  std::uint64_t lastServed_ = 0;
  Loop::TimerKey retry_ = 0;
  bool posted_ = false;  // advance() is to run again
  bool ending_ = false;

  Loop loop_;
  std::thread thread_;
};

}  // namespace qgpu::suspend
