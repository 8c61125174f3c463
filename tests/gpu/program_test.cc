// qgpu-test-gpu as a program, on the stand-in: the pages that it leaves, and what it says.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <regex>
#include <signal.h>
#include <sys/stat.h>

#include "services/prove/judge.h"
#include "services/prove/prove.h"
#include "tests/testing/child_process.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::gpu {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using testing::Child;
using testing::Finished;
using Arguments = std::vector<std::string>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class TestGpu : public ::testing::Test {
 protected:
  Arguments line(Arguments words) const {
    words.insert(words.begin(), {program_, "--results", results_});
    return words;
  }
  Finished run(Arguments words, seconds limit = seconds(60)) const {
    return testing::run(line(std::move(words)), environment_, limit);
  }

  // The names of the pages with what they say.
  std::map<std::string, std::string> pages() const {
    std::map<std::string, std::string> all;
    if (!fs::exists(results_)) return all;
    for (const auto& entry : fs::directory_iterator(results_)) {
      if (entry.path().extension() != ".md") continue;
      std::ifstream file(entry.path());
      all[entry.path().filename()].assign(std::istreambuf_iterator<char>(file), {});
    }
    return all;
  }

  // The processes that it has or left, with their names. They are known by their environment.
  std::map<pid_t, std::string> processes() const {
    std::map<pid_t, std::string> all;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::ifstream environment(entry.path() / "environ"), comm(entry.path() / "comm");
      const std::string text(std::istreambuf_iterator<char>(environment), {});
      std::string name;
      if (has(text, folder_.path()) && std::getline(comm, name)) {
        all[std::stoi(entry.path().filename())] = name;
      }
    }
    return all;
  }
  std::ptrdiff_t count(const std::string& name) const {
    const auto all = processes();
    return std::count_if(all.begin(), all.end(), [&](const auto& p) { return p.second == name; });
  }

  // From here on it is a copy of the program, whose tenants are this script.
  void useTenant(const std::string& script) {
    const std::string bin = folder_.path() + "/bin";
    fs::create_directory(bin);
    program_ = bin + "/qgpu-test-gpu";
    fs::copy_file(testing::binary("qgpu-test-gpu"), program_);
    std::ofstream(bin + "/qgpu-gpu-work") << "#!/bin/sh\n" << script;
    ::chmod((bin + "/qgpu-gpu-work").c_str(), 0755);
  }

  testing::TempFolder folder_;
  std::string results_ = folder_.path() + "/more/results";
  std::string program_ = testing::binary("qgpu-test-gpu");
  testing::Environment environment_ = {{"LD_LIBRARY_PATH", QGPU_STAND_IN_DIR},
                                       {"OF_THE_TEST_IN", folder_.path()}};
};

TEST_F(TestGpu, ARunThatIsCutOffLeavesWhatItFound) {
  Child child(line({"--quick", "hook", "latency"}), environment_);
  ASSERT_TRUE(testing::eventually([&] { return !pages().empty(); }, seconds(60))) << child.output();
  child.signal(SIGKILL);
  EXPECT_EQ(child.wait(), 128 + SIGKILL) << child.output();
  ASSERT_EQ(pages().size(), 1u);
  const std::string page = pages().begin()->second;
  EXPECT_TRUE(has(page, "\n| an empty launch |")) << page;
  EXPECT_TRUE(has(page, "- It took: hook ")) << page;
  EXPECT_TRUE(has(page, "- Not run yet: latency\n")) << page;
}

TEST_F(TestGpu, ARunThatIsCutOffLeavesNobodyOnTheCard) {
  Child child(line({"--quick", "shares"}), environment_);
  const auto four = [&] { return count("sh") == 1 && count("qgpu-gpu-work") == 4; };
  ASSERT_TRUE(testing::eventually(four, seconds(60))) << child.output();
  child.signal(SIGKILL);  // to it alone
  child.wait();
  EXPECT_TRUE(testing::eventually([&] { return processes().empty(); }))
      << ::testing::PrintToString(processes());
  for (const auto& [pid, name] : processes()) ::kill(pid, SIGKILL);
}

TEST_F(TestGpu, APageIsNamedForWhatWasAskedSoThatAPartReplacesNoWhole) {
  const Finished all = run({"--quick", "--suspends", "gate", "hook"});
  EXPECT_EQ(all.status, 0) << all.output;
  ASSERT_EQ(pages().size(), 1u);
  const auto [name, page] = *pages().begin();
  const std::regex wanted("stand-in-gpu-\\d{4}-\\d\\d-\\d\\d-quick-suspends-gate-hook\\.md");
  EXPECT_TRUE(std::regex_match(name, wanted)) << name;
  EXPECT_TRUE(has(page, "`./dev test-gpu --quick --suspends gate hook`")) << page;
  EXPECT_FALSE(has(page, "Not run yet")) << page;
}

TEST_F(TestGpu, WhateverACheckMeetsIsAFindingAndTheNextCheckRuns) {
  useTenant("echo '{\"spin_per_ms\":\"much\",\"mix_per_ms\":1}'");
  const Finished both = run({"hook", "late"});
  EXPECT_EQ(both.status, 1) << both.output;
  EXPECT_TRUE(has(both.output, R"({"check":"hook","verdict":"failed","why":"[json)"))
      << both.output;
  EXPECT_TRUE(has(both.output, R"({"check":"late","verdict":"failed","why":"[json)"))
      << both.output;
}

TEST_F(TestGpu, WhatAProgramPrintedBreaksNeitherTheLineNorTheRow) {
  useTenant("echo one; printf 'two | three\\377'; exit 3");
  const Finished failed = run({"hook"});
  EXPECT_EQ(failed.status, 1);
  EXPECT_TRUE(has(failed.output, "ended with 3: one\\ntwo | three\xEF\xBF\xBD\"")) << failed.output;
  ASSERT_EQ(pages().size(), 1u);
  const std::string page = pages().begin()->second;
  EXPECT_TRUE(has(page, "ended with 3: one two / three\377 | failed |\n")) << page;
}

TEST_F(TestGpu, AReportHasWhatWasPromisedAndForWhomItHolds) {
  const std::string folder = folder_.path() + "/report";
  const std::string key = folder_.path() + "/key";
  ASSERT_EQ(testing::run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key}).status, 0);
  const Finished told = run({"--quick", "--report", folder, "--sign", key, "hook"});
  EXPECT_EQ(told.status, 0) << told.output;
  EXPECT_TRUE(has(told.output, "in " + folder + "/report.json\n")) << told.output;
  const auto report = prove::readReportFile(folder + "/report.json");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->head.model, "Stand-in GPU");
  EXPECT_EQ(report->head.suspend, "gate");
  EXPECT_EQ(report->head.isolation, "library");
  EXPECT_NE(report->head.realtime, "");
  EXPECT_EQ(report->head.command, "./dev test-gpu --report FOLDER --quick hook");
  ASSERT_EQ(report->promises.size(), 1u);
  EXPECT_EQ(report->promises[0].id, "an-empty-launch");
  EXPECT_EQ(report->promises[0].again, "./dev test-gpu hook");
  EXPECT_EQ(report->promises[0].verdict, prove::Verdict::NotProven) << "a quick run proves nothing";
  EXPECT_TRUE(fs::exists(folder + "/report.md"));
  EXPECT_TRUE(fs::exists(folder + "/report.json.sig"));
}

TEST_F(TestGpu, AReportIsDrawnAndNamesTheWeakerRung) {
  const std::string folder = folder_.path() + "/report";
  const Finished told =
      run({"--quick", "--suspends", "gate", "--report", folder, "shares", "starts", "suspends"},
          seconds(240));
  EXPECT_EQ(told.status, 0) << told.output;
  EXPECT_TRUE(fs::exists(folder + "/latency.svg")) << told.output;
  EXPECT_TRUE(fs::exists(folder + "/shares.svg")) << told.output;
  const auto report = prove::readReportFile(folder + "/report.json");
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->curves.size(), 3u);
  EXPECT_EQ(report->curves[2].kernelMs, 100);
  std::map<std::string, prove::Promise> promises;
  for (const prove::Promise& promise : report->promises) promises[promise.id] = promise;
  EXPECT_EQ(promises["latency-100ms"].again, "./dev test-gpu starts");
  EXPECT_EQ(promises["latency-100ms"].verdict, prove::Verdict::NotProven) << "a quick run";
  const prove::Promise& share = promises["share-20"];
  ASSERT_NE(share.figure("wanted_permille"), nullptr) << told.output;
  EXPECT_EQ(share.figure("wanted_permille")->value, 200);
  EXPECT_GT(share.figure("work_permille")->value, 0);
  EXPECT_EQ(share.figure("wrong_items"), nullptr) << "nobody looked at them";
  const prove::Promise& held = promises["results-after-many-holds"];
  EXPECT_EQ(held.verdict, prove::Verdict::Weaker) << told.output;
  EXPECT_EQ(held.why, prove::weakerHeldBy("gate"));
}

TEST_F(TestGpu, AKeyThatCantBeReadIsToldBeforeTheFirstCheck) {
  const std::string folder = folder_.path() + "/report", key = folder_.path() + "/none";
  const Finished refused = run({"--quick", "--report", folder, "--sign", key, "hook"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.output,
            "qgpu-test-gpu: the key " + key + " can't be read (No such file or directory)\n");
}

TEST_F(TestGpu, NonsenseIsRefusedByItsName) {
  const std::pair<Arguments, std::string> kRows[] = {
      {{"--suspends", "foo", "hook"}, "--suspends is rm or gate, not 'foo'\n"},
      {{"hook", "--suspends"}, "nothing stands after --suspends\n"},
      {{"hook", "--sign", "key"}, "--sign is of a --report\n"},
      {{"hook", "hooks"}, "'hooks' is no check\n"},
  };
  for (const auto& [words, wanted] : kRows) {
    const Finished refused = run(words);
    EXPECT_EQ(refused.status, 2) << wanted;
    EXPECT_TRUE(refused.output.starts_with("qgpu-test-gpu: " + wanted)) << refused.output;
    EXPECT_TRUE(has(refused.output, "\n  together ")) << refused.output;
  }
  EXPECT_TRUE(pages().empty());
}

TEST_F(TestGpu, AFolderThatCantBeMadeIsToldBeforeTheFirstCheck) {
  std::ofstream(folder_.path() + "/more") << "a file";
  const Finished refused = run({"--quick", "hook"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.output, "qgpu-test-gpu: nothing can be written in " + results_ +
                                " (Not a directory): name another folder\n");
}

TEST_F(TestGpu, DevTellsItsHelpWithoutABuild) {
  const Finished told = testing::run({program_, "--help"});
  EXPECT_TRUE(has(told.output, "\n  interference ")) << told.output;
  const std::string nowhere = folder_.path() + "/build";
  for (const Arguments& words :
       {Arguments{"--help"}, Arguments{"-h"}, Arguments{"help"}, Arguments{"hook", "--help"}}) {
    Arguments dev = {QGPU_SOURCE_ROOT "/dev", "test-gpu"};
    dev.insert(dev.end(), words.begin(), words.end());
    const Finished help = testing::run(dev, {{"BUILD", nowhere}});
    EXPECT_EQ(help.status, 0) << words.back();
    EXPECT_EQ(help.output, told.output) << words.back();
  }
  EXPECT_FALSE(fs::exists(nowhere));
}

}  // namespace
}  // namespace qgpu::gpu
