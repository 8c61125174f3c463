// What a scheduler was told, told again: it does the same, byte by byte; and what is not the same
// is found and named.

#include "services/replay/replay.h"

#include <gtest/gtest.h>

#include "services/replay/testing/memory_recording.h"
#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::replay_test {
namespace {

using testing::ClusterOptions;
using testing::ClusterWorld;
using testing::MemoryRecording;
using testing::NodeDouble;
using enum TaskClass;
using Request = schema::ClusterRequest::Builder;

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// A cluster whose scheduler is recorded from its first turn on.
class RecordedWorld {
 public:
  explicit RecordedWorld(std::uint64_t seed = 1) : world(ClusterOptions{{}, seed, Score::Binpack}) {
    SchedulerOptions options;
    options.version = "1";
    options.pid = 7;
    record(options, {});
    world.start();
  }

  // Another scheduler on what is stored; the recording of this one begins.
  void restart() {
    const std::vector<StoredRow> rows = world.rows();
    world.restart();  // and its first turn is over: the next one on the same rows is recorded
    SchedulerOptions options;
    options.version = "2";
    recorder_.reset();
    recording_ = {};
    const SchedulerPeers peers{world.linksId};
    world.scheduler = std::make_unique<SchedulerActor>(options, peers, rows);
    record(options, rows);
    world.start();
  }

  std::string file() const { return recording_.file(); }

  ClusterWorld world;

 private:
  void record(SchedulerOptions& options, const std::vector<StoredRow>& rows) {
    RecordedLife life;
    life.version = "1";
    life.self = world.schedulerId;
    life.peers.links = world.linksId;
    for (Words& one : recordsOf(life, options, rows)) recording_.put(std::move(one));
    recorder_.emplace(world.fixture, recording_, life.seed, options.unixMsAtZero);
    recorder_->attach(*world.scheduler);
    world.fixture.attach(world.schedulerId, *recorder_);
  }

  MemoryRecording recording_;
  std::optional<Recorder> recorder_;
};

struct Outcome {
  Status ran = ok();
  Replayed seen;
};

Outcome replayed(const std::string& file) {
  auto reader = MemoryRecording::read(file);
  if (!reader) return {reader.error(), {}};
  auto replay = SchedulerReplay::open(std::move(*reader));
  if (!replay) return {replay.error(), {}};
  Outcome outcome;
  outcome.ran = (*replay)->run();
  outcome.seen = (*replay)->seen();
  return outcome;
}

void expectSame(const std::string& file) {
  const Outcome outcome = replayed(file);
  ASSERT_TRUE(outcome.ran.ok()) << outcome.ran.error().message;
  EXPECT_EQ(outcome.seen.difference, "");
}

// Two nodes with a card each, a task on each of them, and one that waits.
std::string shortStory() {
  RecordedWorld recorded;
  recorded.world.add("a", 1);
  recorded.world.add("b", 1);
  for (int i = 0; i < 3; ++i) recorded.world.submitted(ClusterWorld::spec(Ordinary, 10, 30));
  recorded.world.pass(seconds(2));
  return recorded.file();
}

std::string differenceIn(const std::string& file) {
  const Outcome outcome = replayed(file);
  EXPECT_TRUE(outcome.ran.ok()) << outcome.ran.error().message;
  return outcome.seen.difference;
}

// --- the same ---

TEST(Replay, A13_AShortStoryIsDecidedAgainAndCounted) {
  const Outcome outcome = replayed(shortStory());
  ASSERT_TRUE(outcome.ran.ok());
  EXPECT_EQ(outcome.seen.difference, "");
  EXPECT_EQ(outcome.seen.orders, 2u);
  EXPECT_GT(outcome.seen.turns, 5u);
  EXPECT_GT(outcome.seen.rows, 4u);
  EXPECT_EQ(outcome.seen.firstUnixMs, 1'000);
  EXPECT_EQ(outcome.seen.lastUnixMs, 3'000);
  EXPECT_TRUE(outcome.seen.cut);
}

class Story {
 public:
  explicit Story(std::uint64_t seed) : random_(seed), recorded_(seed + 1) {
    for (const char* name : kNames) recorded_.world.add(name, 1 + below(3));
    if (below(2) == 0) recorded_.world.fixture.setMailboxMax(recorded_.world.linksId, 2);
  }

  std::string told(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      recorded_.world.run();
    }
    recorded_.world.fixture.dropPending();
    return recorded_.file();
  }

 private:
  static constexpr const char* kNames[] = {"a", "b", "c"};
  std::uint64_t below(std::uint64_t n) { return random_.next() % n; }

  void step() {
    ClusterWorld& world = recorded_.world;
    NodeDouble& node = world.node(kNames[below(3)]);
    switch (below(12)) {
      case 0:
        return world.cut(node.name);
      case 1:
        if (node.link != 0) world.disconnect(node.name);
        return world.connect(node.name);
      case 2:
        node.refuses = node.refuses.empty() ? "no" : "";
        return;
      case 3:
        return mark(node);
      case 4:
        return world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "full"));
      case 5:
        return world.fixture.journal().commitAutomatically();
      case 6:
        return world.pass(millis(static_cast<std::int64_t>(below(15'000))));
      case 7:
        world.send([&](Request r) { r.setDelete(1 + below(20)); });
        return;
      case 8:
        if (below(4) == 0) recorded_.restart();
        return;
      default:
        return submit();
    }
  }

  void mark(const NodeDouble& node) {
    const std::uint64_t what = below(3);
    recorded_.world.send([&](Request r) {
      if (what == 0) return r.initCordon().setNode(node.name);
      if (what == 1) return r.initUncordon().setNode(node.name);
      r.initDrain().initTarget().setNode(node.name);
      r.getDrain().setTimeoutNs(below(9) * 1'000'000'000);
    });
  }

  void submit() {
    ClusterSpec spec = ClusterWorld::spec(below(2) == 0 ? Offline : Ordinary,
                                          static_cast<std::int64_t>(1 + below(10)),
                                          static_cast<std::int64_t>(10 + below(50)));
    spec.preempt = below(2) == 0;
    if (below(3) == 0) spec.task.requestId = "r" + std::to_string(below(9));
    recorded_.world.send(ClusterWorld::submit(spec));
  }

  Prng random_;
  RecordedWorld recorded_;
};

TEST(Replay, A13_RandomStoriesAreDecidedAgainByteByByte) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expectSame(Story(seed).told(100));
    if (HasFailure()) return;
  }
}

TEST(Replay, TheRowsOfAStoreAreOfTheRecording) {
  RecordedWorld recorded;
  recorded.world.add("a");
  recorded.world.submitted(ClusterWorld::spec(Ordinary, 4, 30));
  recorded.restart();
  recorded.world.connect("a");
  expectSame(recorded.file());
}

TEST(Replay, AClockThatWasSetIsOfTheRecording) {
  const std::string file =
      MemoryRecording::changed(shortStory(), [](schema::Recorded::Builder record) {
        if (record.isTurn()) record.getTurn().setUnixMsAtZero(500);
        return true;
      });
  EXPECT_SAYS(differenceIn(file), "submittedUnixMs: recorded 1000, now 1500");
}

// --- what is not the same ---

TEST(Replay, AnotherOptionIsFoundWhereItDecidesOtherwise) {
  const std::string file =
      MemoryRecording::changed(shortStory(), [](schema::Recorded::Builder record) {
        if (record.isBegan()) record.getBegan().getOptions().setLeaseNs(seconds(9).value);
        return true;
      });
  const std::string difference = differenceIn(file);
  EXPECT_SAYS(difference, "it sends toMember.welcome to actor");
  EXPECT_SAYS(difference, "welcome.leaseNs: recorded 15000000000, now 9000000000");
}

TEST(Replay, AChangedWordToTheSchedulerIsFound) {
  const std::string file =
      MemoryRecording::changed(shortStory(), [](schema::Recorded::Builder record) {
        if (!record.isTurn() || !record.getTurn().getMessage().isClusterRequest()) return true;
        auto request = record.getTurn().getMessage().getClusterRequest();
        if (request.isSubmit()) request.getSubmit().getTask().setMemBytes(11UL << 30U);
        return true;
      });
  const std::string difference = differenceIn(file);
  EXPECT_SAYS(difference, "clusterRequest.submit of actor");
  EXPECT_SAYS(difference, "memBytes: recorded 10737418240, now 11811160064");
}

TEST(Replay, AChangedDecisionIsFound) {
  const std::string file =
      MemoryRecording::changed(shortStory(), [](schema::Recorded::Builder record) {
        if (!record.isSent() || !record.getSent().getMessage().isToMember()) return true;
        auto words = record.getSent().getMessage().getToMember();
        if (words.isBind()) words.getBind().getCards().set(0, "sim-9");
        return true;
      });
  EXPECT_SAYS(differenceIn(file), "toMember.bind.cards[0]: recorded \"sim-9\", now \"sim-0\"");
}

TEST(Replay, AMessageThatIsLeftOutIsFound) {
  bool asked = false, left = false;
  const auto isSubmit = [](schema::Recorded::Builder record) {
    return record.isTurn() && record.getTurn().getMessage().isClusterRequest() &&
           record.getTurn().getMessage().getClusterRequest().isSubmit();
  };
  const std::string turn =
      MemoryRecording::changed(shortStory(), [&](schema::Recorded::Builder record) {
        if (record.isTurn()) asked = !left && isSubmit(record);
        left = left || asked;
        return !asked;
      });
  EXPECT_NE(differenceIn(turn), "");

  bool first = true;
  const std::string sent =
      MemoryRecording::changed(shortStory(), [&](schema::Recorded::Builder record) {
        return !record.isStored() || !std::exchange(first, false);
      });
  EXPECT_SAYS(differenceIn(sent), "recorded, it does nothing more; now it stores cluster 0");
}

TEST(Replay, WhatTheSchedulerDoesNoMoreIsFound) {
  const std::string file =
      MemoryRecording::changed(shortStory(), [](schema::Recorded::Builder record) {
        if (record.isTurn() && record.getTurn().getMessage().isStart()) {
          record.getTurn().getMessage().initTick().setKind(999);
        }
        return true;
      });
  EXPECT_SAYS(differenceIn(file), "now it does not");
}

// --- until, and asking ---

TEST(Replay, AsksWhyATaskWaitedThenAndWhereItIsNow) {
  RecordedWorld recorded;
  recorded.world.add("a", 1);
  recorded.world.submitted(ClusterWorld::spec(Ordinary, 10, 30));
  const std::uint64_t task = recorded.world.submitted(ClusterWorld::spec(Ordinary, 10, 30));
  recorded.world.pass(seconds(5));
  recorded.world.add("b", 1);
  recorded.world.pass(seconds(5));
  const auto explainedAt = [&](std::int64_t unixMs) -> std::string {
    auto replay = SchedulerReplay::open(MemoryRecording::read(recorded.file()).value());
    EXPECT_TRUE((*replay)->run(unixMs).ok());
    EXPECT_LE((*replay)->seen().lastUnixMs, unixMs);
    const auto answer = (*replay)->ask([&](Request request) { request.setExplain(task); });
    if (!answer) return answer.error().message;
    const auto reply = capnp::readMessageUnchecked<schema::ClusterReply>(answer->data());
    return reply.isExplanation() ? reply.getExplanation().getText().cStr() : "failed";
  };
  EXPECT_SAYS(explainedAt(4'000), "waits");
  EXPECT_SAYS(explainedAt(10'000), "runs on node b");
}

// Whether what was under way was stored nobody wrote down: the question takes it for stored.
TEST(Replay, AsksWhereTheRecordingEndsBeforeACommitIsKnown) {
  RecordedWorld recorded;
  recorded.world.add("a", 1);
  const std::uint64_t task = recorded.world.submitted(ClusterWorld::spec(Ordinary, 10, 30));
  recorded.world.pass(seconds(2));
  const std::string whole = recorded.file();
  std::size_t commits = 0;
  const auto isCommitted = [](schema::Recorded::Builder record) {
    return record.isTurn() && record.getTurn().getMessage().isCommitted();
  };
  MemoryRecording::changed(whole, [&](auto record) {
    commits += isCommitted(record);
    return true;
  });
  ASSERT_GE(commits, 3u);
  std::size_t placed = 0;
  for (std::size_t last = 1; last <= commits; ++last) {
    std::size_t seen = 0;
    const std::string cut = MemoryRecording::changed(
        whole, [&](auto record) { return (seen += isCommitted(record)) < last; });
    auto replay = SchedulerReplay::open(MemoryRecording::read(cut).value());
    ASSERT_TRUE((*replay)->run().ok());
    const auto answer = (*replay)->ask([&](Request request) { request.setExplain(task); });
    ASSERT_TRUE(answer.ok()) << "before commit " << last << ": " << answer.error().message;
    const auto reply = capnp::readMessageUnchecked<schema::ClusterReply>(answer->data());
    placed += reply.isExplanation() ? 1 : 0;  // it is not known before its own commit
  }
  EXPECT_GE(placed, 1u);
}

// --- damage ---

TEST(RecordingFile, D5_EachFlippedByteIsToldWithItsPlace) {
  RecordedWorld recorded;
  const std::string file = recorded.file();
  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    const Outcome outcome = replayed(damaged);
    ASSERT_FALSE(outcome.ran.ok()) << at;
    const char* place = at < kRecordingMagic.size() ? "recording" : ", at byte ";
    EXPECT_SAYS(outcome.ran.error().message, place);
  }
}

TEST(RecordingFile, ARecordThatStandsElsewhereIsDamage) {
  const std::string file = RecordedWorld().file();
  const std::size_t head = kRecordingMagic.size();
  const std::string twice = file + file.substr(head);
  EXPECT_SAYS(replayed(twice).ran.error().message, "at byte " + std::to_string(file.size()));
}

TEST(RecordingFile, WhatWasCutIsReplayedUpToThere) {
  const std::string file = shortStory();
  std::uint64_t turns = 0;
  for (std::size_t size = 0; size < file.size(); size += 1 + size / 40) {
    const Outcome outcome = replayed(file.substr(0, size));
    ASSERT_TRUE(outcome.ran.ok()) << size << ": " << outcome.ran.error().message;
    EXPECT_EQ(outcome.seen.difference, "") << size;
    EXPECT_TRUE(outcome.seen.cut) << size;
    EXPECT_GE(outcome.seen.turns, turns) << size;
    turns = outcome.seen.turns;
  }
  EXPECT_GT(turns, 5u);
  const Outcome zeros = replayed(file + std::string(100'000, '\0'));
  ASSERT_TRUE(zeros.ran.ok()) << zeros.ran.error().message;
  EXPECT_TRUE(zeros.seen.cut);
  EXPECT_EQ(replayed("").seen.turns, 0u);
}

TEST(RecordingFile, D6_OneOfALaterQgpuAndSomethingElseAreToldApart) {
  EXPECT_SAYS(replayed("qgpu-recording 2\n...").ran.error().message, "written by a newer qgpu");
  EXPECT_SAYS(replayed("something else that is long").ran.error().message, "is no recording");
}

}  // namespace
}  // namespace qgpu::replay_test
