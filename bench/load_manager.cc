#include "bench/load_manager.h"

#include <fstream>
#include <sstream>
#include <unistd.h>

namespace qgpu::bench {
namespace {

constexpr auto kServesWithin = std::chrono::seconds(20);

}  // namespace

Result<std::unique_ptr<testing::PrivateDaemon>> startManager(const std::string& binary,
                                                             const std::string& cards) {
  if (::access(binary.c_str(), X_OK) != 0) {
    return fail(ErrorCode::NotFound, binary + " is not there; build qgpu-manager first");
  }
  auto manager = std::make_unique<testing::PrivateDaemon>(
      "manager", testing::TempFolder("load"),
      std::vector<std::string>{"--cards=" + cards, "--mixed", "--log-level=error"});
  manager->launch(binary);
  if (manager->awaitService(kServesWithin)) return manager;
  return fail(ErrorCode::Unavailable, binary + " did not come up: " + manager->log());
}

Nanos cpuTimeOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name = text.rfind(')');
  if (name == text.npos) return Nanos(0);
  std::istringstream fields(text.substr(name + 1));
  std::string skipped;
  for (int field = 3; field < 14; field++) fields >> skipped;
  std::int64_t user = 0, system = 0;
  fields >> user >> system;
  return seconds(user + system) / ::sysconf(_SC_CLK_TCK);
}

std::uint64_t residentKib(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("VmRSS:", 0) == 0) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

}  // namespace qgpu::bench
