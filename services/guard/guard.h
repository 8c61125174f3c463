#pragma once
// The guard: what keeps a task's processes from a card's device nodes until they have attached, in
// the kernel. A BPF program of the kernel's security hooks judges each open, receipt, ioctl and map
// of the nodes that it is told; this loads it, and tells it who is who.
//
// A process is judged where it is labelled, as all become that it forks, or where it is in a cgroup
// of a task. Others it never refuses. What it may use is a property of the one process: the manager
// says it when the process has attached, a fork does not pass it on, and the kernel takes it back
// when the process executes a program.
//
// Beside it, where NVIDIA's driver is, there is the cap (cap.bpf.c): a task has no more memory of
// its card than its quota, counted in the kernel at the driver's own calls.
//
// All of it is pinned in a folder of bpffs, so that it holds while no manager runs, and the next
// one goes on with the same maps: it puts its own programs over those that are there, without a
// moment between. Removing the folder ends it. docs/internals/guard.md has the reasons.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/fd.h"
#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

inline constexpr std::uint32_t kGuardCardsMax = 64;
inline constexpr std::uint32_t kGuardShared = kGuardCardsMax;  // a node that all cards share

struct GuardNode {
  dev_t device = 0;
  std::uint32_t card = 0;  // by index, or kGuardShared
  auto operator<=>(const GuardNode&) const = default;
};

// A refusal, of which not each is told: see tally().
struct GuardRefusal {
  enum class Way : std::uint8_t {
    Open,
    Receive,
    Ioctl,
    Map,
    Quota,    // more memory than is left of its quota
    Closed,   // memory, by a way that nobody counts
    Altered,  // a call that was another one when the driver read it: the process was ended
  };
  std::uint64_t task = 0;
  std::uint32_t pid = 0;
  std::uint32_t card = 0;  // as of the node
  dev_t device = 0;
  Way way = Way::Open;
  bool attached = false;  // to a task that has not this card
  std::string program;    // as it calls itself, safe to print
};

// A manager has one, or none. Who may use what, any thread may say; setNodes() and takeNews() are
// for one thread.
class Guard {
 public:
  // Loads it, or takes over what lies in `folder`, below a bpffs. Unsupported: this kernel, or this
  // build, can't; Denied: this process may not; Unavailable: something failed. Each says why, and
  // what the kernel's verifier said is in the text.
  // Where NVIDIA's driver is loaded, and known, it has the cap of memory as well: see whyNoCap().
  static Result<std::unique_ptr<Guard>> open(const std::string& folder);
  // Ends what lies in `folder`; nothing may be there.
  static Status remove(const std::string& folder);

  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();  // the guard stays

  // All nodes from now on; cards below kGuardCardsMax.
  Status setNodes(const std::vector<GuardNode>& nodes);

  // The process of a pidfd, and those that it forks from now on, are judged as of `task`. One that
  // is judged already stays as it is. `cards`: that it may use, since it attached before there was
  // a guard.
  Status judge(const Fd& pidfd, std::uint64_t task, const std::vector<std::uint32_t>& cards = {});
  // It has attached, and may use these cards.
  Status letIn(const Fd& pidfd, std::uint64_t task, const std::vector<std::uint32_t>& cards);
  // It may use none.
  void shutOut(const Fd& pidfd, std::uint64_t task);

  // The processes of a cgroup, and of all below it. `folder` of it, in whatever mount of version 2,
  // or of version 1's controller `devices`.
  Status judgeGroup(const std::string& folder, std::uint64_t task);
  // Of those that are judged, also since an earlier manager, only these are from now on.
  void keepGroups(const std::vector<std::string>& folders);

  // Whether tasks can have a cap, and else why not.
  bool caps() const;
  const std::string& whyNoCap() const;
  // From now on the task has no more than `quota` of its one card, by the driver's own calls. What
  // it has had before is not counted. Nothing without caps().
  Status setQuota(std::uint64_t task, std::uint32_t card, Bytes quota);
  void dropQuota(std::uint64_t task);
  // Of those with a quota, also since an earlier manager, only these have one from now on.
  void keepQuotas(const std::set<std::uint64_t>& tasks);
  // What the driver has given it since; nothing: it has no cap.
  std::optional<Bytes> bytesHeld(std::uint64_t task) const;

  // Readable when there are refusals to take.
  int news() const;
  void takeNews(const std::function<void(const GuardRefusal&)>& told);
  // Refused since the guard was loaded first, of a card or kGuardShared.
  std::uint64_t tally(std::uint32_t card) const;

 private:
  struct Parts;
  explicit Guard(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace qgpu
