#pragma once
// Force-included into every file of libqgpu.so: binds the functions that glibc 2.34 moved to their
// oldest symbol versions, so that the library loads wherever glibc is 2.17 or newer (CONTRACT:
// it goes into the images that people run). The ELF test fails when one is missing here.

#if defined(__x86_64__)
#define QGPU_OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define QGPU_OLDEST "GLIBC_2.17"
#else
#error "libqgpu.so is built for x86-64 and aarch64"
#endif
#define QGPU_OLD(name) __asm__(".symver " #name "," #name "@" QGPU_OLDEST)
QGPU_OLD(pthread_create);
QGPU_OLD(pthread_detach);
QGPU_OLD(pthread_key_create);
QGPU_OLD(pthread_once);
QGPU_OLD(pthread_setspecific);
#undef QGPU_OLD
#undef QGPU_OLDEST
