// Memory of the card that several processes of a task hold, under a real manager: it counts as long
// as one of them lives, whoever is killed and whatever becomes of the manager meanwhile, and not a
// byte beyond the quota is had. The card is imagined; the kernel's driver is a stand-in, whose own
// count of what is held is what everything here is compared with.

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "runtime/fd.h"
#include "tests/e2e/harness.h"
#include "tests/rm_stand_in/test_driver.h"

namespace qgpu::e2e::shared_memory_test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20, kQuota = 1024 * kMiB;
constexpr const char* kDone = "0 0";
constexpr const char* kNoMemory = "0 81";

std::uint64_t held() {
  return rm_stand_in::heldBytes(rm_stand_in::driver());
}

// A program in a task that obeys line by line, through a pipe, and answers into a file.
class Program {
 public:
  Program(const std::string& folder, const std::string& name) : in_(folder + "/" + name) {
    EXPECT_EQ(mkfifo(in_.c_str(), 0600), 0);
  }
  // What a shell starts it with.
  std::string start() const {
    const std::string files = in_ + " > " + in_ + ".out 2> " + in_ + ".err";
    return "\"$CUDA\" < " + files + " & echo $! > " + in_ + ".pid\n";
  }
  void begin() {
    to_.reset(::open(in_.c_str(), O_WRONLY | O_CLOEXEC));  // a manager started later has none of it
    EXPECT_EQ(ask("init"), "0");
    EXPECT_EQ(ask("rm open 0"), "ok");
    const std::string made = ask("rm alloc 0 0 0 0 65 0");
    client_ = made.substr(made.rfind(' ') + 1);
  }
  std::string ask(const std::string& words) {
    const std::string line = words + "\n";
    EXPECT_EQ(::write(to_.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    asked_++;
    EXPECT_TRUE(eventually([&] { return lines().size() >= asked_; })) << words;
    const auto all = lines();
    return all.size() >= asked_ ? all[asked_ - 1] : "";
  }
  // An object of its client, with so much of the card.
  std::string allocate(int object, std::uint64_t bytes) {
    const std::string made = ask("rm alloc 0 " + client_ + " " + client_ + " " +
                                 std::to_string(object) + " 64 " + std::to_string(bytes));
    return made.substr(0, made.rfind(' '));
  }
  std::string take(const Program& from, int object, int as) {
    return ask("rm dupobject 0 " + client_ + " " + client_ + " " + std::to_string(as) + " " +
               from.client_ + " " + std::to_string(object));
  }
  std::string letGo(int object) {
    return ask("rm free 0 " + client_ + " " + std::to_string(object));
  }
  // It is dead when this returns, though the manager may not have heard of it.
  void kill() {
    pid_t pid = 0;
    std::ifstream(in_ + ".pid") >> pid;
    EXPECT_EQ(::kill(pid, SIGKILL), 0);
    EXPECT_TRUE(eventually([&] { return ended(pid); }));
  }
  void end() { to_.reset(); }

 private:
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::ifstream from(in_ + ".out");
    for (std::string line; std::getline(from, line);) {
      if (!from.eof()) all.push_back(line);
    }
    return all;
  }
  // A process that its shell has not waited for has no files any more.
  static bool ended(pid_t pid) {
    const std::string fd = "/proc/" + std::to_string(pid) + "/fd";
    std::error_code failed;
    return std::filesystem::directory_iterator(fd, failed) == std::filesystem::directory_iterator();
  }

  std::string in_, client_;
  Fd to_;
  std::size_t asked_ = 0;
};

class SharedMemory : public ::testing::Test {
 protected:
  SharedMemory() {
    Environment more = rm_stand_in::drivers();
    more["CUDA"] = binary("cuda_program");
    task_ = manager_.runTask({"--name", "tenant", "--memory", "1", "--", "sh", "-c",
                              a_.start() + b_.start() + c_.start() + "wait"},
                             more);
    for (Program* each : {&a_, &b_, &c_}) each->begin();
    base_ = held() / 3;
    EXPECT_EQ(held(), 3 * base_);
    EXPECT_TRUE(counts(0));
  }
  ~SharedMemory() override {
    for (Program* each : {&a_, &b_, &c_}) each->end();
    task_->wait();
  }
  // Beyond what so many programs have for themselves.
  bool counts(std::uint64_t bytes, std::uint64_t programs = 3) {
    const std::uint64_t all = programs * base_ + bytes;
    EXPECT_TRUE(eventually([&] { return held() == all; })) << held() << " in the driver";
    const bool told = eventually([&] { return used() == all; });
    EXPECT_TRUE(told) << used() << " and not " << all;
    return told;
  }
  std::uint64_t used() {
    const Json task = manager_.task("tenant");
    return task.is_null() ? 0 : task["mem_used_bytes"].get<std::uint64_t>();
  }
  // All the rest is had, and not a byte more.
  void expectFull(Program& by) {
    EXPECT_EQ(by.allocate(70, kQuota - used()), kDone);
    EXPECT_EQ(by.allocate(71, 1), kNoMemory);
    EXPECT_EQ(held(), kQuota);
    EXPECT_EQ(by.letGo(70), kDone);
  }

  TempFolder folder_;
  Manager manager_{{"--cards=sim:1x16"}};
  Program a_{folder_.path(), "a"}, b_{folder_.path(), "b"}, c_{folder_.path(), "c"};
  std::unique_ptr<Child> task_;
  std::uint64_t base_ = 0;
};

TEST_F(SharedMemory, A14_WhatOthersHoldOfAKilledProcesssMemoryCounts) {
  EXPECT_EQ(a_.allocate(7, 400 * kMiB), kDone);
  EXPECT_EQ(a_.allocate(8, 100 * kMiB), kDone);
  EXPECT_EQ(b_.take(a_, 7, 9), kDone);
  EXPECT_EQ(c_.take(a_, 7, 9), kDone);
  counts(500 * kMiB);
  a_.kill();
  counts(400 * kMiB, 2);
  expectFull(c_);
  EXPECT_EQ(b_.letGo(9), kDone);
  counts(400 * kMiB, 2);
  expectFull(b_);
  c_.kill();
  counts(0, 1);
  expectFull(b_);
}

TEST_F(SharedMemory, A14_WhatItsOwnerFreedFirstCountsUntilItsLastHolderIsDead) {
  EXPECT_EQ(a_.allocate(7, 400 * kMiB), kDone);
  EXPECT_EQ(b_.take(a_, 7, 9), kDone);
  EXPECT_EQ(a_.letGo(7), kDone);
  counts(400 * kMiB);
  expectFull(a_);
  a_.end();  // it exits by itself
  counts(400 * kMiB, 2);
  b_.kill();
  counts(0, 1);
  expectFull(c_);
}

TEST_F(SharedMemory, A14_ItCountsOverTheDeathAndTheReturnOfTheManager) {
  EXPECT_EQ(a_.allocate(7, 400 * kMiB), kDone);
  EXPECT_EQ(b_.take(a_, 7, 9), kDone);
  manager_.kill();
  a_.kill();
  EXPECT_EQ(c_.allocate(70, kQuota - 400 * kMiB - 2 * base_), kNoMemory)
      << "until somebody says that it is dead, its own counts too";
  manager_.start();
  counts(400 * kMiB, 2);
  expectFull(c_);
  EXPECT_EQ(b_.letGo(9), kDone);
  counts(0, 2);
}

}  // namespace
}  // namespace qgpu::e2e::shared_memory_test
