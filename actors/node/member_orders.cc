// What the scheduler orders, and what clients of this node ask of it. All orders go to the node in
// the order in which they came.
#include "actors/node/member_actor.h"

#include <algorithm>

#include "runtime/planted.h"

namespace qgpu {
namespace {

using Step = KnownTask::Step;

Fault unavailable(const std::string& message) {
  return {errorName(ErrorCode::Unavailable), message};
}

Fault conflict(std::uint64_t task, const std::string& what, std::uint32_t epoch) {
  return {errorName(ErrorCode::Conflict), "cluster task " + std::to_string(task) + " " + what +
                                              " with epoch " + std::to_string(epoch)};
}

template <typename List>
std::vector<std::string> textsOf(List list) {
  std::vector<std::string> found;
  for (const auto item : list) found.push_back(text(item).substr(0, kNameMax + 1));
  return found;
}

}  // namespace

// --- orders ---

void MemberActor::onBindOrder(schema::OrderBind::Reader order, Turn& turn) {
  const std::uint64_t task = order.getTask();
  const std::uint32_t epoch = order.getEpoch();
  const auto refused = [&](const Fault& why) { sayRefused(task, epoch, why, turn); };
  if (task == 0 || epoch == 0) {
    return refused({errorName(ErrorCode::InvalidArgument), "a task has a number and an epoch"});
  }
  if (const auto found = known_.find(task); found != known_.end()) {
    KnownTask& known = found->second;
    const bool here = known.step != Step::Over;
    if (here && epoch == known.epoch) {
      if (known.step == Step::Asked) return;   // one answer comes for both
      return known.token.empty() ? askAgain(task, known) : sayBound(task, known, turn);
    }
    const bool over = epoch <= known.over && !QGPU_PLANTED(StaleEpochBound);
    if (over) QGPU_MARK(OverRefused);
    if (over && epoch == known.over) return refused(known.why);
    if (over) return refused(conflict(task, "is over here", known.over));
    if (here) {   // for good: once it is refused, it may be bound elsewhere
      QGPU_MARK(OlderEpochHere);
      const Fault older = conflict(task, "is here", known.epoch);
      if (epoch > known.epoch) noteOver(known, epoch, older);
      return refused(older);
    }
  }
  Fault why;
  if (!mayBind(turn) && state_ != MemberState::Admitting) {
    why = unavailable("the lease of this node is over");
  } else if (orders_.size() >= kOrdersMax) {
    why = {errorName(ErrorCode::Overloaded), "too many orders wait on this node"};
  }
  if (!why.code.empty()) {
    markOver(task, epoch, why);
    return refused(why);
  }
  KnownTask& known = known_[task];
  known.step = Step::Asked;
  known.epoch = epoch;
  MemberOrder bind;
  bind.attempt = attempt_;
  bind.task = task;
  bind.epoch = epoch;
  bind.spec = readSpec(order.getSpec());
  bind.cards = textsOf(order.getCards());
  orders_.push_back(std::move(bind));
}

// The node remembers what this manager's memory does not: the token of a task that was bound
// before it started.
void MemberActor::askAgain(std::uint64_t task, KnownTask& known) {
  const auto record = told_.find(known.nodeTask);
  if (record == told_.end()) return;
  QGPU_MARK(TokenAskedAgain);
  known.step = Step::Asked;
  MemberOrder bind;
  bind.attempt = attempt_;
  bind.task = task;
  bind.epoch = known.epoch;
  bind.spec = record->second.spec;
  bind.held = true;
  orders_.push_back(std::move(bind));
}

void MemberActor::onEndOrder(schema::OrderEnd::Reader order, Turn&) {
  if (orders_.size() >= kOrdersMax) return;   // it is ordered again with the next hello
  MemberOrder end;
  end.kind = MemberOrder::Kind::End;
  end.attempt = attempt_;
  end.task = order.getTask();
  end.epoch = order.getEpoch();
  end.nodeTask = order.getNodeTask();
  end.reason = text(order.getReason()).substr(0, 160);
  if (end.reason.empty()) end.reason = "ended by the scheduler";
  const auto known = known_.find(end.task);
  const bool here = known != known_.end() && known->second.step != Step::Over;
  Fault ended = conflict(end.task, "was ended", end.epoch);
  if (here && known->second.epoch < end.epoch) {
    noteOver(known->second, end.epoch, std::move(ended));
  } else if (!here && end.task != 0) {
    markOver(end.task, end.epoch, std::move(ended));
  }
  orders_.push_back(std::move(end));
}

void MemberActor::onMarkOrder(schema::OrderMark::Reader order, Turn& turn) {
  if (orders_.size() >= kOrdersMax) return tellCardsAgain(turn);
  MemberOrder mark;
  mark.kind = MemberOrder::Kind::Mark;
  mark.attempt = attempt_;
  mark.cards = {text(order.getCard()).substr(0, kNameMax + 1)};
  mark.mark = order.getMark();
  orders_.push_back(std::move(mark));
}

void MemberActor::pumpOrders(Turn& turn) {
  while (!orders_.empty() && ordersAtNode_ < kAtNodeMax) {
    if (state_ != MemberState::Member && state_ != MemberState::LeaseOver) return;
    MemberOrder order = std::move(orders_.front());
    orders_.pop_front();
    const bool isNew = order.kind == MemberOrder::Kind::Place && !order.held;
    if (isNew && !mayBind(turn)) {
      QGPU_MARK(OrderMetLeaseOver);
      onNotPlaced(order, unavailable("the lease of this node is over"), turn);
    } else {
      sendOrder(std::move(order));
    }
  }
}

void MemberActor::sendOrder(MemberOrder order) {
  ++ordersAtNode_;
  if (order.kind == MemberOrder::Kind::Place) ++placesAtNode_;
  Pending pending;
  pending.about = About::Order;
  pending.attempt = attempt_;
  pending.order = order;
  askNode(std::move(pending), [order = std::move(order)](schema::Request::Builder request) {
    switch (order.kind) {
      case MemberOrder::Kind::Place: {
        auto place = request.initPlace();
        place.setTask(order.task);
        place.setEpoch(order.epoch);
        writeSpec(order.spec, place.initSpec());
        auto cards = place.initCards(static_cast<unsigned>(order.cards.size()));
        for (unsigned i = 0; i < cards.size(); ++i) cards.set(i, order.cards[i]);
        return;
      }
      case MemberOrder::Kind::End: {
        auto end = request.initEnd();
        end.setTask(order.task);
        end.setEpoch(order.epoch);
        end.setNodeTask(order.nodeTask);
        end.setReason(order.reason);
        return;
      }
      case MemberOrder::Kind::Mark:
        if (order.mark == schema::OrderMark::Mark::UNCORDON) request.setUncordon(order.cards[0]);
        else if (order.mark == schema::OrderMark::Mark::CORDON) request.setCordon(order.cards[0]);
        else request.setDrain(order.cards[0]);
    }
  });
}

// --- the node's answers ---

void MemberActor::onOrderReply(const Pending& pending, schema::Reply::Reader reply, Turn& turn) {
  const MemberOrder& order = pending.order;
  --ordersAtNode_;
  switch (order.kind) {
    case MemberOrder::Kind::Place:
      --placesAtNode_;
      if (reply.isBound()) onPlaced(order, reply.getBound(), turn);
      else onNotPlaced(order, readFault(reply.getFailed()), turn);
      if (state_ == MemberState::Gathering) gather();
      return;
    case MemberOrder::Kind::End: return onEndReply(order, reply, turn);
    case MemberOrder::Kind::Mark: return tellCardsAgain(turn);
  }
}

void MemberActor::onPlaced(const MemberOrder& order, schema::Bound::Reader bound, Turn& turn) {
  KnownTask& known = known_[order.task];
  known.step = Step::Held;
  known.epoch = order.epoch;
  known.nodeTask = bound.getTask();
  known.token = text(bound.getToken());
  known.cards = textsOf(bound.getCards());
  if (!told_.contains(known.nodeTask)) {
    HeldRecord record;
    record.nodeTask = known.nodeTask;
    record.spec = order.spec;
    record.spec.clusterTask = order.task;
    record.spec.clusterEpoch = order.epoch;
    record.cards = known.cards;
    told_[known.nodeTask] = std::move(record);
  }
  settleForwards(order.task);
  if (order.attempt == attempt_) sayBound(order.task, known, turn);
}

// A repeated order that the node could not look at changes nothing of what it holds.
void MemberActor::onNotPlaced(const MemberOrder& order, const Fault& why, Turn& turn) {
  const bool gone = why.code == errorName(ErrorCode::Conflict);
  if (order.held && !gone) {
    known_.at(order.task).step = Step::Held;
    for (auto next = forwards_.begin(); next != forwards_.end();) {
      const auto forward = next++;
      if (forward->second.task == order.task) failForward(forward->first, why);
    }
    return;
  }
  markOver(order.task, order.epoch, why);
  settleForwards(order.task);
  if (order.attempt == attempt_) sayRefused(order.task, order.epoch, why, turn);
}

void MemberActor::onEndReply(const MemberOrder& order, schema::Reply::Reader reply, Turn& turn) {
  if (order.attempt != attempt_ || !inSession()) return;
  if (!reply.isFailed()) {
    tasksDue_ = true;   // an event tells of its end, unless the node had too many to tell
    return armBatch(turn);
  }
  if (text(reply.getFailed().getCode()) != errorName(ErrorCode::NotFound)) {
    QGPU_MARK(EndNotStored);
    if (endsAgain_.empty()) tick(turn, options_.endAgain, TickKind::EndAgain, 0);
    endsAgain_.push_back(order);
    return;
  }
  HeldRecord record;
  record.nodeTask = order.nodeTask;
  record.spec.clusterTask = order.task;
  record.spec.clusterEpoch = order.epoch;
  record.ended = true;
  sayTasks({record}, turn);
}

void MemberActor::noteOver(KnownTask& known, std::uint32_t epoch, Fault why) {
  if (epoch <= known.over) return;
  known.over = epoch;
  known.why = std::move(why);
}

// Of a task that is here no more.
void MemberActor::markOver(std::uint64_t task, std::uint32_t epoch, Fault why) {
  KnownTask& known = known_[task];
  noteOver(known, epoch, std::move(why));
  known.step = Step::Over;
  known.nodeTask = 0;
  known.token.clear();
  known.cards.clear();
  known.overStamp = ++lastOver_;
  over_.emplace_back(known.overStamp, task);
  while (over_.size() > kOverKept) {
    const auto [stamp, oldest] = over_.front();
    over_.pop_front();
    const auto found = known_.find(oldest);
    if (found == known_.end() || found->second.step != Step::Over) continue;
    if (found->second.overStamp == stamp) known_.erase(found);
  }
}

void MemberActor::sayBound(std::uint64_t task, const KnownTask& known, Turn& turn) {
  say([&](schema::FromMember::Builder word) {
    auto bound = word.initBound();
    bound.setTask(task);
    bound.setEpoch(known.epoch);
    bound.setNodeTask(known.nodeTask);
    bound.setToken(known.token);
    auto cards = bound.initCards(static_cast<unsigned>(known.cards.size()));
    for (unsigned i = 0; i < cards.size(); ++i) cards.set(i, known.cards[i]);
  }, turn);
}

void MemberActor::sayRefused(std::uint64_t task, std::uint32_t epoch, const Fault& why,
                             Turn& turn) {
  say([&](schema::FromMember::Builder word) {
    auto refused = word.initRefused();
    refused.setTask(task);
    refused.setEpoch(epoch);
    writeFault(why, refused.initFailure());
  }, turn);
}

void MemberActor::sayTasks(const std::vector<HeldRecord>& records, Turn& turn) {
  for (std::size_t from = 0; from < records.size(); from += kTasksPerWord) {
    const std::size_t count = std::min(kTasksPerWord, records.size() - from);
    say([&](schema::FromMember::Builder word) {
      auto list = word.initTasks(static_cast<unsigned>(count));
      for (unsigned i = 0; i < count; ++i) writeHeld(records[from + i], list[i]);
    }, turn);
  }
}

// --- local binds ---

void MemberActor::onRequest(schema::Request::Reader request, Turn& turn) {
  const Asker asker{turn.sender(), request.getCorr()};
  if (asker.client == ActorId::kNobody) return;
  if (!request.isBind()) {
    return replyFailed(asker, {errorName(ErrorCode::Unsupported), "only binds are forwarded"});
  }
  TaskSpec spec = readSpec(request.getBind());
  spec.clusterTask = 0;   // the scheduler's alone to say
  spec.clusterEpoch = 0;
  if (!request.getMayChange()) spec.ownerUid = request.getPeerUid();
  if (const Status valid = checkSpec(spec); !valid) {
    return replyFailed(asker, faultOf(valid.error()));
  }
  if (!mayBind(turn)) {
    return replyFailed(asker, unavailable("tasks are placed by the scheduler, and it can't be "
                                          "asked now (" + standing_ + "): try again later"));
  }
  if (forwards_.size() >= kForwardsMax) {
    return replyFailed(asker, {errorName(ErrorCode::Overloaded),
                               std::to_string(forwards_.size()) +
                                   " requests wait for the scheduler already: try again later"});
  }
  const std::uint64_t corr = ++lastForward_;
  forwards_[corr] = Forward{asker, turn.now() + options_.forwardMax, 0};
  onForwardDue(turn);
  say([&](schema::FromMember::Builder word) {
    auto forward = word.initForward();
    forward.setCorr(corr);
    forward.setUid(spec.ownerUid);
    auto wanted = forward.initSpec();
    writeSpec(spec, wanted.initTask());
    wanted.setNode(capnp::readMessageUnchecked<schema::Reply>(info_.data()).getInfo().getName());
  }, turn);
}

// The order to bind it came before, and may be at the node still.
void MemberActor::onForwarded(schema::MemberForwarded::Reader word, Turn&) {
  const auto found = forwards_.find(word.getCorr());
  if (found == forwards_.end()) return;
  if (word.isFailed()) return failForward(found->first, readFault(word.getFailed()));
  const std::uint64_t task = word.getTask();
  const auto known = known_.find(task);
  if (known == known_.end()) {
    return failForward(found->first, {errorName(ErrorCode::Conflict),
                                      "it is cluster task " + std::to_string(task) +
                                          ", which is not on this node"});
  }
  found->second.task = task;
  if (known->second.step == Step::Held && known->second.token.empty()) {
    askAgain(task, known->second);
  }
  settleForwards(task);
}

void MemberActor::settleForwards(std::uint64_t task) {
  const auto found = known_.find(task);
  if (found == known_.end() || found->second.step == Step::Asked) return;
  const KnownTask& known = found->second;
  for (auto next = forwards_.begin(); next != forwards_.end();) {
    const auto forward = next++;
    if (forward->second.task != task) continue;
    if (known.step == Step::Over) {
      failForward(forward->first, known.why);
    } else {
      replyBound(forward->second.asker, known);
      forwards_.erase(forward);
    }
  }
}

void MemberActor::onForwardDue(Turn& turn) {
  while (!forwards_.empty() && forwards_.begin()->second.until <= turn.now()) {
    QGPU_MARK(ForwardExpired);
    failForward(forwards_.begin()->first,
                unavailable("the scheduler did not answer in time; what was asked may still "
                            "happen"));
  }
  if (forwards_.empty() || forwardArmed_) return;
  forwardArmed_ = true;
  tick(turn, forwards_.begin()->second.until - turn.now(), TickKind::Forward, 0);
}

void MemberActor::failForward(std::uint64_t forward, const Fault& why) {
  const auto found = forwards_.find(forward);
  if (found == forwards_.end()) return;
  replyFailed(found->second.asker, why);
  forwards_.erase(found);
}

void MemberActor::replyFailed(const Asker& asker, const Fault& why) {
  const auto build = [corr = asker.corr, why](schema::Envelope::Builder envelope) {
    auto reply = envelope.initReply();
    reply.setCorr(corr);
    writeFault(why, reply.initFailed());
  };
  outbox_.putWithin(asker.client, kForwardsMax * 4, build);
}

void MemberActor::replyBound(const Asker& asker, const KnownTask& known) {
  const auto build = [this, corr = asker.corr, known](schema::Envelope::Builder envelope) {
    auto reply = envelope.initReply();
    reply.setCorr(corr);
    auto bound = reply.initBound();
    bound.setTask(known.nodeTask);
    bound.setToken(known.token);
    bound.setAttachSocket(options_.attachSocket);
    auto cards = bound.initCards(static_cast<unsigned>(known.cards.size()));
    for (unsigned i = 0; i < cards.size(); ++i) cards.set(i, known.cards[i]);
  };
  outbox_.putWithin(asker.client, kForwardsMax * 4, build);
}

}  // namespace qgpu
