#pragma once
// The node actor: one per machine. It owns the inventory and the ledger, admits and ends tasks,
// keeps them durable, introduces them to their card, task actor and attach server, and answers the
// clients (admin socket, RPC, HTTP).
//
// Durable changes are made one at a time over a DurableShell: checked, persisted, and applied once
// their commit is known. A commit that fails therefore leaves nothing to undo. While a change is in
// flight every other message waits in the outbox, so that none is lost with a failed commit.
//
// Kept here: P1 to P6, P8, P9 (through the ledger), D2, D4 (storage out of order: changes are
// refused, the rest goes on), D5 (tasks that live are taken into a new database), A10 (no
// incarnation that a guest has met is used again), C2 (one answer for each request), C5 (all queues
// bounded), C7 (what clients send is checked, every change is audited). In a cluster also C1 (the
// highest term is durable) and P6 (one binding and one answer for each task and epoch of the
// scheduler, of which the member actor alone may speak).

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/durable_shell.h"
#include "actors/base/event_source.h"
#include "actors/ledger/ledger.h"
#include "actors/node/node_parts.h"
#include "runtime/actor.h"

namespace qgpu {

class NodeActor final : public Actor, private DurableShell::Work {
 public:
  static constexpr std::size_t kChangesMax = 256;       // changes that wait for their turn
  static constexpr std::size_t kGathersMax = 32;        // questions that wait for reports
  static constexpr std::size_t kOutboxMax = 16'384;     // beyond it no new change is taken
  static constexpr std::size_t kAsksPerPeer = 8;        // report questions that may pile up
  static constexpr std::size_t kRepliesPerClient = 1024;  // then the client's own deadline answers
  static constexpr std::size_t kFinishedKept = 1024;    // request ids of tasks that ended
  static constexpr std::uint64_t kEventBlock = 1024;    // event numbers reserved at a time

  // `rows`: what the store had at the start. Tasks in it are taken as they are, but for those
  // whose card is not there any more, which are given up. `cards`, `peers.cards`: same length.
  // `survivors`: tasks that live while the store knows nothing of them. They are taken in the same
  // way; their rows are committed with the node's first one, before anybody hears of them (D5).
  NodeActor(NodeOptions options, NodePeers peers, std::vector<CardFacts> cards, TokenSource& tokens,
            const std::vector<StoredRow>& rows, const std::vector<StoredRow>& survivors = {});

  // Of the last manager that these rows are of; nothing where the store was never written. The next
  // one is above it (A10).
  static std::optional<std::uint32_t> storedIncarnation(const std::vector<StoredRow>& rows);

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  const Ledger& ledger() const { return ledger_; }
  std::size_t tasks() const { return bindings_.size(); }

  // --- messages; see schema/envelope.capnp for who sends them ---
  void onStart(schema::Start::Reader start, Turn& turn);
  void onTick(schema::Tick::Reader tick, Turn& turn);
  void onCommitted(schema::Committed::Reader committed, Turn& turn);
  void onStorageHealth(schema::StorageHealth::Reader health, Turn& turn);
  void onRequest(schema::Request::Reader request, Turn& turn);
  void onGateOpened(schema::GateRegistered::Reader opened, Turn& turn);
  void onTaskFact(schema::TaskFact::Reader fact, Turn& turn);
  void onOwnerGone(schema::Left::Reader gone, Turn& turn);
  // From the attach room, which tells of refused memory by it; nothing else is noted.
  void onEventTold(schema::Event::Reader told, Turn& turn);
  // From the attach room: what the card's suspend was does not work any more.
  void onSuspendLost(schema::SuspendLost::Reader lost, Turn& turn);
  // What the label of the node says, where NodeOptions.labelled. Not stored, since the API server
  // keeps it; what is bound runs on.
  void onNodeLabelled(schema::NodeLabelled::Reader label, Turn&) { mixed_ = label.getMixed(); }
  void onIncarnationSeen(schema::Incarnation::Reader seen, Turn& turn);
  void onCardReport(schema::CardReport::Reader report, Turn& turn);
  void onTaskReport(schema::TaskReport::Reader report, Turn& turn);
  void onUnexpected(schema::Envelope::Which, Turn&) {}

 private:
  enum class TickKind : std::uint32_t {
    Introduce = DurableShell::kTickOwn,
    OwnerCheck,
    Kill,
    Gather
  };
  enum class Need : std::uint8_t { Commit, Nothing };  // Nothing: answered already
  struct CardNow {
    CardFacts facts;
    bool policyChosen = false;  // live, so it outlives the flag
    // Whose its row is, by its id: indexes move as cards go and come. More than the first only in
    // a store of old, where a card had a row under each index that it had been at.
    std::vector<std::uint64_t> rowKeys;
    CardFigures figures;  // the last report
    std::map<std::uint64_t, ShareFigures> shares;
  };
  using RequestKey = std::pair<std::uint32_t, std::string>;  // uid, request id

  // Start (node_load.cc).
  static std::vector<LedgerCard> ledgerCards(const std::vector<CardFacts>& cards);
  void load(const std::vector<StoredRow>& rows);
  void loadCard(std::uint64_t key, schema::CardRow::Reader row);
  void numberNewCards(const std::vector<StoredRow>& rows);
  enum class Taking : std::uint8_t { AsItIs, IfItFits };
  // False: its card is not there any more, or it does not fit.
  bool loadTask(std::uint64_t id, schema::TaskRow::Reader row, Taking taking);
  void takeOver(const std::vector<StoredRow>& survivors);
  void findOutlived(std::optional<schema::NodeRow::Reader> stored);
  void introduceAll(Turn& turn);

  // The machinery of changes (node_actor.cc).
  bool hasWork() const override;
  bool work(Turn& turn) override;
  bool nodeRowDue() const;
  std::optional<Change> nextChange();
  bool begin(Change change, Turn& turn);
  void enqueue(Change change);
  void storageFailed(const std::string& why, Turn& turn);
  void tick(Turn& turn, Nanos delay, TickKind kind, std::uint64_t value);

  // Each kind of change: check, persist, apply (node_changes.cc).
  Result<Need> check(Change& change, Turn& turn);
  Result<Need> checkBind(Change& change);
  Result<Placement> placementOf(const Change& change) const;
  Result<Need> checkOrdered(const Change& change);
  void findOrdered(Change& change);
  Result<Need> answerBound(const Asker& asker, std::uint64_t task, Binding& binding);
  Result<Need> checkRepeated(const Change& change, std::uint64_t task);
  Result<Need> checkEnd(Change& change);
  Result<Need> checkPolicy(Change& change);
  Result<Need> checkMark(Change& change);
  void persist(const Change& change, Turn& turn);
  void persistNode(const Change& change, Turn& turn);
  void persistTask(std::uint64_t id, const Binding& binding, const Placement& placement,
                   Turn& turn);
  void writeTaskRow(std::uint64_t id, const Binding& binding, const Placement& placement,
                    schema::TaskRow::Builder row) const;
  void persistCard(std::size_t card, const Change& change, Turn& turn);
  void persistAudit(const Change& change, Turn& turn);
  void apply(Change& change, Turn& turn);
  void applyNode(Turn& turn);
  void applyIncarnation(const Change& change, Turn& turn);
  void applyBind(Change& change, Turn& turn);
  void applyEvict(Change& change, Turn& turn);
  void applyClose(Change& change, Turn& turn);
  void applyPolicy(const Change& change);
  void applyMark(const Change& change);
  void queueDrain(std::size_t card);
  bool isDraining(std::uint64_t task) const;

  // The life of a binding (node_tasks.cc).
  Binding* find(std::uint64_t task);
  Binding newBinding(const Change& change, Turn& turn) const;
  void introduce(std::uint64_t task, Binding& binding, Turn& turn);
  void introduceToAttach(std::uint64_t task, Binding& binding);
  void becomeLive(std::uint64_t task, Binding& binding, Turn& turn);
  void startEviction(std::uint64_t task, const Binding& binding, Turn& turn);
  void closeLater(std::uint64_t task, Binding& binding, const std::string& reason);
  void tellClosed(ActorId to, std::uint64_t task, bool kill, const std::string& reason);
  void tellKnown(ActorId to, std::uint64_t task, const Binding& binding);
  void answerWaiting(std::uint64_t task, Binding& binding);
  void onIntroduceDue(std::uint64_t task);
  void tellIncarnation();
  void onOwnerCheck(std::uint64_t task, Turn& turn);
  void onKillDue(std::uint64_t task);

  // What clients ask (node_requests.cc).
  void onChangeRequest(schema::Request::Reader request, Change change);
  void onOrder(schema::Request::Reader request, Change change);
  void setStanding(const Asker& asker, const std::string& standing, Turn& turn);
  void watch(const Asker& asker, bool on);

  // Answers (node_reports.cc).
  void reply(const Asker& asker, Outbox::Build build);
  void replyFailed(const std::optional<Asker>& asker, const Error& error);
  void replyDone(const std::optional<Asker>& asker, const std::string& text);
  void replyBound(const Asker& asker, std::uint64_t task, const Binding& binding);
  void replyInfo(const Asker& asker, Turn& turn);
  void replyEvents(const Asker& asker, std::uint64_t since);
  void gather(const Asker& asker, Gather::About about, Turn& turn);
  void answerIfWhole(std::uint64_t gather);
  void answer(const Gather& gather);
  void writeCard(std::size_t card, schema::CardStatus::Builder builder) const;
  void writeTask(std::uint64_t id, const Binding& binding, schema::TaskInfo::Builder builder) const;
  std::string cardIds(const Placement& placement) const;

  // Events: told now, or after the change in flight, so that numbers are told in order.
  void note(EventKind kind, std::uint64_t task, const std::string& card, const std::string& text,
            Turn& turn);
  std::uint64_t unixMs(Turn& turn) const;

  const NodeOptions options_;
  bool mixed_;
  const NodePeers peers_;
  TokenSource& tokens_;
  std::vector<CardNow> cards_;
  Ledger ledger_;
  std::map<std::uint64_t, Binding> bindings_;
  std::vector<std::uint32_t> freeSlots_;
  std::map<RequestKey, std::uint64_t> requests_;   // tasks by request, bound and ended
  std::deque<RequestKey> finished_;                // the ended ones, oldest first
  std::map<std::uint64_t, std::uint32_t> overAt_;  // epochs of cluster tasks that ended here
  std::deque<std::uint64_t> over_;                 // the same tasks, oldest first

  bool startAsked_ = false;
  bool started_ = false;  // the node's row of this incarnation is committed
  Nanos startedAt_{0};
  std::uint32_t incarnation_;          // in force; durable once started_
  std::uint32_t incarnationSeen_ = 0;  // the highest that a guest has met
  std::uint64_t nextTask_ = 1;
  std::vector<std::uint64_t> lostTasks_;     // rows that are erased at the start
  std::vector<std::uint64_t> takenOver_;     // rows that are written at the start
  std::vector<std::uint64_t> notTakenOver_;  // told of at the start
  std::set<std::uint64_t> outlived_;         // ended, and alive: killed at the start
  std::uint64_t unknownFrom_ = 0;            // as in the node's row
  std::uint64_t unknownTo_ = 0;
  std::uint64_t clusterTerm_ = 0;  // durable
  std::string standing_ = "none";

  DurableShell shell_;
  EventSource feed_;
  std::optional<Change> inFlight_;  // what shell_ commits
  std::deque<Change> queue_;
  std::set<std::uint64_t> toClose_;    // tasks whose binding is over
  std::deque<std::uint64_t> toEvict_;  // of drained cards
  std::map<std::uint64_t, Gather> gathers_;
  std::uint64_t lastGather_ = 0;
};

}  // namespace qgpu
