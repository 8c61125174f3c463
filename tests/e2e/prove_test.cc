// A report of a real card: what is written, what it says, and whom it convinces.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "tests/e2e/harness.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::e2e::prove_test {
namespace {

const std::vector<std::string> kCpuCard = {"--cards=opencl", "--mixed", "--max-tasks-per-card=8"};

struct Prove : ::testing::Test {
  testing::Finished prove(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {binary("qgpuctl"), "--socket", manager.socket(), "prove"});
    return testing::run(arguments);
  }
  std::string at(const std::string& name) const { return made.path() + "/" + name; }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  testing::Finished verify() {
    return prove({"--verify", at("report.json"), "--allowed-signers", at("signers")});
  }
  // By ssh-keygen: a key, and who may sign with it.
  void makeKey() {
    const auto key = testing::run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at("key")});
    ASSERT_EQ(key.status, 0) << key.output;
    std::ofstream(at("signers")) << "me@host " << read(at("key.pub"));
  }
  static std::string verdictOf(const Json& report, const std::string& id) {
    for (const Json& promise : report["promises"]) {
      if (promise["id"] == id) return promise["verdict"];
    }
    return "none";
  }

  const testing::TempFolder made{"prove"};
  Manager manager{kCpuCard};
};

// What depends on how fast everything is may miss on a busy machine; it has its figures all the
// same. The rest is so or not.
TEST_F(Prove, QuicklySaysWhatHoldsAndIsSigned) {
  makeKey();
  ASSERT_TRUE(manager.ask("policy all burst-share")["ok"]);
  const auto quick = prove({"--quick", "--dir", at("."), "--sign", at("key")});
  ASSERT_TRUE(quick.status == 0 || quick.status == 1) << quick.output;
  const Json report = Json::parse(read(at("report.json")));
  EXPECT_EQ(report["schema"], 1);
  EXPECT_EQ(report["head"]["card"], manager.cards()[0]["id"]);
  EXPECT_EQ(report["head"]["isolation"], "library");
  EXPECT_NE(report["head"]["driver"], "");
  const std::vector<std::string> ids = {"quota",        "share-30",      "share-60", "latency-1ms",
                                        "latency-10ms", "latency-100ms", "release",  "resume",
                                        "kill-holding", "kill-held",     "escape"};
  ASSERT_EQ(report["promises"].size(), ids.size()) << quick.output;
  bool all = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Json& promise = report["promises"][i];
    EXPECT_EQ(promise["id"], ids[i]);
    EXPECT_FALSE(promise["figures"].empty()) << promise;
    EXPECT_EQ(promise["why"] == "", promise["verdict"] == "proven") << promise;
    all = all && promise["verdict"] != "not proven";
  }
  EXPECT_EQ(quick.status, all ? 0 : 1) << quick.output;
  EXPECT_EQ(verdictOf(report, "quota"), "proven") << quick.output;
  EXPECT_EQ(verdictOf(report, "resume"), "proven") << quick.output;
  EXPECT_EQ(verdictOf(report, "kill-held"), "proven") << quick.output;
  EXPECT_EQ(verdictOf(report, "escape"), "weaker") << quick.output;
  EXPECT_NE(read(at("report.md")).find("(latency.svg)"), std::string::npos);
  EXPECT_TRUE(read(at("shares.svg")).starts_with("<svg"));
  EXPECT_EQ(manager.cards()[0]["policy"], "burst-share") << "as it was";
  EXPECT_EQ(manager.cards()[0]["report"], at("report.json"));
  EXPECT_EQ(manager.cards()[0]["driver"], report["head"]["driver"]);
  const bool holds = quick.status == 0;  // nothing is not proven
  EXPECT_TRUE(eventually([&] {
    return manager.ask("events 0").dump().find(holds ? "its report holds" : "are not proven") !=
           std::string::npos;
  })) << manager.ask("events 0");
  EXPECT_EQ(manager.cards()[0].contains("report_unix_ms"), holds);
  EXPECT_TRUE(manager.tasks().empty());

  const auto good = verify();
  EXPECT_EQ(good.status, quick.status) << good.output;
  EXPECT_NE(good.output.find("signed by me@host"), std::string::npos) << good.output;

  std::string page = read(at("report.md"));
  std::ofstream(at("report.md")) << page << "and more";
  const auto other = verify();
  EXPECT_EQ(other.status, 3) << other.output;
  EXPECT_NE(other.output.find("report.md is not the page of"), std::string::npos) << other.output;
  std::ofstream(at("report.md")) << page;

  std::string json = read(at("report.json"));
  json.replace(json.find("\"weaker\""), 8, "\"proven\"");
  std::ofstream(at("report.json")) << json;
  const auto changed = verify();
  EXPECT_EQ(changed.status, 3) << changed.output;
  EXPECT_NE(changed.output.find("is not what me@host signed"), std::string::npos) << changed.output;
}

TEST_F(Prove, NeedsTheCardAloneAndNamesWhoIsThere) {
  auto tenant = manager.runTask({"--name", "train", "--", "sleep", "1000"});
  ASSERT_TRUE(eventually([&] { return !manager.task("train").is_null(); }));
  const auto refused = prove({"--dir", at("none")});
  EXPECT_EQ(refused.status, 3) << refused.output;
  EXPECT_NE(refused.output.find("has tasks: 1 (train)"), std::string::npos) << refused.output;
  EXPECT_FALSE(std::filesystem::exists(at("none")));
  EXPECT_FALSE(manager.task("train").is_null());
}

TEST_F(Prove, IsToldWhatIsWrongWithItsUse) {
  const auto wrong = [&](std::vector<std::string> arguments, const char* said) {
    const auto got = prove(std::move(arguments));
    EXPECT_EQ(got.status, 2) << got.output;
    EXPECT_NE(got.output.find(said), std::string::npos) << got.output;
  };
  std::ofstream(at("report.json")) << "{}";
  wrong({"--only", "shares"}, "\"shares\" is none of quota, share, online, kill, escape");
  wrong({"--sign", at("none")}, "none can't be read: No such file");
  wrong({"--verify", at("report.json")}, "--allowed-signers");
  wrong({"--verify", at("report.json"), "--allowed-signers", at("report.json"), "--quick"},
        "exclude each other");
  const auto unknown = prove({"--card", "7", "--dir", at("out")});
  EXPECT_EQ(unknown.status, 3) << unknown.output;
  EXPECT_NE(unknown.output.find("there is no card \"7\""), std::string::npos) << unknown.output;
}

}  // namespace
}  // namespace qgpu::e2e::prove_test
