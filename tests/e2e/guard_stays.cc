// guard_stays NODE SOCKET TOKEN GO: attaches as a program whose library does not come back to the
// next manager, waits until somebody writes into the fifo GO and opens the node. Ends with 0, or
// the error's number; with 99 where it can't attach.

#include <cerrno>
#include <cstdio>
#include <fcntl.h>

#include "runtime/fd.h"
#include "services/attach/testing/guest_client.h"

int main(int, char** argv) {
  const auto client = qgpu::GuestClient::attach(argv[2], argv[3]);
  if (!client) return 99;
  std::puts("attached");
  std::fflush(stdout);
  const qgpu::Fd go(::open(argv[4], O_RDONLY | O_CLOEXEC));
  return ::open(argv[1], O_RDONLY | O_CLOEXEC) >= 0 ? 0 : errno;
}
