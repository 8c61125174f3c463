// Who is accused of using a card past the library: the decision alone, and real processes that have
// a stand-in of a card's node open.

#include "services/attach/unheld.h"

#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/unit/services/attach/attach_fixture.h"

namespace qgpu::unheld_test {
namespace {

using Which = schema::Envelope::Which;

// --- the decision ---

CardUser userOf(std::uint32_t pid, std::uint64_t start = 1, std::uint64_t task = 7) {
  CardUser user;
  user.process = {pid, start};
  user.task = task;
  return user;
}

TEST(UnheldFinder, AccusesWhoIsSeenTwiceInARowAndSaysWhetherItIsNew) {
  UnheldFinder finder;
  EXPECT_TRUE(finder.accuse({userOf(5)}, {5}).empty());
  const auto second = finder.accuse({userOf(5)}, {5});
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].user.process.pid, 5u);
  EXPECT_TRUE(second[0].first);
  const auto third = finder.accuse({userOf(5)}, {5});
  ASSERT_EQ(third.size(), 1u);
  EXPECT_FALSE(third[0].first);
}

TEST(UnheldFinder, ForgetsWhoWasLookedAtInVainAndWhoHasAnotherStart) {
  UnheldFinder finder;
  finder.accuse({userOf(5), userOf(6, 1)}, {5, 6});
  EXPECT_TRUE(finder.accuse({userOf(6, 2)}, {5, 6}).empty());
  EXPECT_TRUE(finder.accuse({userOf(5)}, {5}).empty());
}

TEST(UnheldFinder, RemembersWhomAScanDidNotGetTo) {
  UnheldFinder finder;
  finder.accuse({userOf(5)}, {5});
  EXPECT_TRUE(finder.accuse({}, {4}).empty());
  EXPECT_EQ(finder.accuse({userOf(5)}, {5}).size(), 1u);
}

TEST(UnheldFinder, LeavesAloneWhoIsAttachedAndWhoIsOfNoTask) {
  UnheldFinder finder;
  CardUser attached = userOf(5);
  attached.attached = true;
  for (int i = 0; i < 3; i++) {
    EXPECT_TRUE(finder.accuse({attached, userOf(6, 1, 0)}, {5, 6}).empty());
  }
}

TEST(UnheldFinder, LeavesToTheNextScansWhomOneHasNoRoomFor) {
  UnheldFinder finder;
  std::vector<CardUser> users;
  std::set<std::uint32_t> looked;
  for (std::uint32_t pid = 1; pid <= kAccusedMax + 1; pid++) {
    users.push_back(userOf(pid));
    looked.insert(pid);
  }
  finder.accuse(users, looked);
  EXPECT_EQ(finder.accuse(users, looked).size(), kAccusedMax);
  users.erase(users.begin(), users.begin() + kAccusedMax);
  const auto last = finder.accuse(users, looked);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_TRUE(last[0].first);
}

TEST(CardNodes, AreThoseOfCardsWhoseNumberIsKnown) {
  Card numbered;
  numbered.id = "GPU-1";
  numbered.minor = 3;
  const auto nodes = cardNodes({Card(), numbered});
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].card, "GPU-1");
  EXPECT_EQ(nodes[0].device, makedev(195, 3));
}

// --- processes ---

constexpr const char* kNode = "/dev/full";  // stands for a card's

// A mount namespace as a container of ours has it, with `folder` mounted for its token.
bool enterContainer(const std::string& folder) {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("run", "/run", "tmpfs", 0, nullptr) == 0 && ::mkdir("/run/qgpu", 0755) == 0 &&
         ::mkdir("/run/qgpu/task", 0755) == 0 && ::mkdir("/run/qgpu/task/core", 0755) == 0 &&
         ::mount(folder.c_str(), "/run/qgpu/task/core", nullptr, MS_BIND, nullptr) == 0;
}

class Unheld : public AttachTest {
 protected:
  void begin(bool strict) {
    struct stat facts {};
    ASSERT_EQ(::stat(kNode, &facts), 0);
    unheldOptions.nodes = {{facts.st_rdev, "GPU-1"}};
    unheldOptions.strict = strict;
    unheldOptions.every = millis(20);
    start();
    for (const std::uint64_t id : {7u, 8u}) bind(id);
  }

  // A program with this environment and file open; returns once it runs.
  std::unique_ptr<Child> run(const std::string& environment, const char* file = kNode) {
    int pipe[2];
    EXPECT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
    auto child = std::make_unique<Child>([&] {
      std::string word = environment;
      char* const variables[] = {word.data(), nullptr};
      if (::open(file, O_RDWR) < 0) return 1;
      ::execle("/bin/sleep", "sleep", "1000", nullptr, variables);
      return 1;
    });
    ::close(pipe[1]);
    char none = 0;
    EXPECT_EQ(::read(pipe[0], &none, 1), 0);  // shut by exec
    ::close(pipe[0]);
    return child;
  }
  std::unique_ptr<Child> runOf(std::uint64_t id, const char* file = kNode) {
    return run("QGPU_TOKEN=" + tokenOf(id), file);
  }

  static bool lives(const Child& child) {
    siginfo_t none{};
    return ::waitid(P_PID, static_cast<id_t>(child.pid()), &none, WEXITED | WNOHANG | WNOWAIT) ==
               0 &&
           none.si_pid == 0;
  }
  std::size_t told(std::uint64_t id) const { return node.count(Which::EVENT_TOLD, id); }
  std::string lastOf(std::uint64_t id) const {
    const Heard* heard = node.last(Which::EVENT_TOLD, id);
    return heard == nullptr ? "" : heard->text;
  }
  // Whoever is to be accused has been by then.
  void twoScans() {
    const std::size_t before = told(8);
    const auto child = runOf(8);
    ASSERT_TRUE(until([&] { return told(8) > before; }));
  }
  // A process in a container of task 7 that attaches, where it is told to, and has a card open;
  // null where none can be made here.
  std::unique_ptr<Child> contained(bool attaches) {
    const std::string folder = serverOptions.runDir + "/kubelet/core-" + tokenOf(7).substr(0, 16);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/token") << tokenOf(7) << "\n";
    int pipe[2];
    EXPECT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
    auto child = std::make_unique<Child>([&] {
      if (!enterContainer(folder)) return 1;
      std::optional<GuestClient> client;
      if (attaches) {
        auto made = GuestClient::attach(socket(), tokenOf(7));
        if (!made) return 1;
        client.emplace(std::move(*made));
      }
      if (::open(kNode, O_RDWR) < 0) return 1;
      if (::write(pipe[1], "+", 1) != 1) return 1;
      for (;;) ::pause();
    });
    ::close(pipe[1]);
    Fd ready(pipe[0]);
    char said = 0;
    ssize_t n = -1;
    ::fcntl(ready.get(), F_SETFL, O_NONBLOCK);
    EXPECT_TRUE(until([&] { return (n = ::read(ready.get(), &said, 1)) >= 0; }));
    return n == 1 ? std::move(child) : nullptr;
  }
};

TEST_F(Unheld, AProgramOfATaskThatHasACardOpenIsToldOfOnce) {
  begin(false);
  const auto child = runOf(7);
  ASSERT_TRUE(until([&] { return told(7) == 1; }));
  EXPECT_EQ(lastOf(7), "process " + std::to_string(child->pid()) +
                           " (sleep) has GPU-1 open and never attached: no quota or turn holds it");
  twoScans();
  EXPECT_EQ(told(7), 1u);
  EXPECT_TRUE(lives(*child));
  EXPECT_EQ(room().unheld().told, 2u);
  EXPECT_EQ(room().unheld().ended, 0u);
}

TEST_F(Unheld, StrictEndsItAndSaysSo) {
  begin(true);
  const auto child = runOf(7);
  const std::string pid = std::to_string(child->pid());
  ASSERT_TRUE(until([&] { return told(7) == 1; }));
  EXPECT_EQ(child->wait(), -SIGKILL);
  EXPECT_TRUE(lastOf(7).starts_with("ended by --strict: process " + pid));
  EXPECT_EQ(room().unheld().ended, 1u);
}

TEST_F(Unheld, StrictLeavesAloneWhoIsOfNoTaskOrUsesNoCardOrIsAttached) {
  // Attached to the manager before this one, and not back yet.
  const auto listed = runOf(7);
  const auto pid = static_cast<std::uint32_t>(listed->pid());
  AttachedList list;
  ASSERT_TRUE(list.open(folder()).ok());
  list.add({pid, processStart(pid).value(), 7, {0}});
  begin(true);
  const auto daemon = run("PATH=/bin");
  const auto stranger = run("QGPU_TOKEN=" + std::string(QGPU_TOKEN_LEN, 'f'));
  const auto other = runOf(7, "/dev/zero");
  twoScans();
  for (const auto* child : {listed.get(), daemon.get(), stranger.get(), other.get()}) {
    EXPECT_TRUE(lives(*child));
  }
  EXPECT_EQ(told(7), 0u);
}

TEST_F(Unheld, AContainerIsKnownByTheFolderOfItsToken) {
  begin(true);
  const auto child = contained(false);
  if (child == nullptr) GTEST_SKIP() << "no mount namespace can be made here";
  ASSERT_TRUE(until([&] { return told(7) == 1; }));
  EXPECT_EQ(child->wait(), -SIGKILL);
}

TEST_F(Unheld, WhoAttachedIsLeftAloneAlsoWhereTheListMissesIt) {
  begin(true);
  const auto child = contained(true);
  if (child == nullptr) GTEST_SKIP() << "no mount namespace can be made here";
  twoScans();
  EXPECT_EQ(told(7), 0u);
  for (const auto& entry : std::filesystem::directory_iterator(folder() + "/attached")) {
    std::filesystem::remove(entry);
  }
  twoScans();
  EXPECT_EQ(told(7), 0u);
  EXPECT_TRUE(lives(*child));
}

}  // namespace
}  // namespace qgpu::unheld_test
