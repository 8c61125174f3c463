#pragma once
// The dynamic loader's own dlsym, dlvsym and dlopen. libqgpu.so exports functions of these names,
// so what it calls itself must be found another way: by reading libc's symbol table, which asks
// nobody and takes no lock of this library. RTLD_NEXT means "after libqgpu.so" in calls through
// these.

namespace qgpu::guest {

struct RealLoader {
  void* (*dlsym)(void* handle, const char* name) = nullptr;
  void* (*dlvsym)(void* handle, const char* name, const char* version) = nullptr;
  void* (*dlopen)(const char* file, int flags) = nullptr;
};

// Found at the first call, from any thread, in a constructor too. Ends the process where libc has
// no such functions: nothing could be loaded then.
const RealLoader& realLoader();

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
