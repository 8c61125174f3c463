// suspend=rm as the attach room has it: guests' notes, holds that take channels off a card, and
// what happens where that can't be done. The driver is a script; the threads and sockets are real.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <optional>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>

#include "tests/unit/services/attach/attach_fixture.h"
#include "tests/unit/services/cards/suspend/suspend_scene.h"

namespace qgpu::gate_port_rm_test {
namespace {

using Which = schema::Envelope::Which;
using How = schema::Settled::How;
using suspend::kClient;

constexpr std::uint32_t kTries = suspend::ChannelSuspender::kTriesMax;
using suspend::Scene;

class GatePortRmTest : public AttachTest {
 protected:
  GatePortRmTest() {
    serverOptions.recovery = Nanos(0);
    gateOptions.lateAfter = seconds(60);  // no hold is late here
    suspendOptions.open = [this](const Card&) -> Result<std::unique_ptr<suspend::Calls>> {
      return std::unique_ptr<suspend::Calls>(std::make_unique<suspend::ScriptedCalls>(scene));
    };
  }
  ~GatePortRmTest() override {
    stop();
    EXPECT_TRUE(scene.off.empty()) << "something was left off the card";
  }

  static bool say(const GuestClient& client, qgpu_note_what what, std::uint32_t object) {
    qgpu_note note{};
    note.magic = QGPU_NOTE_MAGIC;
    note.what = what;
    note.client = kClient;
    note.object = object;
    note.group = 1;
    note.engine = 1;
    note.device = ~0u;
    note.fd = 3;
    return ::send(client.connectionFd(), &note, sizeof note, MSG_NOSIGNAL) == sizeof note;
  }
  const Heard* settledOf(std::uint64_t id, std::uint32_t epoch) const {
    const Heard* last = card.last(Which::SETTLED, id);
    return last != nullptr && last->epoch == epoch ? last : nullptr;
  }
  bool settles(std::uint64_t id, std::uint32_t epoch) {
    return until([&] { return settledOf(id, epoch) != nullptr; });
  }
  std::size_t off() {
    const std::lock_guard lock(scene.mutex);
    return scene.off.size();
  }
  // A second process of task 7. A launch counts as admitted also while it finds the gate shut.
  bool isAtWork(const Child& child, const qgpu_report_page& page) const {
    const Heard* attached = task.last(Which::PROCESS_ATTACHED, 7);
    return attached != nullptr && attached->pid == static_cast<std::uint32_t>(child.pid()) &&
           page.slot[attached->slot].launches == 1;
  }
  // Of this process and its children.
  static std::atomic<bool>* sharedFlag() {
    return new (::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
        std::atomic<bool>;
  }
  // A second process of task 7, at work, that tells of its channel once `tells` is set.
  int tellsLate(const std::atomic<bool>& tells) {
    auto late = GuestClient::attach(socket(), tokenOf(7));
    if (!late.ok() || !late->admit()) return 1;
    while (!tells.load()) std::this_thread::yield();
    if (!say(*late, QGPU_NOTE_MADE, 200)) return 2;
    for (;;) ::pause();
  }
  bool isOff(std::size_t channels) {
    return until([&] { return off() == channels; });
  }
  std::size_t orders() {
    const std::lock_guard lock(scene.mutex);
    return scene.orders.size();
  }
  // A task whose process has a channel and work in flight.
  Result<GuestClient> working(std::uint64_t id, std::uint32_t channel,
                              schema::TaskClass taskClass = schema::TaskClass::OFFLINE) {
    bind(id, taskClass);
    auto client = attachSelf(id);
    if (!client.ok()) return client;
    EXPECT_TRUE(say(*client, QGPU_NOTE_MADE, channel));
    open(id, false, true);
    EXPECT_TRUE(until([&] { return (client->gateWord() & QGPU_GATE_OPEN) != 0; }));
    EXPECT_TRUE(client->admit(0));
    EXPECT_TRUE(until([&] { return card.count(Which::BUSY, id) == 1; }));
    return client;
  }

  Scene scene;
};

TEST_F(GatePortRmTest, AHoldTakesTheChannelsOffAndAnOpenGatePutsThemBack) {
  start(schema::Suspend::RM);
  auto client = working(7, 100);
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->gatePage().suspend, std::uint32_t{QGPU_SUSPEND_RM});
  EXPECT_EQ(client->gatePage().window_ns, 0u) << "what is in flight can be stopped";
  for (int round = 0; round < 3; round++) {
    const std::uint32_t epoch = hold(7);
    ASSERT_TRUE(settles(7, epoch));
    EXPECT_EQ(settledOf(7, epoch)->how, How::FROZEN);
    EXPECT_EQ(off(), 1u);
    EXPECT_TRUE(client->gateWord() & QGPU_GATE_FROZEN) << "so that the guest knows";
    open(7, false, true);
    ASSERT_TRUE(isOff(0));
  }
}

TEST_F(GatePortRmTest, AHoldIsNotSettledBeforeTheDriverHasAnswered) {
  start(schema::Suspend::RM);
  auto client = working(7, 100);
  ASSERT_TRUE(client.ok());
  scene.change([&] { scene.blocks = true; });
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(until([&] {
    const std::lock_guard lock(scene.mutex);
    return scene.blocked == 1;
  }));
  turns(10);
  EXPECT_EQ(settledOf(7, epoch), nullptr);
  scene.change([&] { scene.blocks = false; });
  ASSERT_TRUE(settles(7, epoch));
  EXPECT_EQ(settledOf(7, epoch)->how, How::FROZEN);
}

TEST_F(GatePortRmTest, WithNothingInFlightTheDriverIsNotAsked) {
  start(schema::Suspend::RM);
  auto client = working(7, 100);
  ASSERT_TRUE(client.ok());
  client->retire();
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(settles(7, epoch));
  EXPECT_EQ(settledOf(7, epoch)->how, How::RETIRED);
  open(7, false, true);
  stop();
  EXPECT_TRUE(scene.orders.empty());
}

// A driver that sets up a context waits for work on channels of its own, which is no launch: a task
// with nothing in flight asks for no slice, so nobody else would ever let that go on.
TEST_F(GatePortRmTest, WithNothingLeftInFlightTheChannelsComeBackBehindTheShutGate) {
  start(schema::Suspend::RM);
  auto client = working(7, 100);
  ASSERT_TRUE(client.ok());
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(settles(7, epoch));
  client->retire();
  client->ring();
  ASSERT_TRUE(isOff(0));
  EXPECT_FALSE(client->gateWord() & (QGPU_GATE_FROZEN | QGPU_GATE_OPEN));
  EXPECT_EQ(card.count(Which::SETTLED, 7), 1u);
}

TEST_F(GatePortRmTest, A1_AHeldTaskWhoseWorkGoesOnIsTakenOffAgainAndThatIsToldWhenItGoesOnAndOn) {
  gateOptions.heldEvery = millis(1);
  start(schema::Suspend::RM);
  auto client = working(7, 100);
  ASSERT_TRUE(client.ok());
  for (int i = 0; i < 8; i++) EXPECT_TRUE(client->admit(0));
  ASSERT_TRUE(settles(7, hold(7)));
  for (std::size_t times = 1; times <= 5; times++) {
    scene.change([&] { scene.off.erase(100); });  // the driver did that by itself
    client->retire();
    ASSERT_TRUE(until([&] { return orders() >= 1 + times; }));
    ASSERT_TRUE(isOff(1));
  }
  EXPECT_EQ(node.count(Which::EVENT_TOLD, 7), 1u);
  EXPECT_EQ(node.last(Which::EVENT_TOLD, 7)->text,
            "its work goes on while it is held: 3 times in one hold its channels had to be taken "
            "off the card again");
  EXPECT_EQ(card.count(Which::SETTLED, 7), 1u);
  open(7, false, true);
  ASSERT_TRUE(isOff(0));
}

TEST_F(GatePortRmTest, AChannelThatIsMadeDuringTheHoldGoesOffToo) {
  start(schema::Suspend::RM);
  auto client = working(7, 100);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE(settles(7, hold(7)));
  ASSERT_TRUE(say(*client, QGPU_NOTE_MADE, 101));
  ASSERT_TRUE(isOff(2));
  ASSERT_TRUE(say(*client, QGPU_NOTE_ENDED, 100));
  ASSERT_TRUE(say(*client, QGPU_NOTE_ENABLED, 1));
  ASSERT_TRUE(until([&] { return orders() == 3; })) << "put back by itself, and taken off again";
  scene.change([&] { scene.off.erase(100); });
}

TEST_F(GatePortRmTest, WhatAnEarlierManagerTookOffIsPutBackWithoutAHold) {
  scene.off.insert(100);
  start(schema::Suspend::RM);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(say(*client, QGPU_NOTE_THERE, 100));
  ASSERT_TRUE(isOff(0));
}

// As where it comes back so late that the recovery is over before.
TEST_F(GatePortRmTest, A3_WhoComesBackAtWorkAfterItsHoldIsTakenOff) {
  start(schema::Suspend::RM);
  auto client = working(7, 100);
  ASSERT_TRUE(client.ok());
  start(schema::Suspend::RM);
  card.heard.clear();
  bind(7, schema::TaskClass::OFFLINE);
  hold(7);
  turns(10);
  EXPECT_EQ(off(), 0u);
  auto again = returnSelf(7, *client);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(say(*again, QGPU_NOTE_THERE, 100));
  EXPECT_TRUE(isOff(1));
  EXPECT_TRUE(again->gateWord() & QGPU_GATE_FROZEN);
  open(7, false, true);
  EXPECT_TRUE(isOff(0));
}

TEST_F(GatePortRmTest, OnlineTasksAreNeverTakenOff) {
  start(schema::Suspend::RM);
  auto client = working(7, 100, schema::TaskClass::ONLINE);
  ASSERT_TRUE(client.ok());
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(until([&] { return (client->gateWord() & QGPU_GATE_OPEN) == 0; }));
  client->retire();
  client->ring();
  ASSERT_TRUE(settles(7, epoch));
  stop();
  EXPECT_TRUE(scene.orders.empty());
}

TEST_F(GatePortRmTest, ATaskThatCanNotBeTakenOffIsHeldByItsGateAndTheNodeHearsWhy) {
  start(schema::Suspend::RM);
  auto client = working(7, 100);
  ASSERT_TRUE(client.ok());
  scene.change([&] { scene.refuses = kTries; });
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(until([&] { return node.count(Which::EVENT_TOLD, 7) == 1; }));
  EXPECT_EQ(node.last(Which::EVENT_TOLD, 7)->text,
            "held by its gate alone from now on: the driver refused to disable channels (it does "
            "not like this)");
  EXPECT_EQ(settledOf(7, epoch), nullptr) << "it runs";
  EXPECT_EQ(client->gatePage().window_ns, static_cast<std::uint64_t>(serverOptions.window.value));
  client->retire();
  client->ring();
  ASSERT_TRUE(settles(7, epoch));
  EXPECT_EQ(settledOf(7, epoch)->how, How::RETIRED);
}

TEST_F(GatePortRmTest, ADriverThatIsBusyForAMomentTakesTheTaskOffAllTheSame) {
  start(schema::Suspend::RM);
  auto client = working(7, 100);
  ASSERT_TRUE(client.ok());
  scene.change([&] { scene.busyFor = 5; });
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(settles(7, epoch));
  EXPECT_EQ(settledOf(7, epoch)->how, How::FROZEN);
  EXPECT_EQ(node.count(Which::EVENT_TOLD, 7), 0u) << "nobody need look";
  open(7, false, true);
  ASSERT_TRUE(isOff(0));
}

TEST_F(GatePortRmTest, ThreeTasksInARowAreTheCardsAndTheNodeHearsIt) {
  std::vector<std::string> lost;
  suspendOptions.lost = [&](const Card& gate) { lost.push_back(gate.id + " " + gate.suspendWhy); };
  start(schema::Suspend::RM);
  scene.change([&] { scene.refuses = 3 * kTries; });
  std::vector<Result<GuestClient>> clients;
  for (const std::uint64_t id : {7u, 8u, 9u}) {
    clients.push_back(working(id, static_cast<std::uint32_t>(100 * id)));
    hold(id);
    ASSERT_TRUE(until([&] { return node.count(Which::EVENT_TOLD, id) == 1; }));
  }
  ASSERT_TRUE(until([&] { return node.count(Which::SUSPEND_LOST, 0) == 1; }));
  const std::string why = "the driver refused to disable channels (it does not like this)";
  EXPECT_EQ(node.last(Which::SUSPEND_LOST, 0)->text, why);
  EXPECT_EQ(lost, std::vector<std::string>{"sim-0 " + why});
  bind(10, schema::TaskClass::OFFLINE);
  auto next = attachSelf(10);
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->gatePage().suspend, std::uint32_t{QGPU_SUSPEND_GATE});
}

TEST_F(GatePortRmTest, ACardWhoseDriverCanNotBeReachedSuspendsByGateAndSaysWhy) {
  suspendOptions.open = [](const Card&) -> Result<std::unique_ptr<suspend::Calls>> {
    return fail(ErrorCode::Unavailable, "/dev/nvidiactl can't be opened");
  };
  start(schema::Suspend::RM);
  ASSERT_TRUE(until([&] { return node.count(Which::SUSPEND_LOST, 0) == 1; }));
  EXPECT_EQ(node.last(Which::SUSPEND_LOST, 0)->text, "/dev/nvidiactl can't be opened");
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  EXPECT_EQ(client->gatePage().suspend, std::uint32_t{QGPU_SUSPEND_GATE});
}

TEST_F(GatePortRmTest, ATaskWithSeveralCardsIsHeldByItsGate) {
  cardsOfTasks = 2;
  start(schema::Suspend::RM);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  EXPECT_EQ(client->gatePage().suspend, std::uint32_t{QGPU_SUSPEND_GATE});
}

TEST_F(GatePortRmTest, A1_AProcessAtWorkThatToldOfNoChannelIsNotTakenForStopped) {
  gateOptions.lateAfter = millis(1);
  start(schema::Suspend::RM);
  auto told = working(7, 100);
  ASSERT_TRUE(told.ok());
  auto* retire = sharedFlag();
  Child child([&]() -> int {
    auto silent = GuestClient::attach(socket(), tokenOf(7));
    if (!silent.ok() || !silent->admit()) return 1;
    while (!retire->load()) std::this_thread::yield();
    silent->retire();
    silent->ring();
    for (;;) ::pause();
  });
  ASSERT_TRUE(until([&] { return isAtWork(child, told->reportPage()); }));
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(until([&] { return node.count(Which::EVENT_TOLD, 7) == 1; }));
  EXPECT_EQ(node.last(Which::EVENT_TOLD, 7)->text,
            "held by its gate alone from now on: a process at work has told of none of its "
            "channels");
  EXPECT_EQ(settledOf(7, epoch), nullptr) << "its work runs";
  told->retire();
  retire->store(true);
  ASSERT_TRUE(settles(7, epoch));
  EXPECT_EQ(settledOf(7, epoch)->how, How::RETIRED);
}

// A doubt holds for good, a card's for all tasks bound to it: each later hold is the gate's alone.
TEST_F(GatePortRmTest, ATaskInDoubtWhoseKernelWaitsForALaunchOfItsOwnSettlesInEachHold) {
  gateOptions.stuckAfter = millis(20);
  gateOptions.stuckAfterMax = millis(30);
  start(schema::Suspend::RM);
  auto client = working(7, 100);
  ASSERT_TRUE(client.ok());
  scene.change([&] { scene.refuses = kTries; });
  std::atomic_ref<std::uint32_t> waiting(client->slot().waiting);
  waiting.store(1);
  const std::uint32_t first = hold(7);
  ASSERT_TRUE(until([&] { return node.count(Which::EVENT_TOLD, 7) == 1; }));
  ASSERT_TRUE(settles(7, first));
  open(7, false, true);
  ASSERT_TRUE(until([&] { return (client->gateWord() & QGPU_GATE_OPEN) != 0; }));
  const std::uint32_t second = hold(7);
  ASSERT_TRUE(settles(7, second));
  EXPECT_EQ(settledOf(7, second)->how, How::PARKED);
  EXPECT_FALSE(client->gateWord() & QGPU_GATE_FROZEN) << "nothing of it is off the card";
  stop();
  const auto disables = [](const suspend::Order& order) {
    return order.step == suspend::Step::kDisable;
  };
  EXPECT_EQ(std::count_if(scene.orders.begin(), scene.orders.end(), disables), kTries);
}

// Its notes lie in its socket while the driver answers for the channels of another one: what is
// told stopped then is not all of the task, and is told once.
TEST_F(GatePortRmTest, AHoldSettlesWhenAProcessTellsOfItsChannelsJustAfterTheOthersAreOff) {
  start(schema::Suspend::RM);
  auto told = working(7, 100);
  ASSERT_TRUE(told.ok());
  auto* tells = sharedFlag();
  Child child([&] { return tellsLate(*tells); });
  ASSERT_TRUE(until([&] { return isAtWork(child, told->reportPage()); }));
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(isOff(1));
  turns(20);
  EXPECT_EQ(settledOf(7, epoch), nullptr) << "the work of the late one runs";
  tells->store(true);
  ASSERT_TRUE(isOff(2));
  ASSERT_TRUE(settles(7, epoch));
  EXPECT_EQ(settledOf(7, epoch)->how, How::FROZEN);
  EXPECT_EQ(node.count(Which::EVENT_TOLD, 7), 0u) << "no doubt";
}

// As before, but it tells while the driver has not answered for the other one yet.
TEST_F(GatePortRmTest, A1_WhatIsToldStoppedBeforeAProcessToldOfItsChannelsIsNotBelieved) {
  start(schema::Suspend::RM);
  auto told = working(7, 100);
  ASSERT_TRUE(told.ok());
  auto* tells = sharedFlag();
  Child child([&] { return tellsLate(*tells); });
  ASSERT_TRUE(until([&] { return isAtWork(child, told->reportPage()); }));
  scene.change([&] { scene.blocks = true; });
  const std::uint32_t epoch = hold(7);
  ASSERT_TRUE(until([&] {
    const std::lock_guard lock(scene.mutex);
    return scene.blocked == 1;
  }));
  tells->store(true);
  turns(20);
  scene.change([&] { scene.blocks = false; });
  ASSERT_TRUE(settles(7, epoch));
  EXPECT_EQ(off(), 2u);
  EXPECT_EQ(settledOf(7, epoch)->how, How::FROZEN);
}

// --- HAZARDS 4: who is stopped by others ---

class StoppedTaskTest : public GatePortRmTest {
 protected:
  StoppedTaskTest() {
    gateOptions.heartbeatEvery = millis(5);
    gateOptions.stoppedAfter = millis(40);
  }
  // Its process has a channel, and work in flight that does not end.
  void atWork(schema::TaskClass taskClass) {
    start(schema::Suspend::RM);
    bind(7, taskClass);
    auto* works = sharedFlag();
    child_.emplace([this, works]() -> int {
      auto client = GuestClient::attach(socket(), tokenOf(7));
      if (!client.ok() || !say(*client, QGPU_NOTE_MADE, 100) || !client->admit()) return 1;
      works->store(true);
      for (;;) ::pause();
    });
    open(7, false, true);
    ASSERT_TRUE(until([&] { return works->load() && card.count(Which::BUSY, 7) == 1; }));
  }
  void signal(int signal) { child_->kill(signal); }
  // For longer than a stopped task is waited for.
  bool goesOnForLong() {
    const Nanos from = monotonicNow();
    return until([&] { return monotonicNow() >= from + gateOptions.stoppedAfter * 3; });
  }

 private:
  std::optional<Child> child_;
};

TEST_F(StoppedTaskTest, HAZARDS4_ATaskWhoseProcessesAreStoppedCountsAsIdleUntilOneGoesOn) {
  atWork(schema::TaskClass::OFFLINE);
  ASSERT_TRUE(settles(7, hold(7)));
  ASSERT_TRUE(goesOnForLong());
  EXPECT_EQ(node.count(Which::EVENT_TOLD, 7), 0u) << "it is held, and runs";
  signal(SIGSTOP);
  ASSERT_TRUE(until([&] { return card.count(Which::QUIET, 7) == 1; }));
  EXPECT_EQ(node.last(Which::EVENT_TOLD, 7)->text,
            "its processes are stopped with work under way: it counts as idle until one of them "
            "goes on");
  EXPECT_EQ(card.count(Which::BUSY, 7), 1u);
  signal(SIGCONT);
  ASSERT_TRUE(until([&] { return card.count(Which::BUSY, 7) == 2; }))
      << "though nothing of its work can end while it has no turn";
  EXPECT_EQ(node.count(Which::EVENT_TOLD, 7), 1u);
}

TEST_F(StoppedTaskTest, HAZARDS4_ThatAnOnlineTaskIsStoppedIsToldOnceAndItKeepsItsCard) {
  atWork(schema::TaskClass::ONLINE);
  signal(SIGSTOP);
  ASSERT_TRUE(until([&] { return node.count(Which::EVENT_TOLD, 7) == 1; }));
  EXPECT_EQ(node.last(Which::EVENT_TOLD, 7)->text,
            "its processes are stopped with work under way: nobody else gets its card until one of "
            "them goes on");
  ASSERT_TRUE(goesOnForLong());
  EXPECT_EQ(node.count(Which::EVENT_TOLD, 7), 1u);
  EXPECT_EQ(card.count(Which::QUIET, 7), 0u);
}

struct NoPages final : PagePlatform {
  Nanos now() override { return Nanos(1); }
  Nanos stored(std::uint64_t, const qgpu_gate_page&) override { return now(); }
  void wake(std::uint64_t, qgpu_gate_page&, int) override {}
};

class SuspendersTest : public ::testing::Test {
 protected:
  // Cards that suspend by `rm`, each with a driver of its own.
  void start(std::size_t count) {
    cards.resize(count);
    for (std::size_t i = 0; i < count; i++) {
      cards[i].index = static_cast<std::uint32_t>(i);
      cards[i].suspend = schema::Suspend::RM;
      cards[i].method = suspend::SuspendMethod::kDisable;
    }
    SuspendersOptions options;
    options.open = [this](const Card& card) -> Result<std::unique_ptr<suspend::Calls>> {
      return std::unique_ptr<suspend::Calls>(
          std::make_unique<suspend::ScriptedCalls>(scenes[card.index]));
    };
    suspenders.emplace(loop, cards, options, [this](std::uint32_t, const suspend::News& news) {
      heard.push_back(news);
      loop.stop();
    });
  }
  std::unique_ptr<GuestTask> taskOf(std::uint64_t id, std::uint32_t card) {
    TaskPagesSpec spec;
    spec.task = id;
    auto pages = TaskPages::create(spec, around);
    EXPECT_TRUE(pages);
    auto task = std::make_unique<GuestTask>(std::move(*pages));
    task->id = id;
    task->cards = {card};
    return task;
  }

  Loop loop;
  std::array<Scene, 3> scenes;
  std::vector<Card> cards;
  NoPages around;
  std::vector<suspend::News> heard;
  std::optional<Suspenders> suspenders;
};

// Out of descriptors the manager keeps none of its own of a process: then its channels are out of
// reach, which is not to say that they are gone.
TEST_F(SuspendersTest, ATaskWithAProcessThatCanNotBeReachedIsInDoubt) {
  start(1);
  const auto task = taskOf(7, 0);
  suspenders->attached(*task, GuestProcess());  // its pidfd can't be duplicated
  loop.run();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].what, suspend::News::What::kDoubted);
  EXPECT_EQ(heard[0].task, 7u);
  EXPECT_EQ(heard[0].why, "a process of it can't be reached: Bad file descriptor");
}

// A service manager does not wait for one driver after the other.
TEST_F(SuspendersTest, AllCardsArePutBackAtTheSameTimeAtTheEnd) {
  start(scenes.size());
  for (std::uint32_t i = 0; i < scenes.size(); i++) {
    const auto task = taskOf(i + 1, i);
    qgpu_note note{};
    note.magic = QGPU_NOTE_MAGIC;
    note.what = QGPU_NOTE_MADE;
    note.client = kClient;
    note.object = 100 + i;
    note.device = ~0u;
    ASSERT_TRUE(suspenders->noted(*task, GuestProcess(), note));
    suspenders->hold(*task);
    ASSERT_TRUE(scenes[i].until([&] { return scenes[i].off.size() == 1; }));
    scenes[i].change([&] { scenes[i].blocksBack = true; });
  }
  std::thread ending([this] { suspenders.reset(); });
  for (Scene& scene : scenes) {
    EXPECT_TRUE(scene.until([&] { return scene.blocked == 1; })) << "it waits for another card";
  }
  for (Scene& scene : scenes) scene.change([&] { scene.blocksBack = false; });
  ending.join();
  for (Scene& scene : scenes) EXPECT_TRUE(scene.off.empty()) << "something was left off the card";
}

// --- C7: what a guest says ---

bool hungUp(const GuestClient& client) {
  char byte;
  const ssize_t n = ::recv(client.connectionFd(), &byte, 1, MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno == ECONNRESET);
}

TEST_F(GatePortRmTest, C7_WhoeverSaysNonsenseLosesItsConnectionAndStaysAttached) {
  start(schema::Suspend::RM);
  bind(7, schema::TaskClass::OFFLINE);
  const auto nonsense = [&](std::size_t bytes, std::uint64_t magic, std::uint32_t what) {
    auto client = attachSelf(GuestClient::hello(tokenOf(7)));
    EXPECT_TRUE(client.ok());
    qgpu_note note[2] = {};
    note[0].magic = magic;
    note[0].what = what;
    EXPECT_GT(::send(client->connectionFd(), note, bytes, MSG_NOSIGNAL), 0);
    EXPECT_TRUE(until([&] { return hungUp(*client); })) << bytes << " " << what;
  };
  nonsense(sizeof(qgpu_note) - 1, QGPU_NOTE_MAGIC, QGPU_NOTE_MADE);
  nonsense(sizeof(qgpu_note) + 1, QGPU_NOTE_MAGIC, QGPU_NOTE_MADE);
  nonsense(sizeof(qgpu_note), QGPU_NOTE_MAGIC + 1, QGPU_NOTE_MADE);
  nonsense(sizeof(qgpu_note), QGPU_NOTE_MAGIC, 0);
  nonsense(sizeof(qgpu_note), QGPU_NOTE_MAGIC, 5);
  EXPECT_EQ(task.count(Which::PROCESS_GONE, 7), 4u) << "each came anew, the last one lives";
}

TEST_F(GatePortRmTest, C7_AFloodOfNotesEndsItsConnection) {
  start(schema::Suspend::RM);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE(until([&] {
    for (int i = 0; i < 32; i++) {
      qgpu_note note{};
      note.magic = QGPU_NOTE_MAGIC;
      note.what = QGPU_NOTE_ENDED;
      if (::send(client->connectionFd(), &note, sizeof note, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        return errno == EPIPE || errno == ECONNRESET;
      }
    }
    return false;
  }));
}

TEST_F(GatePortRmTest, C7_OnACardWithoutThatANoteIsNonsense) {
  start(schema::Suspend::GATE);
  bind(7, schema::TaskClass::OFFLINE);
  auto client = attachSelf(7);
  ASSERT_TRUE(say(*client, QGPU_NOTE_MADE, 100));
  ASSERT_TRUE(until([&] { return hungUp(*client); }));
}

}  // namespace
}  // namespace qgpu::gate_port_rm_test
