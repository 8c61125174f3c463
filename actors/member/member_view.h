#pragma once
// A copy of what the node has (its info, cards and tasks), and which part of it the scheduler was
// told. An event of the node says that something changed, and the node's report is then asked for;
// the difference to what was told goes to the scheduler. Reports are also asked for at intervals,
// since events may be lost.
//
// The hello of a session lists every task that the node holds. It waits until the node has answered
// every bind of earlier sessions, so that the scheduler may conclude: a task that it does not list
// is not on this node and will not come there. A task that ended is told once, and listed in
// each hello until the scheduler has answered a beat that was sent later: then it has arrived.
//
// Who calls: MemberActor (connections, events, ticks), MemberOrders (what came of orders). Kept
// here: P3 (hello), C5 (one report is asked for at a time, what ended is bounded).

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "actors/member/forwards.h"
#include "actors/member/held_record.h"
#include "runtime/message_words.h"

namespace qgpu {

class MemberView {
 public:
  static constexpr std::size_t kEndedKept = 1'024;     // of which the scheduler may not know yet
  static constexpr std::size_t kTasksPerMessage = 64;  // in one message after the hello

  MemberView(MemberContext& member, MemberSession& session, KnownTasks& known, Forwards& forwards)
      : member_(member), session_(session), known_(known), forwards_(forwards) {}

  // --- a connection ---
  void begin();  // nothing is known of the node any more
  // Asks for all that a hello tells, once no bind is at the node: it may yet succeed.
  void gather(std::size_t bindsAtNode);
  void onEntered(Turn& turn);
  void arrived(Nanos saidBefore);

  // --- what happens on the node ---
  void onEventTold(schema::Event::Reader event, Turn& turn);
  void onBatchDue(Turn& turn);
  void onRefreshDue(Turn& turn);
  // The scheduler takes a mark that it ordered for done. What came of it may be what was told
  // before the order: the node could not store it, or somebody here took it back at once.
  void tellCardsAgain(Turn& turn);
  void tasksChanged(Turn& turn);
  void noteBound(HeldRecord record);  // the scheduler is told by MemberOrders

  // As it was told last; null: nothing of it was.
  const HeldRecord* told(std::uint64_t nodeTask) const;
  void sayTasks(const std::vector<HeldRecord>& records, Turn& turn);
  std::string nodeName() const;

 private:
  struct Ended {
    HeldRecord record;
    Nanos saidAt = kNever;  // never: not yet
  };

  void askCards(Compare compare);
  void askTasks(Compare compare);
  void askDue(Turn& turn);
  void armBatch(Turn& turn);
  void onInfo(schema::Reply::Reader reply, Turn& turn);
  void onCards(schema::Reply::Reader reply, Compare compare, Turn& turn);
  void onTasks(schema::Reply::Reader reply, Compare compare, Turn& turn);
  void noteHeld(const HeldRecord& record);
  void noteEnded(std::uint64_t nodeTask);
  void sayEnded(Turn& turn);
  void helloIfWhole(Turn& turn);
  void writeFacts(schema::NodeFacts::Builder facts) const;

  MemberContext& member_;
  MemberSession& session_;
  KnownTasks& known_;
  Forwards& forwards_;
  bool gathered_ = false;  // asked for in this attempt
  Words info_;             // schema::Reply, as the node gave it; empty: not yet
  Words cards_;            // the same of its cards
  bool tasksKnown_ = false;
  std::string statesTold_;  // digests of the cards
  std::string useTold_;
  std::map<std::uint64_t, HeldRecord> told_;  // by the node's number
  std::deque<Ended> ended_;
  bool cardsDue_ = false;
  bool tasksDue_ = false;
  bool batchArmed_ = false;
  bool tasksAsked_ = false;
};

}  // namespace qgpu
