// The end of a process that listens, seen over real connections.
#include "services/base/net/listener_end.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "services/base/net/listen.h"
#include "services/base/net/tls.h"
#include "tests/testing/certificates.h"

namespace qgpu::listener_end_test {
namespace {

using testing::Certificates;
using testing::TempFolder;

struct ListenerEnd : ::testing::Test {
  ListenerEnd() {
    auto opened = TcpListener::open("127.0.0.1:0", "--rpc");
    EXPECT_TRUE(opened.ok());
    address = opened->address();
    stays = opened->staying();
    receiver = opened->receive(*io.lowLevelProvider);
  }
  ~ListenerEnd() noexcept override = default;

  kj::Promise<void> watched(kj::Maybe<kj::TlsContext&> tls = nullptr) {
    return listenerEnd(io.provider->getNetwork(), io.provider->getTimer(), address, tls)
        .then([this]() { over = true; })
        .eagerlyEvaluate(nullptr);
  }
  bool isClosed(kj::AsyncIoStream& stream) {
    char byte = 0;
    auto later = io.provider->getTimer().afterDelay(100 * kj::MILLISECONDS);
    return stream.tryRead(&byte, 1, 1)
        .then([](std::size_t) { return true; }, [](kj::Exception&&) { return true; })
        .exclusiveJoin(later.then([]() { return false; }))
        .wait(io.waitScope);
  }
  kj::Own<kj::AsyncIoStream> accept() { return receiver->accept().wait(io.waitScope); }

  kj::AsyncIoContext io = kj::setupAsyncIo();
  std::string address;
  kj::AutoCloseFd stays;
  kj::Own<kj::ConnectionReceiver> receiver;
  bool over = false;
};

TEST_F(ListenerEnd, IsToldOnceAConnectionIsBrokenAndTheNextRefused) {
  auto end = watched();
  auto stream = accept();
  stays = nullptr;
  receiver = nullptr;
  EXPECT_FALSE(over);
  stream = nullptr;
  end.wait(io.waitScope);
  EXPECT_TRUE(over);
}

// A process closes its descriptors in the order of their numbers.
TEST_F(ListenerEnd, IsToldWhereTheConnectionIsClosedBeforeTheListener) {
  auto end = watched();
  auto stream = accept();
  receiver = io.lowLevelProvider->wrapListenSocketFd(stays.release(),
                                                     kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP);
  stream = nullptr;
  accept();  // a look at whether it still listens
  receiver = nullptr;
  end.wait(io.waitScope);
  EXPECT_TRUE(over);
}

TEST_F(ListenerEnd, WhoStillListensHasNotEnded) {
  auto end = watched();
  auto stream = accept();
  receiver = io.lowLevelProvider->wrapListenSocketFd(stays.release(),
                                                     kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP);
  stream = nullptr;
  do {
    stream = accept();  // a look at whether it still listens, or
  } while (isClosed(*stream));
  EXPECT_FALSE(over) << "it was dialled again";
  receiver = nullptr;
  stream = nullptr;
  end.wait(io.waitScope);
}

// As a firewall does that refuses from now on, or another machine that has got the address.
TEST_F(ListenerEnd, C1_AConnectionThatWasResetDoesNotTellThatTheProcessEnded) {
  auto end = watched();
  auto stream = accept();
  stays = nullptr;
  receiver = nullptr;
  const linger reset{1, 0};
  stream->setsockopt(SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  stream = nullptr;
  io.provider->getTimer().afterDelay(50 * kj::MILLISECONDS).wait(io.waitScope);
  EXPECT_FALSE(over);
}

TEST_F(ListenerEnd, WhoWasNeverConnectedIsNotKnownToHaveEnded) {
  stays = nullptr;
  receiver = nullptr;
  auto end = watched();
  auto later = io.provider->getTimer().afterDelay(50 * kj::MILLISECONDS);
  later.wait(io.waitScope);
  EXPECT_FALSE(over);
}

TEST_F(ListenerEnd, IsToldOverTls) {
  const TempFolder folder;
  Certificates made(folder / "");
  made.makeCa("ca");
  auto tls = openTls(made.make("ca", "127.0.0.1"));
  ASSERT_TRUE(tls.ok()) << tls.error().message;
  auto end = watched(**tls);
  auto stream = (*tls)->wrapServer(accept()).wait(io.waitScope);
  stays = nullptr;
  receiver = nullptr;
  stream = nullptr;
  end.wait(io.waitScope);
  EXPECT_TRUE(over);
}

}  // namespace
}  // namespace qgpu::listener_end_test
