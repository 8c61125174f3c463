// guard_tenant NODE [attach[,exec|,take=MIB]]: opens a device node, attached to its task or not.
// Ends with 0, or the error's number; with 99 where it should attach and can't. "attach,exec"
// attaches and executes itself without. "attach,take=MIB" asks the driver that stands in for
// NVIDIA's for memory, past the library; what that answers by its status ends with 98.

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "services/guest/gate/gate.h"
#include "tests/guard/standin_card.h"

namespace {

int take(std::uint64_t mib) {
  qgpu::testing::StandinFile file;
  qgpu::rm::Handle made = 0;
  const int got = file.alloc(qgpu::testing::StandinFile::kDeviceName, made, mib << 20);
  return got < 0 ? -got : got == 0 ? 0 : 98;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 2 ? argv[2] : "";
  if (!how.empty() && !qgpu::guest::ensureAttached()) return 99;
  if (how == "attach,exec") ::execl(argv[0], argv[0], argv[1], nullptr);
  constexpr std::string_view kTake = "attach,take=";
  if (how.starts_with(kTake)) {
    return take(std::strtoull(how.c_str() + kTake.size(), nullptr, 10));
  }
  return ::open(argv[1], O_RDONLY | O_CLOEXEC) >= 0 ? 0 : errno;
}
