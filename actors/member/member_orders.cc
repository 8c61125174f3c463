#include "actors/member/member_orders.h"

#include <utility>

#include "runtime/planted.h"

namespace qgpu {
namespace {

Fault conflict(std::uint64_t task, const std::string& what, std::uint32_t epoch) {
  return {ErrorCode::Conflict, "cluster task " + std::to_string(task) + " " + what +
                                   " with epoch " + std::to_string(epoch)};
}

Fault leaseIsOver() {
  return {ErrorCode::Unavailable, "the lease of this node is over"};
}

template <typename List>
std::vector<std::string> textsOf(List list) {
  std::vector<std::string> found;
  for (const auto item : list) found.push_back(text(item).substr(0, kNameMax + 1));
  return found;
}

}  // namespace

MemberOrders::Order MemberOrders::made(Order::Kind kind) const {
  Order order;
  order.kind = kind;
  order.attempt = session_.attempt();
  return order;
}

// --- orders ---

void MemberOrders::onBind(schema::OrderBind::Reader order, Turn& turn) {
  const std::uint64_t task = order.getTask();
  const std::uint32_t epoch = order.getEpoch();
  const auto refused = [&](const Fault& why) { sayRefused(task, epoch, why, turn); };
  if (task == 0 || epoch == 0) {
    return refused({ErrorCode::InvalidArgument, "a task has a number and an epoch"});
  }
  if (KnownTask* known = known_.find(task)) {
    if (known->isHere() && epoch == known->epoch) {
      if (known->step == KnownTask::Step::Asked) return;  // one answer comes for both
      return known->token.empty() ? askAgain(task, *known) : sayBound(task, *known, turn);
    }
    const bool over = epoch <= known->over && !QGPU_PLANTED(StaleEpochBound);
    if (over) QGPU_MARK(OverRefused);
    if (over && epoch == known->over) return refused(known->why);
    if (over) return refused(conflict(task, "is over here", known->over));
    if (known->isHere()) {  // for good: once it is refused, it may be bound elsewhere
      QGPU_MARK(OlderEpochHere);
      const Fault older = conflict(task, "is here", known->epoch);
      if (epoch > known->epoch) KnownTasks::refuse(*known, epoch, older);
      return refused(older);
    }
  }
  Fault why;
  if (!session_.mayBind(turn) && session_.state() != MemberState::Admitting) {
    why = leaseIsOver();
  } else if (orders_.size() >= kOrdersMax) {
    why = {ErrorCode::Overloaded, "too many orders wait on this node"};
  }
  if (!why.code.empty()) {
    known_.end(task, epoch, why);
    return refused(why);
  }
  known_.ask(task, epoch);
  Order bind = made(Order::Kind::Place);
  bind.task = task;
  bind.epoch = epoch;
  bind.spec = readSpec(order.getSpec());
  bind.cards = textsOf(order.getCards());
  orders_.push_back(std::move(bind));
}

// The node remembers what this manager's memory does not: the token of a task that was bound
// before it started.
void MemberOrders::askAgain(std::uint64_t task, KnownTask& known) {
  const HeldRecord* record = view_.told(known.nodeTask);
  if (record == nullptr) return;
  QGPU_MARK(TokenAskedAgain);
  known.step = KnownTask::Step::Asked;
  Order bind = made(Order::Kind::Place);
  bind.task = task;
  bind.epoch = known.epoch;
  bind.spec = record->spec;
  bind.held = true;
  orders_.push_back(std::move(bind));
}

void MemberOrders::onEnd(schema::OrderEnd::Reader order) {
  if (orders_.size() >= kOrdersMax) return;  // it is ordered again with the next hello
  Order end = made(Order::Kind::End);
  end.task = order.getTask();
  end.epoch = order.getEpoch();
  end.nodeTask = order.getNodeTask();
  end.reason = text(order.getReason()).substr(0, 160);
  if (end.reason.empty()) end.reason = "ended by the scheduler";
  KnownTask* known = known_.find(end.task);
  const bool here = known != nullptr && known->isHere();
  Fault ended = conflict(end.task, "was ended", end.epoch);
  if (here && known->epoch < end.epoch) {
    KnownTasks::refuse(*known, end.epoch, std::move(ended));
  } else if (!here && end.task != 0) {
    known_.end(end.task, end.epoch, std::move(ended));
  }
  orders_.push_back(std::move(end));
}

void MemberOrders::onMark(schema::OrderMark::Reader order, Turn& turn) {
  if (orders_.size() >= kOrdersMax) return view_.tellCardsAgain(turn);
  Order mark = made(Order::Kind::Mark);
  mark.cards = {text(order.getCard()).substr(0, kNameMax + 1)};
  mark.mark = order.getMark();
  orders_.push_back(std::move(mark));
}

void MemberOrders::onForwarded(schema::MemberForwarded::Reader message) {
  if (message.isFailed()) return forwards_.fail(message.getCorr(), Fault(message.getFailed()));
  const std::uint64_t task = message.getTask();
  if (!forwards_.becomes(message.getCorr(), task)) return;
  KnownTask& known = *known_.find(task);
  if (known.step == KnownTask::Step::Held && known.token.empty()) askAgain(task, known);
  forwards_.settle(task);
}

void MemberOrders::forget() {
  for (const Order& order : orders_) {
    if (order.kind == Order::Kind::Place) known_.askedNoMore(order.task, order.held);
  }
  orders_.clear();
  endsAgain_.clear();
}

// --- to the node ---

void MemberOrders::send(Turn& turn) {
  while (!orders_.empty() && atNode_ < kAtNodeMax) {
    const MemberState state = session_.state();
    if (state != MemberState::Member && state != MemberState::LeaseOver) return;
    Order order = std::move(orders_.front());
    orders_.pop_front();
    const bool isNew = order.kind == Order::Kind::Place && !order.held;
    if (isNew && !session_.mayBind(turn)) {
      QGPU_MARK(OrderMetLeaseOver);
      onNotPlaced(order, leaseIsOver(), turn);
    } else {
      sendOne(std::move(order));
    }
  }
}

void MemberOrders::sendOne(Order order) {
  ++atNode_;
  if (order.kind == Order::Kind::Place) ++bindsAtNode_;
  member_.askNode(
      [order](schema::Request::Builder request) { write(order, request); },
      [this, order](schema::Reply::Reader reply, Turn& turn) { onReply(order, reply, turn); });
}

void MemberOrders::write(const Order& order, schema::Request::Builder request) {
  switch (order.kind) {
    case Order::Kind::Place: {
      auto place = request.initPlace();
      place.setTask(order.task);
      place.setEpoch(order.epoch);
      writeSpec(order.spec, place.initSpec());
      auto cards = place.initCards(static_cast<unsigned>(order.cards.size()));
      for (unsigned i = 0; i < cards.size(); ++i) cards.set(i, order.cards[i]);
      return;
    }
    case Order::Kind::End: {
      auto end = request.initEnd();
      end.setTask(order.task);
      end.setEpoch(order.epoch);
      end.setNodeTask(order.nodeTask);
      end.setReason(order.reason);
      return;
    }
    case Order::Kind::Mark:
      if (order.mark == schema::OrderMark::Mark::UNCORDON)
        request.setUncordon(order.cards[0]);
      else if (order.mark == schema::OrderMark::Mark::CORDON)
        request.setCordon(order.cards[0]);
      else
        request.setDrain(order.cards[0]);
  }
}

// --- the node's answers ---

void MemberOrders::onReply(const Order& order, schema::Reply::Reader reply, Turn& turn) {
  --atNode_;
  switch (order.kind) {
    case Order::Kind::Place:
      --bindsAtNode_;
      if (reply.isBound())
        onPlaced(order, reply.getBound(), turn);
      else
        onNotPlaced(order, Fault(reply.getFailed()), turn);
      if (session_.state() == MemberState::Gathering) view_.gather(bindsAtNode_);
      return;
    case Order::Kind::End:
      return onEndReply(order, reply, turn);
    case Order::Kind::Mark:
      return view_.tellCardsAgain(turn);
  }
}

void MemberOrders::onPlaced(const Order& order, schema::Bound::Reader bound, Turn& turn) {
  KnownTask& known =
      known_.hold(order.task, order.epoch, bound.getTask(), textsOf(bound.getCards()));
  known.token = text(bound.getToken());
  HeldRecord record;
  record.nodeTask = known.nodeTask;
  record.spec = order.spec;
  record.spec.clusterTask = order.task;
  record.spec.clusterEpoch = order.epoch;
  record.cards = known.cards;
  view_.noteBound(std::move(record));
  forwards_.settle(order.task);
  if (order.attempt == session_.attempt()) sayBound(order.task, known, turn);
}

// A repeated order that the node could not look at changes nothing of what it holds.
void MemberOrders::onNotPlaced(const Order& order, const Fault& why, Turn& turn) {
  if (order.held && !why.is(ErrorCode::Conflict)) {
    known_.askedNoMore(order.task, true);
    return forwards_.failTask(order.task, why);
  }
  known_.end(order.task, order.epoch, why);
  forwards_.settle(order.task);
  if (order.attempt == session_.attempt()) sayRefused(order.task, order.epoch, why, turn);
}

void MemberOrders::onEndReply(const Order& order, schema::Reply::Reader reply, Turn& turn) {
  if (order.attempt != session_.attempt() || !session_.inSession()) return;
  // An event tells of its end, unless the node had too many to tell.
  if (!reply.isFailed()) return view_.tasksChanged(turn);
  if (!Fault(reply.getFailed()).is(ErrorCode::NotFound)) {
    QGPU_MARK(EndNotStored);
    if (endsAgain_.empty()) {
      MemberContext::later(turn, member_.options().endAgain, MemberTick::EndAgain, 0);
    }
    endsAgain_.push_back(order);
    return;
  }
  HeldRecord record;
  record.nodeTask = order.nodeTask;
  record.spec.clusterTask = order.task;
  record.spec.clusterEpoch = order.epoch;
  record.ended = true;
  view_.sayTasks({record}, turn);
}

void MemberOrders::onEndAgainDue() {
  for (Order& order : std::exchange(endsAgain_, {})) orders_.push_back(std::move(order));
}

void MemberOrders::sayBound(std::uint64_t task, const KnownTask& known, Turn& turn) {
  session_.say(
      [&](schema::FromMember::Builder message) {
        auto bound = message.initBound();
        bound.setTask(task);
        bound.setEpoch(known.epoch);
        bound.setNodeTask(known.nodeTask);
        bound.setToken(known.token);
        auto cards = bound.initCards(static_cast<unsigned>(known.cards.size()));
        for (unsigned i = 0; i < cards.size(); ++i) cards.set(i, known.cards[i]);
      },
      turn);
}

void MemberOrders::sayRefused(std::uint64_t task, std::uint32_t epoch, const Fault& why,
                              Turn& turn) {
  session_.say(
      [&](schema::FromMember::Builder message) {
        auto refused = message.initRefused();
        refused.setTask(task);
        refused.setEpoch(epoch);
        why.write(refused.initFailure());
      },
      turn);
}

}  // namespace qgpu
