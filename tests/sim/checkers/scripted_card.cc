#include "tests/sim/checkers/scripted_card.h"

#include <utility>

#include "services/wire/gate_abi.h"

namespace qgpu::sim {

ScriptedCard::ScriptedCard(Policy policy) : policy_(policy) {
  boots();
}

void ScriptedCard::violated(const char* invariant, const std::string&) {
  const std::string word = std::string(invariant) + " ";
  if ((" " + broken_ + " ").find(" " + word) != std::string::npos) return;
  broken_ += (broken_.empty() ? "" : " ") + std::string(invariant);
}

void ScriptedCard::each(const std::function<void(Watch&)>& tell) {
  tell(arbiter_);
  tell(guests_);
  tell(memory_);
}

void ScriptedCard::boots() {
  Boot boot;
  boot.life = ++life_;
  boot.node = kNode;
  boot.attach = kAttach;
  boot.cards = {{kCard, gibibytes(16), false}};
  boot.policy = policy_;
  boot.onlineIdle = millis(100);
  boot.sliceMin = millis(2);
  boot.sliceMax = millis(30);
  boot.lingerMax = micros(500);
  boot.settleMax = millis(100);
  boot.settleFactor = 4;
  each([&](Watch& watch) { watch.onBoot(boot, now_); });
}

void ScriptedCard::restarts() {
  each([&](Watch& watch) { watch.onEnd(Ending::Crash, now_); });
  boots();
}

ScriptedCard& ScriptedCard::at(std::int64_t us) {
  now_ = boot_ + micros(us);
  return *this;
}

void ScriptedCard::carry(ActorId from, ActorId to, const Build& build, Lane lane, bool timer) {
  capnp::MallocMessageBuilder words;
  const auto envelope = words.initRoot<schema::Envelope>();
  build(envelope);
  const Carried message{from, to, lane, timer, ++serial_, envelope.asReader()};
  each([&](Watch& watch) { watch.onSent(message, now_); });
}

void ScriptedCard::turn(const Build& build, const Orders& orders, bool timer) {
  capnp::MallocMessageBuilder words;
  const auto envelope = words.initRoot<schema::Envelope>();
  build(envelope);
  const std::uint64_t fired = timer ? std::exchange(fired_, 0) : 0;
  const std::uint64_t serial = fired != 0 ? fired : ++serial_;
  const Carried message{kAttach, kCard, Lane::Control, timer, serial, envelope.asReader()};
  if (fired == 0) each([&](Watch& watch) { watch.onSent(message, now_); });
  each([&](Watch& watch) { watch.onTurn(message, now_); });
  for (const TestOrder& made : orders) order(made);
  each([&](Watch& watch) { watch.onTurnEnd(kCard, now_); });
}

void ScriptedCard::order(const TestOrder& made) {
  using Word = schema::GateOrder::Order;
  const bool numbered = made.kind == TestOrder::Kind::Open || made.kind == TestOrder::Kind::Hold;
  if (numbered) epoch_ = made.epoch != 0 ? made.epoch : epoch_ + 1;
  carry(
      kCard, kAttach,
      [&](schema::Envelope::Builder envelope) {
        auto gate = envelope.initGateOrder();
        gate.setTask(made.task);
        gate.setEpoch(numbered ? epoch_ : 0);
        gate.setOrder(made.kind == TestOrder::Kind::Open    ? Word::OPEN
                      : made.kind == TestOrder::Kind::Close ? Word::CLOSE
                                                            : Word::HOLD);
        gate.setNotify(made.notify);
        gate.setContended(made.contended);
      },
      Lane::Control);
}

void ScriptedCard::joins(std::uint64_t task, Class taskClass, std::uint32_t share,
                         const Orders& orders) {
  const TestOrder first = {TestOrder::Kind::Introduce, task, false, false, 0};
  turn(
      [&](schema::Envelope::Builder envelope) {
        auto joined = envelope.initJoined();
        joined.setTask(task);
        joined.setClass(static_cast<schema::TaskClass>(taskClass));
        joined.setSharePermille(share);
        joined.setActor(9);
      },
      orders.empty() ? Orders{first} : orders);
}

void ScriptedCard::leaves(std::uint64_t task, const Orders& orders) {
  turn([&](schema::Envelope::Builder envelope) { envelope.initLeft().setTask(task); }, orders);
}

void ScriptedCard::busy(std::uint64_t task, const Orders& orders) {
  turn(
      [&](schema::Envelope::Builder envelope) {
        auto busy = envelope.initBusy();
        busy.setTask(task);
        busy.setSinceNs(static_cast<std::uint64_t>(now_.value));
      },
      orders);
}

void ScriptedCard::quiet(std::uint64_t task, const Orders& orders) {
  turn(
      [&](schema::Envelope::Builder envelope) {
        auto quiet = envelope.initQuiet();
        quiet.setTask(task);
        quiet.setSinceNs(static_cast<std::uint64_t>(now_.value));
      },
      orders);
}

void ScriptedCard::settled(std::uint64_t task, std::uint32_t epoch, const Orders& orders) {
  turn(
      [&](schema::Envelope::Builder envelope) {
        auto settled = envelope.initSettled();
        settled.setTask(task);
        settled.setEpoch(epoch);
        settled.setAtNs(static_cast<std::uint64_t>(now_.value));
      },
      orders);
}

void ScriptedCard::died(std::uint64_t task, const Orders& orders) {
  turn([&](schema::Envelope::Builder envelope) { envelope.initOwnerDied().setTask(task); }, orders);
}

void ScriptedCard::retiredLate(std::uint64_t task, const Orders& orders) {
  turn([&](schema::Envelope::Builder envelope) { envelope.initRetiredLate().setTask(task); },
       orders);
}

void ScriptedCard::tick(const Orders& orders) {
  turn([](schema::Envelope::Builder envelope) { envelope.initTick(); }, orders, true);
}

void ScriptedCard::fires() {
  carry(
      kCard, kCard, [](schema::Envelope::Builder envelope) { envelope.initTick(); }, Lane::Control,
      true);
  fired_ = serial_;
}

void ScriptedCard::reports(std::int64_t usedUs, std::int64_t idleUs, std::int64_t onlineUs,
                           std::uint64_t holds) {
  carry(
      kCard, kNode,
      [&](schema::Envelope::Builder envelope) {
        auto status = envelope.initCardReport().initStatus();
        status.setUsedNs(static_cast<std::uint64_t>(usedUs * 1000));
        status.setIdleNs(static_cast<std::uint64_t>(idleUs * 1000));
        status.setOnlineNs(static_cast<std::uint64_t>(onlineUs * 1000));
        status.setHolds(holds);
      },
      Lane::Ordinary);
}

void ScriptedCard::stores(std::uint64_t task, std::uint32_t flags) {
  const GateStore store{task, ++stores_, flags, false};
  each([&](Watch& watch) { watch.onGate(store, now_); });
}

void ScriptedCard::guest(GuestNews::Kind kind, std::uint64_t task, std::uint32_t process,
                         std::int64_t amount, std::uint32_t inFlight) {
  GuestNews news;
  news.kind = kind;
  news.task = task;
  news.process = process;
  news.amount = amount;
  news.inFlight = inFlight;
  each([&](Watch& watch) { watch.onGuest(news, now_); });
}

void ScriptedCard::portSays(const Build& build) {
  carry(kAttach, kNode, build, Lane::Control);
}

void ScriptedCard::tells(const Build& build) {
  carry(kNode, kAttach, build, Lane::Ordinary);
}

}  // namespace qgpu::sim
