// The demo's children and its conversation with a manager, over real processes and a real socket.

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "services/demo/tenants/children.h"
#include "services/demo/tenants/node_client.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::demo::private_node_test {
namespace {

constexpr std::int64_t kLong = 30'000'000'000;

class Folder : public ::testing::Test {
 protected:
  const testing::TempFolder made_{"demo"};
  const std::string path_ = made_.path();
};

using Children = Folder;

TEST_F(Children, SpeakAndEndWithTheirStatus) {
  Child child({"sh", "-c", "read word; echo got $word; echo no >&2; exit 3"}, path_ + "/talk");
  EXPECT_TRUE(child.running());
  child.say("hello");
  EXPECT_EQ(child.wait(kLong), 3);
  EXPECT_EQ(child.output(), "got hello\n");
  EXPECT_EQ(child.errors(), "no\n");
}

TEST_F(Children, AProgramThatIsNotThereIsAnExitStatus) {
  Child child({path_ + "/nothing"}, path_ + "/nothing");
  EXPECT_EQ(child.wait(kLong), 127);
}

TEST_F(Children, ASignalIsTold) {
  Child child({"cat"}, path_ + "/cat");
  child.signal(SIGTERM);
  EXPECT_EQ(child.wait(kLong), 128 + SIGTERM);
}

TEST_F(Children, DieWithTheirGroupWhenTheyAreDropped) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::string output;
  {
    Child child({"sh", "-c", "tail -f /dev/null & echo $!; wait"}, path_ + "/group");
    while (output.empty() || output.back() != '\n') output = child.output();
  }
  const pid_t grandchild = std::stoi(output);
  int raw = 0;
  ASSERT_EQ(waitpid(grandchild, &raw, 0), grandchild) << "orphans become ours";
  EXPECT_TRUE(WIFSIGNALED(raw));
}

// Answers one line with another, once for each connection.
class OneAnswer {
 public:
  OneAnswer(const std::string& path, std::string answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    listen(listener_, 1);
    thread_ = std::thread([this] { serve(); });
  }
  ~OneAnswer() {
    thread_.join();
    close(listener_);
  }

 private:
  void serve() {
    const int peer = accept(listener_, nullptr, nullptr);
    char chunk[256];
    if (recv(peer, chunk, sizeof chunk, 0) > 0) {
      send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
    close(peer);
  }
  int listener_ = -1;
  std::string answer_;
  std::thread thread_;
};

using Conversation = Folder;

TEST_F(Conversation, TasksComeWithTheirCountersAndAnInstant) {
  const OneAnswer manager(path_ + "/s",
                          R"({"ok":true,"tasks":[{"id":1,"name":"a","class":"online",)"
                          R"("used_ns":5,"gpu_ns":4,"launches":3}]})"
                          "\n");
  NodeClient node(path_ + "/s");
  const auto tasks = node.tasks();
  ASSERT_TRUE(tasks.ok()) << tasks.error().message;
  EXPECT_GT(tasks->atNs, 0);
  ASSERT_NE(tasks->find("a"), nullptr);
  EXPECT_EQ(tasks->find("a")->usedNs, 5);
  EXPECT_EQ(tasks->find("a")->launches, 3);
  EXPECT_EQ(tasks->find("b"), nullptr);
}

TEST_F(Conversation, ARefusalIsAnErrorWithItsReason) {
  const OneAnswer manager(path_ + "/s", R"({"ok":false,"error":"no such card","code":"not-found"})"
                                        "\n");
  NodeClient node(path_ + "/s");
  const auto answer = node.ask("policy 7 be");
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("no such card"), std::string::npos);
}

TEST_F(Conversation, AnAnswerThatBreaksOffIsAnError) {
  const OneAnswer manager(path_ + "/s", R"({"ok":tr)");
  NodeClient node(path_ + "/s");
  EXPECT_FALSE(node.firstCard().ok());
}

TEST_F(Conversation, NobodyThereIsAnErrorThatNamesTheSocket) {
  NodeClient node(path_ + "/s");
  const auto answer = node.settings();
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find(path_ + "/s"), std::string::npos);
}

TEST(Cards, AreReadWithWhatTheManagerMeasured) {
  const auto cards = parseCards(
      R"({"ok":true,"cards":[{"id":"opencl-0-0","model":"CPU","suspend":"freeze","online_ns":9,)"
      R"("settle_us":{"p50":1,"p99":2,"n":3},"preempt_us":{"p50":40,"p99":200,"n":210},)"
      R"("release_us":{"p50":100100,"p99":101000,"n":209}}]})");
  ASSERT_TRUE(cards.ok()) << cards.error().message;
  const CardCounters* const card = &cards->front();
  EXPECT_EQ(card->id, "opencl-0-0");
  EXPECT_EQ(card->suspend, "freeze");
  EXPECT_EQ(card->preemptUs.p99, 200);
  EXPECT_EQ(card->preemptUs.n, 210);
  EXPECT_EQ(card->settleUsP99, 2);
  EXPECT_EQ(card->raw.find("{\"id\":\"opencl-0-0\""), 0U);
  EXPECT_FALSE(parseCards(R"({"ok":true,"cards":[]})").ok());
  EXPECT_FALSE(parseCards(R"({"ok":true})").ok());
  EXPECT_FALSE(parseCards("").ok());
}

}  // namespace
}  // namespace qgpu::demo::private_node_test
