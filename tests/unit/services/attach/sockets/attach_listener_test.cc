// The attach socket: who is let in, what a flood costs and whom, and that nobody is waited for.

#include <arpa/inet.h>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "services/attach/sockets/arrival_buckets.h"
#include "tests/unit/services/attach/attach_fixture.h"

namespace qgpu::attach_listener_test {
namespace {

// --- the buckets ---

TEST(ArrivalBuckets, ABurstIsTakenAndThenOneEachTime) {
  ArrivalBuckets buckets(3, millis(10), 8);
  const Nanos now = seconds(5);
  for (int i = 0; i < 3; i++) EXPECT_TRUE(buckets.take(1, now)) << i;
  EXPECT_FALSE(buckets.take(1, now));
  EXPECT_FALSE(buckets.take(1, now + millis(9)));
  EXPECT_TRUE(buckets.take(1, now + millis(10)));
  EXPECT_FALSE(buckets.take(1, now + millis(10)));
  for (int i = 0; i < 3; i++) EXPECT_TRUE(buckets.take(1, now + seconds(1))) << "full again";
  EXPECT_FALSE(buckets.take(1, now + seconds(1))) << "and not more than full";
}

TEST(ArrivalBuckets, OneKeyTakesNothingFromAnother) {
  ArrivalBuckets buckets(1, seconds(1), 8);
  EXPECT_TRUE(buckets.take(1, seconds(5)));
  EXPECT_FALSE(buckets.take(1, seconds(5)));
  EXPECT_TRUE(buckets.take(2, seconds(5)));
}

TEST(ArrivalBuckets, WhatIsGivenBackCanBeTakenAgain) {
  ArrivalBuckets buckets(1, seconds(1), 8);
  for (int i = 0; i < 5; i++) {
    EXPECT_TRUE(buckets.take(1, seconds(5))) << i;
    buckets.giveBack(1);
  }
}

TEST(ArrivalBuckets, MadeUpKeysShareOneBucketAndTheKnownOnesKeepTheirs) {
  ArrivalBuckets buckets(2, seconds(1), 4);
  const Nanos now = seconds(5);
  for (std::uint64_t key = 0; key < 4; key++) EXPECT_TRUE(buckets.take(key, now));
  int taken = 0;
  for (std::uint64_t key = 100; key < 1'100; key++) taken += buckets.take(key, now) ? 1 : 0;
  EXPECT_EQ(taken, 2);
  EXPECT_EQ(buckets.keys(), 4u);
  EXPECT_TRUE(buckets.take(3, now)) << "its second";
  EXPECT_TRUE(buckets.take(2'000, now + seconds(9))) << "the idle ones make room";
  EXPECT_EQ(buckets.keys(), 1u);
}

// --- the listener ---

class AttachListenerTest : public AttachTest {
 protected:
  // What somebody without a token does, over and over.
  void flood(int connections) {
    const qgpu_hello wrong = GuestClient::hello(tokenOf(8));
    for (int i = 0; i < connections; i++) {
      const Fd fd = connectRaw();
      if (fd && i % 3 != 0) {
        const std::size_t size = i % 3 == 1 ? sizeof wrong : 7;
        (void)!::send(fd.get(), &wrong, size, MSG_NOSIGNAL);
      }
      if (i % 8 == 7) turnClient();
    }
    for (int i = 0; i < 100; i++) turnClient();
  }
  // Connections on which nothing is said, as many as the uid may have.
  std::vector<Fd> useUp(std::uint32_t atOnce) {
    listenerOptions.comersAtOnce = atOnce;
    listenerOptions.comerEach = seconds(3600);
    serverOptions.helloWithin = seconds(60);
    start();
    bind(7);
    std::vector<Fd> silent;
    for (std::uint32_t i = 0; i < atOnce; i++) silent.push_back(connectRaw());
    EXPECT_TRUE(until([&] { return room().listener().silent() == atOnce; }));
    return silent;
  }
};

TEST_F(AttachListenerTest, C7_AFloodWithoutATokenCostsTheCardLoopNothing) {
  doorApart = true;
  serverOptions.recovery = Nanos(0);
  listenerOptions.comersAtOnce = AttachListenerOptions().comersAtOnce;
  start();
  bind(7);
  turns(3);
  const Nanos took = cardLoopTimeDuring([&] { flood(20'000); });
  EXPECT_LT(took.value, millis(10).value);
  EXPECT_GE(room().listener().counters().accepted, 10'000u);
  EXPECT_EQ(room().listener().counters().letIn, 0u);
}

TEST_F(AttachListenerTest, C7_AFloodWithATokenReachesTheCardLoopOnlySoOften) {
  listenerOptions.arrivalsAtOnce = 8;
  listenerOptions.arrivalEach = seconds(3600);
  start();
  bind(7);
  bind(8);
  qgpu_hello hello = GuestClient::hello(tokenOf(7));
  hello.start_time++;  // nobody's
  for (int i = 0; i < 64; i++) {
    const Fd fd = connectRaw();
    (void)!::send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL);
    ASSERT_TRUE(until([&] {
      const ListenerCounters& now = room().listener().counters();
      return now.letIn + now.turnedAway == static_cast<std::uint64_t>(i) + 1;
    }));
  }
  EXPECT_EQ(room().listener().counters().letIn, 8u);
  EXPECT_EQ(room().listener().counters().turnedAway, 56u);
  EXPECT_TRUE(attachSelf(8).ok()) << "another task's part is its own";
}

TEST_F(AttachListenerTest, WhoHasAlreadyItsPartOfConnectionsIsTurnedAwayUnlessATokenIsThereAtOnce) {
  const std::vector<Fd> silent = useUp(4);
  const Fd more = connectRaw();
  ASSERT_TRUE(until([&] { return room().listener().counters().turnedAway == 1; }));
  EXPECT_EQ(room().listener().silent(), 4u) << "the others are heard still";
  EXPECT_TRUE(attachSelf(7).ok());
}

TEST_F(AttachListenerTest, ATokenCostsNothingOfThePartOfAUid) {
  listenerOptions.comersAtOnce = 2;
  listenerOptions.comerEach = seconds(3600);
  start();
  bind(7);
  for (int i = 0; i < 16; i++) EXPECT_TRUE(until([&] { return attachSelf(7).ok(); })) << i;
  const Fd silent = connectRaw();
  EXPECT_TRUE(until([&] { return room().listener().silent() == 1; }));
}

// They wait for one word and come together; with what a uid may have, as all are of one.
TEST_F(AttachListenerTest, ThreeHundredProcessesThatStartTogetherAreAllLetInWithinSeconds) {
  using Which = schema::Envelope::Which;
  constexpr std::uint64_t kTasks = 6;
  constexpr std::size_t kEach = 50;
  listenerOptions.comersAtOnce = AttachListenerOptions().comersAtOnce;
  start();
  for (std::uint64_t id = 1; id <= kTasks; id++) bind(id);
  int word[2];
  ASSERT_EQ(::pipe2(word, O_CLOEXEC), 0);
  const Fd heard(word[0]);
  Fd said(word[1]);
  std::vector<std::unique_ptr<Child>> children;
  for (std::size_t i = 0; i < kTasks * kEach; i++) {
    children.push_back(std::make_unique<Child>([&, id = i % kTasks + 1]() -> int {
      char byte = 0;
      said.reset();
      (void)!::read(heard.get(), &byte, 1);  // its end
      for (;;) {  // again where it was evicted by the others, as libqgpu.so does
        const auto client = GuestClient::attach(socket(), tokenOf(id));
        while (client.ok()) ::pause();
      }
    }));
  }
  const auto attached = [&] {
    std::size_t sum = 0;
    for (std::uint64_t id = 1; id <= kTasks; id++) sum += task.count(Which::PROCESS_ATTACHED, id);
    return sum;
  };
  const Nanos from = monotonicNow();
  said.reset();
  ASSERT_TRUE(until([&] { return attached() >= kTasks * kEach; })) << attached();
  const Nanos took = monotonicNow() - from;
  RecordProperty("attached_ms", static_cast<int>(took.value / 1'000'000));
}

// --- descriptors that take their time to close ---

constexpr int kLingerSeconds = 15;

// A TCP socket that has more to send than its peer takes, which is never closed in a hurry.
Fd lingering(Fd& peer) {
  const Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* name = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listening.get(), name, size) != 0 || ::listen(listening.get(), 1) != 0 ||
      ::getsockname(listening.get(), name, &size) != 0) {
    return Fd();
  }
  Fd one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(one.get(), name, size) != 0) return Fd();
  peer.reset(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const linger wait{1, kLingerSeconds};
  ::setsockopt(one.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
  const std::string bytes(1 << 20, 'x');
  while (::send(one.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  return one;
}

// Sends a record with it, and keeps none; whether it was sent.
bool sendAway(Fd fd, int connection, const void* bytes, std::size_t size) {
  iovec part{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr record{};
  record.msg_iov = &part;
  record.msg_iovlen = 1;
  record.msg_control = control;
  record.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&record);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = fd.get();
  std::memcpy(CMSG_DATA(rights), &number, sizeof number);
  return ::sendmsg(connection, &record, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

class LingeringTest : public AttachListenerTest {
 protected:
  // That all of this is over well before the socket is closed.
  void soon(const std::function<void()>& body) {
    const Nanos from = monotonicNow();
    body();
    EXPECT_LT((monotonicNow() - from).value, seconds(kLingerSeconds / 2).value);
  }
  Fd peer_;
};

TEST_F(LingeringTest, C7_WhatANoteBringsIsNotWaitedFor) {
  start();
  bind(7);
  auto client = attachSelf(7);
  ASSERT_TRUE(client.ok());
  Fd file = lingering(peer_);
  ASSERT_TRUE(file);
  const qgpu_note note{};
  ASSERT_TRUE(sendAway(std::move(file), client->connectionFd(), &note, sizeof note));
  soon([&] {
    ASSERT_TRUE(until([&] {
      char byte = 0;
      return ::recv(client->connectionFd(), &byte, 1, MSG_DONTWAIT) == 0;
    }));
    bind(8);
  });
}

TEST_F(LingeringTest, C7_WhatAHelloBringsIsNotWaitedFor) {
  start();
  bind(7);
  qgpu_hello right = GuestClient::hello(tokenOf(7));
  right.reattach = 1;
  for (const qgpu_hello& hello : {GuestClient::hello(tokenOf(8)), right}) {
    Fd file = lingering(peer_);
    ASSERT_TRUE(file);
    const Fd guest = connectRaw();
    ASSERT_TRUE(sendAway(std::move(file), guest.get(), &hello, sizeof hello));
    soon([&] {
      qgpu_welcome welcome{};
      ASSERT_TRUE(
          until([&] { return ::recv(guest.get(), &welcome, sizeof welcome, MSG_DONTWAIT) > 0; }));
      EXPECT_NE(welcome.refused, 0u);
      bind(9);
    });
  }
}

TEST_F(LingeringTest, C7_WhatADeadProcessHadSentLastIsNotWaitedFor) {
  start();
  bind(7);
  Child child([&]() -> int {
    auto client = GuestClient::attach(socket(), tokenOf(7));
    if (!client.ok()) return 1;
    Fd file = lingering(peer_);
    // Where the manager has let go already nothing can be sent, and this process would linger: what
    // it keeps until it is killed is closed at once then.
    [[maybe_unused]] const int kept = ::fcntl(file.get(), F_DUPFD_CLOEXEC, 0);
    const qgpu_note none{};
    for (int i = 0; i < 40; i++) (void)!::send(client->connectionFd(), &none, 1, MSG_NOSIGNAL);
    static_cast<void>(sendAway(std::move(file), client->connectionFd(), &none, sizeof none));
    ::raise(SIGKILL);
    return 0;
  });
  soon([&] {
    using Which = schema::Envelope::Which;
    ASSERT_TRUE(until([&] { return task.count(Which::PROCESS_GONE, 7) == 1; }));
    bind(8);
  });
}

}  // namespace
}  // namespace qgpu::attach_listener_test
