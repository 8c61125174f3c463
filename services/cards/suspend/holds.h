#pragma once
// The suspenders of all tasks of one card, and which of them may have the driver now: the decisions
// of a Suspender, apart from its thread, so that the simulator runs the same ones.
//
// It keeps these promises:
// - One call is under way at a time.
// - Three kinds of work take turns, a call each: holds whose kernels may still run, what is to be
// put
//   back, and the rest of the holds (copies, and channels that came late). Within a kind the tasks
//   take turns. So no tenant keeps others waiting by how many channels it has or names.
// - A hold is reported as stopped at most once, and never after the task was released. A task whose
//   suspender is in doubt is reported once.
// - Where the driver refuses kRefusedInARow tasks in a row, the card may be broken, or tenants may
//   have brought it about together. So a check of the card is asked for (kCardDoubted), and the
//   card is given up only where that check fails. Until then each task is tried by itself, as
//   before.
//
// Pure: times are the caller's.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/cards/suspend/calls.h"

namespace qgpu::suspend {

// What Suspender passes on to the loop, in order.
struct News {
  enum class What : std::uint8_t {
    kStopped,      // nothing of the task can run any more, since `at`
    kDoubted,      // the task can't be held so, and why
    kCardDoubted,  // the driver refuses one after the other: checked() is waited for
    kCardLost,     // no task can: `task` is 0
  };
  What what = What::kStopped;
  std::uint64_t task = 0;
  std::uint32_t hold = 0;  // the hold's number that was given
  Nanos at{0};
  std::string why;
};

// The result of a test of the card with a program of our own, which no tenant can influence.
struct Verdict {
  enum class Says : std::uint8_t { kWorks, kFails, kUnclear };
  Says says = Says::kUnclear;
  std::string why;  // where it fails, or is not clear
};

// Made by Suspender of a card, and by the simulator. Tasks are known by their numbers; one is made
// when it is first named and forgotten after removed().
class Holds {
 public:
  static constexpr std::size_t kRefusedInARow = 3;
  static constexpr std::size_t kReapedMax = 256;      // channels of the dead that are remembered
  static constexpr Nanos kCheckEvery = seconds(600);  // of kCardDoubted, at the most

  explicit Holds(SuspendMethod method) : method_(method) {}

  // The task's channels are to be off the card; `number` comes back with the news of this hold.
  void hold(std::uint64_t task, std::uint32_t number, Nanos now);
  // They are to be on it again. No news of the hold comes any more.
  void release(std::uint64_t task, Nanos now);
  // Its processes are gone, or go on without us: puts back what is left of it, and forgets it.
  void removed(std::uint64_t task, Nanos now);
  void removeAll(Nanos now);

  // See ChannelSuspender.
  void made(std::uint64_t task, const Channel& channel, bool touched);
  void ended(std::uint64_t task, std::uint32_t client, std::uint32_t name);
  void enabled(std::uint64_t task, std::uint32_t client, std::uint32_t name);
  void gone(std::uint64_t task, std::uint32_t process);
  void again(std::uint64_t task);
  void doubt(std::uint64_t task, const std::string& why);

  // The call that must be made now; none while one is under way or nothing is to be done.
  std::optional<Order> next(Nanos now);
  void answered(const Outcome& outcome, Nanos now);

  // The result of the check that the last kCardDoubted asked for.
  void checked(const Verdict& verdict, Nanos now);

  // What is to be told since it was asked the last time.
  std::vector<News> news(Nanos now);
  // When next() is worth asking again though nothing happened; kNever: never.
  Nanos retryAt() const;
  bool empty() const { return tasks_.empty(); }
  SuspendMethod method() const { return method_; }

 private:
  struct Task {
    explicit Task(SuspendMethod method) : suspender(method) {}
    ChannelSuspender suspender;
    std::uint32_t hold = 0;
    bool toldStopped = false, toldDoubt = false, removed = false;
  };

  Task& find(std::uint64_t id);
  enum class Kind : std::uint8_t { kHold, kBack, kRest };
  static constexpr int kKinds = 3;
  static Kind kindOf(const Task& task);
  std::optional<Order> orderOf(std::uint64_t id, Task& task, Nanos now);
  std::optional<Order> nextOf(Kind kind, Nanos now);
  void refused(std::uint64_t id, Nanos now, const std::string& why);

  const SuspendMethod method_;
  std::map<std::uint64_t, Task> tasks_;
  std::optional<std::uint64_t> asked_;  // whose call is under way
  std::optional<Channel> dying_;        // that it names, of a dead process
  Kind lastKind_ = Kind::kRest;
  std::uint64_t lastServed_ = 0;
  std::set<std::uint64_t> refused_;  // since a task was last stopped
  std::string refusal_;              // the last of them
  bool checking_ = false;
  Nanos nextCheck_{0};  // not before
  std::string lost_;    // why the card was given up; empty: it was not
  // Names that the dead had, and that were taken off for good; the latest of them.
  std::deque<std::pair<std::uint32_t, std::uint32_t>> reaped_;
  std::vector<News> news_;
};

}  // namespace qgpu::suspend
