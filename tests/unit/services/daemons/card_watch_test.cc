// What the manager does for a card that falls ill: the watch on NVML's stand-in, a scripted node.

#include "services/daemons/card_watch.h"

#include <algorithm>
#include <kj/timer.h>
#include <unistd.h>
#include <vector>

#include "services/cards/nvidia/health.h"
#include "tests/unit/services/api/actor_client_fixture.h"
#include "tests/unit/services/cards/nvml_machine.h"

namespace qgpu {
namespace {

// The watch's clock moves only where the test moves it.
struct CardWatchTest : testing::ApiFixture {
  ~CardWatchTest() noexcept override = default;

  HealthWatch started() {
    machine.write({t4(kFirst)});
    HealthTimes times;
    times.interval = millis(5);
    auto begun = watchNvidiaCards({kFirst}, times);
    EXPECT_TRUE(begun.ok());
    return std::move(*begun);
  }
  // Falls ill, and the node is asked `asks` times in all.
  void illOf(int xid, std::size_t asks) {
    machine.write({t4(kFirst, "0|0|0|" + std::to_string(xid))});
    waitUntil([&] { return node.asked.size() == asks; });
  }
  long told(const std::string& event) const {
    return std::count_if(lines.begin(), lines.end(),
                         [&](const std::string& line) { return line.starts_with(event + " "); });
  }
  void pass(Nanos time) { clock.advanceTo(clock.now() + time.value * kj::NANOSECONDS); }

  Machine machine;
  kj::TimerImpl clock{kj::origin<kj::TimePoint>()};
  std::vector<std::string> lines;
  std::vector<HealthChange> heard;
  Log log{LogLevel::Info, [this](LogLevel, const std::string& line) { lines.push_back(line); }};
  CardWatch watch{started(), actor,
                  log,       *io.lowLevelProvider,
                  clock,     [this](const HealthChange& change) { heard.push_back(change); }};
};

TEST_F(CardWatchTest, AnIllCardIsCordonedByTheManagerItself) {
  illOf(79, 1);
  EXPECT_EQ(node.asked[0].which, schema::Request::CORDON);
  EXPECT_EQ(node.asked[0].text, kFirst);
  EXPECT_EQ(node.asked[0].pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_TRUE(node.asked[0].mayChange);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].kind, HealthChange::Kind::Ill);
  EXPECT_EQ(told("card-ill"), 1);
}

TEST_F(CardWatchTest, ACordonThatTheNodeCantTakeNowIsAskedForUntilItIsTaken) {
  node.failNext = fail(ErrorCode::Unavailable, "nothing can be stored now");
  illOf(48, 1);
  waitUntil([&] { return told("card-not-cordoned") == 1; });
  node.failNext = fail(ErrorCode::Overloaded, "its mailbox is full");
  waitUntil([&] {
    pass(CardWatch::kAgain);
    return node.asked.size() == 3;
  });
  EXPECT_EQ(node.asked[2].text, kFirst);
  EXPECT_EQ(told("card-not-cordoned"), 1) << "once for an illness";
  waitUntil([&] { return actor.outstanding() == 0; });
  illOf(79, 4);
}

// The watch's clock stands still, so the second is asked for the second illness.
TEST_F(CardWatchTest, ARefusalThatWillNotPassIsToldAndLeft) {
  node.failNext = fail(ErrorCode::NotFound, "no such card");
  illOf(48, 1);
  waitUntil([&] { return told("card-not-cordoned") == 1; });
  illOf(79, 2);
}

}  // namespace
}  // namespace qgpu
