// The dispatcher on real loops and threads: lanes, order, refusal, the output gate, timers, stop.
#include "runtime/dispatcher.h"

#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "schema/envelope.actor.h"

namespace qgpu::dispatcher_test {
namespace {

using Envelope = schema::Envelope;
using Values = std::vector<std::uint64_t>;

// Does what the test says with each message, and remembers the value of each tick.
class Scripted final : public Actor {
 public:
  using Script = std::function<void(Envelope::Reader, Turn&)>;
  explicit Scripted(Script script = {}) : script_(std::move(script)) {}
  void handle(Envelope::Reader message, Turn& turn) override {
    if (message.isTick()) ticks.push_back(message.getTick().getValue());
    if (script_) script_(message, turn);
  }
  Values ticks;

 private:
  Script script_;
};

auto tick(std::uint64_t value) {
  return [value](Envelope::Builder m) { m.initTick().setValue(value); };
}
auto closed(const std::string& reason) {
  return [&reason](Envelope::Builder m) { m.initTaskClosed().setReason(reason); };
}
auto reply(std::uint64_t corr) {
  return [corr](Envelope::Builder m) { m.initReply().setCorr(corr); };
}
void mustSend(SendResult result) {
  EXPECT_EQ(result, SendResult::Sent);
}

// Batches wait here until the test decides them, from a message handled on the loop.
class HeldJournal final : public Journal {
 public:
  void append(std::vector<StoredRow> rows, Committed done) override {
    rowsSeen += rows.size();
    waiting.push_back(std::move(done));
  }
  void decide(const Status& status) {
    const Committed done = std::move(waiting.front());
    waiting.pop_front();
    done(status);
  }
  std::deque<Committed> waiting;
  std::size_t rowsSeen = 0;
};

// One loop with a sender of its own; run() until something stopped it.
struct OneLoop {
  ActorSystem system;
  Loop loop;
  Dispatcher dispatcher{system, loop};
  Outlet outlet{dispatcher, dispatcher.reserve()};

  // Runs until nobody has anything to do at once.
  void settle() {
    std::uint64_t before = 0;
    do {
      before = dispatcher.counters().handled;
      loop.poll();
    } while (dispatcher.counters().handled != before);
  }
};

TEST(Dispatcher, C6_DeliversMessagesOfOneSenderInOrder) {
  OneLoop one;
  Scripted receiver;
  const ActorId to = one.dispatcher.add(receiver);
  for (std::uint64_t i = 0; i < 100; ++i) mustSend(one.outlet.send(to, tick(i)));
  one.settle();
  ASSERT_EQ(receiver.ticks.size(), 100U);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(receiver.ticks[i], i);
}

TEST(Dispatcher, CarriesMessagesThatOutgrowTheirCell) {
  OneLoop one;
  const std::string reason(300'000, 'r');
  std::vector<std::size_t> lengths;
  Scripted receiver([&](Envelope::Reader m, Turn&) {
    if (m.isTaskClosed()) lengths.push_back(m.getTaskClosed().getReason().size());
  });
  const ActorId to = one.dispatcher.add(receiver);
  mustSend(one.outlet.send(to, tick(1)));
  mustSend(one.outlet.send(to, closed(reason)));
  one.outlet.sendUrgent(to, closed(reason));
  mustSend(one.outlet.send(to, tick(2)));
  one.settle();
  EXPECT_EQ(lengths, (std::vector<std::size_t>{300'000, 300'000}));
  EXPECT_EQ(receiver.ticks, (Values{1, 2}));
}

TEST(Dispatcher, HandlesControlBeforeOrdinary) {
  OneLoop one;
  Scripted receiver;
  const ActorId to = one.dispatcher.add(receiver);
  for (std::uint64_t i = 1; i <= 3; ++i) mustSend(one.outlet.send(to, tick(i)));
  for (std::uint64_t i = 11; i <= 13; ++i) one.outlet.sendUrgent(to, tick(i));
  one.settle();
  EXPECT_EQ(receiver.ticks, (Values{11, 12, 13, 1, 2, 3}));
}

TEST(Dispatcher, AControlMessageOfATurnOvertakesTheOrdinaryOnesThatWait) {
  OneLoop one;
  ActorId self{};
  Scripted receiver([&](Envelope::Reader m, Turn& turn) {
    if (m.getTick().getValue() == 1) turn.sendUrgent(self, tick(11));
  });
  self = one.dispatcher.add(receiver);
  for (std::uint64_t i = 1; i <= 3; ++i) mustSend(one.outlet.send(self, tick(i)));
  one.settle();
  EXPECT_EQ(receiver.ticks, (Values{1, 11, 2, 3}));
}

TEST(Dispatcher, C5_RefusesOrdinaryMessagesBeyondTheMailboxAndSaysSo) {
  OneLoop one;
  Scripted full;
  Scripted other;
  const ActorId to = one.dispatcher.add(full);
  const ActorId another = one.dispatcher.add(other);
  for (std::uint64_t i = 0; i < kMailboxMax; ++i) mustSend(one.outlet.send(to, tick(i)));
  EXPECT_EQ(one.outlet.send(to, tick(0)), SendResult::Refused);
  EXPECT_EQ(one.outlet.send(another, tick(7)), SendResult::Sent);
  EXPECT_EQ(one.dispatcher.counters().refused, 1U);
  one.settle();
  EXPECT_EQ(full.ticks.size(), kMailboxMax);
  EXPECT_EQ(other.ticks, (Values{7}));
  EXPECT_EQ(one.outlet.send(to, tick(0)), SendResult::Sent);
}

TEST(Dispatcher, C5_NeverRefusesControlHoweverMuchWaits) {
  OneLoop one;
  Scripted receiver;
  const ActorId to = one.dispatcher.add(receiver);
  constexpr std::uint64_t kMany = 20'000;  // the ring holds some hundred
  for (std::uint64_t i = 0; i < kMany; ++i) one.outlet.sendUrgent(to, tick(i));
  for (int i = 0; i < 4; ++i) one.outlet.sendUrgent(to, closed(std::string(5'000, 'x')));
  one.settle();
  ASSERT_EQ(receiver.ticks.size(), kMany);
  EXPECT_TRUE(std::is_sorted(receiver.ticks.begin(), receiver.ticks.end()));
}

TEST(Dispatcher, AMessageToARemovedActorIsRefusedOrCountedAndItsIdIsNotReused) {
  OneLoop one;
  Scripted gone;
  Scripted next;
  const ActorId old = one.dispatcher.add(gone);
  mustSend(one.outlet.send(old, tick(1)));
  one.dispatcher.remove(old);
  const ActorId id = one.dispatcher.add(next);
  EXPECT_NE(old, id);
  EXPECT_EQ(one.outlet.send(old, tick(2)), SendResult::Refused);
  one.outlet.sendUrgent(old, tick(3));
  one.settle();
  EXPECT_TRUE(gone.ticks.empty());
  EXPECT_TRUE(next.ticks.empty());
  EXPECT_EQ(one.dispatcher.counters().undeliverable, 2U);
}

// --- the output gate ---

// An actor that persists at ticks >= 100 and always tells `peer` and, urgently, `urgentPeer`.
Scripted::Script persistAndTell(ActorId& peer, ActorId& urgentPeer) {
  return [&](Envelope::Reader m, Turn& turn) {
    if (!m.isTick()) return;
    const std::uint64_t value = m.getTick().getValue();
    mustSend(turn.send(peer, reply(value)));
    if (value >= 100) {
      turn.persist({RowKind::Task, value}, [](schema::Row::Builder row) { row.setErased(); });
    }
    turn.sendUrgent(urgentPeer, tick(value));
    mustSend(turn.send(peer, tick(value)));
  };
}

struct GatedLoop : OneLoop {
  GatedLoop() { dispatcher.setJournal(journal); }
  // Decides the oldest batch.
  void decide(const Status& status) {
    journal.decide(status);
    settle();
  }
  HeldJournal journal;
  std::string failure;
  std::vector<std::uint64_t> unsent;
  ActorId peerId{};
  ActorId urgentId{};
  Scripted peer;
  Scripted urgentPeer;
  Scripted writer{[this, inner = persistAndTell(peerId, urgentId)](Envelope::Reader m, Turn& t) {
    inner(m, t);
    if (!m.isStorageHealth()) return;
    failure = m.getStorageHealth().getText().cStr();
    for (const auto reply : m.getStorageHealth().getUnsent()) {
      EXPECT_EQ(reply.getTo(), static_cast<std::uint32_t>(peerId));
      unsent.push_back(reply.getCorr());
    }
  }};
  ActorId writerId = (peerId = dispatcher.add(peer), urgentId = dispatcher.add(urgentPeer),
                      dispatcher.add(writer));
};

TEST(Dispatcher, D2_OrdinarySendsWaitForTheCommitAndUrgentOnesDoNot) {
  GatedLoop one;
  mustSend(one.outlet.send(one.writerId, tick(1)));
  mustSend(one.outlet.send(one.writerId, tick(100)));
  mustSend(one.outlet.send(one.writerId, tick(2)));
  one.settle();
  EXPECT_EQ(one.peer.ticks, (Values{1}));
  EXPECT_EQ(one.urgentPeer.ticks, (Values{1, 100, 2}));
  one.decide(ok());
  EXPECT_EQ(one.peer.ticks, (Values{1, 100, 2}));
  EXPECT_EQ(one.journal.rowsSeen, 1U);
}

TEST(Dispatcher, D2_BatchesOfOneActorOpenTheGateOneByOne) {
  GatedLoop one;
  for (const std::uint64_t v : {100U, 1U, 101U, 2U}) {
    mustSend(one.outlet.send(one.writerId, tick(v)));
  }
  one.settle();
  one.decide(ok());
  EXPECT_EQ(one.peer.ticks, (Values{100, 1}));
  one.decide(ok());
  EXPECT_EQ(one.peer.ticks, (Values{100, 1, 101, 2}));
}

TEST(Dispatcher, D4_AFailedCommitDropsWhatWaitedAndNamesTheReplies) {
  GatedLoop one;
  for (const std::uint64_t v : {100U, 1U, 101U}) {
    mustSend(one.outlet.send(one.writerId, tick(v)));
  }
  one.settle();
  one.decide(Status(fail(ErrorCode::Unavailable, "disk full")));
  one.decide(ok());
  EXPECT_EQ(one.failure, "disk full");
  EXPECT_EQ(one.unsent, (Values{100, 1}));
  EXPECT_EQ(one.peer.ticks, (Values{101}));
  EXPECT_EQ(one.dispatcher.counters().commitsFailed, 1U);
}

TEST(Dispatcher, C5_MessagesHeldAtTheGateCountInTheMailbox) {
  GatedLoop one;
  std::size_t sent = 0;
  Scripted greedy([&](Envelope::Reader, Turn& turn) {
    turn.persist({RowKind::Node, 0}, [](schema::Row::Builder row) { row.setErased(); });
    while (turn.send(one.peerId, tick(sent)) == SendResult::Sent) ++sent;
  });
  mustSend(one.outlet.send(one.dispatcher.add(greedy), tick(0)));
  one.settle();
  one.decide(ok());
  EXPECT_EQ(sent, kMailboxMax);
  EXPECT_EQ(one.peer.ticks.size(), kMailboxMax);
}

// --- timers ---

TEST(Dispatcher, TimersFireInOrderOfTheirDeadlines) {
  OneLoop one;
  Scripted actor([&](Envelope::Reader m, Turn& turn) {
    const std::uint64_t value = m.getTick().getValue();
    if (value == 0) {
      turn.after(micros(900), tick(3));
      turn.after(micros(300), tick(1));
      turn.after(micros(300), tick(2));
    }
    if (value == 3) one.loop.stop();
  });
  one.outlet.sendUrgent(one.dispatcher.add(actor), tick(0));
  one.loop.run();
  EXPECT_EQ(actor.ticks, (Values{0, 1, 2, 3}));
}

TEST(Dispatcher, ATimerIsNeverEarly) {
  OneLoop one;
  Nanos begin;
  Nanos end;
  Scripted actor([&](Envelope::Reader m, Turn& turn) {
    (m.getTick().getValue() == 0 ? begin : end) = turn.now();
    if (m.getTick().getValue() == 0) turn.after(micros(250), tick(1));
    if (m.getTick().getValue() == 1) one.loop.stop();
  });
  one.outlet.sendUrgent(one.dispatcher.add(actor), tick(0));
  one.loop.run();
  EXPECT_GE(end - begin, micros(250));
}

// Both timers are due at once; the first one's turn cancels the second, which is queued already.
TEST(Dispatcher, ACancelledTimerNeverArrivesEvenIfItWasDue) {
  OneLoop one;
  TimerId second{};
  Scripted actor([&](Envelope::Reader m, Turn& turn) {
    const std::uint64_t value = m.getTick().getValue();
    if (value == 0) {
      turn.after(Nanos(0), tick(1));
      second = turn.after(Nanos(0), tick(2));
      turn.cancel(turn.after(micros(1), tick(3)));
      turn.after(millis(1), tick(4));
    }
    if (value == 1) turn.cancel(second);
    if (value == 4) one.loop.stop();
  });
  one.outlet.sendUrgent(one.dispatcher.add(actor), tick(0));
  one.loop.run();
  EXPECT_EQ(actor.ticks, (Values{0, 1, 4}));
}

TEST(Dispatcher, TheTimersOfARemovedActorDoNotFire) {
  OneLoop one;
  Scripted actor([](Envelope::Reader, Turn& turn) { turn.after(Nanos(0), tick(1)); });
  const ActorId id = one.dispatcher.add(actor);
  one.outlet.sendUrgent(id, tick(0));
  while (actor.ticks.empty()) one.loop.poll();
  const std::size_t before = actor.ticks.size();
  one.dispatcher.remove(id);
  one.loop.after(micros(1), [&] { one.loop.stop(); });
  one.loop.run();
  EXPECT_EQ(actor.ticks.size(), before);
}

// --- stop ---

TEST(Dispatcher, C8_NoTurnAfterStop) {
  OneLoop one;
  Scripted actor([&](Envelope::Reader m, Turn& turn) {
    turn.after(Nanos(0), tick(9));
    if (m.getTick().getValue() == 5) one.system.stop();
  });
  const ActorId to = one.dispatcher.add(actor);
  for (std::uint64_t i = 0; i < 100; ++i) mustSend(one.outlet.send(to, tick(i)));
  mustSend(one.outlet.send(to, closed(std::string(9'000, 'h'))));  // its heap block is freed too
  one.settle();
  EXPECT_EQ(actor.ticks.back(), 5U);
}

TEST(Dispatcher, PostedWorkRunsOnTheLoopInOrder) {
  Loop loop;
  Values order;
  std::thread other([&] {
    for (std::uint64_t i = 0; i < 10; ++i) loop.post([&order, i] { order.push_back(i); });
    loop.post([&] { loop.stop(); });
  });
  loop.run();
  other.join();
  EXPECT_EQ(order, (Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Dispatcher, EachActorHasRandomNumbersOfItsOwnThatTheSeedDecides) {
  const auto draw = [](std::uint64_t seed) {
    ActorSystem system(seed);
    Loop loop;
    Dispatcher dispatcher(system, loop);
    Values drawn;
    Scripted a([&](Envelope::Reader, Turn& turn) { drawn.push_back(turn.random()); });
    Scripted b([&](Envelope::Reader, Turn& turn) {
      drawn.push_back(turn.random());
      loop.stop();
    });
    Outlet outlet(dispatcher, dispatcher.reserve());
    mustSend(outlet.send(dispatcher.add(a), tick(0)));
    mustSend(outlet.send(dispatcher.add(b), tick(0)));
    loop.run();
    return drawn;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
  EXPECT_NE(draw(7)[0], draw(7)[1]);
}

// --- two loops ---

// Loop `b` on a thread of its own; loop `a` is the test's. Both stop together.
struct TwoLoops {
  ActorSystem system;
  Loop a;
  Loop b;
  Dispatcher onA{system, a};
  Dispatcher onB{system, b};
  void run() {
    std::thread thread([this] { b.run(); });
    a.run();
    thread.join();
  }
  void stop() {
    a.stop();
    b.stop();
  }
};

// Sends `total` values to `to` as fast as they are taken; a refused one is tried again later.
class Pusher final : public Actor {
 public:
  Pusher(ActorId to, Lane lane, std::uint64_t total) : to_(to), lane_(lane), total_(total) {}
  void handle(Envelope::Reader, Turn& turn) override {
    for (int i = 0; i < 100 && next_ < total_; ++i) {
      if (lane_ == Lane::Control) {
        turn.sendUrgent(to_, tick(next_++));
      } else if (next_ % 50 == 49) {
        pushLong(turn);
      } else if (turn.send(to_, tick(next_)) == SendResult::Sent) {
        ++next_;
      } else {
        break;
      }
    }
    if (next_ < total_) turn.after(micros(20), tick(0));
  }

 private:
  // A tick whose message needs the heap.
  void pushLong(Turn& turn) {
    const SendResult result = turn.send(to_, [this](Envelope::Builder m) {
      m.initTaskClosed().setReason(std::string(20'000, 'x'));
      m.initTick().setValue(next_);
    });
    if (result == SendResult::Sent) ++next_;
  }
  ActorId to_;
  Lane lane_;
  std::uint64_t total_;
  std::uint64_t next_ = 0;
};

TEST(Dispatcher, C6_KeepsTheOrderOfEachPairAndLaneAcrossThreads) {
  constexpr std::uint64_t kTotal = 5'000;
  TwoLoops two;
  std::unordered_map<ActorId, Values> got;
  std::size_t count = 0;
  Scripted sink([&](Envelope::Reader m, Turn& turn) {
    got[turn.sender()].push_back(m.getTick().getValue());
    if (++count == 4 * kTotal) two.stop();
  });
  const ActorId sinkId = two.onB.add(sink);
  std::deque<Pusher> pushers;
  for (Dispatcher* home : {&two.onA, &two.onB}) {
    for (const Lane lane : {Lane::Control, Lane::Ordinary}) {
      Pusher& pusher = pushers.emplace_back(sinkId, lane, kTotal);
      Outlet(*home, home->reserve()).sendUrgent(home->add(pusher), tick(0));
    }
  }
  two.run();
  ASSERT_EQ(got.size(), 4U);
  for (const auto& [from, values] : got) {
    ASSERT_EQ(values.size(), kTotal);
    for (std::uint64_t i = 0; i < kTotal; ++i) ASSERT_EQ(values[i], i);
  }
}

TEST(Dispatcher, PlaysPingPongBetweenTwoSleepingLoops) {
  TwoLoops two;
  ActorId left{};
  ActorId right{};
  Scripted a([&](Envelope::Reader m, Turn& turn) {
    if (m.getTick().getValue() == 500) return two.stop();
    mustSend(turn.send(right, tick(m.getTick().getValue() + 1)));
  });
  Scripted b(
      [&](Envelope::Reader m, Turn& turn) { turn.sendUrgent(left, tick(m.getTick().getValue())); });
  left = two.onA.add(a);
  right = two.onB.add(b);
  mustSend(Outlet(two.onA, two.onA.reserve()).send(left, tick(0)));
  two.run();
  EXPECT_EQ(b.ticks.size(), 500U);
  EXPECT_GT(two.onA.counters().wakes + two.onB.counters().wakes, 0U);
}

// The receiver is kept busy until the sender's ring is full, and then the sender goes to sleep.
TEST(Dispatcher, ASleepingSenderIsWokenWhenThereIsRoomForItsBacklog) {
  constexpr std::uint64_t kMany = 30'000;
  TwoLoops two;
  std::atomic<bool> sent{false};
  Scripted sink([&](Envelope::Reader m, Turn&) {
    while (!sent) std::this_thread::yield();
    if (m.getTick().getValue() == kMany - 1) two.stop();
  });
  const ActorId sinkId = two.onB.add(sink);
  Scripted source([&](Envelope::Reader, Turn& turn) {
    for (std::uint64_t i = 0; i < kMany; ++i) turn.sendUrgent(sinkId, tick(i));
    sent = true;
  });
  Outlet(two.onA, two.onA.reserve()).sendUrgent(two.onA.add(source), tick(0));
  two.run();
  ASSERT_EQ(sink.ticks.size(), kMany);
  EXPECT_TRUE(std::is_sorted(sink.ticks.begin(), sink.ticks.end()));
}

// --- generated dispatch ---

struct Typed {
  void onTick(schema::Tick::Reader m, Turn&) { tick = m.getValue(); }
  void onUnexpected(Envelope::Which which, Turn&) { unexpected = messageName(which); }
  std::uint64_t tick = 0;
  std::string unexpected;
};

TEST(Dispatcher, GeneratedDispatchCallsTheHandlerOfTheMessageOrOnUnexpected) {
  OneLoop one;
  Typed typed;
  Scripted actor([&](Envelope::Reader m, Turn& turn) { dispatch(typed, m, turn); });
  const ActorId id = one.dispatcher.add(actor);
  mustSend(one.outlet.send(id, tick(3)));
  mustSend(one.outlet.send(id, reply(1)));
  one.settle();
  EXPECT_EQ(typed.tick, 3U);
  EXPECT_EQ(typed.unexpected, "reply");
}

}  // namespace
}  // namespace qgpu::dispatcher_test
