// guard_tenant NODE [attach]: opens a device node, attached to its task or not. Ends with 0, or the
// error's number; with 99 where it should attach and can't. "attach,exec" attaches and executes
// itself without.

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "services/guest/gate/gate.h"

int main(int argc, char** argv) {
  const std::string how = argc > 2 ? argv[2] : "";
  if (!how.empty() && !qgpu::guest::ensureAttached()) return 99;
  if (how == "attach,exec") ::execl(argv[0], argv[0], argv[1], nullptr);
  return ::open(argv[1], O_RDONLY | O_CLOEXEC) >= 0 ? 0 : errno;
}
