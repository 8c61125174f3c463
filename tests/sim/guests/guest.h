#pragma once
// The tenants of the simulated node: the processes of each bound task, and the machine that they
// and the manager share. Processes behave as libqgpu makes them behave, through maps of the pages
// of their own; what is wrong with some is in their plan (guest_plan.h).
//
// What they really do is told to the watch as GuestNews, whatever their pages say. They outlive
// managers; everything they do is the seed's.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/guests/guest_pages.h"
#include "tests/sim/guests/guest_plan.h"
#include "tests/sim/guests/sim_attach.h"
#include "tests/sim/host.h"
#include "tests/sim/options.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

class Program;

// What a client knows of a task that was bound.
struct TenantSpec {
  std::uint64_t task = 0;
  std::string token;
  Class taskClass = Class::Ordinary;
  Bytes quota{0};
};

class Tenants final : public Machine {
 public:
  static constexpr std::uint32_t kFirstPid = 1'000;  // of tenants' processes
  static constexpr std::uint32_t kPidsMax = 90'000;  // below those of owners

  // `options` and `watch` outlive them.
  Tenants(Host& host, Watch& watch, const Options& options, Dice dice);
  Tenants(const Tenants&) = delete;
  Tenants& operator=(const Tenants&) = delete;
  ~Tenants() override;

  // The client heard that a task is bound: its processes (1 to 4) come soon. Once for each task.
  void bound(const TenantSpec& spec);
  // The process for which tasks were bound dies.
  void ownerDies(std::uint32_t pid);

  // A manager serves; it is gone (before its room is destroyed).
  void managerBack(SimAttach& attach) { attach_ = &attach; }
  void managerGone();

  // From now on all behave: liars stop, who ignores obeys, who is silent comes back or dies.
  void calm();
  // From now on nobody launches more, though all live on: so that the node can come to rest.
  void rest() { resting_ = true; }
  // No process is left, not even one whose memory is not torn down yet.
  bool quiet() const { return left_ == 0; }
  bool isLeftOff() const;  // a task has its turn, and channels of it are off the card
  std::uint32_t processes() const { return left_; }
  std::uint64_t kernels() const { return kernels_; }  // that ran
  std::uint64_t attaches() const { return attaches_; }
  // Who is left, for a person.
  std::string waitsFor() const;

  // Machine
  bool lives(std::uint32_t pid) const override;
  Fd reportOf(std::uint32_t pid) const override;
  void wake(std::uint64_t task, std::uint32_t life, int waiters) override;
  void stopThread(std::uint32_t pid, std::uint32_t tid) override;
  std::vector<suspend::Channel> channelsOf(std::uint32_t pid) const override;
  bool hasChannel(const suspend::Channel& channel) const override;
  void setChannel(const suspend::Channel& channel, bool off) override;
  void undo(const suspend::Channel& channel) override;
  void kill(std::uint32_t pid, bool hard) override;
  bool answer(const SimWelcome& welcome) override;

 private:
  friend class Program;
  struct Task {
    TenantSpec spec;
    GuestPages pages;
    std::uint32_t restarts = 0;  // processes that may still come after one has ended
    bool over = false;           // the manager knows it no more
  };

  void start(Task& task);
  void ended(Program& program);  // its memory is torn down
  Program* find(std::uint32_t pid) const;

  Host& host_;
  Watch& watch_;
  const Options& options_;
  Dice dice_;
  SimAttach* attach_ = nullptr;
  std::map<std::uint64_t, std::unique_ptr<Task>> tasks_;
  std::vector<std::unique_ptr<Program>> programs_;  // by pid - kFirstPid; stay until the end
  std::set<std::uint32_t> deadOwners_;
  std::uint32_t left_ = 0;
  std::uint64_t lastSerial_ = 0;
  std::uint64_t kernels_ = 0;
  std::uint64_t attaches_ = 0;
  bool calm_ = false;
  bool resting_ = false;
};

}  // namespace qgpu::sim
