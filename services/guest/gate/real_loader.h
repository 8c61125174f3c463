#pragma once
// The dynamic loader's own dlsym, dlvsym and dlopen. libqgpu.so exports functions of these names,
// so what it calls itself must be found another way: by reading libc's symbol table, which asks
// nobody and takes no lock of this library. RTLD_NEXT means "after libqgpu.so" in calls through
// these.

#include <cstdint>

namespace qgpu::guest {

struct RealLoader {
  void* (*dlsym)(void* handle, const char* name) = nullptr;
  void* (*dlvsym)(void* handle, const char* name, const char* version) = nullptr;
  void* (*dlopen)(const char* file, int flags) = nullptr;
};

// Found at the first call, from any thread, in a constructor too. Ends the process where libc has
// no such functions: nothing could be loaded then.
const RealLoader& realLoader();

// What dlsym(), or with a version dlvsym(), has for a name.
inline void* findSymbol(void* handle, const char* name, const char* version) {
  const RealLoader& real = realLoader();
  return version ? real.dlvsym(handle, name, version) : real.dlsym(handle, name);
}

// What a front end answers for a name that a program asks of dlsym(), if not an address: that the
// loader is to answer as if nobody stood between, or that there is no such name.
inline void* const kTheLoaderDecides = nullptr;
inline void* const kNoSymbol = reinterpret_cast<void*>(~std::uintptr_t{0});

// Of names. AddressSanitizer asks for what is behind its own functions before these work, so what
// answers it calls no strcmp().
bool begins(const char* text, const char* with);
bool isSame(const char* a, const char* b);

// The first and last byte of the loaded file that `address` lies in; both null where there is none.
struct FileRange {
  const char* begin = nullptr;
  const char* end = nullptr;
};
FileRange fileAround(const void* address);

}  // namespace qgpu::guest
