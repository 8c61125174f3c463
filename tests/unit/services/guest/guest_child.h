#pragma once
// One guest_program, or another that speaks as it does, in a child process, driven line by line.

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/unit/services/guest/fake_manager.h"

namespace qgpu::testing {

// The environment of a tenant of `manager`, with the library as an OpenCL layer.
std::vector<std::string> tenantOf(const FakeManager& manager);

// Whether all that was launched is retired. A call that waits for the device retires what it waited
// for, but for what the reaper took a moment before: that the reaper retires, a moment later.
bool retiresAll(const FakeManager& manager);

class GuestChild {
 public:
  // environment: "NAME=value" entries that are added to this process's own.
  explicit GuestChild(const std::vector<std::string>& environment,
                      const std::string& program = QGPU_GUEST_PROGRAM);
  ~GuestChild();  // ends the program and fails if it does not exit by itself
  GuestChild(const GuestChild&) = delete;
  GuestChild& operator=(const GuestChild&) = delete;

  void send(const std::string& command);
  std::string answer();  // blocks; "" at the program's end
  std::string ask(const std::string& command) { return send(command), answer(); }
  bool answered();                 // without blocking
  std::uint64_t progress() const;  // of its kernels, over all work items
  std::string errors();            // what it wrote to stderr so far
  pid_t pid() const { return pid_; }
  void kill();

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  const TempFolder folder_{"guest"};
  std::string buffered_;
  std::uint32_t* words_ = nullptr;
};

}  // namespace qgpu::testing
