#include "actors/node/node_cards.h"

#include <algorithm>
#include <set>

#include "runtime/planted.h"

namespace qgpu {
namespace {

EventKind markEvent(CardMark mark) {
  switch (mark) {
    case CardMark::Ready:
      return "card-uncordoned";
    case CardMark::Cordoned:
      return "card-cordoned";
    case CardMark::Draining:
      return "card-draining";
    case CardMark::Starting:
    case CardMark::Unproven:
      break;  // a node never says it of itself
  }
  return "card-cordoned";
}

}  // namespace

NodeCards::NodeCards(NodeContext& node, Ledger& ledger, std::vector<CardFacts> cards)
    : node_(node), ledger_(ledger) {
  QGPU_CHECK(cards.size() == node_.peers().cards.size(), "each card has an actor");
  for (CardFacts& facts : cards) {
    QGPU_CHECK(facts.mem.value > 0, "a card without memory is not a card");
    cards_.emplace_back().facts = std::move(facts);
  }
}

// --- start ---

void NodeCards::load(const std::vector<StoredRow>& rows) {
  std::set<std::uint64_t> taken;
  for (const StoredRow& stored : rows) {
    if (!readRow(stored).isCard()) continue;
    taken.insert(stored.key.id);
    loadCard(stored.key.id, readRow(stored).getCard());
  }
  std::uint64_t next = 0;
  for (Card& card : cards_) {
    if (!card.rowKeys.empty()) continue;
    while (!taken.insert(next).second) ++next;
    card.rowKeys.push_back(next);
  }
}

// Of several rows the stricter holds: which is the newer one, nobody wrote down.
void NodeCards::loadCard(std::uint64_t key, schema::CardRow::Reader row) {
  const Result<std::size_t> card = ledger_.findCard(text(row.getId()));
  if (!card) return;
  cards_[*card].rowKeys.push_back(key);
  if (row.getPolicyChosen()) {
    cards_[*card].policyChosen = true;
    ledger_.choosePolicy(*card, readPolicy(row.getPolicy()));
  }
  if (row.getReport().size() > 0) cards_[*card].proved = text(row.getReport());
  if (row.getCordoned()) ledger_.mark(*card, CardMark::Cordoned);
  if (row.getDraining()) ledger_.mark(*card, CardMark::Draining);
}

// --- changes ---

Result<Need> NodeCards::check(NodeChange& change) {
  if (change.kind == NodeChange::Kind::Mark) return checkMark(change);
  if (change.kind == NodeChange::Kind::Report) return checkReport(change);
  if (Status may = checkPolicy(change); !may) return may.error();
  return Need::Commit;
}

Status NodeCards::checkPolicy(NodeChange& change) const {
  if (change.cardText.empty() || change.cardText == "all") {
    for (std::size_t card = 0; card < cards_.size(); ++card) change.cards.push_back(card);
  } else {
    Result<std::size_t> card = ledger_.findCard(change.cardText);
    if (!card) return card.error();
    change.cards = {*card};
  }
  for (const std::size_t card : change.cards) {
    if (Status may = ledger_.mayChoosePolicy(card, change.policy); !may) return may;
  }
  const bool one = change.cards.size() == 1;
  const std::string name = one ? facts(change.cards[0]).id : std::string("all");
  change.tells("policy-changed", 0, name, policyName(change.policy));
  return ok();
}

Result<Need> NodeCards::checkMark(NodeChange& change) {
  Result<std::size_t> card = ledger_.findCard(change.cardText);
  if (!card) return card.error();
  change.cards = {*card};
  const std::string& id = facts(*card).id;
  const CardMark now = ledger_.mark(*card);
  // What watches the cards knows of no drain: only a person's cordon ends one.
  const bool drains = now == CardMark::Draining && change.mark == CardMark::Cordoned &&
                      change.who.pid == node_.options().pid;
  if (now == change.mark || drains) {
    const char* already = now == CardMark::Ready      ? " takes tasks already"
                          : now == CardMark::Cordoned ? " is cordoned already"
                                                      : " is being drained already";
    node_.replyDone(change.asker, "card " + id + already);
    return Need::Nothing;
  }
  change.tells(markEvent(change.mark), 0, id, "");
  return Need::Commit;
}

Result<Need> NodeCards::checkReport(NodeChange& change) const {
  Result<std::size_t> card = ledger_.findCard(change.cardText);
  if (!card) return card.error();
  if (!change.text.starts_with('/') || change.text.size() > kReportPathMax) {
    return fail(ErrorCode::InvalidArgument, "\"" + change.text.substr(0, kNameMax) +
                                                "\" is no path of a report: from /, of at "
                                                "most " +
                                                std::to_string(kReportPathMax) + " bytes");
  }
  change.cards = {*card};
  change.tells("report-kept", 0, facts(*card).id, change.text);
  return Need::Commit;
}

void NodeCards::persist(const NodeChange& change, Turn& turn) {
  const bool isPolicy = change.kind == NodeChange::Kind::Policy;
  const bool isMark = change.kind == NodeChange::Kind::Mark;
  const bool isReport = change.kind == NodeChange::Kind::Report;
  for (const std::size_t card : change.cards) {
    const CardMark mark = isMark ? change.mark : ledger_.mark(card);
    const Card& now = cards_[card];
    for (std::size_t old = 1; old < now.rowKeys.size(); ++old) {
      turn.persist({RowKind::Card, now.rowKeys[old]},
                   [](schema::Row::Builder row) { row.setErased(); });
    }
    turn.persist({RowKind::Card, now.rowKeys.front()}, [&](schema::Row::Builder row) {
      auto stored = row.initCard();
      stored.setId(now.facts.id);
      stored.setPolicy(word(isPolicy ? change.policy : ledger_.policy(card)));
      stored.setPolicyChosen(isPolicy || now.policyChosen);
      stored.setCordoned(mark != CardMark::Ready);
      stored.setDraining(mark == CardMark::Draining);
      stored.setReport(isReport ? change.text : now.proved);
    });
  }
}

void NodeCards::apply(const NodeChange& change, Turn&) {
  if (change.kind == NodeChange::Kind::Mark)
    applyMark(change);
  else if (change.kind == NodeChange::Kind::Report)
    applyReport(change);
  else
    applyPolicy(change);
}

void NodeCards::applyReport(const NodeChange& change) {
  Card& card = cards_[change.cards.front()];
  card.proved = change.text;
  card.provedSays.clear();
  node_.replyDone(change.asker, "the newest report of " + facts(change.cards.front()).id +
                                    " lies at " + change.text);
}

void NodeCards::applyPolicy(const NodeChange& change) {
  for (const std::size_t card : change.cards) {
    ledger_.choosePolicy(card, change.policy);
    cards_[card].policyChosen = true;
    tellPolicy(card);
  }
  node_.replyDone(change.asker, policyName(change.policy) + " on " +
                                    std::to_string(change.cards.size()) +
                                    " card(s), from the end of the running slice");
}

void NodeCards::applyMark(const NodeChange& change) {
  const std::size_t card = change.cards.front();
  const std::string name = "card " + facts(card).id;
  ledger_.mark(card, change.mark);
  if (change.mark != CardMark::Draining) {
    return node_.replyDone(
        change.asker,
        name + (change.mark == CardMark::Ready ? " takes tasks again" : " takes no new tasks"));
  }
  QGPU_MARK(CardDrained);
  queueDrain(card);
  node_.replyDone(change.asker, name + " takes no new tasks; " +
                                    std::to_string(ledger_.use(card).tasks) +
                                    " task(s) are evicted");
}

// --- drains ---

bool NodeCards::isDraining(const Placement& placement) const {
  return std::any_of(placement.cards.begin(), placement.cards.end(),
                     [this](std::size_t card) { return ledger_.mark(card) == CardMark::Draining; });
}

void NodeCards::queueDrained() {
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    if (ledger_.mark(card) == CardMark::Draining) queueDrain(card);
  }
}

// Whoever bears it best goes first: offline tasks, then ordinary ones, then online ones.
void NodeCards::queueDrain(std::size_t card) {
  for (const TaskClass turnOf : {TaskClass::Offline, TaskClass::Ordinary, TaskClass::Online}) {
    for (const TaskId task : ledger_.tasksOn(card)) {
      if (ledger_.placement(task)->taskClass == turnOf) leaving_.push_back(raw(task));
    }
  }
}

std::uint64_t NodeCards::takeLeaving() {
  const std::uint64_t task = leaving_.front();
  leaving_.pop_front();
  return task;
}

// --- what cards are told, and what they say ---

void NodeCards::tellPolicies() {
  for (std::size_t card = 0; card < cards_.size(); ++card) tellPolicy(card);
}

void NodeCards::tellPolicy(std::size_t card) {
  const Policy policy = ledger_.policy(card);
  node_.tell(node_.peers().cards[card], [policy](schema::Envelope::Builder envelope) {
    envelope.initPolicyChosen().setPolicy(word(policy));
  });
}

void NodeCards::join(std::uint64_t task, const std::string& name, const Placement& placement,
                     ActorId actor) {
  if (placement.cards.size() > 1) QGPU_MARK(SeveralCards);
  for (std::size_t i = 0; i < placement.cards.size(); ++i) {
    if (QGPU_PLANTED(PartialMultiCard) && i > 0) break;
    node_.tell(node_.peers().cards[placement.cards[i]],
               [this, task, name, actor, placement, i](schema::Envelope::Builder envelope) {
                 auto joined = envelope.initJoined();
                 joined.setTask(task);
                 joined.setClass(word(placement.taskClass));
                 joined.setSharePermille(static_cast<std::uint32_t>(placement.share.value));
                 joined.setExclusive(placement.exclusive);
                 joined.setQuotaBytes(static_cast<std::uint64_t>(placement.mem[i].value));
                 joined.setActor(static_cast<std::uint32_t>(actor));
                 joined.setName(name);
                 if (node_.options().overcommit == Permille(0)) return;
                 joined.setPageableBytes(static_cast<std::uint64_t>(placement.pageable.value));
               });
  }
}

void NodeCards::leave(std::uint64_t task, const Placement& placement, const std::string& reason) {
  for (const std::size_t card : placement.cards) {
    cards_[card].shares.erase(task);
    if (QGPU_PLANTED(CloseKeepsCard)) continue;
    node_.tell(node_.peers().cards[card], [task, reason](schema::Envelope::Builder envelope) {
      auto left = envelope.initLeft();
      left.setTask(task);
      left.setReason(reason);
      left.setDrained(reason == kEndOfDrained);
    });
  }
}

void NodeCards::onSuspendLost(schema::SuspendLost::Reader lost) {
  for (Card& card : cards_) {
    CardFacts& facts = card.facts;
    if (facts.index != lost.getCard() || facts.suspend == schema::Suspend::GATE) continue;
    facts.suspend = schema::Suspend::GATE;
    facts.suspendWhy = text(lost.getWhy()).substr(0, kCardTextMax);
    node_.note("card-suspend-lost", 0, facts.id, facts.suspendWhy);
  }
}

void NodeCards::tellUnknownDrivers() {
  for (const Card& card : cards_) {
    if (card.facts.counting != schema::Counting::DRIVER_UNKNOWN) continue;
    node_.note("driver-unknown", 0, card.facts.id,
               "memory counts " + card.facts.memoryCounted +
                   "; no rm, and no cap of memory. Install a driver that is known, or a qgpu that "
                   "knows this one");
  }
}

void NodeCards::onReportRead(schema::ReportRead::Reader read) {
  const Result<std::size_t> found = ledger_.findCard(text(read.getCard()));
  if (!found) return;
  Card& card = cards_[*found];
  const std::uint64_t made = read.getMadeUnixMs();
  std::string says = made != 0 ? "its report holds" : text(read.getWhy()).substr(0, kCardTextMax);
  if (card.provedUnixMs == made && card.provedSays == says) return;
  card.provedUnixMs = made;
  card.provedSays = std::move(says);
  node_.note("card-report", 0, card.facts.id, card.provedSays);
}

std::optional<std::size_t> NodeCards::onReport(schema::CardReport::Reader report) {
  const std::uint32_t index = report.getStatus().getInfo().getIndex();
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    if (facts(card).index != index) continue;
    cards_[card].figures = readFigures(report.getStatus());
    for (const auto share : report.getShares()) {
      if (ledger_.placement(TaskId{share.getTask()}) == nullptr) continue;
      cards_[card].shares[share.getTask()] = {share.getUsedNs(),      share.getHeldNs(),
                                              share.getTurns(),       share.getOverrunNs(),
                                              share.getQuarantined(), text(share.getNote())};
    }
    return card;
  }
  return std::nullopt;
}

void NodeCards::write(std::size_t card, schema::CardStatus::Builder builder) const {
  const CardRoom& use = ledger_.use(card);
  const CardMark mark = ledger_.mark(card);
  writeFigures(cards_[card].figures, builder);
  writeFacts(facts(card), builder.initInfo());
  schema::CardState state = schema::CardState::READY;
  if (mark != CardMark::Ready) state = schema::CardState::CORDONED;
  if (mark == CardMark::Draining && use.tasks != 0) state = schema::CardState::DRAINING;
  builder.setState(state);
  builder.setPolicy(word(ledger_.policy(card)));
  builder.setReport(cards_[card].proved);
  builder.setReportUnixMs(cards_[card].provedUnixMs);
  builder.setTenancy(word(ledger_.tenancy(card)));
  builder.setTasks(use.tasks);
  builder.setMemBound(static_cast<std::uint64_t>(use.memBound.value));
  builder.setShareBound(static_cast<std::uint32_t>(use.ordinary.value));
  builder.setGreedyBound(static_cast<std::uint32_t>(use.greedy.value));
}

ShareFigures NodeCards::sharesOf(std::uint64_t task, const Placement& placement) const {
  ShareFigures sum;
  for (const std::size_t card : placement.cards) {
    const auto found = cards_[card].shares.find(task);
    if (found == cards_[card].shares.end()) continue;
    const ShareFigures& share = found->second;
    sum.usedNs += share.usedNs;
    sum.heldNs += share.heldNs;
    sum.turns += share.turns;
    sum.overrunNs += share.overrunNs;
    sum.quarantined = sum.quarantined || share.quarantined;
    sum.note = share.note;
  }
  return sum;
}

}  // namespace qgpu
