// Memory that leaves a card, through a whole qgpu-manager: this process plays the guests and writes
// their slots, as libqgpu.so would.

#include <atomic>
#include <csignal>
#include <gtest/gtest.h>
#include <optional>
#include <unistd.h>

#include "runtime/loop.h"
#include "services/attach/testing/guest_client.h"
#include "services/wire/paging.h"
#include "tests/e2e/harness.h"
#include "tests/testing/forked_process.h"

namespace qgpu::e2e::manager_paging_test {
namespace {

using paging::Answer;
using paging::Phase;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
const char kTraining[] =
    R"(run {"name":"train","class":"offline","memory_gib":6,"pageable_gib":6,"owner":"none"})";
const char kServing[] =
    R"(run {"name":"serve","class":"online","memory_gib":4,"core_percent":0,"owner":"none"})";

qgpu_hello helloOf(const Json& bound) {
  qgpu_hello hello = GuestClient::hello(bound["token"].get<std::string>());
  hello.knows = QGPU_KNOWS_PAGING;
  return hello;
}

// A process of a task that answers what it is told, when it is told to.
class PlayedGuest {
 public:
  PlayedGuest(const Manager& manager, const Json& bound)
      : PlayedGuest(manager, helloOf(bound), -1) {}
  // Comes back to the next manager with the pages of `before`.
  PlayedGuest(const Manager& manager, const Json& bound, PlayedGuest& before)
      : PlayedGuest(manager, again(helloOf(bound), before), before.client().reportFd()) {}
  GuestClient& client() { return *client_; }
  qgpu_slot& slot() { return client_->slot(); }
  paging::Word word() const { return paging::unpack(load(client_->gatePage().paging)); }
  std::uint64_t limit() const { return load(client_->gatePage().pageable_limit); }
  bool isTold(Phase phase) {
    return eventually([&] { return word().epoch != 0 && word().phase == phase; });
  }
  void says(std::uint64_t& what, std::uint64_t value) {
    std::atomic_ref<std::uint64_t>(what).store(value, std::memory_order_seq_cst);
  }
  // It starts, is given room for so much, takes it, and works.
  bool runsWith(std::uint64_t bytes) {
    if (!isTold(Phase::In)) return false;
    answers(Answer::In);
    says(slot().pageable_more, bytes);
    client_->ring();
    if (!eventually([&] { return limit() == bytes; })) return false;
    says(slot().pageable_held, bytes);
    says(slot().pageable_more, 0);
    client_->ring();
    if (!client_->admit(20'000)) return false;
    client_->retire();
    return true;
  }
  // It has a GiB, and the card refuses it more.
  void isRefused(std::uint64_t bytes) {
    says(slot().bytes, kGiB);
    says(slot().need_since_ns, static_cast<std::uint64_t>(monotonicNow().value));
    says(slot().need_bytes, bytes);
    client_->ring();
  }
  void answers(Answer answer) {
    says(slot().paging_answer,
         std::uint64_t{word().epoch} << 32 | static_cast<std::uint64_t>(answer));
    client_->ring();
  }

 private:
  PlayedGuest(const Manager& manager, const qgpu_hello& hello, int page) {
    auto begun = GuestClient::begin(manager.runDir() + "/attach.sock", hello, page);
    EXPECT_TRUE(begun.ok());
    if (!begun) return;
    const Status welcomed = begun->finish(20'000);
    EXPECT_TRUE(welcomed.ok()) << (welcomed ? "" : welcomed.error().message);
    client_.emplace(std::move(*begun));
  }
  static qgpu_hello again(qgpu_hello hello, PlayedGuest& before) {
    hello.reattach = 1;
    hello.slot = before.client().welcome().slot;
    hello.incarnation_seen = before.client().welcome().incarnation;
    return hello;
  }
  static std::uint64_t load(const std::uint64_t& word) {
    return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(word)).load();
  }
  std::optional<GuestClient> client_;
};

TEST(ManagerPaging, M6_TrainingLendsWhatServingIsRefusedAndGetsItBack) {
  Manager manager({"--cards=sim:1x8", "--mixed", "--overcommit=0.5", "--realtime=off"});
  const Json training = manager.ask(kTraining);
  ASSERT_TRUE(training["ok"]) << training;
  const Json serving = manager.ask(kServing);
  ASSERT_TRUE(serving["ok"]) << serving;
  PlayedGuest train(manager, training), serve(manager, serving);
  EXPECT_EQ(train.client().gatePage().pageable_bytes, 6 * kGiB);
  EXPECT_NE(serve.client().gatePage().need_wait_ns, 0u);

  ASSERT_TRUE(train.runsWith(6 * kGiB));
  serve.isRefused(3 * kGiB);
  ASSERT_TRUE(train.isTold(Phase::Drain));
  train.answers(Answer::Idle);
  ASSERT_TRUE(train.isTold(Phase::Out));
  EXPECT_EQ(train.word().permille, 334u) << "2 of 6 GiB, rounded up";
  train.says(train.slot().pageable_out, 6 * kGiB * train.word().permille / 1000);
  train.answers(Answer::Left);
  serve.says(serve.slot().bytes, 4 * kGiB);
  serve.says(serve.slot().need_bytes, 0);
  serve.client().ring();
  ASSERT_TRUE(eventually([&] { return manager.task("train")["pageable_out_bytes"] > kGiB; }));
  EXPECT_EQ(manager.task("train")["pageable_held_bytes"], 6 * kGiB);
  EXPECT_FALSE(train.client().admit(200)) << "it is away";

  // And back.
  serve.says(serve.slot().bytes, kGiB);
  serve.client().ring();
  ASSERT_TRUE(train.isTold(Phase::In));
  train.says(train.slot().pageable_out, 0);
  train.answers(Answer::In);
  ASSERT_TRUE(train.client().admit(20'000));
  train.client().retire();
  EXPECT_EQ(manager.stop(), 0) << manager.log();
}

TEST(ManagerPaging, M6_WhoGivesNoRoomIsEndedAndTheEventNamesBoth) {
  Manager manager({"--cards=sim:1x8", "--mixed", "--overcommit=0.5", "--realtime=off"});
  const Json training = manager.ask(kTraining);
  const Json serving = manager.ask(kServing);
  testing::ForkedProcess child([&] {
    PlayedGuest train(manager, training);
    if (!train.runsWith(6 * kGiB)) return 1;
    ::pause();  // and never hears of anything
    return 0;
  });
  PlayedGuest serve(manager, serving);
  ASSERT_TRUE(eventually([&] { return manager.task("train")["pageable_held_bytes"] == 6 * kGiB; }));
  serve.isRefused(3 * kGiB);
  EXPECT_EQ(child.wait(), -SIGTERM);
  ASSERT_TRUE(eventually([&] { return manager.task("train").is_null(); }));
  const std::string told = manager.ask("events 0").dump();
  const std::size_t event = told.find("task-gave-no-room");
  ASSERT_NE(event, std::string::npos) << told;
  EXPECT_NE(told.find("3 GiB of memory that task 2 (serve) was refused"), std::string::npos);
  EXPECT_EQ(manager.stop(), 0) << manager.log();
}

TEST(ManagerPaging, M7_WhoIsOutComesBackInUnderTheNextManager) {
  Manager manager({"--cards=sim:1x8", "--mixed", "--overcommit=0.5", "--realtime=off"});
  const Json training = manager.ask(kTraining);
  PlayedGuest train(manager, training);
  ASSERT_TRUE(train.runsWith(6 * kGiB));
  train.says(train.slot().pageable_out, 2 * kGiB);
  manager.kill();
  manager.start();
  PlayedGuest again(manager, training, train);
  again.client().obey();
  ASSERT_TRUE(again.isTold(Phase::Out));
  EXPECT_EQ(again.word().permille, 0u) << "as it is";
  EXPECT_FALSE(again.client().admit(100));
  // The page says so from its beginning, and once more when the card has heard of all.
  ASSERT_TRUE(eventually([&] {
    if (again.word().phase == Phase::Out) again.answers(Answer::Left);
    return again.word().phase == Phase::In;
  })) << "there is room";
  again.says(again.slot().pageable_out, 0);
  again.answers(Answer::In);
  EXPECT_TRUE(again.client().admit(20'000));
  EXPECT_EQ(manager.stop(), 0) << manager.log();
}

TEST(ManagerPaging, PlacementCountsWhatMayLeaveBeyondTheCardAndWhatStaysWithinIt) {
  Manager manager({"--cards=sim:1x8", "--mixed", "--overcommit=0.5"});
  ASSERT_TRUE(manager.ask(kTraining)["ok"]);
  ASSERT_TRUE(manager.ask(kServing)["ok"]);
  const Json more = manager.ask(kServing);
  EXPECT_EQ(more["code"], "no-room") << "4 + 4 stay, but 14 of 12 GiB in all";
  const Json wrong = manager.ask(
      R"(run {"name":"a","class":"online","memory_gib":1,"pageable_gib":1,"owner":"none"})");
  EXPECT_EQ(wrong["code"], "invalid-argument");
  EXPECT_NE(wrong["error"].get<std::string>().find("offline"), std::string::npos) << wrong;

  // What is stored says so still.
  EXPECT_EQ(manager.stop(), 0);
  manager.start();
  EXPECT_EQ(manager.task("train")["pageable_bytes"], 6 * kGiB);
}

TEST(ManagerPaging, WithoutOvercommitAllMemoryIsFirm) {
  Manager manager({"--cards=sim:1x8", "--mixed"});
  const Json training = manager.ask(kTraining);
  ASSERT_TRUE(training["ok"]) << training;
  EXPECT_EQ(manager.ask(kServing)["code"], "no-room");
  PlayedGuest train(manager, training);
  EXPECT_EQ(train.client().gatePage().pageable_bytes, 0u);
  EXPECT_EQ(train.client().gatePage().need_wait_ns, 0u);
  EXPECT_TRUE(train.client().admit(20'000));
}

}  // namespace
}  // namespace qgpu::e2e::manager_paging_test
