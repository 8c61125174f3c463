#pragma once
// Memory of one card that may be overcommitted: brings what the gate port tells of tasks to the
// decisions of Residency, and keeps which of these are to be carried out by the card actor. It
// exists apart from that actor so that a card which is not overcommitted has nothing of it: no
// state, no message and no deadline.
//
// Tasks of before a manager's restart come one by one, and Residency must know of all of them
// before it gives room to one: for kGather after the first task with pageable memory joined nothing
// is decided, and all of these are away meanwhile (M3). Who comes back later with memory off the
// card is taken in anew, as a task of before.
//
// Kept here: A10 and C7 (an age that a need claims is believed for kNeedLate at most; answers that
// make no sense are none), M6 (whom a task was ended for is told).

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/residency/residency.h"
#include "schema/envelope.capnp.h"

namespace qgpu {

class CardPaging {
 public:
  static constexpr Nanos kGather = millis(500);
  static constexpr Nanos kNeedLate = millis(100);  // from its refusal to the manager's look at it
  // A need that was answered with room and is there still found the room taken: it asks again.
  static constexpr Nanos kAskAgain = millis(50);

  // Nothing: the card is not overcommitted, and every method does nothing.
  explicit CardPaging(std::optional<ResidencyConfig> config) : config_(config) {}

  bool on() const { return config_.has_value(); }
  // Has pageable memory, and so is away until it is said to be back.
  bool isPageable(TaskId task) const;

  // --- what happens; orders() has what follows ---
  void join(TaskId task, Bytes pageable, Nanos now);
  void leave(TaskId task, Nanos now);
  void told(schema::Paged::Reader paged, Nanos now);
  void online(bool busy, Nanos now);
  void expire(Nanos now);
  Nanos nextDeadline() const;

  ResidencyOrders& orders() { return orders_; }
  void answered(std::uint64_t request, bool room, Nanos now);
  // The number of this limit, which is told back once it stands in the page.
  std::uint64_t numberLimit(TaskId task) { return tasks_.at(task).limitOrder = ++limits_; }
  // The oldest need that waits, for which a task is ended; kNone: it is over.
  std::pair<TaskId, Bytes> waiting() const;

  // Null before anything is decided.
  const Residency* core() const { return core_ ? &*core_ : nullptr; }

 private:
  struct Process {
    std::uint32_t epoch = 0;
    PagingAnswer answer = PagingAnswer::None;
    Bytes out{0};
    Bytes need{0};
    std::uint64_t needSince = 0;  // as it says
    std::uint64_t request = 0;    // of that need; 0: none
    Nanos needFrom{0};            // as it is believed
    Nanos againAt = kNever;       // it was answered with room: asked again then
    bool over = false;            // it was answered
  };
  struct Task {
    Bytes pageable{0};
    bool told = false;
    bool joined = false;  // core_ knows it
    Bytes firm{0}, held{0}, out{0}, more{0};
    std::uint64_t limitOrder = 0;
    std::map<std::uint32_t, Process> processes;
  };

  void begin(Nanos now);
  void catchUp(Nanos now);
  void askAgain(Nanos now);
  void joinCore(TaskId id, Task& task, Nanos now);
  void tellOthers(Nanos now);
  void tellProcesses(TaskId id, Task& task, const std::map<std::uint32_t, Process>& before,
                     Nanos now);
  void needsOf(Task& task, const std::map<std::uint32_t, Process>& before, Nanos now);
  void endNeeds(const std::map<std::uint32_t, Process>& processes, Nanos now);

  std::optional<ResidencyConfig> config_;
  std::optional<Residency> core_;
  ResidencyOrders orders_;
  std::map<TaskId, Task> tasks_;  // all of the card
  Nanos gatheredAt_ = kNever;
  bool online_ = false;
  std::uint64_t limits_ = 0, requests_ = 0;
};

}  // namespace qgpu
