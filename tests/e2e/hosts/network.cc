#include "tests/e2e/hosts/network.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <stdexcept>
#include <sys/types.h>
#include <unistd.h>

namespace qgpu::e2e {
namespace {

bool write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return !file.fail();
}

// Root, as far as its own namespaces go.
bool enterUserNamespace() {
  const uid_t uid = ::getuid();
  const gid_t gid = ::getgid();
  return ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && write("/proc/self/setgroups", "deny") &&
         write("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1") &&
         write("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
}

std::string namespaceOf(pid_t pid) {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/ns/net", none).string();
}

Finished shell(const std::string& script) {
  return run({"sh", "-ec", script});
}

void must(const std::string& script) {
  const Finished done = shell(script);
  if (done.status != 0) throw std::runtime_error(script + ": " + done.output);
}

std::string wire(std::size_t host) {
  return "wire" + std::to_string(host);
}
std::string net(std::size_t host) {
  return "10.77." + std::to_string(host) + ".";
}

// The command that cuts, or heals.
std::string commandOf(std::size_t host, Network::Cut how, bool cuts) {
  const std::string rule = std::string("ip rule ") + (cuts ? "add " : "del ");
  switch (how) {
    case Network::Cut::Pulled:
      return "ip link set " + wire(host) + (cuts ? " down" : " up");
    case Network::Cut::FromHost:
      return rule + "iif " + wire(host) + " blackhole";
    case Network::Cut::ToHost:
      return rule + "to " + net(host) + "2 blackhole";
    case Network::Cut::Taken:
      break;
  }
  return std::string("ip addr ") + (cuts ? "add " : "del ") + net(host) + "2/32 dev lo";
}

}  // namespace

std::string Network::enter() {
  if (::unshare(CLONE_NEWNET) != 0 && !enterUserNamespace()) {
    return std::string("no network namespace is allowed here: ") + std::strerror(errno);
  }
  const Finished tools = shell(
      "ip link set lo up; ip link add wire type veth peer name peer;"
      "ip rule add iif wire blackhole; ip rule del iif wire blackhole; ip link del wire;"
      "echo 1 >/proc/sys/net/ipv4/ip_forward; unshare --net true;"
      "command -v nsenter; command -v openssl");
  if (tools.status == 0) return "";
  return "hosts can't be made of network namespaces here: " +
         tools.output.substr(0, tools.output.find('\n'));
}

Network::Network(std::size_t hosts) {
  const std::string mine = namespaceOf(::getpid());
  for (std::size_t i = 0; i < hosts; ++i) {
    auto anchor = std::make_unique<Child>(
        std::vector<std::string>{"unshare", "--net", "--", "sleep", "infinity"});
    const pid_t pid = anchor->pid();
    const bool apart = eventually([&] {
      const std::string its = namespaceOf(pid);
      return !its.empty() && its != mine;
    });
    if (!apart) throw std::runtime_error("a host did not start: " + anchor->output());
    hosts_.push_back({std::move(anchor), {}});
    const std::string there = "nsenter --net=/proc/" + std::to_string(pid) + "/ns/net ip ";
    must("ip link add " + wire(i) + " type veth peer name eth0 netns " + std::to_string(pid) +
         "; ip addr add " + net(i) + "1/24 dev " + wire(i) + "; ip link set " + wire(i) + " up; " +
         there + "link set lo up; " + there + "addr add " + net(i) + "2/24 dev eth0; " + there +
         "link set eth0 up; " + there + "route add default via " + net(i) + "1");
  }
}

// A namespace ends some time after its last process, and its wire with it: the next network would
// still find the name taken.
Network::~Network() {
  for (std::size_t i = 0; i < hosts_.size(); ++i) shell("ip link del " + wire(i));
}

std::string Network::address(std::size_t host) {
  return net(host) + "2";
}

std::vector<std::string> Network::on(std::size_t host, std::vector<std::string> argv) const {
  std::vector<std::string> line = {
      "nsenter", "--net=/proc/" + std::to_string(hosts_.at(host).anchor->pid()) + "/ns/net", "--"};
  line.insert(line.end(), argv.begin(), argv.end());
  return line;
}

void Network::cut(std::size_t host, Cut how) {
  must(commandOf(host, how, true));
  hosts_.at(host).cuts.push_back(how);
}

void Network::heal(std::size_t host) {
  for (const Cut how : std::exchange(hosts_.at(host).cuts, {})) must(commandOf(host, how, false));
}

void Network::cutBetween(std::size_t from, std::size_t to, bool is) {
  must(std::string("ip rule ") + (is ? "add" : "del") + " iif " + wire(from) + " to " + net(to) +
       "2 blackhole");
}

}  // namespace qgpu::e2e
