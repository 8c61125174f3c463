#pragma once
// Where a program runs, and the folders that follow from it. Daemons and qgpuctl ask the same
// function, so that qgpuctl looks where a manager of the same user listens.

#include <string>

namespace qgpu {

// What the defaults depend on; a test brings its own.
struct Platform {
  unsigned uid = 0;
  std::string hostname;
  std::string home;        // $HOME, or empty
  std::string runtimeDir;  // $XDG_RUNTIME_DIR, or empty
  std::string stateHome;   // $XDG_STATE_HOME, or empty
  std::string port{};      // $PORT, or empty

  static Platform ofThisProcess();
};

// What this process frees it keeps for its next answer: up to 64 MiB at the end of each heap of
// malloc(), which takes 2 MiB at a time from the kernel. A list of 1,000 tasks is some MiB in parts
// that would be mapped, filled with zeros and unmapped each time, longer than it takes to write it.
void keepFreedMemory();

// The run dir of the machine's own manager.
inline constexpr const char* kMachineRunDir = "/run/qgpu";

// Root: /run/qgpu and /var/lib/qgpu/NAME. Others: $XDG_RUNTIME_DIR/qgpu, else /tmp/qgpu-UID; and
// qgpu/NAME below $XDG_STATE_HOME, else $HOME/.local/state, else the run dir.
std::string defaultRunDir(const Platform& around);
std::string defaultDbfile(const Platform& around, const std::string& name);

}  // namespace qgpu
