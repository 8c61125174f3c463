// The config file and the flags of qgpu-manager. Layout: the text of the file up to the first NUL,
// then flags, a NUL behind each.
//
// Promises: an answer, options within their bounds or one clear line and code 2; options written
// down as flags read back as the same options.

#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "services/daemons/options.h"
#include "tests/fuzz/target.h"

namespace qgpu::fuzz {
namespace {

constexpr std::size_t kFlagsMax = 16;

Platform samplePlatform() {
  Platform platform;
  platform.uid = 1000;
  platform.hostname = "here";
  platform.home = "/home/somebody";
  return platform;
}

std::variant<ManagerOptions, ExitNow> parse(const std::vector<std::string>& flags) {
  static const Platform platform = samplePlatform();
  std::vector<const char*> argv = {"qgpu-manager"};
  for (const std::string& flag : flags) argv.push_back(flag.c_str());
  return parseManagerOptions(static_cast<int>(argv.size()), argv.data(), platform);
}

// The file of --config, in memory: its name, as long as the process lives.
const std::string& writeFile(const std::string& text) {
  static const int fd = ::memfd_create("config", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const bool written = ::ftruncate(fd, 0) == 0 && ::pwrite(fd, text.data(), text.size(), 0) ==
                                                      static_cast<ssize_t>(text.size());
  require(written, "a memfd takes a text");
  return path;
}

void checkRefusal(const ExitNow& exit) {
  if (exit.code == 0) return;  // help and version
  const std::size_t end = exit.text.find('\n');
  require(exit.code == static_cast<int>(ExitCode::Usage), "a bad value ends with code 2");
  require(end == exit.text.size() - 1 && end > 0, "a bad value is one line");
  const bool plain = std::all_of(exit.text.begin(), exit.text.end() - 1, [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F;
  });
  require(plain, "a bad value is shown without what would drive a terminal");
}

void checkBounds(const ManagerOptions& o) {
  require(o.slice.low >= micros(100) && o.slice.low <= o.slice.high && o.slice.high <= seconds(10),
          "slices within their bounds");
  require(o.onlineIdle >= Nanos(0) && o.onlineIdle <= seconds(3600), "online idle in bounds");
  require(o.maxTasksPerCard <= 4096, "tasks of a card in bounds");
  require(!o.nodename.empty() && o.nodename.size() <= 253, "a node has a name");
  require(!o.runDir.empty() && o.runDir.size() < 108, "the run dir holds sockets");
  require(!o.dbfile.empty() && !o.http.empty(), "defaults fill in what was not given");
  if (o.cards.backend != "sim") return;
  require(o.cards.sim.count >= 1 && o.cards.sim.count <= kSimCardsMax &&
              o.cards.sim.memory >= gibibytes(1) && o.cards.sim.memory <= gibibytes(kSimGibMax),
          "imaginary cards in bounds");
}

std::vector<std::string> flagsOf(const ManagerOptions& o) {
  constexpr const char* kPolicies[] = {"be", "fixed-share", "bs"};
  const auto ns = [](Nanos time) { return std::to_string(time.value) + "ns"; };
  std::vector<std::string> flags = {
      "--nodename=" + o.nodename,
      "--dbfile=" + o.dbfile,
      "--run-dir=" + o.runDir,
      "--http=" + o.http,
      "--online-idle=" + ns(o.onlineIdle),
      "--slice=" + ns(o.slice.low) + ".." + ns(o.slice.high),
      std::string("--policy=") + kPolicies[static_cast<std::size_t>(o.policy)]};
  if (!o.rpc.empty()) flags.push_back("--rpc=" + o.rpc);
  if (o.mixed) flags.emplace_back("--mixed");
  if (o.maxTasksPerCard != 0) {
    flags.push_back("--max-tasks-per-card=" + std::to_string(o.maxTasksPerCard));
  }
  std::string cards = o.cards.backend;
  if (o.cards.backend == "sim") {
    cards += ":" + std::to_string(o.cards.sim.count) + "x" +
             std::to_string(o.cards.sim.memory.value >> 30);
  }
  flags.push_back("--cards=" + cards);
  return flags;
}

void checkRoundTrip(const ManagerOptions& o) {
  const auto again = parse(flagsOf(o));
  const auto* read = std::get_if<ManagerOptions>(&again);
  require(read != nullptr, "options written as flags are flags");
  require(read->nodename == o.nodename && read->dbfile == o.dbfile && read->runDir == o.runDir &&
              read->http == o.http && read->rpc == o.rpc && read->policy == o.policy &&
              read->cards.backend == o.cards.backend && read->cards.sim == o.cards.sim &&
              read->mixed == o.mixed && read->maxTasksPerCard == o.maxTasksPerCard &&
              read->onlineIdle == o.onlineIdle && read->slice == o.slice,
          "options written as flags are the same options");
}

}  // namespace
}  // namespace qgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qgpu::fuzz;
  Input in(data, size);
  std::vector<std::string> flags = {"--config=" + writeFile(in.textUpTo(0))};
  while (!in.empty() && flags.size() < kFlagsMax) flags.push_back(in.textUpTo(0));
  // Another file of this machine is none of our business.
  for (std::size_t i = 1; i < flags.size(); ++i) {
    if (flags[i].find("conf") != std::string::npos) flags[i] = "--mixed";
  }
  const auto parsed = parse(flags);
  if (const auto* exit = std::get_if<qgpu::ExitNow>(&parsed)) {
    checkRefusal(*exit);
  } else {
    checkBounds(std::get<qgpu::ManagerOptions>(parsed));
    checkRoundTrip(std::get<qgpu::ManagerOptions>(parsed));
  }
  return 0;
}
