// Memory that leaves a card, by all who have to do with it: training whose kernels check every
// word, serving that grows, the library in both, and the manager between them. The card is a
// stand-in, whose bytes both have together, and where nothing is mapped a kernel ends its program.

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "runtime/fd.h"
#include "tests/e2e/harness.h"
#include "tests/rm_stand_in/test_driver.h"

namespace qgpu::e2e::paging_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// A program that obeys lines.
class Program {
 public:
  Program(Manager& manager, const TempFolder& card, std::vector<std::string> options,
          const std::string& name, Environment environment = {})
      : lines_(folder_.path() + "/lines") {
    EXPECT_EQ(mkfifo(lines_.c_str(), 0600), 0);
    options.insert(options.begin(), {"--name", name});
    options.insert(options.end(), {"--", "sh", "-c", "exec $CUDA < $LINES"});
    environment.insert({{"LD_LIBRARY_PATH", QGPU_STAND_IN_DIR},
                        {"QGPU_LIB", QGPU_TESTING_LIBRARY},
                        {"QGPU_STAND_IN_BYTES", std::to_string(1024 * kMiB)},
                        {"QGPU_STAND_IN_CARD", card.path() + "/card"},
                        {"CUDA", binary("cuda_program")},
                        {"LINES", lines_}});
    child_ = manager.runTask(options, environment);
    to_.reset(::open(lines_.c_str(), O_WRONLY | O_CLOEXEC));  // no manager holds it open
  }
  void tell(const std::string& line) {
    const std::string whole = line + "\n";
    EXPECT_EQ(::write(to_.get(), whole.data(), whole.size()), std::ssize(whole));
    ++told_;
  }
  // All lines so far are answered, the last one so.
  bool answers(const std::string& last) {
    return eventually([&] {
      const std::string all = child_->output();
      return std::ranges::count(all, '\n') >= told_ && all.ends_with("\n" + last + "\n");
    });
  }
  bool isDone() { return std::ranges::count(child_->output(), '\n') >= told_; }
  int end() {
    to_.reset();
    return child_->wait().value_or(-1);
  }
  std::string output() { return child_->output(); }

 private:
  const TempFolder folder_{"program"};
  const std::string lines_;
  std::unique_ptr<Child> child_;
  Fd to_;
  std::ptrdiff_t told_ = 0;
};

class Paging : public ::testing::Test {
 protected:
  std::int64_t of(const std::string& task, const char* what) {
    const Json all = manager.task(task);
    return all.is_object() && all.contains(what) ? all[what].get<std::int64_t>() : -1;
  }
  TempFolder card;
  Manager manager{{"--cards=sim:1x1", "--mixed", "--overcommit=1"}};
  Program train{
      manager, card, {"--class", "offline", "--memory", "800MiB", "--pageable", "700MiB"}, "train"};
};

TEST_F(Paging, M6_ServingGrowsBesideTrainingWhichNoticesNothing) {
  for (const char* line : {"init", "stream a 1", "alloc plain 1 671088640", "fill 1 a 5"}) {
    train.tell(line);
  }
  train.tell("check 1 a 5 0");
  ASSERT_TRUE(train.answers("0 0")) << train.output() << manager.log();
  EXPECT_EQ(of("train", "pageable_held_bytes"), 640 * kMiB);

  // 500 of 1,024 MiB, of which training has 640.
  Program serve(manager, card, {"--class", "online", "--memory", "600MiB"}, "serve");
  serve.tell("init");
  serve.tell("alloc plain 1 524288000");
  ASSERT_TRUE(serve.answers("0")) << serve.output() << manager.log();
  EXPECT_TRUE(eventually([&] { return of("train", "pageable_out_bytes") > 0; })) << manager.log();
  train.tell("stir 1 a");
  train.tell("check 1 a 5 1");
  EXPECT_EQ(of("train", "pageable_held_bytes"), 640 * kMiB);
  EXPECT_FALSE(train.isDone()) << "there is no room for it: " << train.output();

  serve.tell("free 1");
  ASSERT_TRUE(train.answers("0 0")) << train.output() << manager.log();
  EXPECT_EQ(of("train", "pageable_out_bytes"), 0);
  EXPECT_EQ(serve.end(), 0) << serve.output();
  EXPECT_EQ(train.end(), 0) << train.output();
}

TEST_F(Paging, M7_AManagerThatIsKilledMeanwhileIsFollowedByOneThatBringsItBack) {
  for (const char* line : {"init", "stream a 1", "alloc plain 1 671088640", "fill 1 a 5"}) {
    train.tell(line);
  }
  train.tell("check 1 a 5 0");
  ASSERT_TRUE(train.answers("0 0")) << train.output() << manager.log();
  Program serve(manager, card, {"--class", "online", "--memory", "600MiB"}, "serve");
  serve.tell("init");
  serve.tell("alloc plain 1 524288000");
  ASSERT_TRUE(serve.answers("0")) << serve.output() << manager.log();
  manager.kill();
  train.tell("check 1 a 5 0");
  manager.start();
  ASSERT_TRUE(eventually([&] { return of("train", "pageable_out_bytes") > 0; })) << manager.log();
  EXPECT_FALSE(train.isDone()) << train.output();
  serve.tell("free 1");
  ASSERT_TRUE(train.answers("0 0")) << train.output() << manager.log();
  EXPECT_EQ(serve.end(), 0) << serve.output();
  EXPECT_EQ(train.end(), 0) << train.output();
}

// A card whose holds take channels off its hardware, by the kernel driver's stand-in. It has a GiB.
class PagingOffChannels : public ::testing::Test {
 protected:
  static Environment withCard(const TempFolder& card) {
    std::ofstream(card.path() + "/cards")
        << "GPU-00000000-0000-0000-0000-000000000000|Stand-in GPU|1073741824|0|0|0|0|0\n";
    Environment all = rm_stand_in::drivers();
    all["QGPU_STAND_IN_CARDS"] = card.path() + "/cards";
    return all;
  }
  std::int64_t of(const std::string& task, const char* what) {
    const Json all = manager.task(task);
    return all.is_object() && all.contains(what) ? all[what].get<std::int64_t>() : -1;
  }
  TempFolder card;
  Environment environment = withCard(card);
  Manager manager{{"--cards=nvidia", "--mixed", "--overcommit=1"}, environment};
};

TEST_F(PagingOffChannels, M6_WorkThatWasStoppedMidwayEndsBesideOnlineAndItsMemoryLeaves) {
  ASSERT_EQ(manager.cards()[0]["suspend"], "rm") << manager.cards();
  Program train(manager, card, {"--class", "offline", "--memory", "800MiB", "--pageable", "700MiB"},
                "train", environment);
  for (const char* line : {"init", "stream a 1", "alloc plain 1 671088640", "fill 1 a 5"}) {
    train.tell(line);
  }
  train.tell("check 1 a 5 0");
  ASSERT_TRUE(train.answers("0 0")) << train.output() << manager.log();
  Program serve(manager, card, {"--class", "online", "--memory", "600MiB"}, "serve", environment);
  for (const char* line : {"init", "stream b 1"}) serve.tell(line);
  ASSERT_TRUE(serve.answers("0")) << serve.output() << manager.log();

  train.tell("sleep a 300000");
  ASSERT_TRUE(train.answers("0")) << train.output();
  serve.tell("sleep b 3000000");
  ASSERT_TRUE(eventually([&] { return rm_stand_in::channelsOff() > 0; })) << manager.log();
  serve.tell("alloc plain 1 524288000");
  ASSERT_TRUE(serve.answers("0")) << serve.output() << manager.log();
  EXPECT_TRUE(eventually([&] { return of("train", "pageable_out_bytes") > 0; })) << manager.log();
  EXPECT_GT(of("train", "overrun_ns"), 0) << "what ran beside online is charged";
  train.tell("stir 1 a");
  train.tell("check 1 a 5 1");

  serve.tell("sync b");
  serve.tell("free 1");
  ASSERT_TRUE(train.answers("0 0")) << train.output() << manager.log();
  EXPECT_EQ(of("train", "pageable_out_bytes"), 0);
  EXPECT_EQ(serve.end(), 0) << serve.output();
  EXPECT_EQ(train.end(), 0) << train.output();
}

}  // namespace
}  // namespace qgpu::e2e::paging_test
