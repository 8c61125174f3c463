#pragma once
// The scheduler actor: one acting for a cluster. It owns the index of all nodes, cards and tasks,
// decides where tasks go, keeps its decisions durable, and answers the doors (admin socket, RPC,
// HTTP). Nodes own the truth of their cards; what they say at hello is taken over what is believed.
//
// A task is placed in three steps. Assume: the place is decided and committed, then its node is
// told. Confirm: the node holds it, and whoever asked gets the answer. Expire: a node that refused,
// or said nothing for too long, is told to end it, and the task waits again under a later epoch,
// which is given to another node only once the first one is known to hold nothing.
//
// Durable changes are made in rounds. What was decided in one turn is applied at once, so that the
// next decision sees it, and committed together; nothing that follows from it leaves before, and
// words that would decide more wait until then. A commit that fails undoes exactly its round.
//
// A request id means its task while that lives, and until so many others have ended since
// (SchedulerOptions.endedKept), also over a restart: a late retry makes no second task.
//
// Kept here: P1 to P10 (through the ledger), C1 (terms and leases), C2 (one answer for each
// request), C3 (places again only after the fence), C4 (hello makes the views agree), C5 (all
// queues bounded), C7 (what doors send is checked, every change is audited), D2, D4.

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/event_log.h"
#include "actors/base/outbox.h"
#include "actors/membership/membership.h"
#include "actors/placement/cluster_ledger.h"
#include "actors/placement/wait_queue.h"
#include "actors/placement/what_if.h"
#include "actors/scheduler/scheduler_parts.h"
#include "runtime/actor.h"

namespace qgpu {

class SchedulerActor final : public Actor {
 public:
  static constexpr std::size_t kTasksMax = 262'144;
  static constexpr std::size_t kRequestsMax = 4'096;    // that wait for a round
  static constexpr std::size_t kWordsMax = 16'384;      // likewise, of nodes
  static constexpr std::size_t kTouchedMax = 1'024;     // tasks that a round begins to change
  static constexpr std::size_t kShapesPerTurn = 4'096;  // of waiting tasks, tried on nodes
  static constexpr std::size_t kMovesPerLook = 64;      // tasks of drains
  static constexpr std::size_t kDuePerLook = 1'024;     // nodes whose lease or fence ran out
  static constexpr std::size_t kOutboxMax = 65'536;     // beyond it no new change is taken
  static constexpr std::size_t kAskersMax = 64;         // that wait for one task
  static constexpr std::size_t kRepliesPerDoor = 4'096; // then the door's own deadline answers
  static constexpr std::size_t kEventsPerDoor = 256;    // a watcher that lags sees a gap
  static constexpr std::size_t kWatchersMax = 16;       // doors, not people
  static constexpr std::size_t kAuditKept = 1'024;      // audit rows in the store
  static constexpr std::size_t kClaimsMax = 256;        // tasks that others make room for
  static constexpr std::size_t kSearchesPerRound = 2;   // for tasks to evict
  static constexpr std::size_t kEvictorsPerLook = 1'024;   // tasks that may evict, looked at
  static constexpr std::size_t kPageMost = 1'024;       // entries of one page of a list
  static constexpr std::size_t kPlansMax = 16;          // what-if questions that wait
  static constexpr std::size_t kTrialsPerTurn = 32;     // tasks of one, tried in one turn
  static constexpr std::size_t kJudgedPerLook = 262'144;  // cards, of shapes that wait
  static constexpr std::uint64_t kDrainMsMax = 30ull * 24 * 3'600'000;   // a month
  static constexpr std::uint64_t kEventBlock = 65'536;  // event numbers reserved at a time
  static constexpr Nanos kResend = millis(20);          // of what a full mailbox refused

  // `rows`: what the store had at the start. Tasks in it that a node holds, or was told to, are
  // believed until that node says hello or is lost; the others wait again.
  SchedulerActor(SchedulerOptions options, SchedulerPeers peers,
                 const std::vector<StoredRow>& rows);

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  const ClusterLedger& ledger() const { return ledger_; }
  const Membership& membership() const { return membership_; }
  std::size_t tasks() const { return jobs_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  const Job* task(std::uint64_t id) const;

  // --- messages; see schema/envelope.capnp for who sends them ---
  void onStart(schema::Start::Reader start, Turn& turn);
  void onTick(schema::Tick::Reader tick, Turn& turn);
  void onCommitted(schema::Committed::Reader committed, Turn& turn);
  void onStorageHealth(schema::StorageHealth::Reader health, Turn& turn);
  void onFromMember(schema::FromMember::Reader words, Turn& turn);
  void onClusterRequest(schema::ClusterRequest::Reader request, Turn& turn);
  void onUnexpected(schema::Envelope::Which, Turn&) {}

 private:
  enum class TickKind : std::uint32_t { Pump, Resend, Probe, Look, Plan };
  using RequestKey = std::pair<std::uint32_t, std::string>;   // uid, request id
  struct Asked {                       // a request that waits for its turn
    ActorId door{};
    Words words;
  };
  struct Mark {                        // of a node or card, as an operator gives it
    CardMark mark = CardMark::Ready;
    std::uint64_t untilUnixMs = 0;     // of a drain
    const char* said = "";
  };
  struct Wake {                        // a node whose room is offered to those that wait
    std::optional<WaitQueue::Place> upTo;   // the last that was tried, where a bound stopped it
    bool again = false;                // it gained more since
  };
  struct Claim {                       // of a task for which room is made
    MemberId member{};
    std::vector<std::string> cards;
    std::set<std::uint64_t> victims;   // that have not ended yet
  };
  struct Plan {                        // a what-if question
    Asker asker;
    std::function<Result<std::unique_ptr<WhatIf>>()> begin;
    std::unique_ptr<WhatIf> trial;     // once it began
  };
  enum class Decided : std::uint8_t { Placed, Waits, Refused };  // as schema::ClusterInfo::Result
  struct Overdue {
    Nanos at{0};
    std::uint64_t task = 0;
  };
  // Keeps decisions off some nodes while it lives.
  class ShutNodes {
   public:
    ShutNodes(ClusterLedger& ledger, const std::vector<NodeId>& nodes);
    ~ShutNodes();
    ShutNodes(const ShutNodes&) = delete;
    ShutNodes& operator=(const ShutNodes&) = delete;
    bool empty() const { return shut_.empty(); }

   private:
    ClusterLedger& ledger_;
    std::vector<NodeId> shut_;
  };

  // Start (scheduler_load.cc).
  void load(const std::vector<StoredRow>& rows);
  Job readJob(schema::ClusterTaskRow::Reader row) const;
  void loadTask(std::uint64_t id, Job job);
  void loadEnded(std::map<std::uint64_t, Job> ended);
  void loadNodes(const std::vector<StoredRow>& rows);
  void loadStory(const std::vector<StoredRow>& rows);

  // The machinery of rounds (scheduler_rounds.cc).
  void finishTurn(Turn& turn);
  bool hasWork() const;
  bool clusterRowDue() const;
  bool roundFull() const { return round_->jobs.size() >= kTouchedMax; }
  bool decide(Turn& turn);
  void decideAll(Turn& turn);
  void persist(Turn& turn);
  void persistNode(MemberId member, Turn& turn);
  void persistTask(std::uint64_t task, Turn& turn);
  void persistForgotten(Turn& turn);
  void writeDurable(std::uint64_t task, const Job& job,
                    schema::ClusterTask::Builder facts) const;
  void writeRow(std::uint64_t task, const Job& job, schema::ClusterTaskRow::Builder row) const;
  void persistAudits(Turn& turn);
  void apply(const Round& round, Turn& turn);
  void undo(const Round& round);
  void storageFailed(const std::string& why, Turn& turn);
  void after(std::function<void(Turn&)> effect) { round_->effects.push_back(std::move(effect)); }
  void tick(Turn& turn, Nanos delay, TickKind kind);

  // Tasks and what lists them (scheduler_tasks.cc).
  void remember(std::uint64_t task);
  void put(std::uint64_t task, Job job, std::optional<Spot> spot);
  void erase(std::uint64_t task, std::string reason);
  void keepEnded(std::uint64_t task, Job job);
  void forgetOldest();
  void list(std::uint64_t task, const Job& job, const std::optional<Spot>& spot);
  void unlist(std::uint64_t task, const Job& job);
  Result<Spot> choose(std::uint64_t task, const Job& job,
                      std::optional<MemberId> avoided = std::nullopt);
  void assume(std::uint64_t task, Job job, Spot spot);
  void letWait(std::uint64_t task, Job job, const std::string& story);
  enum class Elsewhere : std::uint8_t { Now, Later };   // Later: when a node gains room
  void placeAgain(std::uint64_t task, const std::string& reason, Elsewhere when,
                  std::optional<MemberId> avoided = std::nullopt);
  void beginEnd(std::uint64_t task, bool again, const std::string& reason);
  void nodeEnded(std::uint64_t task, const std::string& reason);
  void orderBind(std::uint64_t task);
  void orderEnd(std::uint64_t task);
  void expectAnswer(std::uint64_t task, Job& job);
  void orderEndOf(MemberId member, std::uint64_t task, std::uint32_t epoch,
                  std::uint64_t nodeTask, const std::string& reason);
  void keepForMove(std::uint64_t task, const Spot& spot);
  void releaseMove(std::uint64_t task);
  void wakeWaiting();
  bool wakeFor(NodeId node, Wake& wake, std::size_t& tried);
  void gain(NodeId node);
  void onOverdue();
  std::optional<Spot> spotOf(const ClusterMember& member, const ClusterSpec& spec,
                             const std::vector<std::string>& cards) const;
  std::vector<std::string> cardIds(const Spot& spot) const;

  // Nodes (scheduler_members.cc).
  void takeWords(Turn& turn);
  void onWords(schema::FromMember::Reader words, Nanos heardAt, Turn& turn);
  void onHello(std::uint32_t link, schema::MemberHello::Reader hello, Nanos heardAt);
  Result<MemberId> memberFor(const std::string& name, Nanos heardAt);
  void takeFacts(MemberId member, MemberFacts facts);
  std::optional<std::uint64_t> onHeld(MemberId member, const Held& held);
  void takeLater(MemberId member, std::uint64_t task, const Held& held);
  void stillHeld(MemberId member, std::uint64_t task, const Held& held);
  std::uint64_t adopt(MemberId member, const Held& held, std::uint64_t task);
  void setLife(MemberId member, NodeLife life);
  void reconcile(MemberId member, const std::set<std::uint64_t>& said);
  void onBeat(std::uint32_t link, std::uint64_t session, std::uint64_t ns, Turn& turn);
  void onBound(MemberId member, schema::MemberBound::Reader bound, Turn& turn);
  void onRefused(MemberId member, schema::MemberRefused::Reader refused);
  void onForward(MemberId member, schema::MemberForward::Reader forward, Turn& turn);
  void tellForwarded(MemberId member, std::uint64_t corr, const Result<std::uint64_t>& result);
  std::string whereElse(ClusterSpec spec);
  void closeLink(std::uint32_t link);
  void turnAway(std::uint32_t link, const Error& error);
  void standDown(std::uint64_t termSeen);
  void lookAtLeases();
  void refuseForwards(const Error& error);
  void loseTasks();
  void tell(MemberId member, std::function<void(schema::ToMember::Builder)> fill);
  ClusterMember& at(MemberId member) { return members_.at(static_cast<std::size_t>(member)); }
  const ClusterMember& at(MemberId member) const {
    return members_.at(static_cast<std::size_t>(member));
  }
  MemberId memberOf(NodeId node) const { return memberOfNode_.at(static_cast<std::size_t>(node)); }

  // What nodes hold that was decided otherwise since (scheduler_older.cc).
  void noteOlder(MemberId member, const Held& held);
  void olderGone(MemberId member, std::uint64_t task, std::uint32_t epoch);
  void forgetOlder(MemberId member);
  std::vector<NodeId> nodesShutTo(std::uint64_t task, std::optional<MemberId> avoided) const;
  Result<Spot> placeFor(std::uint64_t task, const ClusterAsk& ask,
                        std::optional<MemberId> avoided = std::nullopt);

  // Why tasks wait (scheduler_waiting.cc).
  WaitQueue::Why judge(const ClusterAsk& ask) const;
  const WaitQueue::Why& whyOf(std::uint64_t task, const Job& job);
  void judgeAtLook();
  void beginsToWait(std::uint64_t task);
  std::string reasonOf(std::uint64_t task, const Job& job) const;
  void count(Decided result, Reason reason);
  void writeReasons(schema::ClusterInfo::Builder info) const;

  // What doors ask (scheduler_requests.cc).
  void takeRequests(Turn& turn);
  void onAsked(const Asker& asker, schema::ClusterRequest::Reader request, Turn& turn);
  void onQuestion(const Asker& asker, schema::ClusterRequest::Reader request, Turn& turn);
  Status onChange(const Asker& asker, schema::ClusterRequest::Reader request, Turn& turn);
  Status submit(const Asker& asker, const Who& who, ClusterSpec spec, Turn& turn);
  Result<std::uint64_t> admit(Job job, Turn& turn);
  Status repeated(const Asker& asker, std::uint64_t task, const ClusterSpec& spec);
  Status remove(const Asker& asker, const Who& who, std::uint64_t task, Turn& turn);
  void tellAssigned(const Asker& asker, const Who& who, std::uint64_t task);
  Status choosePriority(const Asker& asker, const Who& who, Score score, Turn& turn);
  Status permit(const Asker& asker, const Who& who, const std::string& what, Turn& turn);
  void watch(const Asker& asker, bool on);
  bool nodesMissing() const;

  // What operators say of nodes and cards (scheduler_drains.cc).
  Status markTarget(const Asker& asker, const Who& who, schema::Target::Reader target,
                    const Mark& mark, Turn& turn);
  Result<std::size_t> findCard(MemberId member, const std::string& card) const;
  NodeMarks& touchMarks(MemberId member);
  void applyMarks(MemberId member);
  void cardMarked(MemberId member, const std::string& card, CardMark mark);
  void tellMarks(MemberId member);
  void tellMark(MemberId member, const std::string& card, CardMark mark);
  void moveDrained(Turn& turn);
  bool moveFrom(MemberId member, const std::string& card, bool late, std::size_t& moves);

  // Answers (scheduler_reports.cc).
  void reply(const Asker& asker, std::function<void(schema::ClusterReply::Builder)> fill);
  void replyFailed(const Asker& asker, const Error& error);
  void replyDone(const Asker& asker, const std::string& text);
  void replyAssigned(const Asker& asker, std::uint64_t task);
  void answerAskers(std::uint64_t task);
  void replyInfo(const Asker& asker, Turn& turn);
  void replyNodes(const Asker& asker, const ListPart& part);
  void replyCards(const Asker& asker, const ListPart& part);
  void replyAllTasks(const Asker& asker, const ListPart& part);
  void replyTasks(const Asker& asker, const std::vector<std::uint64_t>& ids);
  void replyEvents(const Asker& asker, std::uint64_t since);
  void explainTask(const Asker& asker, std::uint64_t task);
  void explainSpec(const Asker& asker, const ClusterSpec& spec);
  void explain(const Asker& asker, std::uint64_t task, const ClusterAsk& ask,
               const std::string& said, const std::string& remedy);
  void writeNode(MemberId member, schema::ClusterNode::Builder builder) const;
  void writeCard(const ClusterMember& node, std::size_t card,
                 schema::ClusterCard::Builder builder) const;
  void writeTask(std::uint64_t task, const Job& job, schema::ClusterTask::Builder builder) const;
  void writeAssigned(std::uint64_t task, const Job& job, schema::Assigned::Builder builder) const;
  void writeVerdict(const ClusterVerdict& verdict, schema::Explanation::Builder builder) const;

  // What is tried on a copy of the ledger (scheduler_plans.cc).
  void planQuestion(const Asker& asker, schema::ClusterRequest::Reader request);
  void stepPlans(Turn& turn);
  void tellPlan(Turn& turn);
  Result<std::unique_ptr<WhatIf>> planPlace(const ClusterSpec& spec, std::uint32_t count) const;
  Result<std::unique_ptr<WhatIf>> planDrain(const std::string& node,
                                            const std::string& card) const;
  Result<std::unique_ptr<WhatIf>> planEviction(std::uint64_t task) const;
  void replyPlan(const Asker& asker, const WhatIf& trial);
  std::string remedyFor(const ClusterAsk& ask) const;

  // Offline tasks that make room for others (scheduler_evictions.cc).
  MayEvict mayEvict() const;
  void listEvictor(std::uint64_t task, const Job& job);
  void unlistEvictor(std::uint64_t task, const Job& job);
  void evictSoon(std::uint64_t task);
  void evictAtLook();
  bool evictFor(std::uint64_t task);
  void openClaim(std::uint64_t task);
  void openClaims();
  void keepHost(std::uint64_t task);
  void dropClaim(std::uint64_t task);
  void dropClaimOf(std::uint64_t victim);
  void victimGone(std::uint64_t victim);

  // Events: told when no round is in flight, so that numbers are told in order.
  void note(const char* kind, std::uint64_t task, const std::string& where,
            const std::string& text);
  void audit(const char* kind, const Who& who, std::uint64_t task, const std::string& where,
             const std::string& text, Turn& turn);
  void tellNotes(Turn& turn);
  void tellEvent(EventRecord event);
  std::uint64_t unixMs(Turn& turn) const;

  const SchedulerOptions options_;
  const SchedulerPeers peers_;
  ClusterLedger ledger_;
  Membership membership_;
  WaitQueue waiting_;
  Score priority_;

  std::vector<ClusterMember> members_;                 // by MemberId
  std::size_t membersStored_ = 0;                      // of them, from the first on
  std::map<std::string, MemberId> names_;
  std::vector<MemberId> memberOfNode_;                 // by NodeId
  std::map<std::uint64_t, Job> jobs_;
  std::map<std::uint64_t, Job> ended_;                 // the newest ones
  std::deque<std::uint64_t> endedOrder_;
  std::map<RequestKey, std::uint64_t> requests_;       // tasks by request, living and ended
  std::map<std::uint64_t, std::set<MemberId>> olderAt_;   // nodes with an earlier epoch of it
  std::uint64_t lastOlder_ = 0;
  std::map<std::uint64_t, Spot> moves_;                // room kept for tasks that are moved
  std::map<NodeId, Wake> gained_;                      // nodes with more room than before
  std::set<WaitQueue::Place> evictors_;                // those that wait and may evict
  std::optional<WaitQueue::Place> evictNext_;          // behind it the next look goes on
  bool evictionsDue_ = false;                          // rooms have changed since the last look
  std::map<std::uint64_t, Claim> claims_;              // by the task that waits
  std::map<std::uint64_t, std::uint64_t> victims_;     // who ends, and for whom
  std::set<std::pair<MemberId, std::string>> kept_;    // cards of claims
  std::deque<Plan> plans_;
  bool planTold_ = false;
  std::deque<std::pair<Nanos, NodeId>> pausing_;       // nodes that refused; gained later
  std::size_t drainNext_ = 0;                          // where the next look at drains begins
  std::deque<Overdue> overdue_;                        // orders, by the time of their answer
  std::deque<std::pair<MemberId, std::uint64_t>> losing_;   // tasks of lost nodes
  std::set<std::pair<MemberId, std::string>> drained_;      // told of
  std::set<std::pair<MemberId, std::string>> drainsOver_;   // whose time is over; told of

  bool startAsked_ = false;
  bool started_ = false;             // the cluster's row of this term is committed
  Nanos startedAt_{0};
  Nanos now_{0};                     // of this turn
  std::uint64_t term_ = 0;           // in force; durable once started_
  std::uint64_t firstTask_ = 0;      // of this store
  std::uint64_t nextTask_ = 1;
  std::uint64_t nextEvent_ = 1;
  std::uint64_t eventCeiling_ = 0;   // durable: numbers below it may have been told
  std::uint64_t decisions_ = 0;
  std::array<std::array<std::uint64_t, kReasons>, 3> decided_{};  // by Decided and Reason
  std::optional<WaitQueue::Key> judgeNext_;                       // behind it the next look goes on
  std::uint64_t judgedAt_ = 0;  // changes of the ledger, as that began

  std::unique_ptr<Round> round_;     // that is decided or in flight
  bool inFlight_ = false;
  std::uint64_t roundSerial_ = 0;
  std::deque<Heard> words_;
  std::deque<Asked> asked_;
  bool lookDue_ = false;
  bool storageOk_ = true;
  bool probeDue_ = false;
  bool probeArmed_ = false;
  std::string storageText_ = "ok";

  Outbox outbox_;
  bool pumpTold_ = false;
  bool pumpTurn_ = false;
  bool resendArmed_ = false;

  EventLog events_;
  std::vector<EventRecord> notes_;
  std::deque<std::uint64_t> audits_;       // numbers of the audit rows in the store
  std::set<ActorId> watchers_;
};

}  // namespace qgpu
