// Flags, config file and defaults of qgpu-manager, and the one line that a bad one leads to.

#include "services/daemons/options.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/testing/reference_page.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::options_test {
namespace {

const Platform kRoot = {0, "host-1", "/root", "", ""};

class OptionsTest : public ::testing::Test {
 protected:
  std::variant<ManagerOptions, ExitNow> parse(std::vector<std::string> flags,
                                              const Platform& around = kRoot) {
    std::vector<const char*> argv = {"qgpu-manager"};
    for (const std::string& flag : flags) argv.push_back(flag.c_str());
    return parseManagerOptions(static_cast<int>(argv.size()), argv.data(), around);
  }
  ManagerOptions good(std::vector<std::string> flags, const Platform& around = kRoot) {
    auto parsed = parse(std::move(flags), around);
    const auto* exit = std::get_if<ExitNow>(&parsed);
    EXPECT_EQ(exit, nullptr) << exit->text;
    return exit == nullptr ? std::get<ManagerOptions>(parsed) : ManagerOptions{};
  }
  // The one line of a refusal.
  std::string refused(std::vector<std::string> flags, const Platform& around = kRoot) {
    auto parsed = parse(std::move(flags), around);
    const auto* exit = std::get_if<ExitNow>(&parsed);
    if (exit == nullptr) return "accepted";
    EXPECT_EQ(exit->code, 2);
    EXPECT_EQ(std::count(exit->text.begin(), exit->text.end(), '\n'), 1) << exit->text;
    EXPECT_TRUE(exit->text.starts_with("qgpu-manager: ")) << exit->text;
    return exit->text;
  }
  std::string file(const std::string& text) {
    std::ofstream(folder_ + "/config") << text;
    return "--config=" + folder_ + "/config";
  }

  const testing::TempFolder made_;
  const std::string folder_ = made_.path();
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(OptionsTest, HasTheDefaultsOfTheContract) {
  const ManagerOptions o = good({});
  EXPECT_EQ(o.nodename, "host-1");
  EXPECT_EQ(o.dbfile, "/var/lib/qgpu/meta.db");
  EXPECT_EQ(o.runDir, "/run/qgpu");
  EXPECT_EQ(o.http, "127.0.0.1:12347");
  EXPECT_EQ(o.rpc, "");
  EXPECT_EQ(o.policy, schema::Policy::BEST_EFFORT);
  EXPECT_EQ(o.cards.backend, "auto");
  EXPECT_FALSE(o.mixed);
  EXPECT_FALSE(o.strict);
  EXPECT_EQ(o.maxTasksPerCard, 0u);
  EXPECT_EQ(o.onlineIdle, millis(100));
  EXPECT_EQ(o.slice, (DurationRange{millis(2), millis(30)}));
  EXPECT_EQ(o.logLevel, LogLevel::Info);
  EXPECT_EQ(o.cards.suspend, SuspendChoice::Auto);
  EXPECT_EQ(o.realtime, RealtimeChoice::Auto);
  EXPECT_TRUE(o.timeslices);
  EXPECT_EQ(o.kubelet, KubeletChoice::Auto);
  EXPECT_EQ(o.kubeletDir, "/var/lib/kubelet");
  EXPECT_EQ(o.cdi, "off");
  EXPECT_FALSE(o.labelNode);
  EXPECT_EQ(o.reportSigners, "");
  EXPECT_EQ(o.pods.prefix, "tke.cloud.tencent.com");
  EXPECT_EQ(o.pods.unit, MemoryUnit::GiB);
}

TEST_F(OptionsTest, PutsTheFilesOfAUserWhereAUserMayWrite) {
  const ManagerOptions xdg = good({}, {7, "h", "/home/u", "/run/user/7", "/home/u/state"});
  EXPECT_EQ(xdg.runDir, "/run/user/7/qgpu");
  EXPECT_EQ(xdg.dbfile, "/home/u/state/qgpu/meta.db");
  const ManagerOptions home = good({}, {7, "h", "/home/u", "", ""});
  EXPECT_EQ(home.runDir, "/tmp/qgpu-7");
  EXPECT_EQ(home.dbfile, "/home/u/.local/state/qgpu/meta.db");
  EXPECT_EQ(good({}, {7, "h", "", "", ""}).dbfile, "/tmp/qgpu-7/meta.db");
}

TEST_F(OptionsTest, TakesEveryFlag) {
  const ManagerOptions o = good({"--nodename=n",
                                 "--dbfile",
                                 "/d/b",
                                 "--policy=fs",
                                 "--cards=sim:8x32",
                                 "--mixed",
                                 "--strict",
                                 "--max-tasks-per-card=16",
                                 "--overcommit=0.25",
                                 "--online-idle=50ms",
                                 "--slice=1ms..5ms",
                                 "--run-dir=/r",
                                 "--http=0.0.0.0:0",
                                 "--rpc=[::1]:9",
                                 "--web=[::1]:8",
                                 "--web-token=/t",
                                 "--log-level=debug",
                                 "--log-format=json",
                                 "--suspend=freeze",
                                 "--realtime=off",
                                 "--timeslices=off",
                                 "--kubelet=on",
                                 "--kubelet-dir=/k",
                                 "--kubelet-config=/c",
                                 "--cdi=/etc/cdi",
                                 "--label-node",
                                 "--report-signers=/s",
                                 "--resource-prefix=example.org",
                                 "--memory-unit=MiB"});
  EXPECT_EQ(o.nodename, "n");
  EXPECT_EQ(o.dbfile, "/d/b");
  EXPECT_EQ(o.policy, schema::Policy::FIXED_SHARE);
  EXPECT_EQ(o.cards.backend, "sim");
  EXPECT_EQ(o.cards.sim, (SimCards{8, gibibytes(32)}));
  EXPECT_TRUE(o.mixed);
  EXPECT_TRUE(o.strict);
  EXPECT_EQ(o.maxTasksPerCard, 16u);
  EXPECT_EQ(o.overcommit, Permille(250));
  EXPECT_EQ(o.onlineIdle, millis(50));
  EXPECT_EQ(o.slice, (DurationRange{millis(1), millis(5)}));
  EXPECT_EQ(o.runDir, "/r");
  EXPECT_EQ(o.http, "0.0.0.0:0");
  EXPECT_EQ(o.rpc, "[::1]:9");
  EXPECT_EQ(o.web.address, "[::1]:8");
  EXPECT_EQ(o.web.tokenFile, "/t");
  EXPECT_EQ(o.logLevel, LogLevel::Debug);
  EXPECT_EQ(o.logFormat, LogFormat::Json);
  EXPECT_EQ(o.cards.suspend, SuspendChoice::Freeze);
  EXPECT_EQ(o.realtime, RealtimeChoice::Off);
  EXPECT_FALSE(o.timeslices);
  EXPECT_EQ(o.kubelet, KubeletChoice::On);
  EXPECT_EQ(o.kubeletDir, "/k");
  EXPECT_EQ(o.kubeletConfig, "/c");
  EXPECT_EQ(o.cdi, "/etc/cdi");
  EXPECT_TRUE(o.labelNode);
  EXPECT_EQ(o.reportSigners, "/s");
  EXPECT_EQ(o.pods.prefix, "example.org");
  EXPECT_EQ(o.pods.unit, MemoryUnit::MiB);
}

TEST_F(OptionsTest, TakesTheLastOfARepeatedFlag) {
  EXPECT_EQ(good({"--policy=fs", "--policy=bs"}).policy, schema::Policy::BURST_SHARE);
}

TEST_F(OptionsTest, NamesTheFlagTheValueAndTheFix) {
  const struct {
    const char* flag;
    const char* fix;
  } cases[] = {
      {"--policy=greedy", "best-effort (be)"},
      {"--cards=tpu", "sim:8x32"},
      {"--cards=sim:0x1", "sim:8x32"},
      {"--max-tasks-per-card=0", "auto or a number"},
      {"--max-tasks-per-card=many", "auto or a number"},
      {"--overcommit=half", "as in 0.5"},
      {"--overcommit=.5", "as in 0.5"},
      {"--overcommit=1.", "as in 0.5"},
      {"--overcommit=-0.5", "as in 0.5"},
      {"--overcommit=0.1234", "as in 0.5"},
      {"--overcommit=4.001", "from 0 to 4"},
      {"--online-idle=fast", "100ms"},
      {"--online-idle=2h", "at most 1h"},
      {"--slice=5ms", "2ms..30ms"},
      {"--slice=1us..2us", "100us"},
      {"--http=12347", "HOST:PORT"},
      {"--rpc=host:70000", "HOST:PORT"},
      {"--web=12348", "HOST:PORT"},
      {"--log-level=loud", "trace, debug"},
      {"--log-format=xml", "log format 'xml' is unknown; use text or json"},
      {"--suspend=stop", "auto, gate, freeze or rm"},
      {"--realtime=on", "auto or off"},
      {"--timeslices=short", "on or off"},
      {"--nodename=a b", "letters"},
      {"--kubelet=yes", "auto, on or off"},
      {"--cdi=cdi", "on, off or a folder"},
      {"--resource-prefix=Example.org", "tke.cloud.tencent.com"},
      {"--memory-unit=MB", "GiB or MiB"},
  };
  for (const auto& c : cases) {
    const std::string text = refused({c.flag});
    const std::string flag(c.flag);
    EXPECT_SAYS(text, flag.substr(0, flag.find('=')));
    EXPECT_SAYS(text, "'" + flag.substr(flag.find('=') + 1) + "'");
    EXPECT_SAYS(text, c.fix);
  }
}

TEST_F(OptionsTest, RefusesARunDirThatNoSocketFitsInto) {
  EXPECT_SAYS(refused({"--run-dir=/" + std::string(200, 'd')}), "92 bytes");
}

TEST_F(OptionsTest, TakesOneOrSeveralSchedulers) {
  EXPECT_TRUE(good({}).schedulers.empty());
  EXPECT_EQ(good({"--scheduler=127.0.0.1:12346,unix:/run/qgpu/scheduler.rpc"}).schedulers,
            (std::vector<std::string>{"127.0.0.1:12346", "unix:/run/qgpu/scheduler.rpc"}));
  EXPECT_SAYS(refused({"--scheduler=here"}), "HOST:PORT");
}

TEST_F(OptionsTest, C7_GoesToASchedulerElsewhereOnlyWithCertificatesUnlessToldTo) {
  EXPECT_SAYS(refused({"--scheduler=10.0.0.1:12346"}), "--scheduler");
  EXPECT_SAYS(refused({"--scheduler=10.0.0.1:12346"}), "--tls-cert");
  EXPECT_SAYS(refused({"--scheduler=127.0.0.1:1,10.0.0.1:12346"}), "10.0.0.1:12346");
  EXPECT_TRUE(good({"--scheduler=10.0.0.1:12346", "--insecure"}).insecure);
  const auto sure =
      good({"--scheduler=10.0.0.1:12346", "--tls-cert=c", "--tls-key=k", "--tls-ca=a"});
  EXPECT_EQ(sure.tls.cert + sure.tls.key + sure.tls.ca, "cka");
}

TEST_F(OptionsTest, RefusesUnknownFlagsAndWords) {
  EXPECT_SAYS(refused({"start"}), "start");
  EXPECT_SAYS(refused({"--dbfile"}), "--dbfile");
  EXPECT_SAYS(refused({"--polcy=fs"}),
              "there is no flag --polcy: did you mean --policy? see qgpu-manager --help");
  EXPECT_SAYS(refused({"--dbfile", "--polcy", "--zzz"}), "there is no flag --zzz; see");
  EXPECT_LT(refused({"--max-tasks-per-card=" + std::string(309, '9')}).size(), 150u);
}

TEST_F(OptionsTest, ABadValueStaysOneLineWhateverItHolds) {
  EXPECT_SAYS(refused({"--policy=a\nb\x1b[2Jc"}), "'a?b?[2Jc'");
  EXPECT_SAYS(refused({"\n"}), "?");
  EXPECT_SAYS(refused({file("(nodename = \"a\\nb\")")}), "'a?b'");
}

TEST_F(OptionsTest, AConfigFileOfBracketsIsRefusedAndNotFollowedDown) {
  EXPECT_SAYS(refused({file(std::string(60'000, '('))}), "8 deep");
  EXPECT_SAYS(refused({file("(nodename = " + std::string(60'000, '['))}), "8 deep");
  EXPECT_EQ(good({file("(dbfile = \"/a((((((((((\\\"((((b\")  # ((((((((((((\n")}).dbfile,
            "/a((((((((((\"((((b");
}

TEST_F(OptionsTest, TheWebPageIsOffAndAsksForCertificatesOnlyWhereItHasSome) {
  EXPECT_EQ(good({}).web.address, "");
  EXPECT_SAYS(refused({"--web-tls"}), "--web-tls needs --tls-cert, --tls-key and --tls-ca");
  EXPECT_TRUE(good({"--web-tls", "--tls-cert=/c", "--tls-key=/k", "--tls-ca=/ca"}).web.tls);
}

TEST_F(OptionsTest, PrintsHelpAndVersion) {
  const auto help = std::get<ExitNow>(parse({"--help"}));
  EXPECT_EQ(help.code, 0);
  for (const char* flag :
       {"--nodename", "--dbfile", "--policy", "--cards", "--mixed", "--slice",
        "--max-tasks-per-card", "--online-idle", "--run-dir", "--http", "--rpc", "--config",
        "--print-config", "--log-level", "--suspend", "--realtime", "--timeslices"}) {
    EXPECT_SAYS(help.text, flag);
  }
  const auto version = std::get<ExitNow>(parse({"--version"}));
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.text.starts_with("qgpu-manager 0.")) << version.text;
}

constexpr const char* kToml = R"(# A node.
nodename = "n"
policy = "fs"          # wins over nothing
max-tasks-per-card = 3
scheduler = ["a:1", "unix:/b"]
slice = "1ms..2ms"
realtime = 'off'
timeslices = "off"
mixed = true
strict = true
insecure = false
tls-cert = "/a#b"
)";
constexpr const char* kOlder =
    "# a comment\n(nodename = \"n\", policy = \"fs\", mixed = true, slice = \"1ms..2ms\",\n"
    " maxTasksPerCard = \"3\", strict = true, realtime = \"off\", timeslices = \"off\",\n"
    " scheduler = \"a:1,unix:/b\", tlsCert = \"/a#b\")";

class ConfigFile : public OptionsTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Forms, ConfigFile, ::testing::Values(kToml, kOlder));

TEST_P(ConfigFile, IsReadBelowTheFlags) {
  const ManagerOptions o = good({file(GetParam()), "--policy=bs"});
  EXPECT_EQ(o.schedulers, (std::vector<std::string>{"a:1", "unix:/b"}));
  EXPECT_EQ(o.tls.cert, "/a#b");
  EXPECT_FALSE(o.insecure);
  EXPECT_EQ(o.nodename, "n");
  EXPECT_EQ(o.policy, schema::Policy::BURST_SHARE);
  EXPECT_TRUE(o.mixed);
  EXPECT_TRUE(o.strict);
  EXPECT_EQ(o.slice, (DurationRange{millis(1), millis(2)}));
  EXPECT_EQ(o.maxTasksPerCard, 3u);
  EXPECT_EQ(o.realtime, RealtimeChoice::Off);
  EXPECT_FALSE(o.timeslices);
  EXPECT_EQ(o.http, "127.0.0.1:12347");
}

// What is printed is read back as the same, and says what else there is.
TEST_P(ConfigFile, IsPrintedAsTomlThatSaysTheSame) {
  const auto printed = std::get<ExitNow>(parse({file(GetParam()), "--print-config"}));
  EXPECT_EQ(printed.code, 0);
  for (const char* line :
       {"\nnodename = \"n\"\n", "\nscheduler = \"a:1,unix:/b\"\n", "\nmixed = true\n",
        "\nmax-tasks-per-card = \"3\"\n", "\n#suspend = \"auto\"\n", "\n#insecure = false\n",
        "\n#http = \"127.0.0.1:12347\"\n", "\n#rpc = \"HOST:PORT\"\n",
        "\n# name of this node (default: the host name)\n"}) {
    EXPECT_SAYS(printed.text, line);
  }
  EXPECT_EQ(printed.text.find("print-config ="), std::string::npos);
  const auto again = std::get<ExitNow>(parse({file(printed.text), "--print-config"}));
  EXPECT_EQ(again.text, printed.text);
  EXPECT_EQ(good({file(printed.text)}).slice, (DurationRange{millis(1), millis(2)}));
}

TEST_F(OptionsTest, PrintsNoConfigurationThatItWouldRefuse) {
  EXPECT_SAYS(refused({"--print-config", "--policy=greedy"}), "--policy: policy 'greedy'");
}

// What the packages ship.
TEST_F(OptionsTest, TheSampleIsWhatIsPrintedWithoutFlags) {
  const auto printed = std::get<ExitNow>(parse({"--print-config"}));
  testing::expectFile("deploy/packaging/qgpu-manager.toml", printed.text);
  EXPECT_EQ(good({file(printed.text)}).policy, schema::Policy::BEST_EFFORT);
}

TEST_F(OptionsTest, SaysWhichLineOfTheFileIsWrongAndWhy) {
  const struct {
    const char* text;
    const char* says;
  } kFiles[] = {
      {"\n# x\npolicy = \"greedy\"\n", "/config: line 3: policy: policy 'greedy' is not valid"},
      {"policy = \"fs\"\npolcy = \"fs\"", "line 2: there is no key polcy: did you mean policy?"},
      {"config = \"/x\"", "line 1: there is no key config"},
      {"restore = \"/x\"", "line 1: there is no key restore: it is a flag alone, --restore"},
      {"[manager]\npolicy = \"fs\"", "line 1: it begins with '[': there are no tables here"},
      {"mixed = true\npolicy = \"fs\n", "line 2: a text in quotes has no end"},
      {"mixed = true\npolicy = it's", "line 2: a text in quotes has no end"},
      {"policy = -x[\"\u0417\"", "line 1: "},
      {"policy = \"\xff\"", "line 1: a text in quotes is no UTF-8"},
      {"policy = \"\\\u0417\"", "line 1: a text in quotes is no UTF-8, or escapes"},
      {"overcommit = nan", "line 1: overcommit: expected a text in quotes"},
      {"overcommit = -0.5", "line 1: overcommit: '-0.5' is not valid"},
      {"mixed = true # [\n\t[)]", "line 2: it begins with '['"},
      {"mixed = \"\"\"\n[\"\"\"\n[a]", "line 3: it begins with '['"},
      {"policy = true",
       "line 1: policy: expected a text in quotes, as in policy = \"best-effort\""},
      {"strict = \"yes\"", "line 1: strict: expected true or false"},
      {"strict = 1", "line 1: strict: expected true or false"},
      {"mixed = true\nmixed = true", "line 2: "},
      {"mixed = true\npolicy: fs", "line 2: "},
      {"policy = fs", "line 1: put the value in quotes: policy = \"fs\""},
      {"mixed = yes", "line 1: write true for yes"},
      {"mixed = False", "line 1: write false for False"},
      {"mixed = true\ncards = sim:2x16  # two\n",
       "line 2: put the value in quotes: cards = \"sim:2x16\""},
      {"\x01\xff", "line 1: "},
      {" \u0417e", "line 1: a character that is no ASCII"},
      {"policy = \"fs\" # \u0417\n\u00e9 = 1", "line 2: a character that is no ASCII"},
      {"policy = '\u0417\\' \u0417", "line 1: a character that is no ASCII"},
      {"mixed = \"\"\"\u0417\n\"\"\"\n\u0417", "line 3: a character that is no ASCII"},
      {"policy = \"\u0417\\\"\u0417\"", "/config: line 1: policy: policy '"},
      {"slice = [1, 2]", "line 1: slice: expected a text in quotes"},
      {"(policy = \"greedy\")", "/config: policy: policy 'greedy' is not valid"},
      {"(", "write a key and its value a line, as in policy = \"fs\""},
      {"(polcy = \"fs\")", "as in policy = \"fs\""},
      {"(policy = 3)", "as in policy = \"fs\""},
  };
  for (const auto& expected : kFiles) {
    const std::string line = refused({file(expected.text)});
    EXPECT_SAYS(line, folder_ + "/config");
    EXPECT_SAYS(line, expected.says);
  }
  EXPECT_TRUE(good({file("\xEF\xBB\xBF# \u0417\nmixed = true # \u00e9")}).mixed) << "in a comment";
  EXPECT_EQ(good({file("dbfile = '/\u0417\\\"#'")}).dbfile, "/\u0417\\\"#");
  EXPECT_EQ(good({file("dbfile = \"/\U0001F600\\\\\\\"'\"")}).dbfile, "/\U0001F600\\\"'");
  EXPECT_EQ(good({file("dbfile = '''\n/\u0417\"\"\"'''")}).dbfile, "/\u0417\"\"\"");
  EXPECT_EQ(good({file("")}).policy, schema::Policy::BEST_EFFORT) << "nothing is said";
  EXPECT_SAYS(refused({file(std::string(70'000, ' '))}), "65536");
  EXPECT_SAYS(refused({"--config=" + folder_ + "/none"}), "No such file");
  EXPECT_SAYS(refused({"--config=" + folder_}), "can't read it");
}

}  // namespace
}  // namespace qgpu::options_test
