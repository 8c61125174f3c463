// A tenant that loads NVIDIA's own driver libraries, without a card. It reads commands and answers
// each with a line.

#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "services/nvidia_abi/cuda_calls.h"
#include "tests/cuda_stand_in/calls.h"
#include "tests/cuda_stand_in/kernel.h"

namespace qgpu::testing {
namespace {

using namespace nvidia::cuda;  // the names of the interface
using stand_in::kReadWrite, stand_in::MemAccess;

void* library(const char* name) {
  void* found = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!found) {
    std::cerr << dlerror() << "\n";
    std::_Exit(1);
  }
  return found;
}

void* driver() {
  static void* const found = library("libcuda.so.1");
  return found;
}

template <typename F>
F named(const char* name) {
  return reinterpret_cast<F>(dlsym(driver(), name));
}

// Whose function it is: "none", "driver" or "guest".
std::string ownerOf(void* function) {
  Dl_info info{};
  if (!function || !dladdr(function, &info)) return "none";
  return std::strstr(info.dli_fname, "libqgpu.so") ? "guest" : "driver";
}

// As a runtime of the version that brought the function asks for it.
void* byAddress(const char* base, int since, Stream0 stream) {
  static const auto ask = named<decltype(Calls::cuGetProcAddress)>("cuGetProcAddress");
  static const auto ask2 = named<decltype(Calls::cuGetProcAddress_v2)>("cuGetProcAddress_v2");
  const bool own = stream == Stream0::kPerThread;
  const std::uint64_t flags = own ? kAskPerThreadStream : kAskLegacyStream;
  void* found = nullptr;
  int status = 0;
  Result rc = kNotFound;
  if (ask2) {
    rc = ask2(base, &found, since, flags, &status);
  } else if (ask) {
    rc = ask(base, &found, since, flags);
  }
  return rc == kSuccess ? found : nullptr;
}

// Of each hook NAME:SINCE:BY-NAME:BY-ADDRESS.
std::string hooks() {
  std::string all;
  const auto tell = [&](const char* symbol, const char* base, int since, Stream0 stream) {
    all += std::string(symbol) + ":" + std::to_string(since) + ":";
    all += ownerOf(dlsym(driver(), symbol)) + ":" + ownerOf(byAddress(base, since, stream)) + " ";
  };
#define QGPU_TELL(symbol, base, since, stream, types) tell(#symbol, #base, since, Stream0::stream);
  QGPU_CUDA_HOOKED(QGPU_TELL)
#undef QGPU_TELL
  return all;
}

const QgpuKernelStandIn& kernel() {
  static const auto find =
      reinterpret_cast<decltype(&qgpuKernelStandIn)>(dlsym(RTLD_DEFAULT, "qgpuKernelStandIn"));
  return *find();
}

// --- memory and contexts, on the card that the kernel's stand-in tells of ---

struct Piece {
  Mem name = 0;
  Ptr address = 0;
  Size bytes = 0;
};
std::map<int, Piece> pieces;

// On the card, or of kind 3 on the host's node 0.
Result create(Piece& piece, Size bytes, int kind) {
  const MemProperties wanted{kPinned, 0, {kind, 0}, nullptr, {}};
  piece.bytes = bytes;
  return named<decltype(Calls::cuMemCreate)>("cuMemCreate")(&piece.name, bytes, &wanted, 0);
}

Result map(Piece& piece) {
  const auto reserve =
      named<Result (*)(Ptr*, Size, Size, Ptr, unsigned long long)>("cuMemAddressReserve");
  const auto allow = named<Result (*)(Ptr, Size, const MemAccess*, Size)>("cuMemSetAccess");
  const MemAccess access{{1, 0}, kReadWrite};
  Result rc = reserve(&piece.address, piece.bytes, 0, 0, 0);
  const auto map = named<decltype(Calls::cuMemMap)>("cuMemMap");
  if (rc == kSuccess) rc = map(piece.address, piece.bytes, 0, piece.name, 0);
  return rc == kSuccess ? allow(piece.address, piece.bytes, &access, 1) : rc;
}

// --- video, without a card ---

// Of what a loaded library may keep what it found in, its data and the heap: begin and end.
std::vector<std::pair<std::uintptr_t, std::uintptr_t>> dataOf(const std::string& name) {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> parts;
  std::ifstream maps("/proc/self/maps");
  bool last = false;  // was the library's; what it has no file for lies behind
  for (std::string line; std::getline(maps, line);) {
    std::istringstream in(line);
    std::uintptr_t begin = 0, end = 0;
    std::string access, offset, device, inode, path;
    in >> std::hex >> begin >> std::ws;
    in.ignore(1);
    in >> end >> access >> offset >> device >> inode >> path;
    last = path.find(name) != path.npos || (last && path.empty());
    if ((last || path == "[heap]") && access.starts_with("rw")) parts.emplace_back(begin, end);
  }
  return parts;
}

// The hooked functions whose address stands in the data of NVIDIA's library for decoding, which
// looks up all that it will call at its first own call. Libraries for both must load and answer.
std::string videoLooksUp() {
  void* const decode = library("libnvcuvid.so.1");
  void* const encode = library("libnvidia-encode.so.1");
  const auto highest =
      reinterpret_cast<int (*)(std::uint32_t*)>(dlsym(encode, "NvEncodeAPIGetMaxSupportedVersion"));
  std::uint32_t version = 0;
  const int told = highest(&version);
  const auto lock = reinterpret_cast<Result (*)(void**, Ctx)>(dlsym(decode, "cuvidCtxLockCreate"));
  void* made = nullptr;
  std::string all = std::to_string(told) + " " + std::to_string(version >> 4) + " " +
                    std::to_string(lock(&made, nullptr));
  std::set<void*> there;
  for (const auto& [begin, end] : dataOf("libnvcuvid.so")) {
    for (std::uintptr_t at = begin; at + sizeof(void*) <= end; at += sizeof(void*)) {
      there.insert(*reinterpret_cast<void**>(at));
    }
  }
  there.erase(nullptr);
#define QGPU_TELL(symbol, base, since, stream, types) \
  if (there.contains(dlsym(driver(), #symbol))) all += std::string(" ") + #symbol;
  QGPU_CUDA_HOOKED(QGPU_TELL)
#undef QGPU_TELL
  return all;
}

// How a child ends that asks for CUDA once more and leaves by exit(), where the library cleans up:
// "exit N" or "signal N".
std::string inFork() {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) std::exit(named<Result (*)(U)>("cuInit")(0));
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

std::string onMemory(const std::string& verb, std::istream& in) {
  int id = 0;
  in >> id;
  Piece& piece = pieces[id];
  if (verb == "create" || verb == "create-on-host") {
    Size bytes = 0;
    in >> bytes;
    return std::to_string(create(piece, bytes, verb == "create" ? 1 : 3));
  }
  if (verb == "map") return std::to_string(map(piece));
  if (verb == "unmap") {
    return std::to_string(
        named<decltype(Calls::cuMemUnmap)>("cuMemUnmap")(piece.address, piece.bytes));
  }
  if (verb == "release") {
    return std::to_string(named<decltype(Calls::cuMemRelease)>("cuMemRelease")(piece.name));
  }
  if (verb == "context") {  // which waits for a card that works
    std::thread([] {
      Ctx made = nullptr;
      named<decltype(Calls::cuCtxCreate_v2)>("cuCtxCreate_v2")(&made, 0, 0);
    }).detach();
    return "begun";
  }
  return "unknown " + verb;
}

std::string obey(const std::string& line) {
  std::istringstream in(line);
  std::string verb;
  in >> verb;
  if (verb == "hooks") return hooks();
  if (verb == "fork") return inFork();
  if (verb == "video") return videoLooksUp();
  if (verb == "questions") return std::to_string(kernel().calls(nvidia::rm::kEscCheckVersion));
  if (verb == "allocations") return std::to_string(kernel().calls(nvidia::rm::kEscAlloc));
  if (verb == "held") return std::to_string(kernel().bytes());
  if (verb == "init") return std::to_string(named<Result (*)(U)>("cuInit")(0));
  if (verb == "version") {
    int version = 0;
    const Result rc = named<Result (*)(int*)>("cuDriverGetVersion")(&version);
    return rc == kSuccess ? std::to_string(version) : "failed " + std::to_string(rc);
  }
  if (verb == "nvml") {
    void* const init = dlsym(library("libnvidia-ml.so.1"), "nvmlInit_v2");
    return std::to_string(reinterpret_cast<int (*)()>(init)());
  }
  return onMemory(verb, in);
}

}  // namespace
}  // namespace qgpu::testing

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << qgpu::testing::obey(line) << std::endl;
  }
  return 0;
}
