#pragma once
// The cards of a node: what each is, the row that it has in the store, its policy and its mark,
// what it last reported, and who is still to leave those that are drained. What tasks hold of them
// is in the ledger; this keeps the ledger's policies and marks as they are stored.
//
// A row belongs to a card by its id, since indexes move as cards go and come. Rows of cards that
// are not here now stay theirs, for when they come back.
//
// Who calls: NodeActor (changes of policies and marks, reports, the start), TaskLife (who is on
// them), NodeReports. Kept here: P8 (marks outlive a restart), D2 (cards hear of a policy once it
// is stored).

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "actors/base/card_facts.h"
#include "actors/node/node_change.h"
#include "actors/node/node_context.h"

namespace qgpu {

class NodeCards final : public ChangeOwner {
 public:
  // Why a task of a drained card ends.
  static constexpr const char* kEndOfDrained = "its card is drained";

  // `cards` are those of the ledger and of NodePeers.cards, in the same order.
  NodeCards(NodeContext& node, Ledger& ledger, std::vector<CardFacts> cards);

  // --- which there are ---
  std::size_t size() const { return cards_.size(); }
  const CardFacts& facts(std::size_t card) const { return cards_[card].facts; }
  // By what a person may call it. NotFound.
  Result<std::size_t> find(const std::string& card) const { return ledger_.findCard(card); }
  // As the card's own suspend does not work any more. Told once; the name of that event makes the
  // member tell the scheduler of the cards.
  void onSuspendLost(schema::SuspendLost::Reader lost);
  // Told at the start of each card whose driver is not known.
  void tellUnknownDrivers();
  // What the newest report of a card says now. Told where it is another word than before.
  void onReportRead(schema::ReportRead::Reader read);

  // --- ChangeOwner, of the kinds Policy, Mark and Report ---
  // Errors: NotFound (card), Conflict (see Ledger::mayChoosePolicy).
  Result<Need> check(NodeChange& change) override;
  void persist(const NodeChange& change, Turn& turn) override;
  void apply(const NodeChange& change, Turn& turn) override;

  // --- who leaves what is drained ---
  bool isDraining(const Placement& placement) const;
  void queueDrained();  // as the store has the marks
  bool anyLeaves() const { return !leaving_.empty(); }
  std::uint64_t takeLeaving();
  // Its end was not stored.
  void leavesAgain(std::uint64_t task) { leaving_.push_front(task); }

  // --- what cards are told ---
  void tellPolicies();
  // `actor`: the task's own.
  void join(std::uint64_t task, const std::string& name, const Placement& placement, ActorId actor);
  void leave(std::uint64_t task, const Placement& placement, const std::string& reason);

  // --- reports ---
  // The card that it is of; nothing where there is none of that index.
  std::optional<std::size_t> onReport(schema::CardReport::Reader report);
  void write(std::size_t card, schema::CardStatus::Builder builder) const;
  // Over all its cards, as they said last.
  ShareFigures sharesOf(std::uint64_t task, const Placement& placement) const;

  // Before the tasks.
  void load(const std::vector<StoredRow>& rows);

 private:
  struct Card {
    CardFacts facts;
    bool policyChosen = false;  // live, so it outlives the flag
    // More than the first only in a store of old, where a card had a row under each index that it
    // had been at.
    std::vector<std::uint64_t> rowKeys;
    CardFigures figures;             // the last report
    std::string proved;              // path of the newest report of what holds on it
    std::uint64_t provedUnixMs = 0;  // 0: it holds no longer, or was not read yet
    std::string provedSays;          // as it was told last
    std::map<std::uint64_t, ShareFigures> shares;
  };

  void loadCard(std::uint64_t key, schema::CardRow::Reader row);
  Status checkPolicy(NodeChange& change) const;
  Result<Need> checkMark(NodeChange& change);
  Result<Need> checkReport(NodeChange& change) const;
  void applyPolicy(const NodeChange& change);
  void applyMark(const NodeChange& change);
  void applyReport(const NodeChange& change);
  void tellPolicy(std::size_t card);
  void queueDrain(std::size_t card);

  NodeContext& node_;
  Ledger& ledger_;
  std::vector<Card> cards_;
  std::deque<std::uint64_t> leaving_;  // tasks
};

}  // namespace qgpu
