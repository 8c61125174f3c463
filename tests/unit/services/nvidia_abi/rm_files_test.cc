// Descriptors of one open file, and when it is closed.

#include "services/nvidia_abi/rm_files.h"

#include <gtest/gtest.h>
#include <memory>
#include <set>

namespace qgpu::rm::rm_files_test {
namespace {

TEST(RmFiles, AFileIsClosedWithItsLastDescriptor) {
  auto files = std::make_unique<Files>();
  const std::uint32_t file = files->of(7);
  EXPECT_EQ(files->of(7), file);
  files->learn(9, file);
  EXPECT_EQ(files->of(9), file);
  EXPECT_EQ(files->closed(7), Files::kNone);
  EXPECT_EQ(files->descriptorOf(file), 9);
  EXPECT_EQ(files->closed(7), Files::kNone) << "not known any more";
  EXPECT_EQ(files->closed(9), file);
  EXPECT_FALSE(files->known(9));
  EXPECT_NE(files->of(9), file) << "another file";
}

TEST(RmFiles, ADescriptorIsOfOneFileOnly) {
  auto files = std::make_unique<Files>();
  const std::uint32_t one = files->of(3), other = files->of(4);
  EXPECT_NE(one, other);
  files->learn(3, other);
  EXPECT_EQ(files->descriptorOf(one), -1);
  EXPECT_EQ(files->closed(4), Files::kNone);
  EXPECT_EQ(files->closed(3), other);
}

TEST(RmFiles, ACardsDescriptorKeepsTheFileOpenThatItRefersTo) {
  auto files = std::make_unique<Files>();
  const std::uint32_t file = files->of(7);
  files->learn(8, file, Files::Way::kReference);
  files->duplicated(8, 9);
  files->duplicated(30, 31);
  EXPECT_FALSE(files->known(31));
  EXPECT_EQ(files->closed(7), Files::kNone);
  EXPECT_EQ(files->descriptorOf(file), -1) << "no calls of the file's own go through them";
  EXPECT_EQ(files->closed(8), Files::kNone);
  EXPECT_EQ(files->closed(9), file);
}

TEST(RmFiles, AllDescriptorsOfAFileThatHoldsMemoryAreVisited) {
  auto files = std::make_unique<Files>();
  const auto holding = [&] {
    std::set<int> all;
    files->eachThatHoldsMemory([&](int fd) { all.insert(fd); });
    return all;
  };
  const std::uint32_t file = files->of(7);
  files->learn(8, file, Files::Way::kReference);
  files->of(9);
  EXPECT_EQ(holding(), std::set<int>());
  files->holdsMemory(file);
  files->learn(10, file);
  EXPECT_EQ(holding(), (std::set<int>{7, 8, 10}));
  files->closed(8);
  EXPECT_EQ(holding(), (std::set<int>{7, 10}));
  files->holdsMemory(Files::kNone);
  EXPECT_EQ(holding(), (std::set<int>{7, 10}));
}

TEST(RmFiles, WhatHasNoRoomOrNoPlaceIsNotKnown) {
  auto files = std::make_unique<Files>();
  constexpr int kMost = Files::kMost;
  for (int fd = 0; fd < kMost; ++fd) EXPECT_NE(files->of(fd), Files::kNone);
  EXPECT_EQ(files->of(kMost), Files::kNone);
  EXPECT_FALSE(files->known(kMost));
  EXPECT_NE(files->closed(0), Files::kNone);
  EXPECT_NE(files->of(kMost), Files::kNone);
  for (const int fd : {-1, 65'536, 1 << 30}) {
    EXPECT_EQ(files->of(fd), Files::kNone);
    EXPECT_FALSE(files->known(fd));
    EXPECT_EQ(files->closed(fd), Files::kNone);
  }
  files->forget();
  EXPECT_FALSE(files->known(5));
}

}  // namespace
}  // namespace qgpu::rm::rm_files_test
