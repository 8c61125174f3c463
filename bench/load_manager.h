#pragma once
// A manager of the benchmark's own, in a run dir that is gone afterwards, and what it costs.

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu::bench {

class OwnManager {
 public:
  OwnManager() = default;
  OwnManager(OwnManager&& other) noexcept;
  OwnManager& operator=(OwnManager&&) = delete;
  ~OwnManager();   // SIGTERM, then the folder is removed

  // NotFound: no such binary. Unavailable: it did not come up.
  static Result<OwnManager> start(const std::string& binary, const std::string& cards);

  pid_t pid() const { return pid_; }
  std::string adminSocket() const { return folder_ + "/manager.sock"; }

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

// User and system time of a process since its start; its resident memory in KiB.
Nanos cpuTimeOf(pid_t pid);
std::uint64_t residentKib(pid_t pid);

}  // namespace qgpu::bench
