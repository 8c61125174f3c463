#pragma once
// How a stand-in exports a function: under its own name, and led by a pointer.

// Exports `symbol` as a jump through the pointer qgpu_to_<symbol>.
#if defined(__x86_64__)
#define QGPU_JUMP(symbol) "jmp *qgpu_to_" #symbol "(%rip)\n"
#elif defined(__aarch64__)
#define QGPU_JUMP(symbol) \
  "adrp x16, qgpu_to_" #symbol "\nldr x16, [x16, :lo12:qgpu_to_" #symbol "]\nbr x16\n"
#endif
#define QGPU_EXPORT_JUMP(symbol)                                              \
  __asm__(".text\n.globl " #symbol "\n.type " #symbol ", %function\n" #symbol \
          ":\n" QGPU_JUMP(symbol) ".size " #symbol ", .-" #symbol "\n");
