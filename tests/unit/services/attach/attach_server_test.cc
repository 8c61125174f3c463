#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "services/attach/pages/timeslices.h"
#include "services/attach/run_dir/task_records.h"
#include "services/base/process.h"
#include "tests/unit/services/attach/attach_fixture.h"

namespace qgpu::attach_server_test {
namespace {

using Which = schema::Envelope::Which;

class AttachServerTest : public AttachTest {
 protected:
  std::string refusalOf(const qgpu_hello& hello, int page = -1) {
    const auto client = attachSelf(hello, page);
    return client.ok() ? "" : client.error().message;
  }
  std::size_t listed() const {
    std::size_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder() + "/attached")) {
      n += entry.exists() ? 1 : 0;
    }
    return n;
  }
  // A child that attaches, allocates and then waits to be killed.
  std::unique_ptr<Child> holder(std::uint64_t id, std::uint64_t bytes) {
    return std::make_unique<Child>([this, id, bytes]() -> int {
      auto client = GuestClient::attach(socket(), tokenOf(id));
      if (!client.ok()) return 1;
      client->holdOwner();
      client->slot().bytes = bytes;
      for (;;) ::pause();
    });
  }
  // The bytes that the manager sees in use.
  std::uint64_t memoryOf(std::uint64_t id) const {
    const Heard* used = task.last(Which::USED, id);
    return used == nullptr ? ~0ull : used->memBytes;
  }
};

TEST_F(AttachServerTest, AProcessWithItsTokenGetsPagesDoorbellAndASlot) {
  start();
  bind(7);
  const auto client = attachSelf(7);
  ASSERT_TRUE(client.ok()) << client.error().message;
  EXPECT_EQ(client->welcome().task, 7u);
  EXPECT_EQ(client->welcome().slot, 0u);
  EXPECT_STREQ(client->welcome().platform, "imaginary");
  EXPECT_EQ(client->welcome().model, std::string(QGPU_MODEL_LEN - 1, 'm')) << "cut, with its NUL";
  EXPECT_EQ(client->gatePage().quota_bytes, 64u << 20);
  EXPECT_EQ(client->gateWord() & QGPU_GATE_OPEN, 0u);
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  EXPECT_EQ(task.last(Which::PROCESS_ATTACHED, 7)->pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(listed(), 1u);
}

TEST_F(AttachServerTest, ATimesliceIsForATaskOfAClassOnOneNvidiaCardAndCanBeSwitchedOff) {
  serverOptions.recovery = Nanos(0);
  const auto given = [&](schema::TaskClass taskClass) {
    start();
    bind(7, taskClass);
    const auto client = attachSelf(7);
    const std::uint64_t us = client.ok() ? client->gatePage().timeslice_us : ~0ull;
    stop();
    return us;
  };
  using Class = schema::TaskClass;
  EXPECT_EQ(given(Class::OFFLINE), 0u) << "not NVIDIA's";
  backend = "nvidia";
  EXPECT_EQ(given(Class::OFFLINE), kOfflineTimesliceUs);
  EXPECT_EQ(given(Class::ONLINE), kOnlineTimesliceUs);
  EXPECT_EQ(given(Class::ORDINARY), 0u);
  cardsOfTasks = 2;
  EXPECT_EQ(given(Class::OFFLINE), 0u) << "nobody else is on its cards";
  cardsOfTasks = 1;
  serverOptions.timeslices = false;
  EXPECT_EQ(given(Class::OFFLINE), 0u);
}

TEST_F(AttachServerTest, ATaskIsToldTheLayoutThatAllOfItsCardsShowed) {
  serverOptions.recovery = Nanos(0);
  const auto told = [&](const std::vector<std::uint32_t>& seen) {
    layoutsSeen = seen;
    cardsOfTasks = static_cast<unsigned>(seen.size());
    start();
    bind(7);
    const auto client = attachSelf(7);
    const std::uint64_t layout = client.ok() ? client->gatePage().layout_seen : ~0ull;
    stop();
    return layout;
  };
  EXPECT_EQ(told({0}), 0u);
  EXPECT_EQ(told({595}), 595u);
  EXPECT_EQ(told({595, 595}), 595u);
  EXPECT_EQ(told({595, 0}), 0u);
  EXPECT_EQ(told({0, 595}), 0u);
}

TEST_F(AttachServerTest, ARefusalSaysWhyInWords) {
  serverOptions.recovery = Nanos(0);
  start();
  bind(7);
  turns(3);
  qgpu_hello wrong = GuestClient::hello(tokenOf(8));
  EXPECT_NE(refusalOf(wrong).find("no task has this token"), std::string::npos);
  wrong = GuestClient::hello(tokenOf(7));
  wrong.magic = 1;
  EXPECT_NE(refusalOf(wrong).find("not a hello"), std::string::npos);
  wrong = GuestClient::hello(tokenOf(7));
  wrong.start_time++;
  EXPECT_NE(refusalOf(wrong).find("did not start when"), std::string::npos);
  wrong.start_time = 0;
  EXPECT_NE(refusalOf(wrong).find("did not start when"), std::string::npos);
  wrong = GuestClient::hello(tokenOf(7));
  wrong.reattach = 1;
  EXPECT_NE(refusalOf(wrong).find("brings its report page"), std::string::npos);
  const auto kept = attachSelf(7);
  EXPECT_TRUE(kept.ok());
  EXPECT_NE(refusalOf(GuestClient::hello(tokenOf(7))).find("attached already"), std::string::npos);
  close(7, false);
  EXPECT_NE(refusalOf(GuestClient::hello(tokenOf(7))).find("unbound or evicted"),
            std::string::npos);
}

TEST_F(AttachServerTest, C7_GarbageOnTheSocketHarmsNobody) {
  serverOptions.helloWithin = millis(50);
  start();
  bind(7);
  Prng prng(42);
  for (int round = 0; round < 2000; round++) {
    const Fd fd = connectRaw();
    if (!fd) {
      turns(2);
      continue;
    }
    char bytes[600];
    for (char& byte : bytes) byte = static_cast<char>(prng.next());
    qgpu_hello almost = GuestClient::hello(tokenOf(7));
    const std::uint64_t kind = prng.next() % 6;
    const std::size_t size = prng.next() % sizeof bytes;
    if (kind == 0) (void)!::send(fd.get(), bytes, size, MSG_NOSIGNAL);
    if (kind == 1) (void)!::send(fd.get(), bytes, sizeof almost, MSG_NOSIGNAL);
    if (kind == 2) {
      std::memcpy(reinterpret_cast<char*>(&almost) + size % sizeof almost, bytes,
                  sizeof almost - size % sizeof almost);
      (void)!::send(fd.get(), &almost, sizeof almost, MSG_NOSIGNAL);
    }
    if (kind == 3) ::shutdown(fd.get(), SHUT_WR);
    if (kind == 4) (void)!::send(fd.get(), &almost, sizeof almost / 2, MSG_NOSIGNAL);
    if (round % 32 == 0) turns(2);
  }
  ASSERT_TRUE(until([&] { return pendingHellos() == 0; }));
  EXPECT_TRUE(attachSelf(7).ok());
}

TEST_F(AttachServerTest, C7_DescriptorsThatComeWithAnEmptyRecordAreClosed) {
  start();
  const Fd connection = connectRaw();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec nothing{nullptr, 0};
  msghdr record{};
  record.msg_iov = &nothing;
  record.msg_iovlen = 1;
  record.msg_control = control;
  record.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&record);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &ends[1], sizeof(int));
  ASSERT_EQ(::sendmsg(connection.get(), &record, MSG_NOSIGNAL), 0);
  writing.reset();
  EXPECT_TRUE(until([&] {
    pollfd closed{reading.get(), 0, 0};
    return ::poll(&closed, 1, 0) == 1 && (closed.revents & POLLHUP) != 0;
  }));
}

TEST_F(AttachServerTest, SilentConnectionsAreClosedAndTooManyMakeRoomForAnHonestOne) {
  serverOptions.helloWithin = millis(200);
  start();
  bind(7);
  std::vector<Fd> silent;
  for (std::size_t i = 0; i < 2 * kHellosMax; i++) {
    silent.push_back(connectRaw());
    if (i % 16 == 15) turns(2);
    ASSERT_LE(pendingHellos(), kHellosMax);
  }
  EXPECT_GE(room().listener().counters().evicted, kHellosMax / 2);
  EXPECT_TRUE(attachSelf(7).ok());
  ASSERT_TRUE(until([&] { return pendingHellos() == 0; }));
}

TEST_F(AttachServerTest, ASecondManagerOnTheSameRunDirIsRefusedAndALeftoverSocketIsNot) {
  start();
  ActorSystem system;
  Loop loop;
  Dispatcher dispatcher(system, loop);
  AttachPortConfig config;
  config.cards.resize(1);
  config.cardActors.resize(1);
  config.server = serverOptions;
  {
    AttachPort second(dispatcher, dispatcher.reserve(), config);
    const Status listening = second.listen();
    ASSERT_FALSE(listening.ok());
    EXPECT_EQ(listening.error().code, ErrorCode::AlreadyExists);
  }
  stop();
  EXPECT_FALSE(std::filesystem::exists(socket()));
  Fd dead(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket().data(), socket().size());
  ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  dead.reset();
  {
    AttachPort third(dispatcher, dispatcher.reserve(), config);
    EXPECT_TRUE(third.listen().ok());
  }
  ASSERT_EQ(::mkdir(socket().c_str(), 0700), 0);
  AttachPort fourth(dispatcher, dispatcher.reserve(), config);
  EXPECT_EQ(fourth.listen().error().code, ErrorCode::AlreadyExists);
}

TEST_F(AttachServerTest, A14_KillingAProcessReturnsItsBytesOnceWhenItsPidfdSaysDead) {
  start();
  bind(7);
  const auto first = holder(7, 1000), second = holder(7, 500);
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 2; }));
  ASSERT_TRUE(until([&] { return memoryOf(7) == 1500; }));
  first->kill();
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_GONE, 7) == 1; }));
  EXPECT_FALSE(task.last(Which::PROCESS_GONE, 7)->last);
  ASSERT_TRUE(until([&] { return memoryOf(7) == 500; }));
  second->kill();
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_GONE, 7) == 2; }));
  EXPECT_TRUE(task.last(Which::PROCESS_GONE, 7)->last);
  ASSERT_TRUE(until([&] { return memoryOf(7) == 0; }));
  EXPECT_EQ(listed(), 0u);
}

TEST_F(AttachServerTest, HAZARDS7_AClosedConnectionIsNotADeadProcess) {
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  client->slot().bytes = 77;
  client->disconnect();
  turns(20);
  EXPECT_EQ(task.count(Which::PROCESS_GONE, 7), 0u);
  ASSERT_TRUE(until([&] { return memoryOf(7) == 77; }));
}

TEST_F(AttachServerTest, AGuestThatLostItsConnectionComesBackToItsSlot) {
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  (void)!::send(client->connectionFd(), "noise", 5, MSG_NOSIGNAL);
  turns(5);
  qgpu_hello hello = GuestClient::hello(tokenOf(7));
  hello.reattach = 1;
  hello.slot = client->welcome().slot;
  const auto again = attachSelf(hello, client->reportFd());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->welcome().slot, 0u);
  EXPECT_EQ(task.count(Which::PROCESS_ATTACHED, 7), 1u);
}

TEST_F(AttachServerTest, TheSixtyFifthProcessIsRefusedWithAReason) {
  start();
  bind(7);
  std::vector<std::unique_ptr<Child>> children;
  for (std::uint32_t i = 0; i < QGPU_SLOTS; i++) {
    children.push_back(std::make_unique<Child>([this]() -> int {
      auto client = GuestClient::attach(socket(), tokenOf(7));
      if (!client.ok()) return 1;
      for (;;) ::pause();
    }));
  }
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == QGPU_SLOTS; }));
  EXPECT_NE(refusalOf(GuestClient::hello(tokenOf(7))).find("64 processes"), std::string::npos);
}

TEST_F(AttachServerTest, TheOwnersDeathIsToldAlsoWhenItCameFirst) {
  start();
  Child owner([]() -> int {
    for (;;) ::pause();
  });
  const auto pid = static_cast<std::uint32_t>(owner.pid());
  const std::uint64_t began = *processStart(pid);
  tellTask(7, schema::TaskClass::ORDINARY, mebibytes(1), pid, began);
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 7) == 1; }));
  EXPECT_EQ(node.count(Which::OWNER_GONE, 7), 0u);
  owner.kill();
  ASSERT_TRUE(until([&] { return node.count(Which::OWNER_GONE, 7) == 1; }));
  owner.wait();
  tellTask(8, schema::TaskClass::ORDINARY, mebibytes(1), pid, began);
  ASSERT_TRUE(until([&] { return node.count(Which::OWNER_GONE, 8) == 1; }));
}

// As many descriptors as `left` can be made while it lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t left) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit tight{256, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &tight);
    for (Fd fd = another(); fd; fd = another()) taken_.push_back(std::move(fd));
    taken_.resize(taken_.size() - left);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  static Fd another() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
  rlimit before_{};
  std::vector<Fd> taken_;
};

TEST_F(AttachServerTest, OutOfDescriptorsALivingProcessIsNotTakenForDead) {
  start();
  bind(7);
  const auto self = static_cast<std::uint32_t>(::getpid());
  const std::uint64_t began = *processStart(self);
  const qgpu_hello hello = GuestClient::hello(tokenOf(7));
  {
    // The guest's connection and the manager's end of it; then none for the pidfd, then for /proc.
    for (const std::size_t left : {2u, 3u}) {
      const FewDescriptors few(left);
      EXPECT_NE(refusalOf(hello).find("out of descriptors: raise"), std::string::npos);
    }
    const FewDescriptors few(0);
    tellTask(8, schema::TaskClass::ORDINARY, mebibytes(1), self, began);
    ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 8) == 1; }));
    EXPECT_NE(node.last(Which::GATE_OPENED, 8)->text.find("out of descriptors"), std::string::npos);
  }
  EXPECT_EQ(node.count(Which::OWNER_GONE, 8), 0u);
  EXPECT_EQ(listed(), 0u);
  EXPECT_TRUE(attachSelf(7).ok());
}

TEST_F(AttachServerTest, ClosingWithKillEndsTheProcessesAlsoOneThatIgnoresSigterm) {
  serverOptions.killGrace = millis(30);
  start();
  bind(7);
  Child stubborn([this]() -> int {
    ::signal(SIGTERM, SIG_IGN);
    auto client = GuestClient::attach(socket(), tokenOf(7));
    if (!client.ok()) return 1;
    for (;;) ::pause();
  });
  Child polite([this]() -> int {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    if (!client.ok()) return 1;
    for (;;) ::pause();
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 2; }));
  close(7, true);
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_GONE, 7) == 2; }));
  EXPECT_EQ(polite.wait(), -SIGTERM);
  EXPECT_EQ(stubborn.wait(), -SIGKILL);
  EXPECT_NE(refusalOf(GuestClient::hello(tokenOf(7))), "");
}

TEST_F(AttachServerTest, ATaskThatIsKilledInRecoveryIsGoneWithTheLastProcessThatWasExpected) {
  start();
  bind(7);
  const auto lost = holder(7, 300);
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  serverOptions.recovery = Nanos(0);  // so that a hello is answered at once
  start();
  bind(7);
  close(7, true);
  ASSERT_TRUE(until([&] {
    return refusalOf(GuestClient::hello(tokenOf(7))).find("no task has this") != std::string::npos;
  }));
  EXPECT_EQ(listed(), 0u);
}

TEST_F(AttachServerTest, AnExpectedProcessThatIgnoresSigtermIsKilledThoughTheAttachedOneDiedFirst) {
  serverOptions.killGrace = millis(30);
  start();
  bind(7);
  Child stubborn([this]() -> int {
    ::signal(SIGTERM, SIG_IGN);
    auto client = GuestClient::attach(socket(), tokenOf(7));
    if (!client.ok()) return 1;
    for (;;) ::pause();
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  serverOptions.recovery = Nanos(0);
  start();
  task.heard.clear();
  bind(7);
  const auto polite = holder(7, 300);
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  close(7, true);
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_GONE, 7) == 1; }));
  ASSERT_TRUE(until([&] { return listed() == 0; }));
  EXPECT_EQ(stubborn.wait(), -SIGKILL);
}

// --- P9: a task that an earlier manager had ended, and had not killed ---

TEST_F(AttachServerTest, P9_ProcessesOfATaskThatHadEndedBeforeThisManagerAreKilled) {
  TaskRecords records;
  ASSERT_TRUE(records.open(folder()).ok());
  serverOptions.killGrace = millis(30);
  start();
  bind(7);
  bind(8);
  Child stubborn([this]() -> int {
    ::signal(SIGTERM, SIG_IGN);
    auto client = GuestClient::attach(socket(), tokenOf(7));
    if (!client.ok()) return 1;
    for (;;) ::pause();
  });
  const auto polite = holder(7, 300);
  const auto other = holder(8, 300);
  ASSERT_TRUE(until([&] { return listed() == 3; }));
  start();  // the node has no row of 7 any more and does not tell of it
  bind(8);
  close(7, true);
  ASSERT_TRUE(until([&] { return listed() == 1; }));
  EXPECT_EQ(polite->wait(), -SIGTERM);
  EXPECT_EQ(stubborn.wait(), -SIGKILL);
  ASSERT_TRUE(until([&] { return records.list() == std::vector<std::uint64_t>{8}; }));
  EXPECT_EQ(::kill(other->pid(), 0), 0);
}

TEST_F(AttachServerTest, P9_TheRecordOfATaskThatHadEndedStaysUntilItsProcessesAreDead) {
  TaskRecords records;
  ASSERT_TRUE(records.open(folder()).ok());
  start();
  bind(7);
  Child stubborn([this]() -> int {
    ::signal(SIGTERM, SIG_IGN);
    auto client = GuestClient::attach(socket(), tokenOf(7));
    if (!client.ok()) return 1;
    for (;;) ::pause();
  });
  ASSERT_TRUE(until([&] { return listed() == 1; }));
  start();
  close(7, true);
  ASSERT_TRUE(until([&] {
    const Result<StoredRow> row = records.read(7);
    return row.ok() &&
           capnp::readMessageUnchecked<schema::Row>(row->words.data()).getTask().getEvicting();
  }));
  start();  // and this one ends before it has killed
  close(7, true);
  stubborn.kill();
  ASSERT_TRUE(until([&] { return listed() == 0 && records.list().empty(); }));
}

// --- D5: what is left for a manager that finds no database ---

TEST_F(AttachServerTest, D5_ATaskHasARecordUntilItHasEndedAndItsProcessesAreDead) {
  TaskRecords records;
  ASSERT_TRUE(records.open(folder()).ok());
  using Numbers = std::vector<std::uint64_t>;
  start();
  bind(7);
  bind(8);
  EXPECT_EQ(records.list(), (Numbers{7, 8})) << "before any process of it";
  const auto process = holder(7, 300);
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  close(8, true);
  ASSERT_TRUE(until([&] { return records.list() == Numbers{7}; }));
  start();
  EXPECT_EQ(records.list(), Numbers{7}) << "a manager that stops leaves it to the next one";
  bind(7);
  close(7, true);
  ASSERT_TRUE(until([&] { return listed() == 0; })) << "its process is killed, though it was away";
  ASSERT_TRUE(until([&] { return records.list().empty(); }));
}

TEST_F(AttachServerTest, D5_TheRecordOfATaskThatEndsSaysSo) {
  TaskRecords records;
  ASSERT_TRUE(records.open(folder()).ok());
  start();
  bind(7);
  const auto process = holder(7, 300);
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  close(7, false);
  ASSERT_TRUE(until([&] {
    const Result<StoredRow> row = records.read(7);
    return row.ok() &&
           capnp::readMessageUnchecked<schema::Row>(row->words.data()).getTask().getEvicting();
  }));
}

// --- HAZARDS 8: a new incarnation ---

TEST_F(AttachServerTest, HAZARDS8_NoGateIsAnnouncedBeforeTheListedProcessIsBack) {
  serverOptions.recovery = seconds(15);
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  client->slot().bytes = 4096;
  start();
  node.heard.clear();
  task.heard.clear();
  tellTask(7, schema::TaskClass::OFFLINE, mebibytes(64));
  tellTask(8, schema::TaskClass::OFFLINE, mebibytes(64));
  tellTask(9, schema::TaskClass::ONLINE, mebibytes(64));
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 9) == 1; }));
  EXPECT_EQ(node.count(Which::GATE_OPENED, 7) + node.count(Which::GATE_OPENED, 8), 0u);
  qgpu_hello hello = GuestClient::hello(tokenOf(7));
  hello.reattach = 1;
  const auto again = attachSelf(hello, client->reportFd());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_GT(again->welcome().incarnation, client->welcome().incarnation);
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 8) == 1; }));
  EXPECT_EQ(node.count(Which::GATE_OPENED, 7), 1u);
  ASSERT_TRUE(until([&] { return memoryOf(7) == 4096; }));
}

TEST_F(AttachServerTest, HAZARDS8_TheDeathOfAListedProcessAlsoFreesTheCardAndItsBytes) {
  serverOptions.recovery = seconds(15);
  start();
  bind(7);
  auto client = attachSelf(7);
  const auto lost = holder(7, 300);
  ASSERT_TRUE(until([&] { return memoryOf(7) == 300; }));
  start();
  node.heard.clear();
  task.heard.clear();
  tellTask(7, schema::TaskClass::OFFLINE, mebibytes(64));
  qgpu_hello hello = GuestClient::hello(tokenOf(7));
  hello.reattach = 1;
  const auto again = attachSelf(hello, client->reportFd());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(node.count(Which::GATE_OPENED, 7), 0u);
  ASSERT_TRUE(until([&] { return memoryOf(7) == 300; }));
  lost->kill();
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 7) == 1; }));
  ASSERT_TRUE(until([&] { return memoryOf(7) == 0; }));
}

TEST_F(AttachServerTest, HAZARDS8_AfterTheTimeOfRecoveryTheCardGoesOn) {
  start();
  bind(7);
  const auto client = attachSelf(7);
  serverOptions.recovery = millis(40);
  start();
  node.heard.clear();
  tellTask(8, schema::TaskClass::OFFLINE, mebibytes(64));
  const Nanos from = monotonicNow();
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 8) == 1; }));
  EXPECT_GE(node.last(Which::GATE_OPENED, 8)->heardAt - from, millis(30));
}

// As on a disk that takes its time: until the node's row is written, nobody knows its tasks.
TEST_F(AttachServerTest, HAZARDS8_TheTimeOfRecoveryRunsFromTheStartOfTheNode) {
  start();
  bind(7);
  const auto client = attachSelf(7);
  serverOptions.recovery = Nanos(0);
  nodeStarts = false;
  start();
  node.heard.clear();
  auto comes = GuestClient::begin(socket(), GuestClient::hello(tokenOf(9)), -1);
  ASSERT_TRUE(comes.ok());
  ASSERT_TRUE(until([&] { return waitingHellos() == 1; }));
  tellTask(8, schema::TaskClass::OFFLINE, mebibytes(64));
  turns(5);
  EXPECT_EQ(waitingHellos(), 1u) << "its task may be one of which the node has yet to tell";
  EXPECT_EQ(node.count(Which::GATE_OPENED, 8), 0u) << "a process of task 7 may be at work";
  tellIncarnation(room().server().incarnation());
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 8) == 1; }));
  ASSERT_TRUE(until([&] { return waitingHellos() == 0; }));
  EXPECT_NE(comes->finish(0).error().message.find("no task has this token"), std::string::npos);
}

TEST_F(AttachServerTest, HAZARDS8_AGuestThatIsFasterThanTheNodeIsNotTurnedAway) {
  serverOptions.recovery = seconds(15);
  start();
  auto client = GuestClient::begin(socket(), GuestClient::hello(tokenOf(7)), -1);
  ASSERT_TRUE(client.ok());
  turns(5);
  EXPECT_EQ(client->finish(0).error().message, "no answer");
  bind(7);
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  EXPECT_TRUE(client->finish(0).ok());
}

TEST_F(AttachServerTest, HAZARDS8_GuestsThatWaitForTheNodeDoNotEvictEachOther) {
  serverOptions.recovery = seconds(15);
  serverOptions.helloWithin = seconds(15);
  start();
  constexpr std::size_t kTasks = 3 * kHellosMax;
  std::vector<GuestClient> guests;
  for (std::size_t i = 0; i < kTasks; i++) {
    auto guest = GuestClient::begin(socket(), GuestClient::hello(tokenOf(i + 1)), -1);
    ASSERT_TRUE(guest.ok());
    guests.push_back(std::move(*guest));
    ASSERT_TRUE(until([&] { return waitingHellos() == i + 1; }));
  }
  std::vector<Fd> silent;
  for (std::size_t i = 0; i < 2 * kHellosMax; i++) {
    silent.push_back(connectRaw());
    ASSERT_TRUE(until(
        [&] { return pendingHellos() + room().listener().counters().evicted == kTasks + i + 1; }));
  }
  EXPECT_EQ(room().listener().counters().evicted, kHellosMax);
  for (std::size_t i = 0; i < kTasks; i++) bind(i + 1);
  ASSERT_TRUE(until([&] { return room().server().counters().attached == kTasks; }));
  for (GuestClient& guest : guests) EXPECT_TRUE(guest.finish(0).ok());
}

TEST_F(AttachServerTest, C7_ThoseWhoWaitAreBoundedAndTheNextOneIsToldWhy) {
  serverOptions.recovery = seconds(15);
  serverOptions.helloWithin = seconds(60);
  // Each one costs a descriptor on both sides, which are one process here.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit enough{std::max<rlim_t>(before.rlim_cur, 2 * kWaitingMax + 256), before.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &enough) != 0) GTEST_SKIP() << "ulimit -Hn is too low";
  start();
  const qgpu_hello hello = GuestClient::hello(tokenOf(9));
  std::vector<GuestClient> guests;
  for (std::size_t i = 0; i < kWaitingMax; i++) {
    auto guest = GuestClient::begin(socket(), hello, -1);
    ASSERT_TRUE(guest.ok());
    guests.push_back(std::move(*guest));
    if (i % 32 == 31) {
      ASSERT_TRUE(until([&] { return waitingHellos() == i + 1; }));
    }
  }
  EXPECT_NE(refusalOf(hello).find("4096 processes wait"), std::string::npos);
  guests.clear();
  stop();
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(AttachServerTest, A14_WhoGivesUpBeforeItIsWelcomedBackKeepsItsBytesAndComesAgain) {
  serverOptions.recovery = seconds(15);
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  client->slot().bytes = 4096;
  start();
  task.heard.clear();
  tellTask(7, schema::TaskClass::OFFLINE, mebibytes(64));
  qgpu_hello hello = GuestClient::hello(tokenOf(7));
  hello.reattach = 1;
  hello.slot = client->welcome().slot;
  auto hasty = GuestClient::begin(socket(), hello, client->reportFd());
  ASSERT_TRUE(hasty.ok());
  hasty->disconnect();  // before the manager has read it
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  EXPECT_EQ(client->slot().bytes, 4096u) << "its bytes are part of the quota as long as it lives";
  const auto again = returnSelf(7, *client);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->welcome().slot, client->welcome().slot);
  ASSERT_TRUE(until([&] { return memoryOf(7) == 4096; }));
  EXPECT_EQ(task.count(Which::PROCESS_ATTACHED, 7), 1u);
}

TEST_F(AttachServerTest, HAZARDS9_AWrongPageAtReattachIsRefusedAndTheTaskLivesOn) {
  start();
  bind(7);
  bind(8);
  const auto seven = attachSelf(7), eight = attachSelf(8);
  ASSERT_TRUE(seven.ok() && eight.ok());
  start();
  node.heard.clear();
  bind(7);
  qgpu_hello hello = GuestClient::hello(tokenOf(7));
  hello.reattach = 1;
  EXPECT_NE(refusalOf(hello, eight->reportFd()).find("another task"), std::string::npos);
  EXPECT_NE(refusalOf(hello, seven->gateFd()).find("not one that a manager"), std::string::npos);
  EXPECT_NE(refusalOf(hello, seven->doorbellFd()), "");
  EXPECT_TRUE(attachSelf(hello, seven->reportFd()).ok());
}

TEST_F(AttachServerTest, HAZARDS8_AProcessThatStillReadsItsOldPageIsWaitedFor) {
  serverOptions.recovery = seconds(15);
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  start();
  node.heard.clear();
  tellTask(7, schema::TaskClass::OFFLINE, mebibytes(64));
  tellTask(8, schema::TaskClass::OFFLINE, mebibytes(64));
  tellTask(9, schema::TaskClass::ONLINE, mebibytes(64));
  auto again = returnSelf(7, *client, false);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->slot().obeys, client->welcome().incarnation);
  again->ring();  // for another reason
  turns(50);
  EXPECT_EQ(node.count(Which::GATE_OPENED, 9), 1u);
  EXPECT_EQ(node.count(Which::GATE_OPENED, 7) + node.count(Which::GATE_OPENED, 8), 0u);
  again->obey();
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 8) == 1; }));
  EXPECT_EQ(node.count(Which::GATE_OPENED, 7), 1u);
}

TEST_F(AttachServerTest, HAZARDS8_TheDeathOfAProcessThatNeverObeyedEndsTheWait) {
  serverOptions.recovery = seconds(15);
  start();
  bind(7);
  int go[2];  // a byte: the next manager is there
  ASSERT_EQ(::pipe(go), 0);
  const Fd goRead(go[0]), goWrite(go[1]);
  Child guest([this, &goRead]() -> int {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    if (!client.ok()) return 1;
    char byte = 0;
    if (::read(goRead.get(), &byte, 1) != 1) return 1;
    qgpu_hello hello = GuestClient::hello(tokenOf(7));
    hello.reattach = 1;
    auto again = GuestClient::begin(socket(), hello, client->reportFd());
    if (!again.ok()) return 1;
    again->obeyLater();
    if (!again->finish(10'000).ok()) return 1;
    for (;;) ::pause();
  });
  ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_ATTACHED, 7) == 1; }));
  start();
  node.heard.clear();
  tellTask(7, schema::TaskClass::OFFLINE, mebibytes(64));
  ASSERT_EQ(::write(goWrite.get(), "g", 1), 1);
  ASSERT_TRUE(until([&] { return room().server().counters().reattached == 1; }));
  turns(20);
  EXPECT_EQ(node.count(Which::GATE_OPENED, 7), 0u);
  guest.kill();
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 7) == 1; }));
}

TEST_F(AttachServerTest, HAZARDS8_AProcessThatNeverObeysIsWaitedForAsLongAsRecoveryLasts) {
  start();
  bind(7);
  auto client = attachSelf(7);
  serverOptions.recovery = millis(40);
  start();
  node.heard.clear();
  tellTask(7, schema::TaskClass::OFFLINE, mebibytes(64));
  const Nanos from = monotonicNow();
  const auto again = returnSelf(7, *client, false);
  ASSERT_TRUE(again.ok()) << again.error().message;
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 7) == 1; }));
  EXPECT_GE(node.last(Which::GATE_OPENED, 7)->heardAt - from, millis(30));
}

// --- HAZARDS 23: the store was an older copy ---

TEST_F(AttachServerTest, A10_AGuestThatMetOurIncarnationWaitsForOneAboveIt) {
  serverOptions.recovery = seconds(15);
  serverOptions.incarnation = 6;
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  ASSERT_EQ(client->welcome().incarnation, 6u);
  serverOptions.incarnation = 6;  // as an older copy of the store says
  start();
  node.heard.clear();
  tellTask(7, schema::TaskClass::OFFLINE, mebibytes(64));
  qgpu_hello hello = GuestClient::hello(tokenOf(7));
  hello.reattach = 1;
  hello.incarnation_seen = 6;
  auto again = GuestClient::begin(socket(), hello, client->reportFd());
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE(until([&] { return node.count(Which::INCARNATION_SEEN, 0) == 1; }));
  EXPECT_EQ(node.last(Which::INCARNATION_SEEN, 0)->incarnation, 6u);
  turns(20);
  EXPECT_EQ(again->finish(0).error().message, "no answer");
  EXPECT_EQ(node.count(Which::GATE_OPENED, 7), 0u) << "its page looks to it like the old one";
  EXPECT_EQ(node.count(Which::INCARNATION_SEEN, 0), 1u);
  tellIncarnation(7);
  Status welcomed = again->finish(0);
  ASSERT_TRUE(until([&] { return welcomed.ok() || (welcomed = again->finish(0)).ok(); }));
  EXPECT_EQ(again->welcome().incarnation, 7u);
  EXPECT_EQ(again->gatePage().incarnation, 7u);
  ASSERT_TRUE(until([&] { return node.count(Which::GATE_OPENED, 7) == 1; }));
}

TEST_F(AttachServerTest, A10_WithoutATokenNobodyRaisesTheIncarnationAndALieIsTooSmallToUseItUp) {
  serverOptions.recovery = Nanos(0);
  start();
  bind(7);
  turns(3);
  qgpu_hello hello = GuestClient::hello(tokenOf(8));
  hello.incarnation_seen = 5;
  EXPECT_NE(refusalOf(hello).find("no task has this token"), std::string::npos);
  hello = GuestClient::hello(tokenOf(7));
  for (const std::uint32_t seen : {1 + kIncarnationRaise, kIncarnationSeenMax, UINT32_MAX}) {
    hello.incarnation_seen = seen;
    EXPECT_NE(refusalOf(hello).find("beyond 1000001"), std::string::npos);
  }
  EXPECT_EQ(node.count(Which::INCARNATION_SEEN, 0), 0u);
  serverOptions.incarnation = UINT32_MAX - 5;
  start();
  bind(7);
  hello.incarnation_seen = UINT32_MAX - 4;
  EXPECT_NE(refusalOf(hello).find("start it anew"), std::string::npos);
  hello.incarnation_seen = UINT32_MAX - 6;
  EXPECT_TRUE(attachSelf(hello).ok());
}

}  // namespace
}  // namespace qgpu::attach_server_test
