#include "actors/scheduler/members.h"

#include <algorithm>

#include "actors/base/codec.h"
#include "actors/ledger/card_name.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::uint64_t kClocksApart = 86'400'000;  // ms, of two machines

}  // namespace

std::optional<MemberId> Members::find(const std::string& name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) return std::nullopt;
  return found->second;
}

Result<MemberId> Members::memberFor(const std::string& name, Nanos heardAt) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  if (members_.size() >= Membership::kMembersMax) {
    return fail(ErrorCode::Overloaded,
                "a cluster has at most " + std::to_string(Membership::kMembersMax) + " nodes");
  }
  const MemberId member = membership_.add(heardAt);
  members_.emplace_back().facts.ledger.name = name;
  names_.emplace(name, member);
  return member;
}

void Members::takeFacts(MemberId member, MemberFacts facts) {
  ClusterMember& node = at(member);
  node.facts = std::move(facts);
  const NodeId id = ledger_.setNode(node.facts.ledger).first;
  if (!node.node) {
    QGPU_CHECK(static_cast<std::size_t>(id) == byNode_.size(), "nodes are numbered in order");
    node.node = id;
    byNode_.push_back(member);
  }
  ledger_.setLife(id, membership_.life(member));
  applyMarks(member);
  freed_.gain(id);
}

void Members::joined(MemberId member) {
  const std::size_t place = static_cast<std::size_t>(member);
  if (place < stored_) return;
  rounds_.open().members = std::max(rounds_.open().members, place + 1);
}

void Members::setLife(MemberId member, NodeLife life) {
  ClusterMember& node = at(member);
  node.sinceUnixMs = rounds_.unixMs();
  if (!node.node) return;
  ledger_.setLife(*node.node, life);
  if (life == NodeLife::Alive) freed_.gain(*node.node);
}

bool Members::missing() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const ClusterMember& member) { return !member.node; });
}

Result<std::size_t> Members::findCard(MemberId member, const std::string& card) const {
  const std::vector<ClusterCard>& cards = at(member).facts.ledger.cards;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (isCardCalled(card, cards[i].id, cards[i].index)) return i;
  }
  return fail(ErrorCode::NotFound,
              "no card '" + card + "' on node " + at(member).facts.ledger.name);
}

std::vector<std::string> Members::cardIds(const Spot& spot) const {
  std::vector<std::string> ids;
  for (const std::size_t card : spot.placement.cards) {
    ids.push_back(at(memberOf(spot.node)).facts.ledger.cards[card].id);
  }
  return ids;
}

std::optional<Spot> Members::spotOf(MemberId id, const ClusterSpec& spec,
                                    const std::vector<std::string>& cards) const {
  const ClusterMember& member = at(id);
  if (!member.node) return std::nullopt;
  const bool whole = isWhole(askOf(spec.task));
  Spot spot{*member.node, {}, spec.cpuMilli, spec.hostMem};
  spot.placement.taskClass = spec.task.taskClass;
  spot.placement.exclusive = whole;
  spot.placement.share = whole ? kWholeCard : std::min(spec.task.share, kWholeCard);
  const std::vector<ClusterCard>& known = member.facts.ledger.cards;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (std::find(cards.begin(), cards.end(), known[i].id) == cards.end()) continue;
    spot.placement.cards.push_back(i);
    spot.placement.mem.push_back(whole ? known[i].mem : std::min(spec.task.mem, known[i].mem));
  }
  if (spot.placement.cards.size() != cards.size()) return std::nullopt;
  return spot;
}

NodeMarks& Members::touchMarks(MemberId member) {
  rounds_.open().marks.try_emplace(member, at(member).marks);
  return at(member).marks;
}

// A card that is drained here is cordoned at its node,
// which would otherwise end everything on it at once.
void Members::applyMarks(MemberId member) {
  const ClusterMember& node = at(member);
  if (!node.node) return;
  const bool cordoned = node.marks.cordoned || node.marks.drains.contains("");
  ledger_.setCordoned(*node.node, cordoned && !QGPU_PLANTED(CordonIgnored));
  for (std::size_t i = 0; i < node.facts.ledger.cards.size(); ++i) {
    const ClusterCard& card = node.facts.ledger.cards[i];
    const bool drains = node.marks.drains.contains(card.id);
    const bool kept = card.mark == CardMark::Ready && kept_.contains({member, card.id});
    const bool unproven = card.mark == CardMark::Ready && isUnproven(card);
    ledger_.setMark(*node.node, i,
                    drains     ? CardMark::Draining
                    : kept     ? CardMark::Cordoned
                    : unproven ? CardMark::Unproven
                               : card.mark);
  }
}

bool Members::isUnproven(const ClusterCard& card) const {
  if (reportMsMax_ == 0) return false;
  const std::uint64_t made = card.reportUnixMs;
  const std::uint64_t now = rounds_.unixMs();
  if (made == 0) return true;
  return made > now ? made - now > kClocksApart
                    : now - made > static_cast<std::uint64_t>(reportMsMax_);
}

void Members::lookAtReports() {
  if (reportMsMax_ == 0) return;
  for (const MemberId member : byNode_) {
    const ClusterMember& node = at(member);
    const std::vector<ClusterCard>& cards = node.facts.ledger.cards;
    for (std::size_t i = 0; i < cards.size(); ++i) {
      const CardMark mark = ledger_.room(*node.node, i).mark;
      if (mark != CardMark::Ready && mark != CardMark::Unproven) continue;
      if (isUnproven(cards[i]) == (mark == CardMark::Unproven)) continue;
      applyMarks(member);
      if (mark == CardMark::Unproven) freed_.gain(*node.node);
      break;
    }
  }
}

void Members::start() {
  for (ClusterMember& member : members_) {
    member.sinceUnixMs = rounds_.unixMs();
    membership_.add(rounds_.now());
  }
}

void Members::begin(std::uint64_t term) {
  started_ = true;
  term_ = term;
  membership_.setTerm(term);
}

void Members::standDown(std::uint64_t termSeen) {
  term_ = termSeen;
  started_ = false;
}

void Members::tell(MemberId member, std::function<void(schema::ToMember::Builder)> fill) {
  const std::uint64_t session = membership_.session(member);
  if (session == 0) return;  // its next hello makes up for it
  const std::uint32_t link = membership_.link(member);
  rounds_.outbox().put(links_, [link, session, term = term_,
                                fill = std::move(fill)](schema::Envelope::Builder envelope) {
    auto message = envelope.initToMember();
    message.setLink(link);
    message.setSession(session);
    message.setTerm(term);
    fill(message);
  });
}

void Members::turnAway(std::uint32_t link, const Error& error) {
  const std::optional<MemberId> member = membership_.memberOf(link);
  const std::uint64_t session = member ? membership_.session(*member) : 0;
  rounds_.outbox().put(links_, [=, term = term_](schema::Envelope::Builder envelope) {
    auto message = envelope.initToMember();
    message.setLink(link);
    message.setSession(session);
    message.setTerm(term);
    writeFailure(error, message.initTurnedAway());
  });
}

// In the order of their numbers, which are their places in members_.
void Members::load(const std::vector<StoredRow>& rows, std::uint64_t term) {
  term_ = term;
  std::map<std::uint64_t, schema::ClusterNodeRow::Reader> nodes;
  for (const StoredRow& stored : rows) {
    if (readRow(stored).isClusterNode()) {
      nodes.emplace(stored.key.id, readRow(stored).getClusterNode());
    }
  }
  for (const auto& [number, row] : nodes) {
    if (number != members_.size() || names_.contains(text(row.getName()))) break;
    ClusterMember& node = members_.emplace_back();
    node.facts.ledger.name = text(row.getName());
    node.marks.cordoned = row.getCordoned();
    for (const auto drain : row.getDrains()) {
      node.marks.drains[text(drain.getCard())] = drain.getUntilUnixMs();
    }
    names_.emplace(node.facts.ledger.name, static_cast<MemberId>(number));
  }
  stored_ = members_.size();
}

// A node is found again by its place, so no row has one below it that is missing: also those are
// stored whose first round failed and who did not come again.
void Members::persist(const Round& round, Turn& turn) const {
  std::set<MemberId> nodes;
  for (const auto& [member, before] : round.marks) nodes.insert(member);
  for (std::size_t i = stored_; i < round.members; ++i) nodes.insert(static_cast<MemberId>(i));
  for (const MemberId member : nodes) persistNode(member, turn);
}

void Members::stored(const Round& round) {
  stored_ = std::max(stored_, round.members);
}

void Members::undo(const Round& round) {
  for (const auto& [member, marks] : round.marks) {
    at(member).marks = marks;
    applyMarks(member);
  }
}

void Members::persistNode(MemberId member, Turn& turn) const {
  const ClusterMember& node = at(member);
  const auto number = static_cast<std::uint64_t>(member);
  turn.persist({RowKind::ClusterNode, number}, [&](schema::Row::Builder row) {
    auto stored = row.initClusterNode();
    stored.setNumber(number);
    stored.setName(node.facts.ledger.name);
    stored.setCordoned(node.marks.cordoned);
    stored.setDraining(node.marks.drains.contains(""));
    auto drains = stored.initDrains(static_cast<unsigned>(node.marks.drains.size()));
    unsigned i = 0;
    for (const auto& [card, until] : node.marks.drains) {
      drains[i].setCard(card);
      drains[i++].setUntilUnixMs(until);
    }
  });
}

}  // namespace qgpu
