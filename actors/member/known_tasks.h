#pragma once
// What the member knows of the scheduler's tasks, from messages of the scheduler and of the node:
// whether one is asked for, held or over here, under which epoch, and why it is over. A
// task that is over is remembered until kOverKept others are over since, so that a late order for
// it is refused as the first one was.
//
// Who calls: MemberOrders (orders and their answers), MemberView (what the node holds), Forwards.
// It sends nothing. Kept here: P6 (an epoch that ended or was refused here stays so, and with it
// all that came before it), C5 (what is remembered is bounded).

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/member/fault.h"

namespace qgpu {

struct KnownTask {
  enum class Step : std::uint8_t {
    Asked,  // its order waits here or at the node
    Held,   // the node holds it
    Over,   // nothing of it is here
  };
  Step step = Step::Asked;
  std::uint32_t epoch = 0;  // that is asked for or held
  std::uint64_t nodeTask = 0;
  std::string token;  // empty: bound before this manager started
  std::vector<std::string> cards;
  std::uint32_t over = 0;       // the highest epoch that ended or was refused here: it and those
                                // before it stay so, also while a lower one is held
  Fault why;                    // of that
  std::uint64_t overStamp = 0;  // of its place among those that are Over

  bool isHere() const { return step != Step::Over; }
};

class KnownTasks {
 public:
  static constexpr std::size_t kOverKept = 1'024;  // tasks that ended or were refused

  // Null: nothing is known of it.
  KnownTask* find(std::uint64_t task);
  bool isAsked(std::uint64_t task) const;

  // --- what the scheduler orders ---
  void ask(std::uint64_t task, std::uint32_t epoch);
  // The order never reached the node. `held`: it was asked only for its answer.
  void askedNoMore(std::uint64_t task, bool held);

  // --- what the node says ---
  KnownTask& hold(std::uint64_t task, std::uint32_t epoch, std::uint64_t nodeTask,
                  std::vector<std::string> cards);
  // The task is here no more, or never was.
  void end(std::uint64_t task, std::uint32_t epoch, Fault why);
  // A later epoch than the one that is here is refused for good.
  static void refuse(KnownTask& known, std::uint32_t epoch, Fault why);

 private:
  std::map<std::uint64_t, KnownTask> known_;  // by the scheduler's number
  std::uint64_t lastOver_ = 0;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> over_;  // stamps and tasks, oldest first
};

}  // namespace qgpu
