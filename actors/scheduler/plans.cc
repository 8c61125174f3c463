#include "actors/scheduler/plans.h"

#include <algorithm>
#include <utility>

namespace qgpu {
namespace {

using Trial = Result<std::unique_ptr<WhatIf>>;

// A landing as it is told, or who stays and why.
struct Line {
  std::uint64_t task = 0;
  std::string node;
  std::vector<std::string> cards;
  std::vector<std::uint64_t> evicts;
  std::string reason;
};

void writeLines(const std::vector<Line>& lines,
                capnp::List<schema::WhatIfAnswer::Landing>::Builder list) {
  for (unsigned i = 0; i < list.size(); ++i) {
    const Line& line = lines[i];
    list[i].setTask(line.task);
    list[i].setNode(line.node);
    writeTexts(line.cards, list[i].initCards(static_cast<unsigned>(line.cards.size())));
    auto evicts = list[i].initEvicts(static_cast<unsigned>(line.evicts.size()));
    for (unsigned n = 0; n < evicts.size(); ++n) evicts.set(n, line.evicts[n]);
    list[i].setReason(line.reason);
  }
}

std::uint32_t permille(std::int64_t value) {
  return static_cast<std::uint32_t>(std::max<std::int64_t>(0, value));
}

std::string nameOf(std::uint64_t task) {
  return "task " + std::to_string(task);
}

}  // namespace

void Plans::ask(const Asker& asker, schema::ClusterRequest::Reader request) {
  std::function<Trial()> begin;
  if (request.isPreempt()) {
    begin = [this, task = request.getPreempt()] { return evict(task); };
  } else if (request.getWhatIf().isDrain()) {
    const auto target = request.getWhatIf().getDrain();
    begin = [this, node = text(target.getNode()), card = text(target.getCard())] {
      return drain(node, card);
    };
  } else {
    const auto place = request.getWhatIf().getPlace();
    begin = [this, spec = readClusterSpec(place.getSpec()), count = place.getCount()] {
      return this->place(spec, count);
    };
  }
  rounds_.after([this, asker, begin = std::move(begin)](Turn& turn) {
    if (plans_.size() >= kPlansMax) {
      return rounds_.replyFailed(
          asker, fail(ErrorCode::Overloaded, std::to_string(plans_.size()) +
                                                 " such questions wait already: try again later"));
    }
    plans_.push_back({asker, begin, nullptr});
    wake(turn);
  });
}

// Behind all that waits already; where there is no room for it, or it was lost with the rows of a
// turn, a look makes up for it.
void Plans::wake(Turn& turn) {
  if (plans_.empty() || told_) return;
  const SendResult sent = turn.send(turn.self(), [this](schema::Envelope::Builder envelope) {
    envelope.initTick().setKind(tick_);
  });
  told_ = sent == SendResult::Sent;
}

// One turn makes the copy, the next ones try.
void Plans::step(Turn& turn) {
  told_ = false;
  if (plans_.empty()) return;
  Plan& plan = plans_.front();
  bool done = false;
  if (!plan.trial) {
    Trial trial = plan.begin();
    done = !trial;
    if (trial)
      plan.trial = std::move(*trial);
    else
      rounds_.replyFailed(plan.asker, trial.error());
  } else if (plan.trial->step(kTrialsPerTurn)) {
    done = true;
    reply(plan.asker, *plan.trial);
  }
  if (done) plans_.pop_front();
  wake(turn);
}

Trial Plans::place(const ClusterSpec& spec, std::uint32_t count) const {
  if (count == 0 || count > WhatIf::kCountMax) {
    return fail(ErrorCode::InvalidArgument, "1 to " + std::to_string(WhatIf::kCountMax) +
                                                " tasks can be tried, not " +
                                                std::to_string(count));
  }
  const ClusterAsk ask = askOf(spec);
  Status valid = checkClusterSpec(spec);
  if (valid) valid = ledger_.check(ask);
  if (!valid) return valid.error();
  return std::make_unique<WhatIf>(WhatIf::place(ledger_, ask, count));
}

// In the order in which a drain moves them.
Trial Plans::drain(const std::string& name, const std::string& card) const {
  const std::optional<MemberId> named = members_.find(name);
  if (!named || !members_.at(*named).node) {
    return fail(ErrorCode::NotFound, "no node '" + name + "' in this cluster");
  }
  const NodeId node = *members_.at(*named).node;
  std::vector<TaskId> held = ledger_.tasksOn(node);
  std::optional<std::size_t> index;
  if (!card.empty()) {
    const Result<std::size_t> found = members_.findCard(*named, card);
    if (!found) return found.error();
    index = *found;
    held = ledger_.tasksOn(node, *index);
  }
  std::vector<WhatIf::Mover> movers;
  for (const TaskClass turnOf : {TaskClass::Online, TaskClass::Ordinary, TaskClass::Offline}) {
    for (const TaskId id : held) {
      const Job* job = tasks_.find(raw(id));
      if (job == nullptr || job->spec.task.taskClass != turnOf) continue;
      if (job->state == PlaceState::Ending) continue;  // it goes anyway
      movers.push_back(
          {id, askOf(job->spec), job->pinned() ? "it may run on node " + name + " only" : ""});
    }
  }
  return std::make_unique<WhatIf>(WhatIf::drain(ledger_, node, index, std::move(movers)));
}

Trial Plans::evict(std::uint64_t task) const {
  const Job* job = tasks_.find(task);
  if (job == nullptr) return fail(ErrorCode::NotFound, "no " + nameOf(task) + " in this cluster");
  if (job->state != PlaceState::Waiting) {
    return fail(ErrorCode::Conflict, nameOf(task) + " does not wait: it has its room");
  }
  if (job->spec.task.taskClass == TaskClass::Offline) {
    return fail(ErrorCode::InvalidArgument, nameOf(task) + " is offline, and evicts nobody");
  }
  if (evictions_.makesRoomFor(task)) {
    return fail(ErrorCode::Conflict, nameOf(task) + " waits no longer than that: " + job->reason);
  }
  const ClusterAsk ask = askOf(job->spec);
  const std::optional<Eviction> eviction = leastEviction(ledger_, ask, evictions_.mayEvict());
  if (!eviction) {
    return fail(ErrorCode::NoRoom,
                "no set of offline tasks on one card would make room for " + nameOf(task));
  }
  std::vector<WhatIf::Mover> victims;
  for (const TaskId victim : eviction->victims) {
    const Job& held = tasks_.at(raw(victim));
    const bool again = !held.adopted && !held.forwarded;
    victims.push_back({victim, askOf(held.spec), again ? "" : "it ends: only its node knows it"});
  }
  return std::make_unique<WhatIf>(
      WhatIf::evict(ledger_, TaskId{task}, ask, *eviction, std::move(victims)));
}

void Plans::reply(const Asker& asker, const WhatIf& trial) {
  std::vector<Line> landed;
  std::vector<Line> stay;
  for (const WhatIf::Landing& landing : trial.landed()) {
    const ClusterNodeFacts& facts = trial.ledger().facts(landing.spot.node);
    Line& line = landed.emplace_back();
    line.task = raw(landing.task);
    line.node = facts.name;
    for (const std::size_t card : landing.spot.placement.cards) {
      line.cards.push_back(facts.cards[card].id);
    }
    for (const TaskId victim : landing.evicts) {
      line.evicts.push_back(raw(victim));
    }
  }
  for (const WhatIf::Staying& staying : trial.stay()) {
    Line& line = stay.emplace_back();
    line.task = raw(staying.task);
    line.reason = staying.why;
    if (line.task != 0) continue;
    line.reason = std::to_string(staying.count) + " of " +
                  std::to_string(staying.count + trial.landed().size()) + ": " + staying.why;
  }
  rounds_.reply(asker, [landed = std::move(landed), stay = std::move(stay), before = trial.before(),
                        after = trial.after()](schema::ClusterReply::Builder answer) {
    auto told = answer.initWhatIf();
    writeLines(landed, told.initLanded(static_cast<unsigned>(landed.size())));
    writeLines(stay, told.initStay(static_cast<unsigned>(stay.size())));
    told.setAllocatedBefore(permille(before.allocated));
    told.setAllocatedAfter(permille(after.allocated));
    told.setFragmentBefore(permille(before.fragments));
    told.setFragmentAfter(permille(after.fragments));
  });
}

std::string Plans::remedyFor(const ClusterAsk& ask) const {
  Permits permits;
  permits.mayEvict = evictions_.mayEvict();
  permits.mayEnd = [this](TaskId id) {
    const Job* job = tasks_.find(raw(id));
    return job != nullptr && job->state == PlaceState::Bound;
  };
  permits.mayUncordon = [this](NodeId node, std::size_t card) {
    const MemberId member = members_.memberOf(node);
    const ClusterCard& known = members_.at(member).facts.ledger.cards[card];
    return !members_.isKept(member, known.id) && !members_.isUnproven(known);
  };
  return remedyOf(ledger_, ask, permits);
}

}  // namespace qgpu
