// qgpuctl as a program, against a scripted scheduler over RPC.

#include "tests/testing/child_process.h"
#include "tests/unit/services/api/cluster_rpc_fixture.h"

namespace qgpu::ctl_server_test {
namespace {

using testing::Child;
using testing::ClusterRpcFixture;

struct CtlServer : ClusterRpcFixture {
  CtlServer() { startServer(); }
  ~CtlServer() noexcept override = default;

  std::unique_ptr<Child> begin(std::vector<std::string> words) {
    std::vector<std::string> argv = {QGPUCTL, "--server", unixAddress()};
    argv.insert(argv.end(), words.begin(), words.end());
    return std::make_unique<Child>(argv);
  }
  int run(std::vector<std::string> words) {
    const auto program = begin(std::move(words));
    EXPECT_TRUE(served([&] { return program->status().has_value(); }));
    output = program->output();
    return program->status().value_or(-1);
  }
  bool shows(const Child& program, const char* part) {
    return served([&] { return program.output().find(part) != std::string::npos; });
  }
  // The scheduler that was asked this ends without an answer, and another one has its place.
  void loseIt(const std::function<bool(schema::ClusterRequest::Reader)>& wanted) {
    scheduler.silent = true;
    const auto asked = [&] {
      for (const auto& word : scheduler.heard) {
        if (word.which != schema::Envelope::CLUSTER_REQUEST) continue;
        if (wanted(word.read().getClusterRequest())) return true;
      }
      return false;
    };
    ASSERT_TRUE(served(asked));
    scheduler.silent = false;
    stopServer();
    startServer();
  }
  void tellEvent(std::uint64_t seq, std::uint64_t task = 0) {
    Outlet outlet(dispatcher, schedulerId);
    const SendResult sent = outlet.send(clientId, [=](schema::Envelope::Builder message) {
      auto event = message.initEventTold();
      event.setSeq(seq);
      event.setKind("told");
      event.setTask(task);
      event.setActor("scheduler");
    });
    EXPECT_EQ(sent, SendResult::Sent);
  }
  std::string output;
};

TEST_F(CtlServer, EveryCommandIsAnsweredOverRpcAsOnTheSocket) {
  EXPECT_EQ(run({"nodes"}), 0);
  EXPECT_NE(output.find("node-1"), std::string::npos) << output;
  EXPECT_EQ(run({"tasks", "-o", "json"}), 0);
  EXPECT_NE(output.find("\"id\":42"), std::string::npos) << output;
  for (const auto& words : {std::vector<std::string>{"cordon", "node-1"},
                            {"delete", "42"},
                            {"drain", "node-1", "--timeout", "9s"},
                            {"priority", "fgd"},
                            {"snapshot"},
                            {"loglevel", "debug"}}) {
    EXPECT_EQ(run(words), 0) << words[0] << ": " << output;
    EXPECT_EQ(output, "done\n") << words[0] << ": what the scheduler said";
  }
  EXPECT_EQ(house.snapshots, 1);
  EXPECT_EQ(house.level, "debug");
  EXPECT_EQ(run({"loglevel", "loud"}), 3);
  EXPECT_NE(output.find("no level is called loud"), std::string::npos) << output;
}

TEST_F(CtlServer, ATaskOfAClusterIsCalledByItsName) {
  EXPECT_EQ(run({"delete", "train"}), 0) << output;
  std::uint64_t deleted = 0;
  for (const auto& word : scheduler.heard) {
    if (word.which != schema::Envelope::CLUSTER_REQUEST) continue;
    const auto request = word.read().getClusterRequest();
    if (request.isDelete()) deleted = request.getDelete();
  }
  EXPECT_EQ(deleted, 42u);
  EXPECT_EQ(run({"explain", "train"}), 0);
  EXPECT_EQ(output, "why\n") << "as the scheduler says it";
  EXPECT_EQ(run({"delete", "nobody"}), 3);
}

TEST_F(CtlServer, ADrainOfANodeIsPlannedByTheScheduler) {
  EXPECT_EQ(run({"drain", "node-1", "--dry-run"}), 0);
  EXPECT_TRUE(output.starts_with("no task is concerned\n")) << output;
  for (const auto& word : scheduler.heard) {
    if (word.which != schema::Envelope::CLUSTER_REQUEST) continue;
    EXPECT_FALSE(word.read().getClusterRequest().isDrain());
  }
}

TEST_F(CtlServer, C5_AListIsAskedForPageByPage) {
  scheduler.pages = 3;
  EXPECT_EQ(run({"tasks", "-o", "json"}), 0);
  EXPECT_EQ(scheduler.pagesAsked, (std::vector<std::uint64_t>{0, 1, 2}));
  std::size_t tasks = 0;
  for (std::size_t at = 0; (at = output.find("\"id\":42", at)) != std::string::npos; ++at) ++tasks;
  EXPECT_EQ(tasks, 3u) << output;
}

TEST_F(CtlServer, EventsAreFollowedOverARestartOfTheScheduler) {
  const auto follower = begin({"events", "--follow"});
  ASSERT_TRUE(served([&] { return actor.watchers() == 1; }));
  ASSERT_TRUE(shows(*follower, "     9  ")) << "what the scheduler remembers";
  tellEvent(10);
  ASSERT_TRUE(shows(*follower, "    10  ")) << follower->output();
  stopServer();
  ASSERT_TRUE(shows(*follower, "looking again")) << follower->output();
  startServer();
  ASSERT_TRUE(served([&] { return actor.watchers() == 1; }));
  tellEvent(11);
  ASSERT_TRUE(shows(*follower, "    11  ")) << follower->output();
  EXPECT_EQ(follower->output().find("     9  "), follower->output().rfind("     9  ")) << "once";
}

TEST_F(CtlServer, ASubmitWaitsForNewsOfItsTaskAndNotForTheClock) {
  scheduler.binds = false;
  const auto waiter = begin({"submit", "--wait"});
  const auto asked = [&] {
    std::size_t n = 0;
    for (const auto& word : scheduler.heard) {
      if (word.which != schema::Envelope::CLUSTER_REQUEST) continue;
      n += word.read().getClusterRequest().isSubmit() ? 1 : 0;
    }
    return n;
  };
  ASSERT_TRUE(served([&] { return asked() == 1 && actor.outstanding() == 0; }));
  tellEvent(10, 41);  // of somebody else
  scheduler.binds = true;
  tellEvent(11, 42);
  ASSERT_TRUE(served([&] { return waiter->status().has_value(); }));
  EXPECT_EQ(waiter->status(), 0);
  EXPECT_EQ(asked(), 2u) << "again only after news of its own task";
  EXPECT_NE(waiter->output().find("node        node-1"), std::string::npos) << waiter->output();
}

TEST_F(CtlServer, ASubmitWhoseSchedulerIsLostIsAskedAgainOfTheNextAndIsOneTask) {
  const auto waiter = begin({"submit"});
  loseIt([](const auto& request) { return request.isSubmit(); });
  ASSERT_TRUE(served([&] { return waiter->status().has_value(); }));
  EXPECT_EQ(waiter->status(), 0) << waiter->output();
  std::vector<std::string> ids;
  for (const auto& word : scheduler.heard) {
    if (word.which != schema::Envelope::CLUSTER_REQUEST) continue;
    const auto request = word.read().getClusterRequest();
    if (!request.isSubmit()) continue;
    ids.emplace_back(view(request.getSubmit().getTask().getRequestId()));
  }
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_FALSE(ids[0].empty());
}

TEST_F(CtlServer, WhatIsNoSubmitAndChangesSomethingIsNotAskedTwice) {
  const auto waiter = begin({"cordon", "node-1"});
  loseIt([](const auto& request) { return request.isCordon(); });
  ASSERT_TRUE(served([&] { return waiter->status().has_value(); }));
  EXPECT_EQ(waiter->status(), 4) << waiter->output();
}

TEST_F(CtlServer, AnAddressThatIsNoneIsWrongUseAndOneWhereNobodyAnswersIsNoDaemon) {
  const auto at = [&](const std::string& address) {
    Child program({QGPUCTL, "--server", address, "nodes"});
    EXPECT_TRUE(served([&] { return program.status().has_value(); }));
    output = program.output();
    return program.status().value_or(-1);
  };
  EXPECT_EQ(at("nonsense"), 2) << output;
  EXPECT_EQ(at("unix:" + path + ".none"), 4) << output;
  EXPECT_NE(output.find("no scheduler answers"), std::string::npos) << output;
}

TEST_F(CtlServer, TheEnvironmentNamesTheSchedulerForWhatAClusterKnows) {
  Child program({QGPUCTL, "tasks"}, {{"QGPU_SERVER", unixAddress()}});
  EXPECT_TRUE(served([&] { return program.status().has_value(); }));
  EXPECT_EQ(program.status(), 0);
  EXPECT_NE(program.output().find("  42  "), std::string::npos) << program.output();
}

}  // namespace
}  // namespace qgpu::ctl_server_test
