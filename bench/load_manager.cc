#include "bench/load_manager.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "services/ctl/client.h"

namespace qgpu::bench {

OwnManager::OwnManager(OwnManager&& other) noexcept
    : folder_(std::move(other.folder_)), pid_(std::exchange(other.pid_, -1)) {
  other.folder_.clear();
}

OwnManager::~OwnManager() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Result<OwnManager> OwnManager::start(const std::string& binary, const std::string& cards) {
  if (::access(binary.c_str(), X_OK) != 0) {
    return fail(ErrorCode::NotFound, binary + " is not there; build qgpu-manager first");
  }
  OwnManager manager;
  char path[] = "/tmp/qgpu-load-XXXXXX";
  if (::mkdtemp(path) == nullptr) return fail(ErrorCode::Unavailable, std::strerror(errno));
  manager.folder_ = path;
  const std::string runDir = "--run-dir=" + manager.folder_;
  const std::string db = "--dbfile=" + manager.folder_ + "/meta.db";
  const std::string which = "--cards=" + cards;
  manager.pid_ = ::fork();
  if (manager.pid_ == 0) {
    ::execl(binary.c_str(), binary.c_str(), runDir.c_str(), db.c_str(), which.c_str(), "--mixed",
            "--http=127.0.0.1:0", "--log-level=error", nullptr);
    ::_exit(127);
  }
  ctl::Client client(manager.adminSocket());
  for (int tries = 0; tries < 500; tries++) {
    if (client.askLine("status", seconds(1))) return manager;
    if (::waitpid(manager.pid_, nullptr, WNOHANG) == manager.pid_) {
      manager.pid_ = -1;
      break;
    }
    ::usleep(10'000);
  }
  return fail(ErrorCode::Unavailable, binary + " did not come up");
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
