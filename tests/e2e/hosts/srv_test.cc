// Schedulers that are found by DNS: a manager and qgpuctl are told a name alone, whose SRV records
// a real DNS server has. The manager starts while DNS is down, passes over a target where nobody
// listens or that says nothing, and follows the records to another host and port. TLS asks for each
// target's own name.

#include <cerrno>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <utility>

#include "tests/e2e/hosts/host_daemon.h"
#include "tests/testing/certificates.h"
#include "tests/testing/story.h"

namespace qgpu::e2e::srv_test {
namespace {

using testing::Certificates;

constexpr std::size_t kDns = 0;  // hosts: the DNS server's, two schedulers', the manager's
constexpr std::size_t kFirst = 1;
constexpr std::size_t kSecond = 2;
constexpr std::size_t kNode = 3;
constexpr std::size_t kHosts = 4;
constexpr auto kPatience = HostDaemon::kPatience;
const std::string kRecord = "_qgpu._tcp.qgpu.test";

std::string nameOf(std::size_t host) {
  return "h" + std::to_string(host) + ".qgpu.test";
}

struct Srv : ::testing::Test {
  Srv() { made.makeCa("ca"); }
  ~Srv() override {
    if (HasFailure() && dns) std::cerr << "dnsmasq:\n" << dns->output() << "\n";
  }

  std::vector<std::string> flags(const std::string& name, std::vector<std::string> more) {
    const TlsFiles files = made.make("ca", name);
    more.insert(more.end(),
                {"--tls-cert=" + files.cert, "--tls-key=" + files.key, "--tls-ca=" + files.ca});
    return more;
  }
  std::unique_ptr<HostDaemon> scheduler(std::size_t host, const std::string& port) {
    return std::make_unique<HostDaemon>(
        network, host, "qgpu-scheduler",
        flags(nameOf(host), {"--rpc=" + Network::address(host) + ":" + port}));
  }

  // DNS has these targets from now on, "HOST,PORT,PRIORITY,WEIGHT" each.
  void publish(const std::vector<std::string>& targets) {
    std::vector<std::string> line = {"/usr/sbin/dnsmasq", "--no-daemon", "--conf-file=/dev/null",
                                     "--no-resolv", "--no-hosts"};
    const std::string at = Network::address(kDns);
    line.insert(line.end(), {"--local=/qgpu.test/", "--bind-interfaces", "--listen-address=" + at});
    for (const std::string& target : targets) {
      line.push_back("--srv-host=" + kRecord + "," + target);
    }
    for (std::size_t i = 0; i < kHosts; ++i) {
      line.push_back("--host-record=" + nameOf(i) + "," + Network::address(i));
    }
    dns.reset();
    dns = std::make_unique<Child>(network.on(kDns, line));
    ASSERT_TRUE(eventually([&] {
      return dns->output().find("started, version") != std::string::npos;
    })) << dns->output();
  }

  std::unique_ptr<HostDaemon> startManager() {
    return std::make_unique<HostDaemon>(
        network, kNode, "qgpu-manager",
        flags("node-a", {"--cards=sim:1x16", "--nodename=node-a", "--scheduler=srv:" + kRecord}));
  }
  Finished nodes(const std::string& record) {
    return run(network.on(
        kNode, flags("operator", {binary("qgpuctl"), "--server", "srv:" + record, "nodes"})));
  }
  bool joined(HostDaemon& scheduler) {
    return eventually(
        [&] {
          const Json answer = scheduler.ask("nodes");
          return answer.is_object() && answer["nodes"].size() == 1 &&
                 answer["nodes"][0]["state"] == "alive";
        },
        kPatience);
  }
  void expectSeen() {
    const Finished seen = nodes(kRecord);
    EXPECT_EQ(seen.status, 0) << seen.output;
    EXPECT_NE(seen.output.find("node-a"), std::string::npos) << seen.output;
  }

  Network network{kHosts};
  TempFolder folder;
  Certificates made{folder.path()};
  std::unique_ptr<Child> dns;
};

TEST_F(Srv, AManagerFollowsTheRecordFromOneSchedulerToTheNext) {
  const auto manager = startManager();
  const Finished noDns = nodes(kRecord);
  EXPECT_EQ(noDns.status, 4);
  EXPECT_NE(noDns.output.find("DNS does not answer for SRV record " + kRecord), std::string::npos)
      << noDns.output;

  auto first = scheduler(kFirst, "12346");
  publish({nameOf(kDns) + ",1,0,0", nameOf(kFirst) + ",12346,10,0"});
  ASSERT_TRUE(joined(*first));
  expectSeen();
  const Finished unknown = nodes("_other._tcp.qgpu.test");
  EXPECT_EQ(unknown.status, 4);
  EXPECT_NE(unknown.output.find("DNS has no SRV record _other._tcp.qgpu.test; look yourself: dig"),
            std::string::npos)
      << unknown.output;

  first->kill();
  auto second = scheduler(kSecond, "12399");
  publish({nameOf(kSecond) + ",12399,0,0"});
  ASSERT_TRUE(joined(*second));
  expectSeen();
}

TEST_F(Srv, ATargetThatSaysNothingDoesNotKeepTheOthersAway) {
  const auto first = scheduler(kFirst, "12346");
  const auto second = scheduler(kSecond, "12346");
  publish({nameOf(kFirst) + ",12346,0,0", nameOf(kSecond) + ",12346,10,0"});
  first->pause();  // its kernel takes connections
  const auto manager = startManager();
  ASSERT_TRUE(joined(*second));
  network.cut(kFirst, Network::Cut::ToHost);  // and now takes none
  expectSeen();
}

// Puts this process, and what it starts, where names are asked of the DNS server of the test alone.
// Once, before any thread. Empty, or why this machine does not allow it.
std::string useOwnDns(const std::string& folder) {
  const auto refused = [] {
    return std::string("/etc can't be another one here: ") + std::strerror(errno);
  };
  if (::unshare(CLONE_NEWNS) != 0) return refused();
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return refused();
  const std::pair<const char*, std::string> files[] = {
      {"resolv.conf", "nameserver " + Network::address(kDns) + "\n"},
      {"nsswitch.conf", "hosts: files dns\n"}};
  for (const auto& [name, text] : files) {
    const std::string mine = folder + "/" + name;
    std::ofstream(mine) << text;
    const std::string theirs = std::string("/etc/") + name;
    if (::mount(mine.c_str(), theirs.c_str(), nullptr, MS_BIND, nullptr) != 0) return refused();
  }
  return "";
}

const testing::Before before("srv", [](char**) {
  static const TempFolder etc;
  const std::string why = Network::enter();
  return why.empty() ? useOwnDns(etc.path()) : why;
});

}  // namespace
}  // namespace qgpu::e2e::srv_test
