#pragma once
// The suspender's orders as calls to NVIDIA's kernel driver. Before a channel is touched its
// process must prove that it is its own: the process's open file is duplicated for a moment (a
// longer hold would keep a dead process's memory on the card), and the driver answers for a client
// only through the client's own file. So a task that names another's channels neither stops nor
// starts anybody.
//
// What was proven once is taken off before it is proven again: the driver's lock is waited for once
// less while online waits. A name can have become another's only if its owner ended it unsaid and
// the driver gave out a million others since; then what was stopped goes on in the very next call,
// and the name is the liar's no more. Nothing is put on before the proof.
//
// A tenant may name any file of its own. One that is not the driver's is asked nothing, and its
// close, which may wait for the tenant, is run detached; a process of which too many wait so is not
// asked.
//
// Calls block: some hundred microseconds as a rule, more while the driver is busy with others.

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <sys/stat.h>

#include "runtime/result.h"
#include "services/cards/suspend/calls.h"
#include "services/nvidia_abi/rm_card.h"

namespace qgpu::suspend {

struct CardName {
  std::string uuid;
  std::string driverVersion;  // "580.142"; the driver's, or another one of the same layout
  int minor = 0;              // of the card's file in /dev
};

class DriverCalls final : public Calls {
 public:
  // Unsupported: the driver's interface is not known; Unavailable: the driver does not let us.
  static Result<std::unique_ptr<DriverCalls>> open(const CardName& name);

  void process(std::uint32_t id, int pidfd) override { processes_[id].pidfd = pidfd; }
  void forget(std::uint32_t id) override;
  Outcome carryOut(const Order& order, SuspendMethod method) override;

  static constexpr int kClosingMost = 16;  // of a process, at a time

 private:
  class File;
  struct Process {
    int pidfd = -1;
    // Its files that are not the driver's and are being closed.
    std::shared_ptr<std::atomic<int>> closing = std::make_shared<std::atomic<int>>(0);
  };

  DriverCalls() = default;

  Outcome set(const Order& order, bool off, bool onlyScheduling);
  Outcome commit(const Order& order);
  Outcome take(const Order& order, bool off, bool onlyScheduling);
  Outcome reap(const Channel& channel);
  Outcome strangers(const Order& order) const;
  void giveBack(const std::vector<Channel>& strangers);
  bool leftBehind(const Order& order, const Channel& channel) const;
  Outcome refused(const Order& order, std::string why, std::uint32_t status) const;

  rm::Card card_;
  struct statx control_ {};  // the driver's control file
  std::map<std::uint32_t, Process> processes_;
  // What a process had proven to be its own when it was named in a disable, and how often it may
  // have been disabled: process, client, name.
  std::map<std::array<std::uint32_t, 3>, int> off_;
};

}  // namespace qgpu::suspend
