#pragma once
// One card, a manager of its own on it, and programs on that card: as tenants through
// `qgpuctl run`, or bare. The manager and everything that it runs ends with the scene.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/cards/nvidia/nvml.h"
#include "tests/crash/daemon.h"
#include "tests/gpu/record.h"

namespace qgpu::gpu {

using crash::Daemon;
using std::chrono::milliseconds;
using testing::Child;
using Arguments = std::vector<std::string>;

// The first card that NVML lists, by its UUID, and what it says of it.
class TheCard {
 public:
  static std::optional<TheCard> find();

  std::string uuid, model, driver;
  std::uint64_t bytes = 0;
  int minor = 0;         // of its file in /dev
  std::string suspends;  // what its manager must find that it suspends by; empty: whatever it is
  std::uint64_t used() const { return nvml_.used(device_); }  // by everybody, now
  // The driver of the tests: it has no memory of its own to look at.
  bool standIn() const { return model == "Stand-in GPU"; }

 private:
  explicit TheCard(Nvml nvml) : nvml_(std::move(nvml)) {}
  Nvml nvml_;
  cuda::NvmlDevice device_ = nullptr;
};

// How a tenant is bound. Where the kernel driver's calls are counted a context alone takes 300 to
// 500 MiB of the quota: what makes several, in one process or in more, needs kSeveral.
struct Tenant {
  static constexpr int kSeveral = 8;
  std::string name;
  std::string taskClass = "ordinary";
  int core = 10;     // percent; of an online task none
  int memory = 2;    // GiB
  int pageable = 0;  // GiB of it
};

// A program's last line that is a JSON object. Throws a Violation where it failed or printed none.
Json resultOf(Child& child, const std::string& name,
              milliseconds limit = std::chrono::seconds(120));

class Scene {
 public:
  // Starts a manager of the card with these flags more. Throws a Violation where the card does
  // not suspend by what it must; a flag --suspend asks for something else.
  Scene(const TheCard& card, Arguments flags);
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  Daemon& daemon() { return daemon_; }
  std::unique_ptr<Child> run(const Tenant& tenant, Arguments program);
  std::unique_ptr<Child> bare(Arguments program) const;  // beside qgpu
  // qgpu-gpu-work with these words.
  static Arguments work(Arguments words);

  Json card();                         // as the admin socket has it
  Json task(const std::string& name);  // null: there is none
  // A Violation where it does not come, which has what the manager said; with a program, also what
  // that one said, and at once where it ended.
  void await(const std::string& what, const std::function<bool()>& probe,
             milliseconds limit = std::chrono::seconds(30));
  void await(const std::string& what, Child& program, const std::function<bool()>& probe,
             milliseconds limit = std::chrono::seconds(60));  // a context may take some
  // What this manager said so far of faults, a line each: Xids, also those of programs, which leave
  // the card in use, and whatever took it out of use.
  Json faults();
  // A file that is not there yet, for --until and --from; and making it.
  std::string signalFile();
  static void give(const std::string& file);

 private:
  void mustSuspend();

  std::string told();

  const TheCard& card_;
  Daemon daemon_;
  int files_ = 0;
};

// How often the program printed this as a line of its own; what libqgpu.so writes is there as well.
int said(const Child& child, const std::string& line);

}  // namespace qgpu::gpu
