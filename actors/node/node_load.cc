// What the node finds at its start: rows of the store, taken as they are, since a restart stops
// nobody. Only a task whose card is not there any more is given up.
#include <algorithm>
#include <optional>

#include "actors/node/node_actor.h"

#include "runtime/planted.h"

namespace qgpu {
namespace {

schema::Row::Reader readRow(const StoredRow& row) {
  return capnp::readMessageUnchecked<schema::Row>(row.words.data());
}

// The stored node row; nothing where the store was never written.
std::optional<schema::NodeRow::Reader> nodeRow(const std::vector<StoredRow>& rows) {
  for (const StoredRow& row : rows) {
    if (readRow(row).isNode()) return readRow(row).getNode();
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint32_t> NodeActor::storedIncarnation(const std::vector<StoredRow>& rows) {
  const auto stored = nodeRow(rows);
  if (!stored) return std::nullopt;
  return stored->getIncarnation();
}

std::vector<LedgerCard> NodeActor::ledgerCards(const std::vector<CardFacts>& cards) {
  std::vector<LedgerCard> list;
  for (const CardFacts& facts : cards) list.push_back({facts.id, facts.index, facts.mem});
  return list;
}

NodeActor::NodeActor(NodeOptions options, NodePeers peers, std::vector<CardFacts> cards,
                     TokenSource& tokens, const std::vector<StoredRow>& rows,
                     const std::vector<StoredRow>& survivors)
    : options_(std::move(options)),
      mixed_(options_.mixed),
      peers_(std::move(peers)),
      tokens_(tokens),
      ledger_({options_.mixed || options_.labelled, options_.maxTasksPerCard}, ledgerCards(cards),
              options_.policy),
      incarnation_(options_.incarnation),
      shell_(options_.probeEvery),
      feed_(shell_.outbox(), kEventBlock) {
  if (peers_.member != ActorId::kNobody) standing_ = "no scheduler";
  QGPU_CHECK(cards.size() == peers_.cards.size(), "each card has an actor");
  for (CardFacts& facts : cards) {
    QGPU_CHECK(facts.mem.value > 0, "a card without memory is not a card");
    CardNow& card = cards_.emplace_back();
    card.facts = std::move(facts);
  }
  for (std::size_t slot = peers_.tasks.size(); slot > 0; --slot) {
    freeSlots_.push_back(static_cast<std::uint32_t>(slot - 1));
  }
  nextTask_ = options_.lastTask + 1;
  load(rows);
  takeOver(survivors);
  findOutlived(nodeRow(rows));
}

void NodeActor::load(const std::vector<StoredRow>& rows) {
  std::vector<EventRecord> audits;
  for (const StoredRow& stored : rows) {
    const schema::Row::Reader row = readRow(stored);
    if (row.isNode()) {
      if (!QGPU_PLANTED(TaskIdReused)) {
        nextTask_ = std::max(nextTask_, row.getNode().getNextTask());
      }
      feed_.atLeast(row.getNode().getNextEvent());
      clusterTerm_ = std::max(clusterTerm_, row.getNode().getClusterTerm());
    } else if (row.isCard()) {
      loadCard(stored.key.id, row.getCard());
    } else if (row.isTask()) {
      if (!loadTask(stored.key.id, row.getTask(), Taking::AsItIs)) {
        lostTasks_.push_back(stored.key.id);
      }
    } else if (row.isAudit()) {
      audits.push_back(readEvent(row.getAudit()));
    }
  }
  numberNewCards(rows);
  feed_.load(std::move(audits));
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    if (ledger_.mark(card) == CardMark::Draining) queueDrain(card);
  }
}

// Of several rows the stricter holds: which is the newer one, nobody wrote down.
void NodeActor::loadCard(std::uint64_t key, schema::CardRow::Reader row) {
  const Result<std::size_t> card = ledger_.findCard(text(row.getId()));
  if (!card) return;
  cards_[*card].rowKeys.push_back(key);
  if (row.getPolicyChosen()) {
    cards_[*card].policyChosen = true;
    ledger_.choosePolicy(*card, readPolicy(row.getPolicy()));
  }
  if (row.getCordoned()) ledger_.mark(*card, CardMark::Cordoned);
  if (row.getDraining()) ledger_.mark(*card, CardMark::Draining);
}

// Rows of cards that are not here now stay theirs, for when they come back.
void NodeActor::numberNewCards(const std::vector<StoredRow>& rows) {
  std::set<std::uint64_t> taken;
  for (const StoredRow& stored : rows) {
    if (readRow(stored).isCard()) taken.insert(stored.key.id);
  }
  std::uint64_t next = 0;
  for (CardNow& card : cards_) {
    if (!card.rowKeys.empty()) continue;
    while (!taken.insert(next).second) ++next;
    card.rowKeys.push_back(next);
  }
}

bool NodeActor::loadTask(std::uint64_t id, schema::TaskRow::Reader row, Taking taking) {
  if (!QGPU_PLANTED(TaskIdReused)) nextTask_ = std::max(nextTask_, id + 1);
  Placement placement;
  Binding binding;
  binding.spec = readSpec(row.getSpec());
  placement.taskClass = binding.spec.taskClass;
  placement.share = binding.spec.share;
  placement.exclusive =
      placement.taskClass == TaskClass::Ordinary && placement.share >= kWholeCard;
  for (const auto cardId : row.getCards()) {
    const Result<std::size_t> card = ledger_.findCard(text(cardId));
    if (!card) continue;
    placement.cards.push_back(*card);
    placement.mem.push_back(placement.exclusive ? cards_[*card].facts.mem : binding.spec.mem);
  }
  if (placement.cards.empty() || placement.cards.size() != row.getCards().size() ||
      freeSlots_.empty()) {
    return false;
  }
  if (taking == Taking::IfItFits && !ledger_.admits(placement)) return false;
  binding.token = text(row.getToken());
  binding.boundUnixMs = row.getBoundUnixMs();
  binding.evicting = row.getEvicting();
  if (binding.evicting) binding.endReason = "evicted";
  binding.slot = freeSlots_.back();
  freeSlots_.pop_back();
  if (isLocalRequest(binding.spec)) {
    requests_[{binding.spec.ownerUid, binding.spec.requestId}] = id;
  }
  ledger_.bind(TaskId{id}, placement);
  bindings_.emplace(id, std::move(binding));
  return true;
}

// What was ending may still be dying while another task has its room already, so it comes last, and
// not at all where it does not fit (P1, P2, P8): its processes are told to go. Where nobody wrote
// down that it was ending, the newer task has the right: it was bound beside all that held then.
void NodeActor::takeOver(const std::vector<StoredRow>& survivors) {
  for (const bool ending : {false, true}) {
    for (auto next = survivors.rbegin(); next != survivors.rend(); ++next) {
      const StoredRow& stored = *next;
      const schema::TaskRow::Reader row = readRow(stored).getTask();
      if (row.getEvicting() != ending || bindings_.contains(stored.key.id)) continue;
      const bool taken = loadTask(stored.key.id, row, Taking::IfItFits);
      (taken ? takenOver_ : notTakenOver_).push_back(stored.key.id);
      if (!taken && ending) outlived_.insert(stored.key.id);
    }
  }
}

// A task's row and a number above it are committed together, and so is the end of its row: what the
// store numbered and has no row of had ended, and a manager that was killed right after that left
// its processes alive (P9). Other living tasks without a row are unknown, and remembered as such,
// since the numbers that are given out from now on are above theirs.
void NodeActor::findOutlived(std::optional<schema::NodeRow::Reader> stored) {
  const std::uint64_t numbered = stored ? stored->getNextTask() : 0;
  const auto unknown = [&](std::uint64_t task) {
    return task >= numbered ||
           (task >= stored->getUnknownFrom() && task < stored->getUnknownTo());
  };
  for (const std::uint64_t task : options_.living) {
    const bool lost = std::find(lostTasks_.begin(), lostTasks_.end(), task) != lostTasks_.end();
    if (lost || bindings_.contains(task) || outlived_.contains(task)) continue;
    if (!unknown(task)) {
      outlived_.insert(task);
      continue;
    }
    if (unknownTo_ == 0) unknownFrom_ = task;
    unknownTo_ = task + 1;
  }
}

void NodeActor::introduceAll(Turn& turn) {
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    const Policy policy = ledger_.policy(card);
    shell_.outbox().put(peers_.cards[card], [policy](schema::Envelope::Builder envelope) {
      envelope.initPolicyChosen().setPolicy(word(policy));
    });
  }
  for (auto& [task, binding] : bindings_) introduce(task, binding, turn);
}

}  // namespace qgpu
