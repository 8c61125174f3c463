#include <algorithm>
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>

#include "tests/unit/services/attach/attach_fixture.h"

namespace qgpu::gate_port_test {
namespace {

using Which = schema::Envelope::Which;
using How = schema::Settled::How;

// Words that a test and its children share.
template <typename T>
class SharedState {
 public:
  SharedState()
      : at_(static_cast<T*>(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    new (at_) T();
  }
  ~SharedState() { ::munmap(at_, sizeof(T)); }
  T* operator->() { return at_; }
  T* get() { return at_; }

 private:
  T* at_;
};

class GatePortTest : public AttachTest {
 protected:
  GatePortTest() { serverOptions.recovery = Nanos(0); }
  GatePortCounters counters() { return room().gate().counters(); }
  // The order with this epoch took effect in the page.
  bool inForce(const GuestClient& client, std::uint32_t epoch) {
    return until([&] { return client.gateWord() >> QGPU_GATE_SEQ_SHIFT == epoch; });
  }
  const Heard* settledOf(std::uint64_t id, std::uint32_t epoch) const {
    const Heard* last = card.last(Which::SETTLED, id);
    return last != nullptr && last->epoch == epoch ? last : nullptr;
  }
  // A process of offline task 7, at work under a manager that freezes.
  Result<GuestClient> atWork() {
    start(schema::Suspend::FREEZE);
    bind(7, schema::TaskClass::OFFLINE);
    auto client = attachSelf(7);
    if (client) {
      EXPECT_TRUE(inForce(*client, open(7, true)) && client->admit(0));
    }
    return client;
  }
};

TEST_F(GatePortTest, A2_OrdersOfSeveralCardsNeverRepeatAGateWord) {
  cardsOfTasks = 2;
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE(inForce(*client, open(7, true)));
  const std::uint32_t first = client->gateWord();
  otherCard();
  const std::uint64_t orders = counters().orders;
  open(7, true);
  ASSERT_TRUE(until([&] { return counters().orders == orders + 1; }));
  EXPECT_NE(client->gateWord(), first) << "the guest has rung for that one";
}

TEST_F(GatePortTest, NothingIsToldBeforeTheFirstOrder) {
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  EXPECT_FALSE(client->admit(0));
  turns(10);
  EXPECT_TRUE(card.heard.empty());
}

TEST_F(GatePortTest, A2_TheFirstSubmitAtANotifyingGateIsToldByTheDoorbellWithItsStamp) {
  start();
  bind(7, schema::TaskClass::ONLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7, true)));
  const Nanos before = monotonicNow();
  ASSERT_TRUE(client->admit(0));
  const Nanos after = monotonicNow();
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 7) == 1; }));
  EXPECT_GE(card.last(Which::BUSY, 7)->at, before);
  EXPECT_LE(card.last(Which::BUSY, 7)->at, after);
  client->retire();
  ASSERT_TRUE(until([&] { return card.count(Which::QUIET, 7) == 1; }));
  EXPECT_GE(card.last(Which::QUIET, 7)->at, after);
}

TEST_F(GatePortTest, WorkThatCameAndWentBetweenTwoLooksIsToldAsBusyAndQuiet) {
  start();
  bind(7, schema::TaskClass::ONLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7, true)));
  ASSERT_TRUE(client->admit(0));
  client->retire();
  ASSERT_TRUE(until([&] { return card.count(Which::QUIET, 7) == 1; }));
  EXPECT_EQ(card.count(Which::BUSY, 7), 1u);
}

TEST_F(GatePortTest, WhatRanUnderAnEarlierManagerIsNoWorkForTheNextOne) {
  start();
  bind(7, schema::TaskClass::ONLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7, true)));
  ASSERT_TRUE(client->admit(0));
  client->retire();
  ASSERT_TRUE(until([&] { return card.count(Which::QUIET, 7) == 1; }));
  start();
  card.heard.clear();
  node.heard.clear();
  bind(7, schema::TaskClass::ONLINE);
  auto again = returnSelf(7, *client);
  ASSERT_TRUE(again.ok()) << again.error().message;
  ASSERT_TRUE(inForce(*again, open(7, true)));
  again->ring();
  turns(20);
  EXPECT_TRUE(card.heard.empty());
  ASSERT_TRUE(again->admit(0));
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 7) == 1; }));
  again->retire();
  ASSERT_TRUE(until([&] { return card.count(Which::QUIET, 7) == 1; }));
}

TEST_F(GatePortTest, WhatIsInFlightFromUnderAnEarlierManagerIsWorkForTheNextOne) {
  start();
  bind(7, schema::TaskClass::ONLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7, true)));
  ASSERT_TRUE(client->admit(0));
  const Nanos after = monotonicNow();
  start();
  card.heard.clear();
  node.heard.clear();
  bind(7, schema::TaskClass::ONLINE);
  auto again = returnSelf(7, *client);
  ASSERT_TRUE(again.ok()) << again.error().message;
  open(7, true);
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 7) == 1; }));
  EXPECT_LE(card.last(Which::BUSY, 7)->at, after);
}

TEST_F(GatePortTest, A3_WhoComesBackAtWorkAfterItsHoldIsFrozen) {
  auto client = atWork();
  ASSERT_TRUE(client.ok()) << client.error().message;
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  hold(7);
  turns(10);
  auto again = returnSelf(7, *client);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(until([&] { return (again->gateWord() & QGPU_GATE_FROZEN) != 0; }));
  again->retire();
  again->ring();
  EXPECT_TRUE(until([&] { return (again->gateWord() & QGPU_GATE_FROZEN) == 0; }));
}

// What a patient hold would have waited for is over: as soon as its threads stand still it settles.
TEST_F(GatePortTest, A3_WhoComesBackAtWorkAfterAPatientHoldSettlesAtOnce) {
  auto client = atWork();
  ASSERT_TRUE(client.ok()) << client.error().message;
  start(schema::Suspend::FREEZE);
  card.heard.clear();
  bind(7, schema::TaskClass::OFFLINE);
  const std::uint32_t epoch = holdPatiently(7, seconds(60));
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  auto again = returnSelf(7, *client);
  ASSERT_TRUE(again.ok()) << again.error().message;
  qgpu_slot& slot = again->slot();
  std::atomic_ref<std::uint32_t>(slot.driver_threads).store(1);
  std::atomic_ref<std::uint64_t>(slot.frozen_ns)
      .store(static_cast<std::uint64_t>(monotonicNow().value));
  std::atomic_ref<std::uint32_t>(slot.frozen).store(1);
  again->ring();
  EXPECT_TRUE(until([&] { return card.count(Which::SETTLED, 7) == 2; }));
}

TEST_F(GatePortTest, AnIdleGateCostsNoTimer) {
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7, true)));
  ASSERT_TRUE(until([&] { return counters().rings == 1; })) << "it has attached";
  client->ring();  // and again, with no work behind it
  ASSERT_TRUE(until([&] { return counters().rings == 2; }));
  const std::uint64_t samples = counters().samples;
  turns(50);
  EXPECT_EQ(counters().samples, samples);
  ASSERT_TRUE(inForce(*client, hold(7)));
  ASSERT_TRUE(until([&] { return card.count(Which::SETTLED, 7) == 1; }));
  const std::uint64_t held = counters().samples;
  turns(50);
  EXPECT_EQ(counters().samples, held);
}

TEST_F(GatePortTest, AHoldSettlesWhenTheLastWorkRetiresAndRepeatsItsEpoch) {
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7)));
  ASSERT_TRUE(client->admit(0));
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(inForce(*client, epoch));
  turns(10);
  EXPECT_EQ(settledOf(7, epoch), nullptr);
  client->retire();
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  const Heard& settled = *settledOf(7, epoch);
  EXPECT_EQ(settled.how, How::RETIRED);
  EXPECT_GE(settled.at.value, static_cast<std::int64_t>(client->gatePage().gate_stored_ns));
  EXPECT_LE(settled.at, settled.heardAt);
  EXPECT_EQ(card.count(Which::SETTLED, 7), 1u);
}

TEST_F(GatePortTest, AWaiterAtAShutGateIsToldBusyAndWokenByTheOpen) {
  start();
  bind(7);
  Child child([this] {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    return client.ok() && client->admit() ? 0 : 1;
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  hold(7);
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 7) == 1; }));
  open(7);
  ASSERT_TRUE(until([&] { return card.count(Which::OWNER_DIED, 7) == 1; }));
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(GatePortTest, HAZARDS15_OneWakeReachesEveryWaiter) {
  start();
  bind(7);
  SharedState<std::atomic<int>> passed;
  Child child([&]() -> int {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; i++) {
      threads.emplace_back([&] {
        if (client->admit()) passed->fetch_add(1);
      });
    }
    for (auto& thread : threads) thread.join();
    for (;;) ::pause();
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  hold(7);
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 7) == 1; }));
  open(7);
  ASSERT_TRUE(until([&] { return passed->load() == 16; }));
}

TEST_F(GatePortTest, TheStoreOfACausedOrderIsToldWithItsCause) {
  start();
  bind(7);
  const auto client = attachSelf(7);
  const std::uint32_t epoch =
      order(7, schema::GateOrder::Order::HOLD, false, false, monotonicNow());
  ASSERT_TRUE(until([&] { return card.count(Which::GATE_DONE, 7) == 1; }));
  EXPECT_EQ(card.last(Which::GATE_DONE, 7)->epoch, epoch);
  EXPECT_EQ(card.last(Which::GATE_DONE, 7)->at.value,
            static_cast<std::int64_t>(client->gatePage().gate_stored_ns));
}

struct Hammer {
  std::atomic<std::uint32_t> inside{0};
  std::atomic<std::uint64_t> laps{0};
};

TEST_F(GatePortTest, HAZARDS5_SettledMeansThatNoLaunchSlippedThrough) {
  start();
  bind(7);
  SharedState<Hammer> shared;
  Child child([&] {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    while (client.ok() && client->admit()) {
      shared->inside.fetch_add(1);
      shared->inside.fetch_sub(1);
      client->retire();
      shared->laps.fetch_add(1);
    }
    return 1;
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  for (int round = 0; round < 400; round++) {
    const std::uint64_t laps = shared->laps.load();
    open(7, false, true);
    ASSERT_TRUE(until([&] { return shared->laps.load() > laps + 20; }));
    const std::uint32_t epoch = hold(7);
    ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
    const std::uint64_t stopped = shared->laps.load();
    for (int look = 0; look < 200; look++) ASSERT_EQ(shared->inside.load(), 0u);
    // One lap may be counted late by a child that was preempted after its retirement.
    ASSERT_LE(shared->laps.load(), stopped + 1);
    card.heard.clear();
  }
}

TEST_F(GatePortTest, HAZARDS1_AFloodOfRingsIsDisarmedAndATenantThatDrainsCannotBlockTheLoop) {
  start();
  bind(7);
  bind(8);
  auto other = attachSelf(8);
  Child flood([this]() -> int {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    const int bell = client->doorbellFd();
    ::fcntl(bell, F_SETFL, 0);  // shared with the manager's descriptor
    for (std::uint64_t count = 1;;) {
      (void)!::write(bell, &count, sizeof count);
      std::uint64_t drained = 0;
      (void)!::read(bell, &drained, sizeof drained);
    }
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  hold(7);
  ASSERT_TRUE(until([&] { return counters().disarmed == 1; }));
  ASSERT_TRUE(inForce(*other, open(8, true)));
  const std::uint64_t rings = counters().rings;
  ASSERT_TRUE(other->admit(0));
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 8) == 1; }));
  EXPECT_LE(counters().rings, rings + 1);
}

TEST_F(GatePortTest, HAZARDS1_OrdersDoNotLetADoorbellRingMoreOftenThanItsLimit) {
  gateOptions.ringsMax = 20;
  gateOptions.ringWindow = seconds(3'600);
  start();
  bind(7);
  Child flood([this]() -> int {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    for (;;) client->ring();
  });
  ASSERT_TRUE(until([&] { return counters().disarmed == 1; }));
  for (int round = 0; round < 100; round++) {
    const std::uint64_t orders = counters().orders, samples = counters().samples;
    (round & 1) != 0 ? open(7) : hold(7);
    ASSERT_TRUE(until([&] { return counters().orders > orders; }));
    ASSERT_TRUE(until([&] { return counters().samples > samples + 1; })) << "and on by timer";
  }
  EXPECT_EQ(counters().rings, 21u);
  EXPECT_EQ(counters().disarmed, 1u);
}

TEST_F(GatePortTest, HAZARDS1_AnOrderArmsTheDoorbellAgainOnceItsWindowIsOver) {
  gateOptions.ringsMax = 2;
  gateOptions.ringWindow = millis(100);
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(until([&] {
    client->ring();
    return counters().disarmed == 1;
  }));
  const std::uint64_t rings = counters().rings;
  open(7);
  ASSERT_TRUE(until([&] { return counters().rings > rings; })) << "what rang meanwhile is heard";
  client->ring();
  ASSERT_TRUE(until([&] { return counters().rings > rings + 1; }));
}

TEST_F(GatePortTest, ADisarmedTaskIsStillSeenToWait) {
  gateOptions.ringsMax = 2;
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, hold(7)));
  ASSERT_TRUE(until([&] {
    client->ring();
    return counters().disarmed == 1;
  }));
  std::atomic_ref<std::uint32_t>(client->slot().waiting).store(1);
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 7) == 1; }));
}

TEST_F(GatePortTest, C7_AScribbledPageNeverHarmsAnotherTask) {
  gateOptions.useEvery = Nanos(0);
  start(schema::Suspend::FREEZE);
  bind(7);
  bind(8);
  auto mad = attachSelf(7), sane = attachSelf(8);
  ASSERT_TRUE(mad.ok() && sane.ok());
  Prng prng(7);
  auto* words = reinterpret_cast<std::uint64_t*>(&mad->reportPage());
  for (int round = 0; round < 3000; round++) {
    for (int i = 0; i < 64; i++) {
      const std::uint64_t r = prng.next();
      const std::size_t at = r % ((sizeof(qgpu_report_page) - sizeof(qgpu_slot)) / 8);
      words[(i & 1) != 0 ? 16 + r % (sizeof(qgpu_slot) / 8) : at] = prng.next();
    }
    // Its own thread ids: the manager may signal nobody else's, and this process no real ones.
    mad->slot().driver_threads = static_cast<std::uint32_t>(prng.next() % 80);
    if (round % 8 != 0) mad->slot().owner = 0;
    const std::uint64_t what = prng.next() % 3;
    if (what == 0) open(7, (round & 1) != 0, (round & 2) != 0);
    if (what == 1) hold(7);
    if (what == 2) mad->ring();
    if (round % 4 == 0) turns(1);
  }
  ASSERT_TRUE(inForce(*sane, open(8, true)));
  ASSERT_TRUE(sane->admit(0));
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 8) == 1; }));
  sane->retire();
  const std::uint32_t epoch = hold(8);
  ASSERT_TRUE(until([&] { return settledOf(8, epoch) != nullptr; }));
  mad->ring();
  ASSERT_TRUE(until([&] {
    const Heard* used = task.last(Which::USED, 7);
    return used != nullptr && !used->text.empty();
  }));
  const Heard* used = task.last(Which::USED, 8);
  EXPECT_TRUE(used == nullptr || used->text.empty());
}

TEST_F(GatePortTest, RefusedMemoryIsToldToTheNodeAtOnceAndThenNowAndAgain) {
  gateOptions.heartbeatEvery = millis(1);
  gateOptions.refusedEvery = seconds(60);
  start();
  bind(7);
  bind(8);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  const auto refuse = [&](std::uint64_t n) {
    std::atomic_ref(client->slot().refused).fetch_add(n);
  };
  refuse(3);
  ASSERT_TRUE(until([&] { return node.count(Which::EVENT_TOLD, 7) == 1; }));
  EXPECT_EQ(node.last(Which::EVENT_TOLD, 7)->text,
            "3 allocations failed so far, since they would pass 64 MiB, its share of memory");
  ASSERT_TRUE(until([&] { return card.count(Which::MEMORY_REFUSED, 7) == 1; })) << "for its trace";
  refuse(4);
  ASSERT_TRUE(until([&] { return task.last(Which::USED, 7) != nullptr; }));
  turns(50);
  EXPECT_EQ(node.count(Which::EVENT_TOLD, 7), 1u) << "a program that tries again is no flood";
  EXPECT_EQ(card.count(Which::MEMORY_REFUSED, 7), 1u);
  EXPECT_EQ(node.count(Which::EVENT_TOLD, 8), 0u);
}

TEST_F(GatePortTest, RefusedMemoryOfAProcessThatIsGoneIsToldAllTheSame) {
  gateOptions.heartbeatEvery = millis(1);
  gateOptions.refusedEvery = millis(5);
  start();
  bind(7);
  for (const std::string total : {"1", "2"}) {
    Child child([&]() -> int {
      auto client = GuestClient::attach(socket(), tokenOf(7));
      if (!client.ok()) return 1;
      std::atomic_ref(client->slot().refused).fetch_add(1);
      return 0;
    });
    ASSERT_TRUE(until([&] {
      const Heard* told = node.last(Which::EVENT_TOLD, 7);
      return told != nullptr && told->text.starts_with(total + " ");
    }));
    EXPECT_EQ(child.wait(), 0);
  }
}

TEST_F(GatePortTest, RefusedMemoryIsToldBeforeAProcessThatEndsOfItIsGone) {
  gateOptions.heartbeatEvery = seconds(3600);
  start();
  bind(7);
  Child child([&]() -> int {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    if (!client.ok()) return 1;
    std::atomic_ref(client->slot().refused).fetch_add(1);
    return 0;
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_GONE, 7) == 1; }));
  EXPECT_TRUE(until([&] { return node.count(Which::EVENT_TOLD, 7) == 1; }));
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(GatePortTest, A11_TheDeathOfAHolderIsToldBeforeItsMemoryIsTornDown) {
  start();
  Nanos best = seconds(100);
  for (std::uint64_t id = 1; id <= 5; id++) {
    bind(id);
    Child child([&]() -> int {
      auto client = GuestClient::attach(socket(), tokenOf(id));
      const std::size_t size = 128u << 20;
      void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      std::memset(memory, 1, size);
      client->holdOwner();
      client->admit();
      for (;;) ::pause();
    });
    ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, id) == 1; }));
    open(id, false, true);
    ASSERT_TRUE(until([&] { return card.count(Which::BUSY, id) == 1; }));
    const Nanos killed = monotonicNow();
    child.kill();
    ASSERT_TRUE(until([&] { return card.count(Which::OWNER_DIED, id) == 1; }));
    best = std::min(best, card.last(Which::OWNER_DIED, id)->at - killed);
    ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_GONE, id) == 1; }));
    EXPECT_LE(card.last(Which::OWNER_DIED, id)->heardAt,
              task.last(Which::PROCESS_GONE, id)->heardAt);
    EXPECT_EQ(card.count(Which::OWNER_DIED, id), 1u) << "told once";
  }
  EXPECT_LE(best, millis(5));
  RecordProperty("ownerDiedUs", static_cast<int>(best.value / 1000));
}

TEST_F(GatePortTest, ADeadHolderSettlesItsHold) {
  start();
  bind(7);
  SharedState<std::atomic<int>> passed;
  Child child([&]() -> int {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    client->admit();
    passed->store(1);
    for (;;) ::pause();
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  open(7, false, true);
  // Busy is told already of a launch that waits.
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 7) == 1 && passed->load() == 1; }));
  const std::uint32_t epoch = hold(7);
  child.kill();
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  EXPECT_EQ(settledOf(7, epoch)->how, How::DEAD);
}

TEST_F(GatePortTest, HAZARDS3_ParkedWorkCountsAsSettled) {
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7)));
  ASSERT_TRUE(client->admit(0));
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(inForce(*client, epoch));
  std::atomic_ref<std::uint32_t>(client->slot().parked).store(1);
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  EXPECT_EQ(settledOf(7, epoch)->how, How::PARKED);
  const Nanos held(static_cast<std::int64_t>(client->gatePage().gate_stored_ns));
  EXPECT_GE(settledOf(7, epoch)->at, held + gateOptions.lateAfter) << "it might still have started";
}

TEST_F(GatePortTest, HAZARDS3_WorkThatMayWaitForAHeldLaunchHasAnotherTurnAndLaterEachTime) {
  gateOptions.stuckAfter = millis(20);
  gateOptions.stuckAfterMax = millis(30);
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7)));
  ASSERT_TRUE(client->admit(0));
  std::atomic_ref<std::uint32_t> waiting(client->slot().waiting);
  const Nanos patience[] = {millis(20), millis(30), millis(30)};
  for (const Nanos least : patience) {
    const std::uint32_t epoch = hold(7);
    ASSERT_TRUE(inForce(*client, epoch));
    waiting.store(1);
    ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
    EXPECT_EQ(settledOf(7, epoch)->how, How::PARKED);
    const Nanos held(static_cast<std::int64_t>(client->gatePage().gate_stored_ns));
    EXPECT_GE(settledOf(7, epoch)->at, held + least);
    ASSERT_TRUE(inForce(*client, open(7)));
    waiting.store(0);
  }
  // Where no launch waits for it, work in flight is what it seems: it runs.
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(inForce(*client, epoch));
  const Nanos held(static_cast<std::int64_t>(client->gatePage().gate_stored_ns));
  ASSERT_TRUE(until([&] { return monotonicNow() >= held + millis(60); }));
  EXPECT_EQ(settledOf(7, epoch), nullptr);
  client->retire();
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  EXPECT_EQ(settledOf(7, epoch)->how, How::RETIRED);
}

TEST_F(GatePortTest, HAZARDS4_ALateRetirementIsToldThoughTheCardWentOn) {
  gateOptions.lateAfter = micros(100);
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7)));
  ASSERT_TRUE(client->admit(0) && client->admit(0));
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(inForce(*client, epoch));
  turns(5);
  client->retire();
  ASSERT_TRUE(until([&] { return card.count(Which::RETIRED_LATE, 7) == 1; }));
  EXPECT_EQ(settledOf(7, epoch), nullptr);
  client->retire();
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
}

TEST_F(GatePortTest, ClosingWakesTheWaiterAndItsLaunchFails) {
  start();
  bind(7);
  Child child([this] {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    return client.ok() && !client->admit() ? 0 : 1;
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  hold(7);
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 7) == 1; }));
  close(7, false);
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_GONE, 7) == 1; }));
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(GatePortTest, HAZARDS20_TheHeartbeatMovesWhileTheManagerLives) {
  gateOptions.heartbeatEvery = millis(2);
  start();
  bind(7);
  const auto client = attachSelf(7);
  const std::uint64_t first = client->gatePage().heartbeat_ns;
  ASSERT_TRUE(until([&] { return client->gatePage().heartbeat_ns > first; }));
  const std::uint64_t second = client->gatePage().heartbeat_ns;
  ASSERT_TRUE(until([&] { return client->gatePage().heartbeat_ns > second; }));
}

// --- freeze, with a real thread that computes ---

struct Spinner {
  std::atomic<std::uint64_t> turns{0};
  std::atomic<bool> working{false};  // its launch has passed the gate: one that waits there is busy
  std::atomic<bool> retire{false};   // the host finds its work finished
};
GuestClient* frozenGuest = nullptr;  // of the child; a signal handler has no other way to it

void onFreeze(int) {
  qgpu_slot& slot = frozenGuest->slot();
  std::uint32_t word = frozenGuest->gateWord();
  if ((word & QGPU_GATE_FROZEN) == 0) return;
  std::atomic_ref<std::uint64_t>(slot.frozen_ns)
      .store(static_cast<std::uint64_t>(monotonicNow().value));
  std::atomic_ref<std::uint32_t>(slot.frozen).fetch_add(1);
  while (((word = frozenGuest->gateWord()) & QGPU_GATE_FROZEN) != 0) {
    ::syscall(SYS_futex, &frozenGuest->gatePage().gate, FUTEX_WAIT, word, nullptr, nullptr, 0);
  }
  std::atomic_ref<std::uint32_t>(slot.frozen).fetch_sub(1);
  ::syscall(SYS_futex, &frozenGuest->gatePage().gate, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

int runSpinner(const std::string& socket, const std::string& token, Spinner* shared) {
  qgpu_hello hello = GuestClient::hello(token);
  hello.freeze_signal = static_cast<std::uint32_t>(SIGRTMAX - 3);
  auto client = GuestClient::begin(socket, hello, -1);
  if (!client.ok() || !client->finish(10'000).ok()) return 1;
  frozenGuest = &*client;
  struct sigaction action {};
  action.sa_handler = onFreeze;
  ::sigaction(SIGRTMAX - 3, &action, nullptr);
  std::atomic<std::uint32_t> tids[2] = {};
  std::vector<std::thread> drivers;
  for (auto& tid : tids) {
    drivers.emplace_back([&tid, shared] {
      tid.store(static_cast<std::uint32_t>(::syscall(SYS_gettid)));
      for (;;) shared->turns.fetch_add(1);
    });
  }
  for (std::size_t i = 0; i < 2; i++) {
    while (tids[i].load() == 0) std::this_thread::yield();
    client->slot().tids[i] = tids[i].load();
  }
  std::atomic_ref<std::uint32_t>(client->slot().driver_threads).store(2);
  client->admit();
  shared->working.store(true);
  while (!shared->retire.load()) std::this_thread::yield();
  client->retire();
  for (;;) ::pause();
}

TEST_F(GatePortTest, HAZARDS2_AHoldStopsTheDriverThreadsInTheMiddleOfTheirWorkAndTheyGoOn) {
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  SharedState<Spinner> shared;
  Child child([&] { return runSpinner(socket(), tokenOf(7), shared.get()); });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  for (int round = 0; round < 5; round++) {
    open(7, false, true);
    const std::uint64_t before = shared->turns.load();
    ASSERT_TRUE(until([&] { return shared->working.load(); }));
    ASSERT_TRUE(until([&] { return shared->turns.load() > before; }));
    const std::uint32_t epoch = hold(7);
    ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
    EXPECT_EQ(settledOf(7, epoch)->how, How::FROZEN);
    const std::uint64_t stopped = shared->turns.load();
    turns(10);
    EXPECT_EQ(shared->turns.load(), stopped);
  }
  EXPECT_GE(counters().freezeSignals, 10u);
}

TEST_F(GatePortTest, A2_APatientHoldStopsNothingThatEndsByItself) {
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7)));
  ASSERT_TRUE(client->admit(0));
  const std::uint32_t epoch = holdPatiently(7, seconds(3'600));
  ASSERT_TRUE(inForce(*client, epoch));
  turns(10);
  EXPECT_EQ(client->gateWord() & (QGPU_GATE_OPEN | QGPU_GATE_FROZEN), 0u);
  EXPECT_EQ(settledOf(7, epoch), nullptr);
  client->retire();
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  EXPECT_EQ(settledOf(7, epoch)->how, How::RETIRED);
  EXPECT_EQ(counters().freezeSignals, 0u);
}

TEST_F(GatePortTest, AHoldWhosePatienceIsOverStopsTheWorkInTheMiddle) {
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  SharedState<Spinner> shared;
  Child child([&] { return runSpinner(socket(), tokenOf(7), shared.get()); });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  open(7, false, true);
  ASSERT_TRUE(until([&] { return shared->working.load(); }));
  const std::uint32_t epoch = holdPatiently(7, millis(20));
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  EXPECT_EQ(settledOf(7, epoch)->how, How::FROZEN);
  const std::uint64_t stopped = shared->turns.load();
  turns(10);
  EXPECT_EQ(shared->turns.load(), stopped);
}

TEST_F(GatePortTest, A3_AHoldThatIsHastenedStopsTheWorkAndTellsWhen) {
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  SharedState<Spinner> shared;
  Child child([&] { return runSpinner(socket(), tokenOf(7), shared.get()); });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  open(7, false, true);
  ASSERT_TRUE(until([&] { return shared->working.load(); }));
  const std::uint32_t epoch = holdPatiently(7, seconds(3'600));
  const std::uint64_t before = shared->turns.load();
  ASSERT_TRUE(until([&] { return shared->turns.load() > before; }));
  EXPECT_EQ(settledOf(7, epoch), nullptr);
  const Nanos cause = monotonicNow();
  hasten(7, cause);
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  EXPECT_EQ(settledOf(7, epoch)->how, How::FROZEN);
  ASSERT_EQ(card.count(Which::GATE_DONE, 7), 1u);
  EXPECT_GE(card.last(Which::GATE_DONE, 7)->at, cause);
}

// Found by seed 1320 of the simulator: the slice was over before the thread had gone on.
TEST_F(GatePortTest, A1_AThreadThatIsLateToGoOnIsNotTakenForStoppedByAPatientHold) {
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7)));
  ASSERT_TRUE(client->admit(0));
  std::atomic_ref<std::uint32_t>(client->slot().driver_threads).store(1);
  std::atomic_ref<std::uint32_t>(client->slot().frozen).store(1);
  const std::uint32_t epoch = holdPatiently(7, seconds(3'600));
  ASSERT_TRUE(inForce(*client, epoch));
  client->ring();
  turns(20);
  EXPECT_EQ(settledOf(7, epoch), nullptr);
  std::atomic_ref<std::uint32_t>(client->slot().frozen).store(0);
  client->retire();
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
}

// A process may leave no room for one more signal in its queue. It settles as under `gate`.
TEST_F(GatePortTest, HAZARDS2_ASignalThatCouldNotBeSentCountsAsNoStop) {
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  SharedState<Spinner> shared;
  Child child([&] {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_SIGPENDING, &none);
    return runSpinner(socket(), tokenOf(7), shared.get());
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  open(7, false, true);
  ASSERT_TRUE(until([&] { return shared->working.load(); }));
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(until([&] { return counters().freezeFailed == 2; }));
  EXPECT_EQ(counters().freezeSignals, 0u);
  shared->retire.store(true);
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  EXPECT_EQ(settledOf(7, epoch)->how, How::RETIRED);
}

// A driver thread may be stopped with a lock of the driver in its hand, after its kernel ended. A
// task with nothing in flight asks for no slice, so nobody else would ever let that thread go on.
TEST_F(GatePortTest, HAZARDS2_DriverThreadsWithNothingLeftInFlightGoOnBehindTheShutGate) {
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  SharedState<Spinner> shared;
  Child child([&] { return runSpinner(socket(), tokenOf(7), shared.get()); });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  open(7, false, true);
  ASSERT_TRUE(until([&] { return shared->working.load(); }));
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  EXPECT_EQ(settledOf(7, epoch)->how, How::FROZEN);
  const std::uint64_t stopped = shared->turns.load();
  shared->retire.store(true);
  ASSERT_TRUE(until([&] { return shared->turns.load() > stopped; }));
  EXPECT_EQ(card.count(Which::SETTLED, 7), 1u);
}

TEST_F(GatePortTest, A3_AClosedOnlineTaskIsToldQuietOnceItsWorkEndedThoughItDoesNotRing) {
  start();
  bind(7, schema::TaskClass::ONLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7)));
  ASSERT_TRUE(client->admit(0));
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 7) == 1; }));
  close(7, false);
  ASSERT_TRUE(until([&] { return client->gatePage().closed != 0; }));
  turns(10);
  EXPECT_EQ(card.count(Which::QUIET, 7), 0u);
  std::atomic_ref<std::uint64_t>(client->slot().retired).fetch_add(1);
  ASSERT_TRUE(until([&] { return card.count(Which::QUIET, 7) == 1; }));
}

TEST_F(GatePortTest, A1_AFrozenTaskThatIsClosedStaysFrozenUntilItHasATurn) {
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7)));
  ASSERT_TRUE(client->admit(0));
  ASSERT_TRUE(inForce(*client, hold(7)));
  const std::uint32_t held = client->gateWord();
  close(7, false);
  ASSERT_TRUE(until([&] { return client->gatePage().closed != 0; }));
  EXPECT_EQ(client->gateWord() & QGPU_GATE_FROZEN, QGPU_GATE_FROZEN);
  EXPECT_GT(client->gateWord(), held);
  open(7);
  ASSERT_TRUE(until([&] { return (client->gateWord() & QGPU_GATE_FROZEN) == 0; }));
  EXPECT_EQ(client->gateWord() & QGPU_GATE_OPEN, 0u);
  EXPECT_FALSE(client->admit(0));
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(until([&] { return (client->gateWord() & QGPU_GATE_FROZEN) != 0; }));
  const std::uint32_t again = client->gateWord();
  client->retire();
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  ASSERT_TRUE(until([&] { return (client->gateWord() & QGPU_GATE_FROZEN) == 0; }));
  EXPECT_GT(client->gateWord(), again) << "A10";
}

// Found by seed 79635 of the simulator.
TEST_F(GatePortTest, A1_AFrozenTaskThatLeavesItsCardIsNotThawedForItsLastMoments) {
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7)));
  ASSERT_TRUE(client->admit(0));
  ASSERT_TRUE(inForce(*client, hold(7)));
  const std::uint32_t left = order(7, schema::GateOrder::Order::CLOSE);
  ASSERT_TRUE(inForce(*client, left));
  EXPECT_EQ(client->gateWord() & QGPU_GATE_FROZEN, QGPU_GATE_FROZEN);
  client->retire();
  client->ring();
  ASSERT_TRUE(until([&] { return (client->gateWord() & QGPU_GATE_FROZEN) == 0; }));
}

TEST_F(GatePortTest, AnOnlineTaskIsNeverFrozenAndAGuestWithoutASignalFallsBackToTheGate) {
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  client->slot().driver_threads = 1;
  client->slot().tids[0] = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  ASSERT_TRUE(inForce(*client, open(7)));
  ASSERT_TRUE(client->admit(0));
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(inForce(*client, epoch));
  turns(5);
  EXPECT_EQ(counters().freezeSignals, 0u);
  client->retire();
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
}

TEST_F(GatePortTest, HAZARDS3_WorkThatNoSignalStopsAndThatWaitsForALaunchOfItsOwnHasAnotherTurn) {
  gateOptions.stuckAfter = millis(20);
  start(schema::Suspend::FREEZE);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(inForce(*client, open(7, false, true)));
  ASSERT_TRUE(client->admit(0));
  std::atomic_ref<std::uint32_t>(client->slot().waiting).store(1);
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(until([&] { return settledOf(7, epoch) != nullptr; }));
  EXPECT_EQ(settledOf(7, epoch)->how, How::PARKED);
}

// --- tasks that never come ---

TEST_F(GatePortTest, ATaskOfWhichNoProcessAttachesIsToldOfOnce) {
  gateOptions.heartbeatEvery = millis(5);
  gateOptions.unattachedAfter = millis(100);
  start();
  bind(7);
  bind(8);
  const auto client = attachSelf(8);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE(until([&] { return node.count(Which::EVENT_TOLD, 7) == 1; }));
  EXPECT_TRUE(node.last(Which::EVENT_TOLD, 7)->text.starts_with("no process of it has attached"));
  turns(200);
  EXPECT_EQ(node.count(Which::EVENT_TOLD, 7), 1u);
  EXPECT_EQ(node.count(Which::EVENT_TOLD, 8), 0u);
  EXPECT_EQ(room().gate().unattached(), 1u);
}

}  // namespace
}  // namespace qgpu::gate_port_test
