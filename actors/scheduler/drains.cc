#include "actors/scheduler/drains.h"

#include <algorithm>

#include "runtime/planted.h"

namespace qgpu {

Status Drains::mark(const Asker& asker, const Who& who, schema::Target::Reader target,
                    const Mark& mark) {
  const std::string name = text(target.getNode()).substr(0, kNodeNameMax + 1);
  const std::string card = text(target.getCard()).substr(0, kNameMax + 1);
  const std::optional<MemberId> found = members_.find(name);
  if (!found) return fail(ErrorCode::NotFound, "no node '" + name + "' in this cluster");
  const MemberId member = *found;
  std::string id;
  if (!card.empty()) {
    const Result<std::size_t> index = members_.findCard(member, card);
    if (!index) return index.error();
    if (members_.membership().session(member) == 0) {
      return fail(ErrorCode::Unavailable, "node " + name +
                                              " is not connected, and its cards are "
                                              "marked by itself: mark the node");
    }
    id = members_.at(member).facts.ledger.cards[*index].id;
  }
  NodeMarks& marks = members_.touchMarks(member);
  if (id.empty()) marks.cordoned = mark.mark != CardMark::Ready;
  if (mark.mark == CardMark::Draining) {
    marks.drains[id] = mark.untilUnixMs;
  } else {
    marks.drains.erase(id);
  }
  drained_.erase({member, id});
  over_.erase({member, id});
  members_.applyMarks(member);
  if (mark.mark == CardMark::Ready) {
    if (members_.at(member).node) freed_.gain(*members_.at(member).node);
  }
  const std::string where = id.empty() ? name : name + "/" + id;
  rounds_.audit(mark.said, who, 0, where, mark.said.name());
  rounds_.after([this, asker, where, member, id, mark](Turn&) {
    if (!id.empty()) cardMarked(member, id, mark.mark);
    rounds_.replyDone(asker, where + " is " + mark.said.name());
  });
  return ok();
}

// The node stores it and will say so itself; until then nothing new goes there.
void Drains::cardMarked(MemberId member, const std::string& card, CardMark mark) {
  for (ClusterCard& known : members_.at(member).facts.ledger.cards) {
    if (known.id != card || known.mark == CardMark::Starting) continue;
    known.mark = mark == CardMark::Ready ? CardMark::Ready : CardMark::Cordoned;
  }
  members_.applyMarks(member);
  if (mark == CardMark::Ready) freed_.gain(*members_.at(member).node);
  tellMark(member, card, mark);
}

void Drains::tellMarks(MemberId member) {
  for (const auto& [card, until] : members_.at(member).marks.drains) {
    if (!card.empty()) tellMark(member, card, CardMark::Draining);
  }
}

void Drains::tellMark(MemberId member, const std::string& card, CardMark mark) {
  members_.tell(member, [card, mark](schema::ToMember::Builder message) {
    auto order = message.initMark();
    order.setCard(card);
    order.setMark(mark == CardMark::Ready ? schema::OrderMark::Mark::UNCORDON
                                          : schema::OrderMark::Mark::CORDON);
  });
}

void Drains::look() {
  std::size_t moves = 0;
  std::size_t seen = 0;
  for (; seen < members_.size() && moves < kMovesPerLook && !rounds_.full(); ++seen) {
    const std::size_t i = (next_ + seen) % members_.size();
    const auto member = static_cast<MemberId>(i);
    if (!members_.at(member).node) continue;
    for (const auto& [card, until] : members_.at(member).marks.drains) {
      const bool late = rounds_.unixMs() >= until;
      const bool empty = moveFrom(member, card, late, moves);
      const std::string& name = members_.name(member);
      const std::string where = card.empty() ? name : name + "/" + card;
      if (empty && drained_.emplace(member, card).second) {
        rounds_.note("drained", 0, where, "nothing is left on it");
      } else if (!empty && late && over_.emplace(member, card).second) {
        rounds_.note("drain-timed-out", 0, where, "its time is over: what is left on it ends");
      }
    }
  }
  next_ = members_.size() == 0 ? 0 : (next_ + seen) % members_.size();
}

// True where nothing is left.
bool Drains::moveFrom(MemberId member, const std::string& card, bool late, std::size_t& moves) {
  const NodeId node = *members_.at(member).node;
  std::vector<TaskId> held = ledger_.tasksOn(node);
  if (!card.empty()) {
    const Result<std::size_t> index = members_.findCard(member, card);
    if (!index) return true;
    held = ledger_.tasksOn(node, *index);
  }
  for (const TaskClass turnOf : {TaskClass::Online, TaskClass::Ordinary, TaskClass::Offline}) {
    for (const TaskId id : held) {
      const Job* job = tasks_.find(raw(id));
      if (job == nullptr || job->spec.task.taskClass != turnOf) continue;
      if (job->state != PlaceState::Bound || moves >= kMovesPerLook) continue;
      if (late) {
        QGPU_MARK(EndedByDrain);
        ++moves;
        tasks_.beginEnd(raw(id), !job->pinned(), "drained: the time to move it is over");
        continue;
      }
      if (job->pinned()) continue;
      ++moves;
      const Result<Spot> spot = tasks_.choose(raw(id), *job);
      if (!spot) continue;
      QGPU_MARK(MovedByDrain);
      tasks_.beginEnd(raw(id), true, "drained: it moves to another place");
      tasks_.keepForMove(raw(id), *spot);
    }
  }
  return held.empty();
}

}  // namespace qgpu
