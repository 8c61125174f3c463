// What operators say of nodes and cards. A drain moves what can go elsewhere, online tasks first:
// room is kept for a task at its new place, its node is told to end it, and it is bound there once
// that is done. A process does not migrate, so its owner starts it again at its new place. What
// fits nowhere else stays until the time is over, and is then ended too.
#include <algorithm>

#include "actors/scheduler/scheduler_actor.h"
#include "runtime/planted.h"

namespace qgpu {

NodeMarks& SchedulerActor::touchMarks(MemberId member) {
  round_->marks.try_emplace(member, at(member).marks);
  return at(member).marks;
}

Status SchedulerActor::markTarget(const Asker& asker, const Who& who,
                                  schema::Target::Reader target, const Mark& mark, Turn& turn) {
  const std::string name = text(target.getNode()).substr(0, kNodeNameMax + 1);
  const std::string card = text(target.getCard()).substr(0, kNameMax + 1);
  const auto found = names_.find(name);
  if (found == names_.end()) {
    return fail(ErrorCode::NotFound, "no node '" + name + "' in this cluster");
  }
  const MemberId member = found->second;
  std::string id;
  if (!card.empty()) {
    const Result<std::size_t> index = findCard(member, card);
    if (!index) return index.error();
    if (membership_.session(member) == 0) {
      return fail(ErrorCode::Unavailable, "node " + name + " is not connected, and its cards are "
                                              "marked by itself: mark the node");
    }
    id = at(member).facts.ledger.cards[*index].id;
  }
  NodeMarks& marks = touchMarks(member);
  if (id.empty()) marks.cordoned = mark.mark != CardMark::Ready;
  if (mark.mark == CardMark::Draining) {
    marks.drains[id] = mark.untilUnixMs;
  } else {
    marks.drains.erase(id);
  }
  drained_.erase({member, id});
  drainsOver_.erase({member, id});
  applyMarks(member);
  if (mark.mark == CardMark::Ready) {
    if (at(member).node) gain(*at(member).node);
  }
  const std::string where = id.empty() ? name : name + "/" + id;
  audit(mark.said, who, 0, where, mark.said, turn);
  after([this, asker, where, member, id, mark](Turn&) {
    if (!id.empty()) cardMarked(member, id, mark.mark);
    replyDone(asker, where + " is " + mark.said);
  });
  return ok();
}

Result<std::size_t> SchedulerActor::findCard(MemberId member, const std::string& card) const {
  const std::vector<ClusterCard>& cards = at(member).facts.ledger.cards;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (cards[i].id == card || std::to_string(cards[i].index) == card) return i;
  }
  return fail(ErrorCode::NotFound, "no card '" + card + "' on node " +
                                       at(member).facts.ledger.name);
}

// The ledger's view of what operators said; a card that is drained here is cordoned at its node,
// which would otherwise end everything on it at once.
void SchedulerActor::applyMarks(MemberId member) {
  const ClusterMember& node = at(member);
  if (!node.node) return;
  const bool cordoned = node.marks.cordoned || node.marks.drains.contains("");
  ledger_.setCordoned(*node.node, cordoned && !QGPU_PLANTED(CordonIgnored));
  for (std::size_t i = 0; i < node.facts.ledger.cards.size(); ++i) {
    const ClusterCard& card = node.facts.ledger.cards[i];
    const bool drains = node.marks.drains.contains(card.id);
    const bool kept = card.mark == CardMark::Ready && kept_.contains({member, card.id});
    ledger_.setMark(*node.node, i, drains  ? CardMark::Draining
                                   : kept ? CardMark::Cordoned
                                          : card.mark);
  }
}

// The node stores it and will say so itself; until then nothing new goes there.
void SchedulerActor::cardMarked(MemberId member, const std::string& card, CardMark mark) {
  for (ClusterCard& known : at(member).facts.ledger.cards) {
    if (known.id != card || known.mark == CardMark::Starting) continue;
    known.mark = mark == CardMark::Ready ? CardMark::Ready : CardMark::Cordoned;
  }
  applyMarks(member);
  if (mark == CardMark::Ready) gain(*at(member).node);
  tellMark(member, card, mark);
}

// A node that came back may not know of the drains of its cards.
void SchedulerActor::tellMarks(MemberId member) {
  for (const auto& [card, until] : at(member).marks.drains) {
    if (!card.empty()) tellMark(member, card, CardMark::Draining);
  }
}

void SchedulerActor::tellMark(MemberId member, const std::string& card, CardMark mark) {
  tell(member, [card, mark](schema::ToMember::Builder words) {
    auto order = words.initMark();
    order.setCard(card);
    order.setMark(mark == CardMark::Ready ? schema::OrderMark::Mark::UNCORDON
                                          : schema::OrderMark::Mark::CORDON);
  });
}

void SchedulerActor::moveDrained(Turn& turn) {
  std::size_t moves = 0;
  std::size_t seen = 0;
  for (; seen < members_.size() && moves < kMovesPerLook && !roundFull(); ++seen) {
    const std::size_t i = (drainNext_ + seen) % members_.size();
    const auto member = static_cast<MemberId>(i);
    if (!members_[i].node) continue;
    for (const auto& [card, until] : members_[i].marks.drains) {
      const bool late = unixMs(turn) >= until;
      const bool empty = moveFrom(member, card, late, moves);
      const std::string& name = members_[i].facts.ledger.name;
      const std::string where = card.empty() ? name : name + "/" + card;
      if (empty && drained_.emplace(member, card).second) {
        note("drained", 0, where, "nothing is left on it");
      } else if (!empty && late && drainsOver_.emplace(member, card).second) {
        note("drain-timed-out", 0, where, "its time is over: what is left on it ends");
      }
    }
  }
  drainNext_ = members_.empty() ? 0 : (drainNext_ + seen) % members_.size();
}

// True where nothing is left.
bool SchedulerActor::moveFrom(MemberId member, const std::string& card, bool late,
                              std::size_t& moves) {
  const NodeId node = *at(member).node;
  std::vector<TaskId> held = ledger_.tasksOn(node);
  if (!card.empty()) {
    const Result<std::size_t> index = findCard(member, card);
    if (!index) return true;
    held = ledger_.tasksOn(node, *index);
  }
  for (const TaskClass turnOf : {TaskClass::Online, TaskClass::Ordinary, TaskClass::Offline}) {
    for (const TaskId id : held) {
      const Job* job = task(raw(id));
      if (job == nullptr || job->spec.task.taskClass != turnOf) continue;
      if (job->state != PlaceState::Bound || moves >= kMovesPerLook) continue;
      if (late) {
        QGPU_MARK(EndedByDrain);
        ++moves;
        beginEnd(raw(id), !job->pinned(), "drained: the time to move it is over");
        continue;
      }
      if (job->pinned()) continue;
      ++moves;
      const Result<Spot> spot = choose(raw(id), *job);
      if (!spot) continue;
      QGPU_MARK(MovedByDrain);
      beginEnd(raw(id), true, "drained: it moves to another place");
      keepForMove(raw(id), *spot);
    }
  }
  return held.empty();
}

}  // namespace qgpu
