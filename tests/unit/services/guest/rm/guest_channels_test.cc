// What a program tells the manager of its channels, and how it puts them back on the card itself
// when the manager is lost: with a stand-in of the kernel's driver that all processes share, in
// which this test takes channels off as a manager would.

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <sys/resource.h>

#include "services/nvidia_abi/rm_controls.h"
#include "tests/unit/services/guest/cuda/shared_driver.h"

namespace qgpu::testing::guest_channels_test {
namespace {

using Note = FakeManager::Note;

FakeManager::Options rmTask(std::uint64_t graceMs = 5'000) {
  FakeManager::Options options = cudaTask();
  options.suspend = QGPU_SUSPEND_RM;
  options.orphanGraceNs = graceMs * 1'000'000;
  return options;
}

struct Scene {
  explicit Scene(const FakeManager::Options& options = rmTask())
      : manager(options), guest(sharedTenantOf(manager)) {}
  ~Scene() { driver().refuseEnable = driver().keepFrees = driver().refuseTimeslice = 0; }

  // A program with a context: a group that was asked to run, and two channels.
  void init() { ASSERT_EQ(guest.ask("init"), "0") << guest.errors(); }
  // More, on a card; the group's handle is 100, and theirs come after it.
  std::string channels(int file, std::uint32_t count, int card = 0, int engine = 1) {
    return guest.ask("rm channels " + std::to_string(file) + " " + std::to_string(card) + " 100 " +
                     std::to_string(count) + " " + std::to_string(engine));
  }

  // The channels of the program in the driver.
  std::vector<rm_stand_in::Object*> alive() const {
    std::vector<rm_stand_in::Object*> all;
    for (rm_stand_in::Object& each : driver().objects) {
      if (each.pid == guest.pid() && rm::isChannel(each.objectClass)) all.push_back(&each);
    }
    return all;
  }
  // Of its groups, as they were made.
  std::vector<std::uint64_t> timeslices() const {
    std::vector<std::uint64_t> all;
    for (const rm_stand_in::Object& each : driver().objects) {
      if (each.pid != guest.pid() || each.objectClass != rm::kChannelGroup) continue;
      all.push_back(each.timesliceUs);
    }
    return all;
  }
  void takeOff() const {
    for (rm_stand_in::Object* each : alive()) each->disabled = each->stopped = 3;  // times
  }
  std::size_t off() const {
    const auto all = alive();
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [](const auto* each) { return each->disabled.load() != 0; }));
  }

  // What was told on a connection, by the channel or group.
  std::vector<qgpu_note> told(std::uint32_t what, std::uint32_t connection = 1) {
    std::vector<qgpu_note> all;
    for (const Note& each : manager.notes()) {
      if (each.connection == connection && each.said.what == what) all.push_back(each.said);
    }
    return all;
  }
  using Name = std::pair<std::uint32_t, std::uint32_t>;
  std::set<Name> names(std::uint32_t what, std::uint32_t connection = 1) {
    std::set<Name> all;
    for (const qgpu_note& each : told(what, connection)) all.emplace(each.client, each.object);
    return all;
  }
  std::set<Name> aliveNames() const {
    std::set<Name> all;
    for (const auto* each : alive()) all.emplace(each->client, each->handle);
    return all;
  }
  bool allTold(std::uint32_t connection) {
    std::set<Name> known = names(QGPU_NOTE_MADE, connection);
    known.merge(names(QGPU_NOTE_THERE, connection));
    const std::set<Name> wanted = aliveNames();
    return std::includes(known.begin(), known.end(), wanted.begin(), wanted.end());
  }
  std::size_t descriptors() const {
    const std::filesystem::directory_iterator folder("/proc/" + std::to_string(guest.pid()) +
                                                     "/fd");
    return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
  }

  FakeManager manager;
  CudaTenant guest;
};

TEST(GuestChannels, EachIsToldAsItIsMadeWithItsGroupAndEngine) {
  Scene s;
  s.init();
  ASSERT_TRUE(eventually([&] { return !s.told(QGPU_NOTE_ENABLED).empty(); }));
  const std::vector<qgpu_note> made = s.told(QGPU_NOTE_MADE);
  ASSERT_EQ(made.size(), 2u) << "channels, not their group";
  EXPECT_EQ(s.names(QGPU_NOTE_MADE), s.aliveNames());
  const qgpu_note run = s.told(QGPU_NOTE_ENABLED)[0];
  for (const qgpu_note& each : made) {
    EXPECT_EQ(each.group, run.object);
    EXPECT_EQ(each.client, run.client);
    EXPECT_EQ(each.device, 0u);
    EXPECT_TRUE(std::filesystem::exists("/proc/" + std::to_string(s.guest.pid()) + "/fd/" +
                                        std::to_string(each.fd)));
  }
  EXPECT_EQ(made[0].engine, 1u);
  EXPECT_EQ(made[1].engine, 9u);
  EXPECT_EQ(s.guest.errors(), "");
}

TEST(GuestChannels, WhatIsMadeLaterIsToldWithTheEngineOfItsGroup) {
  Scene s;
  s.init();
  const std::string client = s.channels(7, 3, 0, 2);
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_MADE).size() == 5; }));
  for (const qgpu_note& each : s.told(QGPU_NOTE_MADE)) {
    if (std::to_string(each.client) != client) continue;
    EXPECT_EQ(each.group, 100u);
    EXPECT_EQ(each.engine, 2u);
  }
  // 51311: the class of a channel. Beneath the device it stands alone.
  EXPECT_EQ(s.guest.ask("rm alloc 7 " + client + " 5 200 51311 0"), "0 0 200");
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_MADE).size() == 6; }));
  EXPECT_EQ(s.told(QGPU_NOTE_MADE)[5].group, 0u);
}

TEST(GuestChannels, TheEndOfAChannelOrItsGroupIsTold) {
  Scene s;
  s.init();
  const std::string client = s.channels(7, 2);
  EXPECT_EQ(s.guest.ask("rm free 7 " + client + " 101"), "0 0");
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_ENDED).size() == 1; }));
  EXPECT_EQ(s.told(QGPU_NOTE_ENDED)[0].object, 101u);
  EXPECT_EQ(s.guest.ask("rm free 7 " + client + " 5"), "0 0") << "the device, and all beneath";
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_ENDED).size() == 3; }));
  EXPECT_EQ(s.told(QGPU_NOTE_ENDED)[1].object, 102u);
  EXPECT_EQ(s.told(QGPU_NOTE_ENDED)[2].object, 100u) << "the group";
}

// Names are the program's to choose: another thread may make a channel of one as soon as the driver
// has freed it, and tell of it before the first thread gets its answer.
TEST(GuestChannels, ANameThatAnotherThreadGetsAgainAtOnceStaysKnown) {
  Scene s;
  s.init();
  const std::string client = s.channels(7, 2);
  const Scene::Name again{static_cast<std::uint32_t>(std::stoul(client)), 101};
  driver().keepFrees = 1;
  EXPECT_EQ(s.guest.ask("aside rm free 7 " + client + " 100"), "ok") << "the group, and all in it";
  ASSERT_TRUE(eventually([&] { return s.aliveNames().count(again) == 0; }));
  // 51311: the class of a channel.
  EXPECT_EQ(s.guest.ask("rm alloc 7 " + client + " 5 101 51311 0"), "0 0 101");
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_MADE).size() == 5; }));
  driver().keepFrees = 0;
  EXPECT_EQ(s.guest.ask("joinaside"), "0 0");
  ASSERT_TRUE(eventually([&] { return s.names(QGPU_NOTE_ENDED).count({again.first, 100}) == 1; }));
  EXPECT_EQ(s.names(QGPU_NOTE_ENDED),
            (std::set<Scene::Name>{{again.first, 100}, {again.first, 102}}));
  EXPECT_EQ(s.told(QGPU_NOTE_MADE).back().group, 0u) << "the new one";
}

TEST(GuestChannels, OfManyNamesThatChangeHandsEachStaysKnown) {
  constexpr std::size_t kNames = 400;
  Scene s;
  s.init();
  const std::string client = s.channels(7, kNames);
  const std::string names = " 101 " + std::to_string(kNames);
  EXPECT_EQ(s.guest.ask("aside rm freeeach 7 " + client + names), "ok");
  EXPECT_EQ(s.guest.ask("rm takeeach 7 " + client + " 100" + names), "0");
  EXPECT_EQ(s.guest.ask("joinaside"), "0");
  s.channels(8, 1);  // the last to be told
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_MADE).size() == 2 + 2 * kNames + 1; }));
  std::set<Scene::Name> known;
  for (const Note& each : s.manager.notes()) {
    const Scene::Name name{each.said.client, each.said.object};
    if (each.said.what == QGPU_NOTE_MADE) known.insert(name);
    if (each.said.what == QGPU_NOTE_ENDED) known.erase(name);
  }
  EXPECT_EQ(known, s.aliveNames());
}

TEST(GuestChannels, AfterAReturnAllAreToldToBeThere) {
  Scene s;
  s.init();
  s.channels(7, 2);
  s.manager.die();
  s.manager.restart(QGPU_GATE_OPEN);
  ASSERT_TRUE(eventually([&] { return s.names(QGPU_NOTE_THERE, 2) == s.aliveNames(); }));
  EXPECT_TRUE(s.told(QGPU_NOTE_MADE, 2).empty());
  s.channels(8, 1);
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_MADE, 2).size() == 1; }));
  EXPECT_EQ(s.guest.ask("sum"), "0") << "and it works on";
}

// A free that the driver refuses hides the objects for a moment; afterwards they are told again.
TEST(GuestChannels, WhatCouldNotBeFreedIsToldAgain) {
  Scene s;
  s.init();
  const std::string client = s.channels(7, 2);
  EXPECT_EQ(s.guest.ask("rm open 8"), "ok");
  EXPECT_EQ(s.guest.ask("rm free 8 " + client + " 5"), "0 35") << "another open file's client";
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_MADE).size() == 8; }));
  EXPECT_TRUE(s.told(QGPU_NOTE_ENDED).empty());
}

TEST(GuestChannels, WhatIsMadeWhileTheManagerComesAndGoesIsToldToTheLast) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask("aside rm channels 7 0 100 1500 1"), "ok");
  while (s.alive().size() < 1'000) {
    const std::uint32_t before = s.manager.reattaches();
    s.manager.die();
    s.manager.restart(QGPU_GATE_OPEN);
    ASSERT_TRUE(eventually([&] { return s.manager.reattaches() > before; }));
  }
  EXPECT_NE(s.guest.ask("joinaside"), "no channel");
  EXPECT_EQ(s.alive().size(), 1'502u);
  EXPECT_TRUE(eventually([&] { return s.allTold(1 + s.manager.reattaches()); }))
      << s.manager.reattaches() << " returns";
  EXPECT_EQ(s.guest.errors(), "");
}

TEST(GuestChannels, AForkedChildTellsItsOwnOnItsOwnConnection) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask("fork rm channels 7 0 100 3 1"), "0");
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_MADE, 2).size() == 3; }));
  EXPECT_TRUE(s.told(QGPU_NOTE_THERE, 2).empty()) << "its parent's";
  for (const Note& each : s.manager.notes()) EXPECT_EQ(each.slot + 1, each.connection);
  EXPECT_EQ(s.told(QGPU_NOTE_MADE, 1).size(), 2u);
  s.channels(8, 1);
  EXPECT_TRUE(eventually([&] { return s.told(QGPU_NOTE_MADE, 1).size() == 3; }));
}

TEST(GuestChannels, AManagerThatDoesNotReadKeepsNobodyAndIsToldAllLater) {
  Scene s;
  s.init();
  s.manager.stopReadingNotes();
  const std::int64_t begin = monotonicNs();
  EXPECT_NE(s.channels(7, 700), "no channel");
  EXPECT_LE(monotonicNs() - begin, 5'000'000'000);
  ASSERT_TRUE(eventually([&] { return s.manager.reattaches() >= 1; })) << "it left and returned";
  s.manager.readNotes();
  EXPECT_TRUE(eventually([&] { return s.allTold(1 + s.manager.reattaches()); }));
  EXPECT_EQ(s.guest.ask("sum"), "0") << "and it works on";
}

TEST(GuestChannels, WhereTheGateHoldsNothingIsTold) {
  FakeManager::Options options = rmTask(100);
  options.suspend = QGPU_SUSPEND_GATE;
  Scene s(options);
  s.init();
  s.takeOff();
  const std::uint64_t enables = driver().enables;
  s.manager.stopBeating();
  ASSERT_TRUE(eventually([&] { return monotonicNs() > s.manager.heartbeatNs() + 400'000'000; }));
  EXPECT_EQ(driver().enables.load(), enables);
  EXPECT_EQ(s.off(), 2u) << "nor put back";
  EXPECT_TRUE(s.manager.notes().empty());
}

TEST(GuestChannels, ALostManagersAreOnAgainAfterTheGraceAndItIsToldWhenHeard) {
  Scene s(rmTask(500));
  s.init();
  s.channels(7, 100);
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_MADE).size() == 102; }));
  const std::size_t descriptors = s.descriptors();
  const std::uint64_t enables = driver().enables;
  s.takeOff();
  EXPECT_EQ(s.off(), 102u);
  s.manager.stopBeating();
  ASSERT_TRUE(eventually([&] { return s.off() == 0; }));
  EXPECT_GE(monotonicNs() - s.manager.heartbeatNs(), 500'000'000u) << "not before the grace";
  EXPECT_EQ(s.told(QGPU_NOTE_ENABLED).size(), 1u) << "init's group; nobody hears it now";
  s.manager.goOnBeating();
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_ENABLED).size() == 1 + 102; }));
  EXPECT_LE(driver().enables.load(), enables + 2 * rm::kDisablesMax) << "64 in a call";
  EXPECT_EQ(s.descriptors(), descriptors);
  EXPECT_EQ(s.manager.reattaches(), 0u);
  s.takeOff();  // it ends again, and so on
  s.manager.stopBeating();
  EXPECT_TRUE(eventually([&] { return s.off() == 0; }));
  EXPECT_EQ(s.guest.errors(), "");
}

// Its heart may have stopped alone: what else of it lives takes channels off as before.
TEST(GuestChannels, WhatALostManagerTakesOffLaterOrAtItsEndIsPutBackToo) {
  Scene s(rmTask(200));
  s.init();
  s.manager.stopBeating();
  for (int i = 0; i < 2; ++i) {
    s.takeOff();
    EXPECT_TRUE(eventually([&] { return s.off() == 0; })) << i;
  }
  s.takeOff();
  s.manager.die();
  EXPECT_TRUE(eventually([&] { return s.off() == 0; })) << "at its end";
  EXPECT_EQ(s.guest.errors(), "");
}

TEST(GuestChannels, EachCardOfAProgramIsAskedOnce) {
  Scene s(rmTask(200));
  s.init();
  s.channels(7, 3, 1);
  s.channels(8, 3, 0);
  const std::uint64_t enables = driver().enables;
  s.manager.die();
  s.takeOff();
  ASSERT_TRUE(eventually([&] { return s.off() == 0; }));
  s.manager.restart(QGPU_GATE_OPEN);
  ASSERT_TRUE(eventually([&] { return s.names(QGPU_NOTE_THERE, 2) == s.aliveNames(); }));
  EXPECT_EQ(driver().enables.load(), enables + 2 * rm::kDisablesMax);
  EXPECT_TRUE(s.told(QGPU_NOTE_ENABLED, 2).empty()) << "a new one asks for nothing more";
}

// A channel may end unseen, with what it uses; then the driver refuses the call that names it.
TEST(GuestChannels, OneThatIsGoneDoesNotKeepTheOthersOff) {
  Scene s(rmTask(200));
  s.init();
  s.channels(7, 5);
  s.alive()[3]->pid = 0;
  s.takeOff();
  EXPECT_EQ(s.off(), 6u);
  s.manager.stopBeating();
  EXPECT_TRUE(eventually([&] { return s.off() == 0; }));
  s.manager.goOnBeating();
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_ENABLED).size() == 1 + 7; }));
  EXPECT_EQ(s.guest.errors(), "") << "that was no refusal";
}

TEST(GuestChannels, ARefusalIsSaidOnceAndTriedAgain) {
  Scene s(rmTask(200));
  s.init();
  s.takeOff();
  driver().refuseEnable = 12;
  s.manager.stopBeating();
  EXPECT_TRUE(eventually([&] { return s.off() == 0; }));
  EXPECT_EQ(driver().refuseEnable.load(), 0u);
  EXPECT_EQ(s.guest.errors(),
            "qgpu: cannot put this program's work back on the card, where a lost manager may have "
            "taken it off: the driver's status 0x1b; it tries again\n");
}

// A device that was made before the program was attached is not known, and so what is beneath it.
TEST(GuestChannels, OneWhoseCardIsNotKnownIsPutBackByTheOneThatTakesIt) {
  Scene s(rmTask(200));
  EXPECT_EQ(s.guest.ask("rm open 7"), "ok");
  const std::string made = s.guest.ask("rm alloc 7 0 0 0 65 0");
  const std::string client = made.substr(made.rfind(' ') + 1);
  EXPECT_EQ(s.guest.ask("rm alloc 7 " + client + " " + client + " 5 128 0"), "0 0 5");
  s.init();
  EXPECT_EQ(s.guest.ask("rm alloc 7 " + client + " 5 300 51311 0"), "0 0 300");
  ASSERT_TRUE(eventually([&] { return s.told(QGPU_NOTE_MADE).size() == 3; }));
  EXPECT_EQ(s.told(QGPU_NOTE_MADE)[2].device, ~0u);
  s.takeOff();
  driver().refuseEnable = 3 + 1;  // of the two and each of them, and of this one
  s.manager.die();
  EXPECT_TRUE(eventually([&] { return s.off() == 0; }));
  EXPECT_EQ(s.guest.errors().find("no card knows it"), std::string::npos) << "a refusal may end";
}

// As of a program that has all its descriptors open: no card is one that does not know the channel.
TEST(GuestChannels, OneWhoseCardIsNotKnownIsTriedAgainWhenNoCardCanBeOpenedNow) {
  Scene s(rmTask(100));
  EXPECT_EQ(s.guest.ask("rm open 7"), "ok");
  const std::string made = s.guest.ask("rm alloc 7 0 0 0 65 0");
  const std::string client = made.substr(made.rfind(' ') + 1);
  EXPECT_EQ(s.guest.ask("rm alloc 7 " + client + " " + client + " 5 128 0"), "0 0 5");
  s.init();
  EXPECT_EQ(s.guest.ask("reset"), "0");
  ASSERT_TRUE(s.alive().empty()) << "of a card that is known";
  EXPECT_EQ(s.guest.ask("rm alloc 7 " + client + " 5 300 51311 0"), "0 0 300");
  s.takeOff();
  rlimit own{};
  ASSERT_EQ(prlimit(s.guest.pid(), RLIMIT_NOFILE, nullptr, &own), 0);
  const rlimit none{0, own.rlim_max};
  ASSERT_EQ(prlimit(s.guest.pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  s.manager.stopBeating();
  EXPECT_TRUE(eventually([&] { return !s.guest.errors().empty(); }));
  EXPECT_EQ(s.guest.errors(),
            "qgpu: cannot put this program's work back on the card, where a lost manager may have "
            "taken it off: /dev/nvidiactl can't be opened; it tries again\n");
  EXPECT_EQ(s.off(), 1u);
  ASSERT_EQ(prlimit(s.guest.pid(), RLIMIT_NOFILE, &own, nullptr), 0);
  EXPECT_TRUE(eventually([&] { return s.off() == 0; }));
}

TEST(GuestChannels, OneThatNoCardTakesIsLeftOutAndNotAskedForAgain) {
  Scene s(rmTask(100));
  s.init();
  const std::string client = s.channels(7, 2);
  EXPECT_EQ(s.guest.ask("rm alloc 7 " + client + " " + client + " 300 51311 0"), "0 0 300");
  s.takeOff();
  s.manager.die();
  ASSERT_TRUE(eventually([&] { return s.off() == 1; }));
  ASSERT_TRUE(eventually([&] { return !s.guest.errors().empty(); }));
  const std::uint64_t enables = driver().enables;
  const std::int64_t then = monotonicNs();
  ASSERT_TRUE(eventually([&] { return monotonicNs() > then + 400'000'000; }));
  EXPECT_EQ(driver().enables.load(), enables);
  EXPECT_EQ(s.guest.errors(),
            "qgpu: cannot put a part of this program's work back on the card, if a lost manager "
            "has taken it off: no card knows it\n");
}

TEST(GuestChannels, ADriverThatRefusesIsAskedEverMoreSeldom) {
  Scene s(rmTask(100));
  s.init();
  s.takeOff();
  driver().refuseEnable = 1'000'000;
  const std::uint64_t enables = driver().enables;
  const std::int64_t then = monotonicNs();
  s.manager.die();
  ASSERT_TRUE(eventually([&] { return monotonicNs() > then + 1'000'000'000; }));
  const std::uint64_t tries = (driver().enables - enables) / 3;  // both, the one, and the other
  EXPECT_GE(tries, 2u);
  EXPECT_LE(tries, 5u) << "after 0, 50, 150, 350 and 750 ms";
  driver().refuseEnable = 0;
  EXPECT_TRUE(eventually([&] { return s.off() == 0; })) << "but for ever";
}

// The next manager may hold otherwise, and know nothing of what the last one took off.
TEST(GuestChannels, AReturnToAManagerThatHoldsByTheGatePutsThemBackAtOnce) {
  Scene s;
  s.init();
  s.manager.die();
  s.takeOff();
  s.manager.setSuspend(QGPU_SUSPEND_GATE);
  s.manager.restart(QGPU_GATE_OPEN);
  EXPECT_TRUE(eventually([&] { return s.off() == 0; }));
  EXPECT_NE(s.channels(7, 2), "no channel");
  for (const Note& each : s.manager.notes()) EXPECT_EQ(each.connection, 1u);
  EXPECT_EQ(s.guest.errors(), "");
}

// --- timeslices, which each group of channels gets ---

FakeManager::Options sliced(std::uint64_t us, std::uint32_t suspend) {
  FakeManager::Options options = rmTask();
  options.timesliceUs = us;
  options.suspend = suspend;
  return options;
}

TEST(GuestTimeslices, EachGroupGetsTheTasksWhoeverHoldsIt) {
  for (const std::uint32_t suspend : {QGPU_SUSPEND_GATE, QGPU_SUSPEND_RM}) {
    Scene s(sliced(200, suspend));
    s.init();
    s.channels(7, 2);
    EXPECT_EQ(s.timeslices(), (std::vector<std::uint64_t>{200, 200}));
    if (suspend == QGPU_SUSPEND_RM) {
      EXPECT_TRUE(eventually([&] { return s.allTold(1); }));
    } else {
      EXPECT_TRUE(s.manager.notes().empty());
    }
    EXPECT_EQ(s.guest.errors(), "");
  }
}

TEST(GuestTimeslices, WhereTheManagerWantsNoneTheDriversOwnStays) {
  Scene s(sliced(0, QGPU_SUSPEND_GATE));
  s.init();
  EXPECT_EQ(s.timeslices(), (std::vector<std::uint64_t>{rm_stand_in::kDefaultTimesliceUs}));
}

TEST(GuestTimeslices, ARefusalIsSaidOnceAndTheProgramRunsOn) {
  Scene s(sliced(200, QGPU_SUSPEND_GATE));
  driver().refuseTimeslice = 2 + 1;  // as init's group is made and scheduled, and another's
  s.init();
  EXPECT_NE(s.channels(7, 2), "no channel");
  EXPECT_NE(s.channels(8, 2), "no channel");
  constexpr std::uint64_t kOwn = rm_stand_in::kDefaultTimesliceUs;
  EXPECT_EQ(s.timeslices(), (std::vector<std::uint64_t>{kOwn, kOwn, 200}));
  EXPECT_EQ(s.guest.ask("sum"), "0");
  EXPECT_EQ(s.guest.errors(),
            "qgpu: the driver gives no timeslices of 200 us (status 0x1b); this program runs with "
            "its own\n");
}

TEST(GuestTimeslices, AProgramThatSetsItsOwnHasTheTasksAllTheSame) {
  Scene s(sliced(200, QGPU_SUSPEND_GATE));
  s.init();
  const std::string client = s.channels(7, 1);
  EXPECT_EQ(s.guest.ask("rm slice 7 " + client + " 100 5000"), "0 0");
  EXPECT_EQ(s.timeslices(), (std::vector<std::uint64_t>{200, 200}));
}

using Slices = std::vector<std::uint64_t>;

TEST(GuestTimeslices, WhatIsThereGetsAnotherOnceTheManagerWantsIt) {
  for (const std::uint32_t suspend : {QGPU_SUSPEND_GATE, QGPU_SUSPEND_RM}) {
    Scene s(sliced(200, suspend));
    s.init();
    s.channels(7, 2);
    ASSERT_EQ(s.timeslices(), (Slices{200, 200}));
    s.manager.setTimeslice(2'000);
    EXPECT_TRUE(eventually([&] { return s.timeslices() == Slices{2'000, 2'000}; }));
    s.channels(8, 1);
    EXPECT_EQ(s.timeslices(), (Slices{2'000, 2'000, 2'000}));
    s.manager.setTimeslice(200);
    EXPECT_TRUE(eventually([&] { return s.timeslices() == Slices{200, 200, 200}; }));
    EXPECT_EQ(s.guest.errors(), "");
  }
}

TEST(GuestTimeslices, ADriverThatRefusesAnotherCostsTheProgramNothing) {
  constexpr std::uint32_t kAll = 100;
  Scene s(sliced(200, QGPU_SUSPEND_GATE));
  s.init();
  driver().refuseTimeslice = kAll;
  s.manager.setTimeslice(2'000);
  EXPECT_TRUE(eventually([&] { return driver().refuseTimeslice < kAll; }));
  EXPECT_EQ(s.guest.ask("sum"), "0");
  EXPECT_EQ(s.timeslices(), Slices{200});
  EXPECT_EQ(s.guest.errors(), "");
}

TEST(GuestTimeslices, AManagerThatReturnsMayWantOthers) {
  Scene s(sliced(200, QGPU_SUSPEND_GATE));
  s.init();
  s.manager.die();
  s.manager.setTimeslice(10'000);
  s.manager.restart(QGPU_GATE_OPEN);
  ASSERT_TRUE(eventually([&] { return s.manager.slot(0).obeys == 2; })) << "it has the new page";
  s.channels(7, 1);
  EXPECT_TRUE(eventually([&] { return s.timeslices() == Slices{10'000, 10'000}; }));
}

}  // namespace
}  // namespace qgpu::testing::guest_channels_test
