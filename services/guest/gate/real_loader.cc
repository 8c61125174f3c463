#include "services/guest/gate/real_loader.h"

#include <cstdlib>
#include <elf.h>
#include <link.h>

#include "services/guest/gate/sys.h"

// Where the exported dlsym, dlvsym and dlopen jump to.
extern "C" {
__attribute__((visibility("hidden"))) void* qgpu_real_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* qgpu_real_dlvsym = nullptr;
__attribute__((visibility("hidden"))) void* qgpu_real_dlopen = nullptr;
}

namespace qgpu::guest {

bool begins(const char* text, const char* with) {
  while (*with && *text == *with) ++text, ++with;
  return !*with;
}

bool isSame(const char* a, const char* b) {
  for (; *a == *b; ++a, ++b) {
    if (!*a) return true;
  }
  return false;
}

namespace {

// The symbol table of one loaded file.
struct Symbols {
  const char* base = nullptr;
  const char* strings = nullptr;
  const ElfW(Sym) * table = nullptr;
  const std::uint32_t* hash = nullptr;  // DT_GNU_HASH
};

Symbols symbolsOf(const dl_phdr_info& file) {
  Symbols symbols;
  symbols.base = reinterpret_cast<const char*>(file.dlpi_addr);
  const ElfW(Dyn)* entry = nullptr;
  for (int i = 0; i < file.dlpi_phnum; ++i) {
    if (file.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    entry = reinterpret_cast<const ElfW(Dyn)*>(symbols.base + file.dlpi_phdr[i].p_vaddr);
  }
  for (; entry && entry->d_tag != DT_NULL; ++entry) {
    const auto at = entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRTAB) symbols.strings = reinterpret_cast<const char*>(at);
    if (entry->d_tag == DT_SYMTAB) symbols.table = reinterpret_cast<const ElfW(Sym)*>(at);
    if (entry->d_tag == DT_GNU_HASH) symbols.hash = reinterpret_cast<const std::uint32_t*>(at);
  }
  return symbols;
}

std::uint32_t hashOf(const char* name) {
  std::uint32_t h = 5381;
  for (; *name; ++name) h = h * 33 + static_cast<unsigned char>(*name);
  return h;
}

void* lookUp(const Symbols& in, const char* name) {
  if (!in.strings || !in.table || !in.hash) return nullptr;
  const std::uint32_t buckets = in.hash[0], first = in.hash[1], bloomWords = in.hash[2];
  const std::uint32_t* bucket = in.hash + 4 + bloomWords * (sizeof(ElfW(Addr)) / 4);
  const std::uint32_t* chain = bucket + buckets;
  const std::uint32_t wanted = hashOf(name);
  std::uint32_t i = bucket[wanted % buckets];
  if (i < first) return nullptr;
  for (;; ++i) {
    const std::uint32_t h = chain[i - first];
    const ElfW(Sym)& symbol = in.table[i];
    if ((h | 1) == (wanted | 1) && symbol.st_shndx != SHN_UNDEF &&
        isSame(in.strings + symbol.st_name, name)) {
      return const_cast<char*>(in.base + symbol.st_value);
    }
    if (h & 1) return nullptr;
  }
}

// Both files of libc: before glibc 2.34 the loader's functions are in libdl.
int findLoader(dl_phdr_info* file, std::size_t, void*) {
  const char* name = file->dlpi_name;
  for (const char* at = name; *at; ++at) {
    if (*at == '/') name = at + 1;
  }
  if (!isSame(name, "libc.so.6") && !isSame(name, "libdl.so.2")) return 0;
  const Symbols symbols = symbolsOf(*file);
  const auto take = [&](void*& place, const char* wanted) {
    void* found = lookUp(symbols, wanted);
    if (found) __atomic_store_n(&place, found, __ATOMIC_SEQ_CST);
  };
  take(qgpu_real_dlsym, "dlsym");
  take(qgpu_real_dlvsym, "dlvsym");
  take(qgpu_real_dlopen, "dlopen");
  return 0;
}

RealLoader loader;
std::atomic<bool> known{false};

struct Around {
  const char* address;
  FileRange found;
};

int findAround(dl_phdr_info* file, std::size_t, void* data) {
  auto* around = static_cast<Around*>(data);
  FileRange range;
  for (int i = 0; i < file->dlpi_phnum; ++i) {
    const auto& part = file->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const char* begin = reinterpret_cast<const char*>(file->dlpi_addr + part.p_vaddr);
    const char* end = begin + part.p_memsz;
    if (!range.begin || begin < range.begin) range.begin = begin;
    if (end > range.end) range.end = end;
  }
  if (around->address < range.begin || around->address >= range.end) return 0;
  around->found = range;
  return 1;
}

}  // namespace

// Threads that come here together find the same and store the same.
const RealLoader& realLoader() {
  if (known.load(std::memory_order_acquire)) return loader;
  dl_iterate_phdr(findLoader, nullptr);
  if (!qgpu_real_dlsym || !qgpu_real_dlvsym || !qgpu_real_dlopen) {
    say("libc has no dlsym, dlvsym or dlopen that libqgpu.so can find; it works with glibc 2.17 "
        "and later");
    abort();
  }
  loader.dlsym = reinterpret_cast<decltype(loader.dlsym)>(qgpu_real_dlsym);
  loader.dlvsym = reinterpret_cast<decltype(loader.dlvsym)>(qgpu_real_dlvsym);
  loader.dlopen = reinterpret_cast<decltype(loader.dlopen)>(qgpu_real_dlopen);
  known.store(true, std::memory_order_release);
  return loader;
}

FileRange fileAround(const void* address) {
  Around around{static_cast<const char*>(address), {}};
  dl_iterate_phdr(findAround, &around);
  return around.found;
}

}  // namespace qgpu::guest
