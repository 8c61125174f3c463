#pragma once
// The driver as qgpu-gpu-work uses it: looked up by name in libcuda.so.1, as any program may, with
// nothing of qgpu in it. What fails ends the program with a line that names the call.

#include <cstdint>
#include <string>

#include "tests/cuda_stand_in/calls.h"

namespace qgpu::gpu {

using namespace nvidia::cuda;  // the names of the interface
using Driver = stand_in::Table;
using stand_in::IpcMemory;

constexpr Size kMiB = 1 << 20;
constexpr U kNonBlocking = 1;  // stream

// Ends the program where `result` is no success.
void must(Result result, const char* call);
#define QGPU_MUST(call) ::qgpu::gpu::must(call, #call)

std::uint64_t nowNs();

struct Kernels {
  Fn nothing = nullptr, spin = nullptr, mix = nullptr, together = nullptr, multiply = nullptr;
};

// A context on the first device that the program sees.
class Work {
 public:
  Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  Driver driver{};
  Kernels kernels;
  Str stream = nullptr;
  U blocks = 1;  // enough for every multiprocessor, and all resident at once
  static constexpr U kThreads = 256;

  // Memory of the host that kernels write and we read while they run.
  volatile std::uint64_t* hostWord();

  // Puts one kernel of `iterations` into the stream, alone or as one that needs all its blocks.
  Result spin(std::uint64_t iterations, volatile std::uint64_t* progress, Str on);
  Result mix(std::uint64_t rounds, Ptr sum, Str on);
  Result together(std::uint64_t rounds, std::uint64_t iterations, Ptr meeting, Str on);
  Result multiply(Ptr a, Ptr b, Ptr c, std::uint64_t n, Str on);
};

// Keeps two pieces of work in a program's stream at any time.
class TwoInFlight {
 public:
  explicit TwoInFlight(Work& work);
  // After a piece was put into the stream: waits for the end of the one before. False: there is
  // none.
  bool put();

 private:
  Work& work_;
  Evt ends_[2] = {};
  std::uint64_t pieces_ = 0;
};

// Options of the command line: --name value or --name=value.
class Options {
 public:
  Options(int count, char** words);
  std::string text(const std::string& name, const std::string& otherwise) const;
  std::uint64_t number(const std::string& name, std::uint64_t otherwise) const;

 private:
  int count_;
  char** words_;
};

bool exists(const std::string& path);
// True once the file that --until names exists; never without one.
bool endAsked(const Options& options);

// Each prints one JSON line at its end and returns the exit status.
int memoryWork(const Options& options);
int sharedWork(const Options& options);
int burnWork(const Options& options);
int probeWork(const Options& options);
int verifyWork(const Options& options);
int disturbWork(const Options& options);
int launchWork(const Options& options);
int calibrateWork(const Options& options);
int lendWork(const Options& options);

}  // namespace qgpu::gpu
