#include "services/api/rpc/paced_stream.h"

#include <gtest/gtest.h>

namespace qgpu::paced_stream_test {
namespace {

// A peer at the other end of a pipe, and time that a test turns on.
struct PacedStreams : ::testing::Test {
  ~PacedStreams() noexcept override = default;
  void pass(Nanos time) {
    now += time.value * kj::NANOSECONDS;
    timer.advanceTo(now);
    scope.poll();
  }
  kj::Promise<void> write() { return stream.write("12345678", 8).eagerlyEvaluate(nullptr); }
  bool read(std::size_t bytes) {
    auto got = peer->tryRead(buffer, bytes, bytes);
    return got.poll(scope) && got.wait(scope) == bytes;
  }

  kj::EventLoop loop;
  kj::WaitScope scope{loop};
  kj::TimePoint now = kj::origin<kj::TimePoint>();
  kj::TimerImpl timer{now};
  kj::TwoWayPipe pipe = kj::newTwoWayPipe();
  kj::Own<kj::AsyncIoStream> peer = kj::mv(pipe.ends[1]);
  int over = 0;
  PacedStream stream{kj::mv(pipe.ends[0]), timer, seconds(10), [this] { ++over; }};
  kj::byte buffer[64] = {};
};

TEST_F(PacedStreams, C5_APeerThatTakesNothingForTheDeadlineIsCutOff) {
  const auto written = write();
  pass(seconds(9));
  EXPECT_EQ(over, 0);
  pass(seconds(1));
  EXPECT_EQ(over, 1);
  pass(seconds(60));
  EXPECT_EQ(over, 1);
}

TEST_F(PacedStreams, EachWriteHasTheWholeDeadline) {
  for (int i = 0; i < 8; ++i) {
    auto written = write();
    pass(seconds(8));
    ASSERT_TRUE(read(8));
    written.wait(scope);
    EXPECT_EQ(over, 0) << i;
  }
  pass(seconds(60));
  EXPECT_EQ(over, 0) << "nothing is being written";
  const auto written = write();
  pass(seconds(9));
  EXPECT_EQ(over, 0);
  pass(seconds(1));
  EXPECT_EQ(over, 1);
}

TEST_F(PacedStreams, C5_WhoDoesNotReadIsNotReadFrom) {
  auto sent = peer->write("abcdefgh", 8).eagerlyEvaluate(nullptr);
  auto written = write();
  auto got = stream.tryRead(buffer, 8, 8);
  EXPECT_FALSE(got.poll(scope));
  kj::byte taken[8];
  auto answer = peer->tryRead(taken, 8, 8);
  EXPECT_TRUE(answer.poll(scope));
  EXPECT_TRUE(got.poll(scope));
  written.wait(scope);
  sent.wait(scope);
}

}  // namespace
}  // namespace qgpu::paced_stream_test
