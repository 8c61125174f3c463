// Which cards a container's program may choose from, and what it chose itself.

#include "services/guest/gate/visible_cards.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "tests/testing/temp_folder.h"

namespace qgpu::guest::visible_cards_test {
namespace {

const std::string kOne = "GPU-5f1b1b0c-0000-4000-8000-000000000001";
const std::string kTwo = "GPU-7a2b1b0c-0000-4000-8000-000000000002";
const std::string kBoth = kOne + "," + kTwo;

std::string chosen(const char* asked, const std::string& own) {
  char out[kVisibleMax];
  return chooseCards(asked, own.c_str(), out, sizeof out) ? out : "does not fit";
}

TEST(VisibleCards, WhoDidNotChooseSeesAllCardsOfTheTask) {
  EXPECT_EQ(chosen(nullptr, kBoth), kBoth);
}

TEST(VisibleCards, ANumberCountsAmongTheCardsOfTheTask) {
  EXPECT_EQ(chosen("0", kBoth), kOne);
  EXPECT_EQ(chosen("1", kBoth), kTwo);
  EXPECT_EQ(chosen("1, 0", kBoth), kTwo + "," + kOne);
}

TEST(VisibleCards, AUuidStaysWhereItIsTheTasksAlsoCutShort) {
  EXPECT_EQ(chosen(kTwo.c_str(), kBoth), kTwo);
  EXPECT_EQ(chosen("GPU-7a2b", kBoth), kTwo);
  EXPECT_EQ(chosen(kBoth.c_str(), kBoth), kBoth) << "once more, in a child";
}

TEST(VisibleCards, WhatIsNoCardOfTheTaskIsNotSeenNorWhatFollowsIt) {
  for (const char* asked :
       {"", "2", "-1", "none", "GPU-", "GPU-ffffffff", "99999999999999", ",0"}) {
    EXPECT_EQ(chosen(asked, kBoth), "") << asked;
  }
  EXPECT_EQ(chosen("0,7,1", kBoth), kOne);
}

TEST(VisibleCards, NoListIsWrittenBeyondItsRoom) {
  char out[8];
  EXPECT_FALSE(chooseCards(nullptr, kOne.c_str(), out, sizeof out));
  EXPECT_FALSE(chooseCards("0", kOne.c_str(), out, sizeof out));
}

struct EnvironmentFile : ::testing::Test {
  EnvironmentFile() {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    ::unsetenv("NVIDIA_VISIBLE_DEVICES");
    ::setenv("QGPU_TOKEN_FILE", (dir / "core/token:" + dir / "memory/token").c_str(), 1);
    std::filesystem::create_directories(dir / "memory");
  }
  ~EnvironmentFile() override { ::unsetenv("QGPU_TOKEN_FILE"); }
  void write(const std::string& text) { std::ofstream(dir / "memory/environment") << text; }
  static std::string value(const char* name) {
    const char* is = ::getenv(name);
    return is == nullptr ? "not set" : is;
  }
  const testing::TempFolder dir{"cards"};
};

TEST_F(EnvironmentFile, IsAppliedFromBesideTheTokenThatIsThere) {
  write("CUDA_VISIBLE_DEVICES=" + kBoth + "\nNVIDIA_VISIBLE_DEVICES=" + kBoth + "\n");
  applyEnvironmentFile();
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), kBoth);
  EXPECT_EQ(value("NVIDIA_VISIBLE_DEVICES"), kBoth);
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);  // as a launcher of two processes does
  applyEnvironmentFile();
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), kTwo);
}

TEST_F(EnvironmentFile, OfCardsOfAnotherVendorOrNoneChangesNothing) {
  applyEnvironmentFile();
  write("");
  applyEnvironmentFile();
  write("nonsense\n=\n");
  applyEnvironmentFile();
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "not set");
}

}  // namespace
}  // namespace qgpu::guest::visible_cards_test
