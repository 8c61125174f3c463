// Gate, window and retirement in CUDA programs: who waits, who never does, what is known to be
// finished and by whom; and captures, which nothing of ours may break.

#include <gtest/gtest.h>
#include <string>

#include "tests/unit/services/guest/cuda/cuda_tenant.h"

namespace qgpu::testing::guest_cuda_streams_test {
namespace {

bool settles(const FakeManager& manager) {
  return eventually([&] { return manager.inFlight() == 0; });
}

// Until the reaper has called that function in looks that begin from now on.
bool looks(CudaTenant& guest, const std::string& function) {
  const auto calls = [&] { return std::stoull(guest.ask("calls " + function)); };
  const std::uint64_t before = calls();
  return eventually([&] { return calls() >= before + 4; });
}

struct Scene {
  explicit Scene(FakeManager::Options options = cudaTask()) : manager(options), guest(manager) {
    EXPECT_EQ(guest.ask("init"), "0") << guest.errors();
    EXPECT_EQ(guest.ask("stream a"), "0");
    EXPECT_EQ(guest.ask("stream b"), "0");
  }
  ~Scene() { EXPECT_EQ(guest.ask("stats").substr(0, 4), "0 0 ") << "misuses, broken captures"; }
  FakeManager manager;
  CudaTenant guest;
};

TEST(CudaStreams, AShutGateHoldsALaunchAndAnOpenOneLetsItGo) {
  Scene s;
  s.manager.setGate(0);
  const std::uint64_t before = s.manager.slot(0).admitted;
  s.guest.send("sleep a 100");
  EXPECT_TRUE(eventually([&] { return s.manager.waiting() == 1; }));
  EXPECT_FALSE(s.guest.answered());
  EXPECT_EQ(s.manager.slot(0).admitted, before);
  s.manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(s.guest.answer(), "0");
  EXPECT_EQ(s.guest.ask("sync a"), "0");
  EXPECT_EQ(s.manager.inFlight(), 0u) << "what was waited for is retired at once";
}

TEST(CudaStreams, AProcessGoesOnWhereAnotherOfItsTaskWasKilled) {
  Scene s;
  CudaTenant other(s.manager);
  ASSERT_EQ(other.ask("init"), "0") << other.errors();
  ASSERT_EQ(other.ask("stream a"), "0");
  EXPECT_EQ(other.ask("waitvalue a"), "0");
  EXPECT_EQ(other.ask("add a"), "0");  // in flight for ever
  s.manager.setGate(0);
  other.send("sleep a 100");
  s.guest.send("sleep a 100");
  ASSERT_TRUE(eventually([&] { return s.manager.waiting() == 2; }));
  other.kill();
  ASSERT_TRUE(eventually([&] { return s.manager.slot(1).owner & 0x40000000u; }));
  EXPECT_FALSE(s.guest.answered());
  s.manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(s.guest.answer(), "0");
  EXPECT_EQ(s.guest.ask("sleep a 100"), "0");
  EXPECT_EQ(s.guest.ask("sync a"), "0");
  EXPECT_TRUE(eventually([&] { return s.manager.inFlight() == 1; })) << "the dead one's";
}

TEST(CudaStreams, AShutGateHoldsTheDefaultStreamsByEachOfTheirNames) {
  Scene s;
  for (const char* launch : {"sleep null 100", "sleep legacy 100", "sleep own 100", "own 100"}) {
    s.manager.setGate(0);
    s.guest.send(launch);
    ASSERT_TRUE(eventually([&] { return s.manager.waiting() == 1; })) << launch;
    EXPECT_FALSE(s.guest.answered()) << launch;
    s.manager.setGate(QGPU_GATE_OPEN);
    EXPECT_EQ(s.guest.answer(), "0") << launch;
  }
  EXPECT_EQ(s.guest.ask("ctxsync"), "0");
  EXPECT_TRUE(settles(s.manager));
}

// HAZARDS 3: what runs may wait for these.
TEST(CudaStreams, StreamMemoryOperationsAreNeverHeld) {
  Scene s;
  EXPECT_EQ(s.guest.ask("waitvalue a"), "0");
  EXPECT_EQ(s.guest.ask("add a"), "0");
  s.manager.setGate(0);
  EXPECT_EQ(s.guest.ask("query a"), "600");
  EXPECT_EQ(s.guest.ask("writevalue b"), "0");
  EXPECT_EQ(s.guest.ask("sync a"), "0");
  EXPECT_TRUE(settles(s.manager));
  s.manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(s.guest.ask("sum"), "1");
}

TEST(CudaStreams, ALaunchIsInFlightUntilItIsFinished) {
  Scene s;
  EXPECT_EQ(s.guest.ask("waitvalue a"), "0");  // a kernel that runs as long as the test likes
  EXPECT_EQ(s.guest.ask("add a"), "0");
  EXPECT_EQ(s.guest.ask("add b"), "0");
  EXPECT_EQ(s.guest.ask("sync b"), "0");
  EXPECT_EQ(s.manager.inFlight(), 1u);
  EXPECT_EQ(s.guest.ask("set"), "ok");
  EXPECT_TRUE(settles(s.manager)) << "nobody waits but the reaper";
}

TEST(CudaStreams, AThreadMayTakeTurnsBetweenMoreStreamsThanItRemembers) {
  Scene s;
  constexpr int kStreams = 12;
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < kStreams; ++i) {
      const std::string name = "s" + std::to_string(i);
      if (turn == 0) {
        EXPECT_EQ(s.guest.ask("stream " + name), "0");
      }
      EXPECT_EQ(s.guest.ask("add " + name), "0");
    }
  }
  EXPECT_EQ(s.manager.slot(0).admitted, 3u * kStreams);
  EXPECT_TRUE(settles(s.manager));
  EXPECT_EQ(s.guest.ask("destroy s0"), "0");
  EXPECT_EQ(s.guest.ask("waitvalue s11"), "0");
  EXPECT_EQ(s.guest.ask("add s1"), "0");
  EXPECT_EQ(s.guest.ask("add s11"), "0");
  EXPECT_TRUE(eventually([&] { return s.manager.inFlight() == 1; }));
  EXPECT_EQ(s.guest.ask("sync s1"), "0");
  EXPECT_EQ(s.manager.inFlight(), 1u) << "of the stream that waits";
  EXPECT_EQ(s.guest.ask("set"), "ok");
  EXPECT_EQ(s.guest.ask("sync s11"), "0");
  EXPECT_EQ(s.manager.inFlight(), 0u);
}

// The driver answers a thread without a context that it has none: no word of the work.
TEST(CudaStreams, AnAnswerThatSaysNothingOfTheWorkEndsNone) {
  Scene s;
  EXPECT_EQ(s.guest.ask("waitvalue own"), "0");
  EXPECT_EQ(s.guest.ask("add own"), "0");  // of a thread's own stream: only its marker is asked
  EXPECT_TRUE(eventually([&] { return std::stoull(s.guest.ask("calls cuEventQuery")) >= 3; }));
  EXPECT_EQ(s.manager.inFlight(), 1u);
  EXPECT_EQ(s.guest.ask("set"), "ok");
  EXPECT_TRUE(settles(s.manager));
}

TEST(CudaStreams, TheEventsOfStreamsThatEndedAreDestroyed) {
  Scene s;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(s.guest.ask("aside own 100"), "ok");  // its stream ends with the thread
    EXPECT_EQ(s.guest.ask("joinaside"), "0");
  }
  EXPECT_TRUE(settles(s.manager));
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(s.guest.ask("sleep a 10"), "0");       // the reaper looks while there is work
    return std::stoull(s.guest.ask("events")) <= 2;  // of stream a
  })) << s.guest.ask("events");
}

TEST(CudaStreams, ABusyStreamRetiresAsItGoes) {
  Scene s;
  s.guest.send("burst a 400 1000");
  EXPECT_EQ(s.guest.answer(), "0");
  const std::uint64_t before = s.manager.slot(0).retired;
  // The program launches on, a kernel at a time; no call of its own waits for any.
  std::uint64_t most = 0;
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(s.guest.ask("sleep a 200"), "0");
    most = s.manager.slot(0).retired - before;
    return most > 20 && s.manager.inFlight() > 0;
  })) << most;
  EXPECT_EQ(s.guest.ask("sync a"), "0");
  EXPECT_EQ(s.manager.inFlight(), 0u);
}

TEST(CudaStreams, TheThreadsOwnDefaultStreamRetiresWithoutItsThread) {
  Scene s;
  EXPECT_EQ(s.guest.ask("aside own 20000"), "ok");
  EXPECT_EQ(s.guest.ask("own 3000"), "0");
  EXPECT_TRUE(eventually([&] { return s.manager.slot(0).admitted >= 2; }));
  EXPECT_EQ(s.guest.ask("joinaside"), "0");
  EXPECT_TRUE(settles(s.manager)) << "both threads never asked, and one is gone";
}

// More launches than a stream has markers, and no call of the thread after them.
TEST(CudaStreams, TheThreadsOwnDefaultStreamRetiresHoweverMuchIsInFlight) {
  Scene s;
  EXPECT_EQ(s.guest.ask("own 500 300"), "0");
  EXPECT_EQ(s.manager.slot(0).admitted, 300u);
  EXPECT_TRUE(settles(s.manager)) << s.manager.inFlight();
}

TEST(CudaStreams, TheLegacyStreamIsFollowedByContext) {
  Scene s;
  EXPECT_EQ(s.guest.ask("sleep null 3000"), "0");
  EXPECT_EQ(s.guest.ask("ctxnew"), "0");
  EXPECT_EQ(s.guest.ask("sleep null 400000"), "0");
  EXPECT_TRUE(eventually([&] { return s.manager.inFlight() == 1; }));
  EXPECT_EQ(s.guest.ask("query null"), "600");
  EXPECT_EQ(s.guest.ask("ctxend"), "0");
  EXPECT_EQ(s.manager.inFlight(), 0u) << "a context's end waits for its work";
  EXPECT_EQ(s.guest.ask("sleep a 3000"), "0");
  EXPECT_TRUE(settles(s.manager)) << "the reaper has looked, and not at the context that is gone";
}

// The driver destroys none of its streams, and from then on answers nothing of them.
TEST(CudaStreams, WorkOfAGreenContextIsOverWithIt) {
  Scene s;
  EXPECT_EQ(s.guest.ask("greennew"), "0");
  EXPECT_EQ(s.guest.ask("sleep green 3000"), "0");
  EXPECT_TRUE(settles(s.manager));
  EXPECT_EQ(s.guest.ask("waitvalue green"), "0");
  EXPECT_EQ(s.guest.ask("burst green 3 0"), "0");
  EXPECT_TRUE(looks(s.guest, "cuCtxSetCurrent"));
  EXPECT_EQ(s.manager.inFlight(), 3u);
  EXPECT_EQ(s.guest.ask("greenend"), "0");
  EXPECT_EQ(s.manager.inFlight(), 0u);
  EXPECT_EQ(s.guest.ask("sleep a 3000"), "0");
  EXPECT_TRUE(settles(s.manager)) << "the reaper has looked, and not at the context that is gone";
  EXPECT_EQ(s.guest.ask("destroy green"), "0");
  EXPECT_EQ(s.guest.ask("set"), "ok");
}

TEST(CudaStreams, AContextEndsWithTheLastThatDetachesFromIt) {
  Scene s;
  EXPECT_EQ(s.guest.ask("ctxnew"), "0");
  EXPECT_EQ(s.guest.ask("ctxattach"), "0");
  EXPECT_EQ(s.guest.ask("alloc plain 1 1000000"), "0");
  EXPECT_EQ(s.guest.ask("waitvalue null"), "0");
  EXPECT_EQ(s.guest.ask("add null"), "0");
  EXPECT_EQ(s.guest.ask("ctxdetach"), "0");
  EXPECT_EQ(s.manager.inFlight(), 1u);
  EXPECT_EQ(s.manager.bytes(), kCudaInitBytes + 1'000'000);
  EXPECT_EQ(s.guest.ask("set"), "ok");
  EXPECT_TRUE(settles(s.manager));
  EXPECT_EQ(s.guest.ask("ctxdetach"), "0");
  EXPECT_EQ(s.manager.bytes(), kCudaInitBytes);
}

// The legacy stream is the current context's: without that context another's would be asked.
TEST(CudaStreams, AContextThatIsNotToBeHadIsNotAskedThroughAnother) {
  Scene s;
  EXPECT_EQ(s.guest.ask("waitvalue null 1"), "0");
  EXPECT_EQ(s.guest.ask("add null"), "0");
  EXPECT_EQ(s.guest.ask("ctxnew"), "0");
  EXPECT_EQ(s.guest.ask("waitvalue null 2"), "0");
  EXPECT_EQ(s.guest.ask("add null"), "0");
  EXPECT_TRUE(looks(s.guest, "cuStreamQuery"));
  EXPECT_EQ(s.guest.ask("answer cuCtxSetCurrent 1"), "ok");
  EXPECT_TRUE(looks(s.guest, "cuCtxSetCurrent"));
  EXPECT_EQ(s.guest.ask("set 1"), "ok");
  EXPECT_TRUE(looks(s.guest, "cuCtxSetCurrent"));
  EXPECT_EQ(s.manager.inFlight(), 2u);
  EXPECT_EQ(s.guest.ask("answer cuCtxSetCurrent 0"), "ok");
  EXPECT_TRUE(eventually([&] { return s.manager.inFlight() == 1; }));
  EXPECT_EQ(s.guest.ask("set 2"), "ok");
  EXPECT_TRUE(settles(s.manager));
  EXPECT_EQ(s.guest.ask("ctxend"), "0");
}

// An error of the context for good, or its end that no call told of: whoever is asked says so.
TEST(CudaStreams, WorkOfAContextThatIsNoMoreIsOver) {
  for (const char* gone : {"cuCtxSetCurrent 709", "cuStreamQuery 911", "cuStreamQuery 917"}) {
    Scene s;
    EXPECT_EQ(s.guest.ask("waitvalue a"), "0");
    EXPECT_EQ(s.guest.ask("add a"), "0");
    EXPECT_EQ(s.manager.inFlight(), 1u);
    EXPECT_EQ(s.guest.ask(std::string("answer ") + gone), "ok");
    EXPECT_TRUE(settles(s.manager)) << gone;
  }
}

TEST(CudaStreams, ADestroyedStreamsWorkIsFollowedToItsEnd) {
  Scene s;
  EXPECT_EQ(s.guest.ask("waitvalue a"), "0");
  EXPECT_EQ(s.guest.ask("add a"), "0");
  EXPECT_EQ(s.guest.ask("destroy a"), "0");
  EXPECT_EQ(s.guest.ask("sync b"), "0");
  EXPECT_EQ(s.manager.inFlight(), 1u);
  EXPECT_EQ(s.guest.ask("set"), "ok");
  EXPECT_TRUE(settles(s.manager));
}

TEST(CudaStreams, SynchronisingCallsRetireWhatTheyWaitedFor) {
  Scene s;
  for (const char* wait : {"sync a", "ctxsync", "query a", "waitevent a"}) {
    EXPECT_EQ(s.guest.ask("burst a 3 300"), "0");
    if (wait == std::string("waitevent a")) {
      EXPECT_EQ(s.guest.ask("event a"), "0");
    }
    if (wait == std::string("query a")) {
      EXPECT_TRUE(eventually([&] { return s.guest.ask(wait) == "0"; }));
    } else {
      EXPECT_EQ(s.guest.ask(wait), "0");
    }
    EXPECT_TRUE(settles(s.manager)) << wait;
  }
}

TEST(CudaStreams, ACopyThatWaitsRetiresWhatWasBeforeItAndNotWhatOthersLaunchedMeanwhile) {
  Scene s;
  EXPECT_EQ(s.guest.ask("waitvalue null 1"), "0");
  EXPECT_EQ(s.guest.ask("add null"), "0");
  EXPECT_EQ(s.guest.ask("aside do cuMemcpyDtoH_v2"), "ok");
  EXPECT_TRUE(eventually([&] { return s.guest.ask("stats") == "0 0 3"; })) << "the copy is queued";
  EXPECT_EQ(s.guest.ask("waitvalue null 2"), "0");
  EXPECT_EQ(s.guest.ask("add null"), "0");
  EXPECT_EQ(s.guest.ask("set 1"), "ok");
  EXPECT_EQ(s.guest.ask("joinaside"), "0 1");
  EXPECT_EQ(s.guest.ask("query null"), "600");
  EXPECT_GE(s.manager.inFlight(), 1u) << "what is behind the copy has not run";
  EXPECT_EQ(s.guest.ask("set 2"), "ok");
  EXPECT_TRUE(settles(s.manager));
}

// HAZARDS 10: while somebody else wants the card, what is in flight is bounded in time.
TEST(CudaStreams, AContendedWindowHoldsWhatIsUnknownAndLearnsIt) {
  FakeManager::Options options = cudaTask();
  options.windowNs = 20'000'000;
  Scene s(options);
  s.manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_CONTENDED);
  std::uint64_t most = 0;
  s.guest.send("burst a 30 2000");
  EXPECT_TRUE(eventually([&] {
    most = std::max(most, s.manager.inFlight());
    return s.guest.answered();
  }));
  EXPECT_EQ(s.guest.answer(), "0");
  EXPECT_EQ(s.guest.ask("sync a"), "0");
  EXPECT_TRUE(settles(s.manager));
  EXPECT_EQ(s.manager.slot(0).window_used_ns, 0u);
  EXPECT_GE(most, 2u) << "known kernels share the window";
  EXPECT_LE(most, 12u) << "20 ms hold ten kernels of 2 ms";
}

// Until the manager has seen the death, the window has what the dead one had in it.
TEST(CudaStreams, AWindowThatADeadProcessFilledIsPassedAllTheSame) {
  FakeManager::Options options = cudaTask();
  options.windowNs = 1'000'000;
  Scene s(options);
  s.manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_CONTENDED);
  CudaTenant other(s.manager);
  ASSERT_EQ(other.ask("init"), "0") << other.errors();
  ASSERT_EQ(other.ask("stream a"), "0");
  EXPECT_EQ(other.ask("waitvalue a"), "0");
  EXPECT_EQ(other.ask("add a"), "0");
  ASSERT_GT(s.manager.slot(1).window_used_ns, options.windowNs) << "what is unknown fills it";
  other.kill();
  EXPECT_EQ(s.guest.ask("sleep a 100"), "0");
  EXPECT_EQ(s.guest.ask("sync a"), "0");
}

// A green context may be current to one thread only.
TEST(CudaStreams, WorkOfAContextThatIsRefusedEndsOnlyWhereItIsNone) {
  Scene s;
  EXPECT_EQ(s.guest.ask("answer cuCtxSetCurrent 201"), "ok");
  EXPECT_EQ(s.guest.ask("waitvalue a 1"), "0");
  EXPECT_EQ(s.guest.ask("add a"), "0");
  EXPECT_TRUE(looks(s.guest, "cuCtxSetCurrent"));
  EXPECT_EQ(s.manager.inFlight(), 1u);
  EXPECT_EQ(s.guest.ask("answer cuCtxGetApiVersion 201"), "ok");
  EXPECT_TRUE(settles(s.manager));
  EXPECT_EQ(s.guest.ask("set 1"), "ok");
}

// Another kernel or graph may get the address of one that is gone: it takes the window alone.
TEST(CudaStreams, WhatWasLearntOfAGraphOrAModuleEndsWithIt) {
  FakeManager::Options options = cudaTask();
  options.windowNs = 2'000'000'000;
  Scene s(options);
  EXPECT_EQ(s.guest.ask("begin a 0"), "0");
  EXPECT_EQ(s.guest.ask("sleep a 1000"), "0");
  EXPECT_EQ(s.guest.ask("end a"), "0 graph");
  EXPECT_EQ(s.guest.ask("instantiate a"), "0");
  s.manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_CONTENDED);
  int value = 0;
  const auto taken = [&](const std::string& launch) {  // of the window, by a launch that waits
    EXPECT_EQ(s.guest.ask("waitvalue a " + std::to_string(++value)), "0");
    EXPECT_EQ(s.guest.ask(launch), "0");
    const std::uint64_t ns = s.manager.slot(0).window_used_ns;
    EXPECT_EQ(s.guest.ask("set " + std::to_string(value)), "ok");
    EXPECT_EQ(s.guest.ask("sync a"), "0");
    return ns;
  };
  for (const char* launch : {"launch a", "sleep a 1000"}) {
    const std::string end = *launch == 'l' ? "graphend a" : "unload";
    EXPECT_EQ(taken(launch), options.windowNs + 1) << launch;
    EXPECT_LE(taken(launch), options.windowNs) << launch;
    EXPECT_EQ(s.guest.ask(end), "0");
    if (*launch == 'l') {
      EXPECT_EQ(s.guest.ask("instantiate a"), "0");
    }
    EXPECT_EQ(taken(launch), options.windowNs + 1) << launch;
  }
}

TEST(CudaStreams, TheWindowHoldsAlsoWhereMoreFitIntoItThanAStreamHasMarkers) {
  FakeManager::Options options = cudaTask();
  options.windowNs = 60'000'000;
  Scene s(options);
  s.manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_CONTENDED);
  EXPECT_EQ(s.guest.ask("burst a 1500 100"), "0");
  const std::uint64_t last = s.manager.inFlight();
  EXPECT_GT(last, 64u) << "the ring of markers was never full";
  EXPECT_LE(last, 600u) << "60 ms hold six hundred kernels of 100 us";
  EXPECT_EQ(s.guest.ask("sync a"), "0");
  EXPECT_TRUE(settles(s.manager));
  EXPECT_EQ(s.manager.slot(0).window_used_ns, 0u);
}

// A copy may go into a stream of another context than the thread's.
TEST(CudaStreams, TheWindowHoldsWhatIsLaunchedUnderAnotherContextThanTheStreams) {
  FakeManager::Options options = cudaTask();
  options.windowNs = 20'000'000;
  Scene s(options);
  s.manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_CONTENDED);
  EXPECT_EQ(s.guest.ask("waitvalue a"), "0");
  EXPECT_EQ(s.guest.ask("ctxnew"), "0");
  EXPECT_EQ(s.guest.ask("copy a"), "0");
  EXPECT_EQ(s.manager.inFlight(), 1u);
  EXPECT_GT(s.manager.slot(0).window_used_ns, 0u);
  EXPECT_EQ(s.guest.ask("set"), "ok");
  EXPECT_TRUE(settles(s.manager));
  EXPECT_EQ(s.manager.slot(0).window_used_ns, 0u);
  EXPECT_EQ(s.guest.ask("ctxend"), "0");
}

TEST(CudaStreams, AnEndedTasksLaunchesFail) {
  Scene s;
  s.manager.close();
  EXPECT_EQ(s.guest.ask("sleep a 10"), "46");  // CUDA_ERROR_DEVICE_UNAVAILABLE
  EXPECT_EQ(s.manager.inFlight(), 0u);
}

TEST(CudaStreams, AnOnlineTaskIsNeverHeld) {
  FakeManager::Options options = cudaTask();
  options.taskClass = QGPU_ONLINE;
  options.gate = 0;
  Scene s(options);
  EXPECT_EQ(s.guest.ask("sleep a 10"), "0");
  EXPECT_EQ(s.guest.ask("sync a"), "0");
}

// --- captures ---

// While a capture goes on the reaper has work in flight to look at, and looks often.
class Captures : public ::testing::TestWithParam<int> {};

TEST_P(Captures, OfAnyModeSurviveTheReaperAndOtherStreams) {
  FakeManager::Options options = cudaTask();
  options.taskClass = QGPU_ONLINE;  // the fastest looks
  Scene s(options);
  EXPECT_EQ(s.guest.ask("stream free 1"), "0");
  const std::string begin = "begin a " + std::to_string(GetParam());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(s.guest.ask("sleep b 2000"), "0");
    EXPECT_EQ(s.guest.ask("sleep a 500"), "0");
    EXPECT_EQ(s.guest.ask(begin), "0");
    const std::uint64_t before = s.manager.slot(0).admitted;
    EXPECT_EQ(s.guest.ask("sleep a 100"), "0");
    EXPECT_EQ(s.guest.ask("add a"), "0");
    EXPECT_EQ(s.guest.ask("event a"), "0");
    EXPECT_EQ(s.guest.ask("join a"), "0");  // stream b is captured with it
    EXPECT_EQ(s.guest.ask("sleep b 100"), "0");
    EXPECT_EQ(s.manager.slot(0).admitted, before) << "what is captured does not run";
    EXPECT_EQ(s.guest.ask("aside sleep free 300"), "ok");
    EXPECT_EQ(s.guest.ask("joinaside"), "0");
    EXPECT_EQ(s.manager.slot(0).admitted, before + 1);
    ASSERT_EQ(s.guest.ask("end a"), "0 graph");
  }
  EXPECT_TRUE(settles(s.manager));
  EXPECT_EQ(s.guest.ask("instantiate a"), "0");
  EXPECT_EQ(s.guest.ask("launch a"), "0");
  EXPECT_EQ(s.guest.ask("sync a"), "0");
  EXPECT_EQ(s.guest.ask("sum"), "1");
}
INSTANTIATE_TEST_SUITE_P(CudaStreams, Captures, ::testing::Values(0, 1, 2));

TEST(CudaStreams, WorkBehindACaptureOnAnotherThreadStillRetires) {
  Scene s;
  EXPECT_EQ(s.guest.ask("stream free 1"), "0");
  EXPECT_EQ(s.guest.ask("begin a 0"), "0");
  EXPECT_EQ(s.guest.ask("aside burst free 5 500"), "ok");
  EXPECT_EQ(s.guest.ask("joinaside"), "0");
  EXPECT_TRUE(settles(s.manager)) << "the markers of each launch tell while no stream is asked";
  EXPECT_EQ(s.guest.ask("end a"), "0 graph");
}

TEST(CudaStreams, CapturesForGraphicsAndIntoAGraphAgainBeginAndEndAsOthersDo) {
  Scene s;
  EXPECT_EQ(s.guest.ask("begin a 0"), "0");
  EXPECT_EQ(s.guest.ask("end a"), "0 graph");
  for (const char* begin : {"begincig a", "recapture a"}) {
    const std::uint64_t before = s.manager.slot(0).admitted;
    EXPECT_EQ(s.guest.ask(begin), "0");
    EXPECT_EQ(s.guest.ask("burst a 5 10"), "0");
    EXPECT_EQ(s.manager.slot(0).admitted, before) << begin << ": what is captured does not run";
    EXPECT_EQ(s.guest.ask(*begin == 'b' ? "endcig a" : "end a").substr(0, 1), "0");
    EXPECT_EQ(s.guest.ask("burst a 5 300"), "0");
    EXPECT_EQ(s.manager.slot(0).admitted, before + 5) << begin;
    EXPECT_TRUE(settles(s.manager)) << begin;
  }
}

TEST(CudaStreams, ACaptureThatTheProgramBrokeEndsForUsToo) {
  FakeManager manager(cudaTask());
  CudaTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  ASSERT_EQ(guest.ask("stream a"), "0");
  ASSERT_EQ(guest.ask("begin a 0"), "0");
  EXPECT_EQ(guest.ask("sync a"), "900");
  EXPECT_EQ(guest.ask("end a"), "901 none");
  EXPECT_EQ(guest.ask("sleep a 300"), "0");
  EXPECT_TRUE(settles(manager)) << "asked again";
}

}  // namespace
}  // namespace qgpu::testing::guest_cuda_streams_test
