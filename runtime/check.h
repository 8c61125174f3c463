#pragma once
// QGPU_CHECK(condition, "why it always holds"): a bug detector that stays on in production. It is
// never for input, disk or network: those fail with a Result. fatal() is for an environment that
// the process can't survive; restart is the tested recovery path.

#include <cstdio>
#include <cstdlib>

namespace qgpu {

// Exit codes of the daemons that a supervisor may tell apart.
enum class ExitCode : int {
  Ok = 0,
  Usage = 2,        // bad flag, bad config, socket or database taken: nothing was touched
  Environment = 5,  // out of descriptors, failed fsync: restart is the recovery
};

// Prints what was expected, where and why, and aborts: a core dump shows the state. Called by the
// macro alone.
[[noreturn]] inline void checkFailed(const char* condition, const char* why, const char* file,
                                     int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s (%s)\n", file, line, condition, why);
  std::abort();
}

// Prints one line and ends the process at once, without destructors.
[[noreturn]] inline void fatal(ExitCode code, const char* why) {
  std::fprintf(stderr, "fatal: %s\n", why);
  std::fflush(stderr);
  std::_Exit(static_cast<int>(code));
}

}  // namespace qgpu

#define QGPU_CHECK(condition, why) \
  ((condition) ? static_cast<void>(0) : ::qgpu::checkFailed(#condition, why, __FILE__, __LINE__))
