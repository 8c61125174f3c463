// What the first record of the manager tells of the cards, to guests of now and of before.

#include <cstring>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "services/attach/testing/guest_client.h"
#include "tests/unit/services/attach/attach_fixture.h"

namespace qgpu::attach_welcome_test {
namespace {

class AttachWelcomeTest : public AttachTest {
 protected:
  // A guest that said hello, with the answer unread.
  Fd said() const {
    Fd fd = connectRaw();
    EXPECT_GE(fd.get(), 0);
    const qgpu_hello hello = GuestClient::hello(tokenOf(7));
    EXPECT_EQ(::send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL), ssize_t{sizeof hello});
    return fd;
  }
  ssize_t read(const Fd& from, qgpu_welcome& out, std::size_t bytes, int flags) {
    ssize_t got = -1;
    EXPECT_TRUE(until([&] { return (got = ::recv(from.get(), &out, bytes, flags)) >= 0; }));
    return got;
  }
};

TEST_F(AttachWelcomeTest, AnNvidiaCardsUuidComesBehindWhatAGuestOfBeforeReads) {
  cardId = "GPU-00112233-4455-6677-8899-aabbccddeeff";
  start();
  bind(7);
  const Fd guest = said();
  qgpu_welcome before{}, now{};
  EXPECT_EQ(read(guest, before, QGPU_WELCOME_LEAST, MSG_PEEK), ssize_t{QGPU_WELCOME_LEAST});
  EXPECT_EQ(before.task, 7u);
  EXPECT_EQ(before.refused, 0u);
  EXPECT_EQ(read(guest, now, sizeof now, 0), ssize_t{sizeof now});
  EXPECT_EQ(std::memcmp(&before, &now, QGPU_WELCOME_LEAST), 0);
  for (unsigned i = 0; i < QGPU_UUID_LEN; ++i) EXPECT_EQ(now.uuid[0][i], i * 0x11) << i;
}

TEST_F(AttachWelcomeTest, ACardWithAnotherKindOfIdHasNoUuid) {
  for (const char* id : {"sim-0", "GPU-0011", "GPU-00112233-4455-6677-8899-aabbccddeeff00",
                         "GPU-00112233-4455-6677-8899-aabbccddeegg"}) {
    cardId = id;
    start();
    bind(7);
    qgpu_welcome welcome{};
    const Fd guest = said();
    EXPECT_EQ(read(guest, welcome, sizeof welcome, 0), ssize_t{sizeof welcome});
    const std::uint8_t none[QGPU_UUID_LEN] = {};
    EXPECT_EQ(std::memcmp(welcome.uuid[0], none, sizeof none), 0) << id;
  }
}

}  // namespace
}  // namespace qgpu::attach_welcome_test
