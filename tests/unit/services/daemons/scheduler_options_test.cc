// Flags, config file and defaults of qgpu-scheduler, and the one line that a bad one leads to.

#include "services/daemons/scheduler_options.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/testing/reference_page.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::scheduler_options_test {
namespace {

const Platform kRoot = {0, "host-1", "/root", "", ""};

std::variant<SchedulerDaemonOptions, ExitNow> parse(const std::vector<std::string>& flags,
                                                    const Platform& around = kRoot) {
  std::vector<const char*> argv = {"qgpu-scheduler"};
  for (const std::string& flag : flags) argv.push_back(flag.c_str());
  return parseSchedulerOptions(static_cast<int>(argv.size()), argv.data(), around);
}

SchedulerDaemonOptions good(const std::vector<std::string>& flags, const Platform& around = kRoot) {
  auto parsed = parse(flags, around);
  const auto* exit = std::get_if<ExitNow>(&parsed);
  EXPECT_EQ(exit, nullptr) << exit->text;
  return exit == nullptr ? std::get<SchedulerDaemonOptions>(parsed) : SchedulerDaemonOptions{};
}

TEST(SchedulerOptions, HaveTheDefaultsOfTheContract) {
  const SchedulerDaemonOptions o = good({});
  EXPECT_EQ(o.http, "127.0.0.1:12345");
  EXPECT_EQ(o.rpc, "127.0.0.1:12346");
  EXPECT_EQ(o.dbfile, "/var/lib/qgpu/scheduler.db");
  EXPECT_EQ(o.runDir, "/run/qgpu");
  EXPECT_EQ(o.priority, schema::Score::BINPACK);
  EXPECT_EQ(o.lease, seconds(15));
  EXPECT_FALSE(o.insecure);
  EXPECT_EQ(o.kubernetes, KubernetesChoice::Auto);
  EXPECT_TRUE(o.leaderElect);
}

TEST(SchedulerOptions, PortOfTheEnvironmentIsThatOfHttpUnlessAFlagSaysMore) {
  Platform around = kRoot;
  around.port = "8080";
  EXPECT_EQ(good({}, around).http, "127.0.0.1:8080");
  EXPECT_EQ(good({"--http=127.0.0.1:1"}, around).http, "127.0.0.1:1");
}

TEST(SchedulerOptions, TakeEveryFlag) {
  const SchedulerDaemonOptions o = good({"--priority=fgd",
                                         "--http=127.0.0.1:1",
                                         "--rpc=10.0.0.1:2",
                                         "--dbfile=/a",
                                         "--run-dir=/r",
                                         "--lease=3s",
                                         "--tls-cert=/c",
                                         "--tls-key=/k",
                                         "--tls-ca=/ca",
                                         "--insecure",
                                         "--log-level=debug",
                                         "--log-format=json",
                                         "--http-tls",
                                         "--resource-prefix=example.org",
                                         "--memory-unit=MiB",
                                         "--webhook=0.0.0.0:4",
                                         "--kubernetes=off",
                                         "--leader-elect=off",
                                         "--extender=0.0.0.0:5",
                                         "--extender-certs=/e",
                                         "--metrics=0.0.0.0:6",
                                         "--metrics-tls",
                                         "--web=0.0.0.0:7",
                                         "--web-token=/t",
                                         "--web-tls",
                                         "--record=/r",
                                         "--record-mib=7",
                                         "--replay=/s",
                                         "--until=2026-01-31T12:00:00.5Z",
                                         "--explain=12"});
  EXPECT_EQ(o.record, "/r");
  EXPECT_EQ(o.recordMib, 7);
  EXPECT_EQ(o.replay, "/s");
  EXPECT_EQ(o.untilUnixMs, 1'769'860'800'500);
  EXPECT_EQ(o.explain, 12u);
  EXPECT_EQ(o.metrics, "0.0.0.0:6");
  EXPECT_TRUE(o.metricsTls);
  EXPECT_EQ(o.web.address, "0.0.0.0:7");
  EXPECT_EQ(o.web.tokenFile, "/t");
  EXPECT_TRUE(o.web.tls);
  EXPECT_EQ(o.extenderCerts, "/e");
  EXPECT_EQ(o.extender, "0.0.0.0:5");
  EXPECT_FALSE(o.leaderElect);
  EXPECT_EQ(o.kubernetes, KubernetesChoice::Off);
  EXPECT_TRUE(o.httpTls);
  EXPECT_EQ(o.pods.prefix, "example.org");
  EXPECT_EQ(o.pods.unit, MemoryUnit::MiB);
  EXPECT_EQ(o.priority, schema::Score::FGD);
  EXPECT_EQ(o.rpc, "10.0.0.1:2");
  EXPECT_EQ(o.lease, seconds(3));
  EXPECT_EQ(o.webhook, "0.0.0.0:4");
  EXPECT_EQ(o.tlsCert + o.tlsKey + o.tlsCa, "/c/k/ca");
  EXPECT_TRUE(o.insecure);
  EXPECT_EQ(o.logLevel, LogLevel::Debug);
  EXPECT_EQ(o.logFormat, LogFormat::Json);
}

TEST(SchedulerOptions, ABadValueIsOneLineWithTheFlagAndTheFix) {
  const struct {
    const char* flag;
    const char* says;
  } kCases[] = {
      {"--priority=random", "--priority: 'random' is not valid; use binpack, spread or fgd"},
      {"--lease=10ms", "from 1s to 1h"},
      {"--http=here", "--http: 'here'"},
      {"--kubernetes=yes", "auto, on or off"},
      {"--web-tls", "--web-tls needs --tls-cert, --tls-key and --tls-ca"},
      {"--join=0.0.0.0:1", "--join needs --tls-cert, --tls-key, --tls-ca and --join-ca-key"},
      {"--leader-elect=yes", "on or off"},
      {"--record-mib=0", "--record-mib: '0' is not valid; use a number of MiB from 1 to"},
      {"--until=2026-01-31T12:00:00Z", "--until and --explain need --replay=PATH"},
      {"--explain=3", "--until and --explain need --replay=PATH"},
      {"--until=14:03", "use a time of UTC, as in 2026-01-31T12:00:00Z"},
      {"--explain=a", "use the number of a task"},
      {"--mixed", "--mixed"},
      {"--config=/nonexistent", "--config=/nonexistent: can't read it"},
  };
  for (const auto& expected : kCases) {
    const auto parsed = parse({expected.flag});
    const auto* exit = std::get_if<ExitNow>(&parsed);
    ASSERT_NE(exit, nullptr) << expected.flag;
    EXPECT_EQ(exit->code, 2);
    EXPECT_EQ(std::count(exit->text.begin(), exit->text.end(), '\n'), 1) << exit->text;
    EXPECT_TRUE(exit->text.starts_with("qgpu-scheduler: ")) << exit->text;
    EXPECT_NE(exit->text.find(expected.says), std::string::npos) << exit->text;
  }
}

TEST(SchedulerOptions, TheSampleIsWhatIsPrintedWithoutFlags) {
  const auto printed = std::get<ExitNow>(parse({"--print-config"}));
  testing::expectFile("deploy/packaging/qgpu-scheduler.toml", printed.text);
}

class SchedulerFile : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Forms, SchedulerFile,
    ::testing::Values("priority = 'spread'\ntls-ca = '/ca'\ninsecure = true",
                      R"((priority = "spread", tlsCa = "/ca", insecure = true))"));

TEST_P(SchedulerFile, IsReadBelowTheFlags) {
  const testing::TempFolder folder;
  const std::string file = folder.write("c", GetParam());
  const SchedulerDaemonOptions o = good({"--config=" + file, "--tls-ca=/mine"});
  EXPECT_EQ(o.priority, schema::Score::SPREAD);
  EXPECT_EQ(o.tlsCa, "/mine");
  EXPECT_TRUE(o.insecure);
}

}  // namespace
}  // namespace qgpu::scheduler_options_test
