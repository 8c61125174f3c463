// How a program that looks names up comes to the wrappers: dlsym() and dlvsym() ask the front end
// that a name may belong to, and the loader's own functions are found as ours.

#include <dlfcn.h>

#include "services/guest/cuda/cuda_driver.h"
#include "services/guest/gate/attach.h"
#include "services/guest/gate/real_loader.h"
#include "services/guest/hip/hip_driver.h"

#if defined(__x86_64__)
// Asks `chooser` with the arguments and the caller's address; what it does not decide goes on to
// the loader as if the caller had called it, since its answer depends on who asks (RTLD_NEXT).
#define QGPU_INTERPOSE(name, third)                                     \
  __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name \
          ":\n"                                                         \
          "push %rdi\npush %rsi\npush %rdx\n" third                     \
          "mov 24(%rsp), %rcx\n"                                        \
          "call qgpu_choose_symbol\n"                                   \
          "pop %rdx\npop %rsi\npop %rdi\n"                              \
          "test %rax, %rax\nje 1f\n"                                    \
          "cmp $-1, %rax\nje 2f\nret\n"                                 \
          "1: jmp *qgpu_real_" #name                                    \
          "(%rip)\n"                                                    \
          "2: xor %eax, %eax\nret\n"                                    \
          ".size " #name ", .-" #name "\n");
QGPU_INTERPOSE(dlsym, "xor %edx, %edx\n")
QGPU_INTERPOSE(dlvsym, "")
__asm__(
    ".text\n.globl dlopen\n.type dlopen, %function\ndlopen:\n"
    "push %rdi\n"
    "call qgpu_choose_flags\n"
    "pop %rdi\nmov %eax, %esi\n"
    "jmp *qgpu_real_dlopen(%rip)\n.size dlopen, .-dlopen\n");
#elif defined(__aarch64__)
#define QGPU_INTERPOSE(name, third)                                                     \
  __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name                 \
          ":\n"                                                                         \
          "stp x29, x30, [sp, #-48]!\nstp x0, x1, [sp, #16]\nstr x2, [sp, #32]\n" third \
          "mov x3, x30\n"                                                               \
          "bl qgpu_choose_symbol\nmov x9, x0\n"                                         \
          "ldr x2, [sp, #32]\nldp x0, x1, [sp, #16]\nldp x29, x30, [sp], #48\n"         \
          "cbz x9, 1f\ncmn x9, #1\nb.eq 2f\nmov x0, x9\nret\n"                          \
          "1: adrp x16, qgpu_real_" #name "\nldr x16, [x16, :lo12:qgpu_real_" #name     \
          "]\n"                                                                         \
          "br x16\n2: mov x0, #0\nret\n.size " #name ", .-" #name "\n");
QGPU_INTERPOSE(dlsym, "mov x2, #0\n")
QGPU_INTERPOSE(dlvsym, "")
__asm__(
    ".text\n.globl dlopen\n.type dlopen, %function\ndlopen:\n"
    "stp x29, x30, [sp, #-32]!\nstr x0, [sp, #16]\n"
    "bl qgpu_choose_flags\nmov w1, w0\n"
    "ldr x0, [sp, #16]\nldp x29, x30, [sp], #32\n"
    "adrp x16, qgpu_real_dlopen\nldr x16, [x16, :lo12:qgpu_real_dlopen]\nbr x16\n"
    ".size dlopen, .-dlopen\n");
#endif

namespace qgpu::guest {
namespace {

// The loader's own functions, asked for by name: ours, so that what is asked through them is seen.
void* loaderWrapper(void* found) {
  const RealLoader& real = realLoader();
  if (found == reinterpret_cast<void*>(real.dlsym)) return reinterpret_cast<void*>(&::dlsym);
  if (found == reinterpret_cast<void*>(real.dlvsym)) return reinterpret_cast<void*>(&::dlvsym);
  return found;
}

}  // namespace
}  // namespace qgpu::guest

extern "C" {

// AddressSanitizer asks as well, before it is awake.
__attribute__((visibility("hidden"), used, no_sanitize("address"))) void* qgpu_choose_symbol(
    void* handle, const char* name, const char* version, const void* caller) {
  using namespace qgpu::guest;
  realLoader();  // the loader's own functions are known from here on
  if (!name) return kTheLoaderDecides;
  if (namesHip(name)) return chooseHipSymbol(handle, name, version);
  if (begins(name, "cu") || begins(name, "nvml")) {
    return chooseCudaSymbol(handle, name, version, caller);
  }
  const bool ofLoader = isSame(name, "dlsym") || isSame(name, "dlvsym");
  if (!ofLoader || handle == RTLD_NEXT || handle == RTLD_DEFAULT) return kTheLoaderDecides;
  if (!tokenGiven() || isOfCudaDriver(caller)) return kTheLoaderDecides;
  void* found = findSymbol(handle, name, version);
  return found ? loaderWrapper(found) : kTheLoaderDecides;
}

// RTLD_DEEPBIND would lead a library that is linked with the driver past our exports.
__attribute__((visibility("hidden"), used)) int qgpu_choose_flags(const char*, int flags) {
  qgpu::guest::realLoader();
  return qgpu::guest::tokenGiven() ? flags & ~RTLD_DEEPBIND : flags;
}
}
