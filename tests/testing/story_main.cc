#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <string_view>

#include "tests/testing/run_tests.h"
#include "tests/testing/story.h"

namespace qgpu::testing {
namespace {

constexpr int kUsage = 2;

std::map<std::string, Before::Enter>& entries() {
  static std::map<std::string, Before::Enter> all;
  return all;
}

// Of each story a filter of its tests.
std::map<std::string, std::string> filters() {
  constexpr std::string_view kEnd = "_test";
  std::map<std::string, std::string> all;
  const ::testing::UnitTest& every = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < every.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *every.GetTestSuite(i);
    for (int n = 0; n < suite.total_test_count(); ++n) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(n);
      std::string story = std::filesystem::path(test.file()).stem();
      story.resize(story.size() - std::min(story.size(), kEnd.size()));
      std::string& filter = all[story];
      filter += (filter.empty() ? "" : ":") + std::string(suite.name()) + "." + test.name();
    }
  }
  return all;
}

int usage(const char* program) {
  std::cerr << "usage: " << program << " STORY [GoogleTest's options]; stories:";
  for (const auto& [story, filter] : filters()) std::cerr << " " << story;
  std::cerr << std::endl;
  return kUsage;
}

int runStory(const std::string& story, int argc, char** argv) {
  if (const auto entry = entries().find(story); entry != entries().end()) {
    const std::string why = entry->second(argv);
    if (!why.empty()) {
      std::cout << "skipped: " << why << std::endl;
      return kSkipped;
    }
  }
  ::testing::InitGoogleTest(&argc, argv);
  const auto its = filters();
  const auto filter = its.find(story);
  if (argc != 2 || filter == its.end()) return usage(argv[0]);
  std::string& asked = ::testing::GTEST_FLAG(filter);
  if (asked == "*") asked = filter->second;
  if (asked.starts_with('-')) asked.insert(0, filter->second);
  return runTests();
}

}  // namespace

Before::Before(const char* story, Enter enter) {
  entries().emplace(story, enter);
}

}  // namespace qgpu::testing

int main(int argc, char** argv) {
  return qgpu::testing::runStory(argc > 1 ? argv[1] : "", argc, argv);
}
