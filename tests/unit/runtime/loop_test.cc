// The loop itself: timers, descriptors watched for edges and levels, stop, and what status shows.
#include "runtime/loop.h"

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <set>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "runtime/mailbox_ring.h"
#include "runtime/realtime.h"
#include "tests/testing/temp_folder.h"

// What the kernel says to who asks for a policy. The call stands before libc's.
struct Scheduling {
  enum class Says { AsItIs, Yes, No } says = Says::AsItIs;
  int asked = -1;
} scheduling;

extern "C" int sched_setscheduler(pid_t pid, int policy, const sched_param* param) noexcept {
  if (scheduling.says == Scheduling::Says::AsItIs) {
    return static_cast<int>(::syscall(SYS_sched_setscheduler, pid, policy, param));
  }
  scheduling.asked = policy;
  if (scheduling.says == Scheduling::Says::Yes) return 0;
  errno = EPERM;
  return -1;
}

namespace qgpu::loop_test {
namespace {

struct Fd {
  explicit Fd(int f) : fd(f) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { ::close(fd); }
  const int fd;
};

TEST(Loop, StopBeforeRunCounts) {
  Loop loop;
  loop.stop();
  loop.run();
  EXPECT_TRUE(loop.stopping());
}

TEST(Loop, RunsTimersInOrderOfDeadlineAndThenOfCreation) {
  Loop loop;
  std::vector<int> order;
  const Nanos base = loop.now();
  loop.at(base + micros(700), [&] { loop.stop(); });
  loop.at(base + micros(200), [&] { order.push_back(2); });
  loop.at(base + micros(100), [&] { order.push_back(1); });
  loop.at(base + micros(200), [&] { order.push_back(3); });
  const auto cancelled = loop.at(base + micros(150), [&] { order.push_back(9); });
  loop.cancel(cancelled);
  loop.run();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(Loop, ATimerMayArmAndCancelOthers) {
  Loop loop;
  int fired = 0;
  Loop::TimerKey victim = 0;
  loop.after(Nanos(0), [&] {
    loop.cancel(victim);
    loop.after(Nanos(-5), [&] { ++fired; });
    loop.after(micros(50), [&] { loop.stop(); });
  });
  victim = loop.after(Nanos(0), [&] { fired += 100; });
  loop.run();
  EXPECT_EQ(fired, 1);
}

// HAZARDS 1: O_NONBLOCK belongs to the shared description, so its other owner may clear it; the
// loop must never read the bell.
TEST(EdgeSet, ADoorbellWhoseOwnerClearsNonblockNeverBlocksTheLoop) {
  Loop loop;
  const Fd bell(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  int rings = 0;
  const FdWatch watch = loop.fds().watchEdge(bell.fd, EPOLLIN, [&](std::uint32_t) { ++rings; });
  ASSERT_EQ(fcntl(bell.fd, F_SETFL, 0), 0);
  for (int i = 1; i <= 3; ++i) {
    eventfd_write(bell.fd, 1);
    loop.poll();
    EXPECT_EQ(rings, i);
    loop.poll();  // still readable, but that is no new edge
    EXPECT_EQ(rings, i);
  }
  eventfd_t value = 0;
  eventfd_read(bell.fd, &value);  // its owner empties it
  EXPECT_EQ(value, 3U);
  loop.poll();
  EXPECT_EQ(rings, 3);
}

TEST(EdgeSet, ALevelWatchFiresUntilItsConditionIsCleared) {
  Loop loop;
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
  const Fd ours(pair[0]);
  const Fd theirs(pair[1]);
  int fired = 0;
  const FdWatch watch = loop.fds().watchLevel(ours.fd, EPOLLIN, [&](std::uint32_t events) {
    EXPECT_TRUE(events & EPOLLIN);
    char byte = 0;
    if (++fired == 3) {
      EXPECT_EQ(::read(ours.fd, &byte, 1), 1);
    }
  });
  ASSERT_EQ(::write(theirs.fd, "x", 1), 1);
  for (int i = 0; i < 6; ++i) loop.poll();
  EXPECT_EQ(fired, 3);
}

TEST(EdgeSet, ACallbackMayDropItsOwnWatchAndOthers) {
  Loop loop;
  const Fd first(eventfd(1, EFD_CLOEXEC));
  const Fd second(eventfd(1, EFD_CLOEXEC));
  int fired = 0;
  FdWatch a;
  FdWatch b;
  const auto dropBoth = [&](std::uint32_t) {
    ++fired;
    a.reset();
    b.reset();
  };
  a = loop.fds().watchLevel(first.fd, EPOLLIN, dropBoth);
  b = loop.fds().watchLevel(second.fd, EPOLLIN, dropBoth);
  for (int i = 0; i < 3; ++i) loop.poll();
  EXPECT_EQ(fired, 1);
  EXPECT_FALSE(a.active());
}

TEST(EdgeSet, AMovedWatchStaysAndAnEndedOneIsForgotten) {
  Loop loop;
  const Fd bell(eventfd(0, EFD_CLOEXEC));
  int rings = 0;
  {
    FdWatch first = loop.fds().watchEdge(bell.fd, EPOLLIN, [&](std::uint32_t) { ++rings; });
    const FdWatch second = std::move(first);
    eventfd_write(bell.fd, 1);
    loop.poll();
  }
  eventfd_write(bell.fd, 1);
  loop.poll();
  EXPECT_EQ(rings, 1);
}

// A waker that is preempted by the loop it wakes, on the same CPU, must not be needed for anything
// more. A loop that waits for it spins until the waker finds another CPU, which here it can't.
TEST(Loop, HAZARDS24_ARealtimeLoopThatPreemptsItsWakerDoesNotWaitForIt) {
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &first);
  Loop loop;
  std::atomic<int> granted{-1};
  std::atomic<int> ran{0};
  std::atomic<std::int64_t> cpuNs{0};
  std::thread realtime([&] {
    ::pthread_setaffinity_np(::pthread_self(), sizeof first, &first);
    sched_param priority{};
    priority.sched_priority = 1;
    granted = ::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &priority) == 0 ? 1 : 0;
    loop.run();
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    cpuNs = used.tv_sec * 1'000'000'000LL + used.tv_nsec;
  });
  std::thread waker([&] {
    ::pthread_setaffinity_np(::pthread_self(), sizeof first, &first);
    while (granted.load() < 0) std::this_thread::yield();
    for (int i = 0; i < 2'000; ++i) loop.post([&] { ran.fetch_add(1); });
    loop.post([&] { loop.stop(); });
  });
  waker.join();
  realtime.join();
  EXPECT_EQ(ran.load(), 2'000);
  if (granted.load() == 0) GTEST_SKIP() << "SCHED_FIFO is not permitted here";
  EXPECT_LT(cpuNs.load(), 400'000'000) << "about 20 us a wake are enough";
}

TEST(Loop, SaysWhatPriorityTheKernelGranted) {
  Realtime got;
  int policy = -1;
  std::thread thread([&] {
    got = askRealtime();
    policy = sched_getscheduler(0);
  });
  thread.join();
  EXPECT_TRUE((std::set<std::string>{"fifo", "slice", "nice", "none"}.contains(got.got)));
  const bool fifo = got.got == std::string("fifo");
  EXPECT_EQ(fifo, got.why == std::string()) << got.why;
  EXPECT_EQ(policy, fifo ? SCHED_FIFO | SCHED_RESET_ON_FORK : SCHED_OTHER);
}

// Without it a busy machine turns 100 us of the card loop into some ms.
TEST(Loop, TakesFifoWhereTheKernelPermitsItAndAnotherWhereNot) {
  const testing::TempFolder folder;
  const std::string limit = folder.write("limit", "950000\n");
  const auto got = [&](Scheduling::Says says) {
    scheduling = {says, -1};
    std::string out;
    std::thread([&] { out = askRealtime(limit.c_str()).got; }).join();
    scheduling.says = Scheduling::Says::AsItIs;
    return out;
  };
  EXPECT_EQ(got(Scheduling::Says::Yes), "fifo");
  EXPECT_EQ(scheduling.asked, SCHED_FIFO | SCHED_RESET_ON_FORK) << "no child inherits it";
  EXPECT_NE(got(Scheduling::Says::No), "fifo");
}

TEST(Loop, SaysWhyFifoIsNotPermitted) {
  const testing::TempFolder folder;
  const std::string limit = folder.write("limit", "950000\n");
  const auto why = [&](bool mayNot) {
    scheduling = {Scheduling::Says::No, -1};
    std::string out;
    std::thread([&] {
      __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
      ::syscall(SYS_capget, &header, data);
      const bool may = data[0].effective & CAP_TO_MASK(CAP_SYS_NICE);
      if (!mayNot && !may) return;
      data[0].effective &= ~CAP_TO_MASK(CAP_SYS_NICE);
      if (mayNot) {
        ASSERT_EQ(::syscall(SYS_capset, &header, data), 0) << "of this thread alone";
      }
      out = askRealtime(limit.c_str()).why;
    }).join();
    scheduling.says = Scheduling::Says::AsItIs;
    return out;
  };
  EXPECT_EQ(why(true), "SCHED_FIFO is not permitted; root or CAP_SYS_NICE gives it");
  const std::string inSpite = why(false);
  if (inSpite.empty()) GTEST_SKIP() << "needs CAP_SYS_NICE";
  EXPECT_TRUE(inSpite.starts_with("SCHED_FIFO is refused in spite of CAP_SYS_NICE")) << inSpite;
}

TEST(Loop, DeclinesFifoWhereTheKernelLimitsNoRealtimeThread) {
  const testing::TempFolder folder;
  const std::string limit = folder.write("limit", "-1\n");
  Realtime got;
  int policy = -1;
  std::thread thread([&] {
    got = askRealtime(limit.c_str());
    policy = ::sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
  });
  thread.join();
  EXPECT_NE(got.got, std::string("fifo"));
  EXPECT_EQ(policy, SCHED_OTHER);
  EXPECT_NE(std::string(got.why).find("sched_rt_runtime_us is -1"), std::string::npos);
}

// --- the ring under a dispatcher ---

void put(MailboxRing& ring, std::size_t words, std::uint32_t tag) {
  auto cell = ring.reserve();
  ASSERT_GE(cell.size(), words);
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t value = 0;
    std::memcpy(&value, static_cast<const void*>(cell.begin() + i), sizeof value);
    ASSERT_EQ(value, 0U) << "builders need zeroed memory";
    value = tag;
    std::memcpy(static_cast<void*>(cell.begin() + i), &value, sizeof value);
  }
  ring.commit(tag, 0, Record::Kind::Message, words);
}

TEST(MailboxRing, WrapsManyTimesAndLendsZeroedMemoryOnly) {
  MailboxRing ring(256);
  std::uint32_t written = 0;
  std::uint32_t read = 0;
  while (read < 2'000) {
    while (ring.reserve().size() != 0) {
      put(ring, 1 + (written * 7) % MailboxRing::kCellMin, written);
      ++written;
    }
    ring.publish();
    while (const Record* record = ring.front()) {
      ASSERT_EQ(record->to, read);
      std::uint64_t value = 0;
      std::memcpy(&value, static_cast<const void*>(ring.frontBody()), sizeof value);
      ASSERT_EQ(value, read);
      ring.pop();
      ++read;
      if (read % 3 == 0) break;
    }
  }
}

TEST(MailboxRing, ShowsNothingBeforePublishAndForgetsWhatIsTakenBack) {
  MailboxRing ring(1'024);
  put(ring, 3, 1);
  const auto mark = ring.mark();
  put(ring, 5, 2);
  put(ring, 7, 3);
  EXPECT_EQ(ring.front(), nullptr);
  std::vector<std::uint32_t> taken;
  ring.takeBack(mark,
                [&](const Record& record, const capnp::word*) { taken.push_back(record.to); });
  EXPECT_EQ(taken, (std::vector<std::uint32_t>{2, 3}));
  put(ring, 7, 4);
  EXPECT_TRUE(ring.publish());
  EXPECT_FALSE(ring.publish());
  EXPECT_EQ(ring.front()->to, 1U);
  ring.pop();
  EXPECT_EQ(ring.front()->to, 4U);
  ring.pop();
  EXPECT_EQ(ring.front(), nullptr);
}

TEST(MailboxRing, CarriesOneThreadsRecordsToAnother) {
  constexpr std::uint32_t kMany = 100'000;
  MailboxRing ring(4'096);
  std::thread producer([&] {
    for (std::uint32_t i = 0; i < kMany;) {
      auto cell = ring.reserve();
      if (cell.size() == 0) {
        std::this_thread::yield();
        continue;
      }
      const std::uint64_t value = i;
      std::memcpy(static_cast<void*>(cell.begin()), &value, sizeof value);
      ring.commit(i, 0, Record::Kind::Message, 1 + i % 40);
      if (++i % 8 == 0) ring.publish();
    }
    ring.publish();
  });
  for (std::uint32_t i = 0; i < kMany;) {
    const Record* record = ring.front();
    if (record == nullptr) {
      std::this_thread::yield();
      continue;
    }
    std::uint64_t value = 0;
    std::memcpy(&value, static_cast<const void*>(ring.frontBody()), sizeof value);
    ASSERT_EQ(record->to, i);
    ASSERT_EQ(value, i);
    ring.pop();
    ++i;
  }
  producer.join();
}

}  // namespace
}  // namespace qgpu::loop_test
