#include "services/attach/pages/page_search.h"

#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "tests/unit/services/attach/attach_fixture.h"

namespace qgpu::page_search_test {
namespace {

using Which = schema::Envelope::Which;
// As /proc has it: 'T' is stopped.
char processState(pid_t pid) {
  std::ifstream from("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(from, text);
  const std::size_t at = text.rfind(')');
  return at == std::string::npos ? 0 : text.at(at + 2);
}

constexpr std::uint64_t kTheirs = 300;     // bytes that the earlier process has on the card
constexpr Nanos kLeaseTime = seconds(15);  // well below what the kernel waits for a lease, 45 s

class PageSearchTest : public AttachTest {
 protected:
  // Binds task 7, attaches a process that then runs `body`, and goes on with the next manager,
  // which the process never comes back to.
  std::unique_ptr<Child> leave(const std::function<void()>& before,
                               const std::function<void(GuestClient&)>& body) {
    start();
    bind(7);
    auto child = std::make_unique<Child>([&]() -> int {
      ::closefrom(3);  // also the manager's, which a fork has and no tenant
      before();
      auto client = GuestClient::attach(socket(), tokenOf(7));
      if (!client.ok()) return 1;
      client->slot().bytes = kTheirs;
      body(*client);
      for (;;) ::pause();
    });
    EXPECT_TRUE(until([&] {
      const Heard* used = task.last(Which::USED, 7);
      return used != nullptr && used->memBytes == kTheirs;
    }));
    return child;
  }
  void restart() {
    serverOptions.recovery = millis(1);
    start();
    node.heard.clear();
    bind(7);
    turns(100);  // the time of recovery is over
  }
};

// While others run, nothing of it is used up.
TEST(PageSearchBound, IsOfTheTimeThatTheSearchItselfRuns) {
  const SearchBound bound;
  const Nanos end = monotonicNow() + kPageSearchMax + kPageSearchMax;
  while (monotonicNow() < end) ::poll(nullptr, 0, 1);
  EXPECT_LT(threadTimeNow(), bound.until);
}

TEST_F(PageSearchTest, A14_WhoComesAfterARestartIsCountedWithAProcessThatIsStopped) {
  const auto stopped = leave([] {}, [](GuestClient&) { ::raise(SIGSTOP); });
  restart();
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok()) << client.error().message;
  std::uint64_t sum = 0;
  for (const qgpu_slot& slot : client->reportPage().slot) sum += slot.bytes;
  EXPECT_EQ(sum, kTheirs) << "its reservations are weighed against what the other one has";
  EXPECT_EQ(client->slot().bytes, 0u);
}

TEST_F(PageSearchTest, A14_WhatAStoppedProcessHadReturnsWithItsDeath) {
  const auto stopped = leave([] {}, [](GuestClient&) { ::raise(SIGSTOP); });
  restart();
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok()) << client.error().message;
  stopped->kill();
  EXPECT_TRUE(until([&] {
    std::uint64_t sum = 0;
    for (qgpu_slot& slot : client->reportPage().slot) {
      sum += std::atomic_ref<std::uint64_t>(slot.bytes).load();
    }
    return sum == 0;
  }));
}

// Slot 0 is of one that started in the same tick and is dead by now.
TEST_F(PageSearchTest, A14_OfProcessesThatStartedTogetherTheLivingOneKeepsItsSlot) {
  const auto stopped = leave([] {},
                             [](GuestClient& client) {
                               qgpu_report_page& page = client.reportPage();
                               page.slot[5] = page.slot[0];
                               page.slot[0].pid++;
                               ::raise(SIGSTOP);
                             });
  ASSERT_TRUE(until([&] { return processState(stopped->pid()) == 'T'; }));
  restart();
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok()) << client.error().message;
  EXPECT_EQ(client->reportPage().slot[5].bytes, kTheirs);
  std::uint64_t sum = 0;
  for (const qgpu_slot& slot : client->reportPage().slot) sum += slot.bytes;
  EXPECT_EQ(sum, kTheirs);
}

TEST_F(PageSearchTest, HAZARDS9_AFileThatOnlyLooksLikeAPageIsPassedOver) {
  std::vector<Fd> fakes;
  const auto makeFakes = [&] {
    for (const std::size_t bytes : {kReportPageBytes, kGatePageBytes}) {
      fakes.emplace_back(::memfd_create("qgpu-report", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      if (::ftruncate(fakes.back().get(), static_cast<off_t>(bytes)) != 0) ::_exit(2);
    }
  };
  const auto stopped = leave(makeFakes, [](GuestClient&) { ::raise(SIGSTOP); });
  restart();
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok()) << client.error().message;
  EXPECT_NE(client->welcome().slot, 0u) << "slot 0 is in the page of the stopped process";
}

// Who opens the file is waited for until its holder gives the lease up, or its time is over.
void lease(int file) {
  ::signal(SIGIO, SIG_IGN);
  // The kernel gives a lease to who has opened the file, which the maker of one in memory has not.
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0 || ::fcntl(opened, F_SETLEASE, F_WRLCK) != 0) ::_exit(4);
}

TEST_F(PageSearchTest, HAZARDS9_ALeaseOnAFileLikeAPageHoldsNobodyUp) {
  Fd fake;
  const auto makeFake = [&] {
    fake.reset(::memfd_create("qgpu-report", MFD_CLOEXEC));
    if (::ftruncate(fake.get(), static_cast<off_t>(kReportPageBytes)) != 0) ::_exit(2);
    lease(fake.get());
  };
  const auto stopped = leave(makeFake, [](GuestClient&) { ::raise(SIGSTOP); });
  const Nanos from = monotonicNow();
  restart();
  auto client = attachSelf(7);
  EXPECT_LT((monotonicNow() - from).value, kLeaseTime.value);
  ASSERT_TRUE(client.ok()) << client.error().message;
  std::uint64_t sum = 0;
  for (const qgpu_slot& slot : client->reportPage().slot) sum += slot.bytes;
  EXPECT_EQ(sum, kTheirs) << "its page is behind the other file";
}

TEST_F(PageSearchTest, A14_APageWithALeaseOnItIsHiddenWhichIsForItsOwnTaskAlone) {
  const auto keep = [](GuestClient& client) {
    lease(client.reportFd());
    ::raise(SIGSTOP);
  };
  const auto stopped = leave([] {}, keep);
  ASSERT_TRUE(until([&] { return processState(stopped->pid()) == 'T'; }));
  const Nanos from = monotonicNow();
  restart();
  bind(8);
  EXPECT_TRUE(attachSelf(8).ok());
  const auto early = attachSelf(7);
  EXPECT_LT((monotonicNow() - from).value, kLeaseTime.value);
  ASSERT_FALSE(early.ok());
  EXPECT_NE(early.error().message.find("has not come back"), std::string::npos);
  stopped->kill();
  EXPECT_TRUE(until([&] { return attachSelf(7).ok(); }));
}

TEST_F(PageSearchTest, AProcessThatExecutedAnotherProgramHoldsNobodyUp) {
  const auto sleep = [](GuestClient&) { ::execl("/bin/sleep", "sleep", "1000", nullptr); };
  const auto other = leave([] {}, sleep);
  const std::string exe = "/proc/" + std::to_string(other->pid()) + "/exe";
  ASSERT_TRUE(until([&] {
    return std::filesystem::read_symlink(exe) != std::filesystem::read_symlink("/proc/self/exe");
  }));
  restart();
  const auto client = attachSelf(7);
  EXPECT_TRUE(client.ok()) << client.error().message;
}

TEST_F(PageSearchTest, A14_WhileAPageCanNotBeFoundNobodyNewIsGivenAnother) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 16'384) GTEST_SKIP() << "ulimit -Hn is too low";
  const auto openMany = [] {
    rlimit enough{16'384, 16'384};
    if (::setrlimit(RLIMIT_NOFILE, &enough) != 0) ::_exit(2);
    for (int i = 0; i < 10'000; i++) {
      if (::dup(0) < 0) ::_exit(3);
    }
  };
  const auto stopped = leave(openMany, [](GuestClient&) { ::raise(SIGSTOP); });
  restart();
  const auto early = attachSelf(7);
  ASSERT_FALSE(early.ok());
  EXPECT_NE(early.error().message.find("has not come back"), std::string::npos);
  stopped->kill();
  EXPECT_TRUE(until([&] { return attachSelf(7).ok(); }));
}

}  // namespace
}  // namespace qgpu::page_search_test
