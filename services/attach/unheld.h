#pragma once
// Finds processes of tasks that have a card's device node open though they never attached: nothing
// counts their memory and no gate holds their work. That is a program that went past libqgpu.so on
// purpose, or one that it could not be loaded into.
//
// It reads /proc on a thread of its own, some times a minute, and within bounds; what a scan did
// not get to, the next one begins with. No file system of a tenant is asked anything, so nobody
// keeps the thread waiting. A process counts as a task's where it has the token of one, in the
// environment that it was started with or by the folder that is mounted for its container; others
// that use cards (the manager, NVIDIA's daemons, a desktop) have none and are left alone. A tool
// that only reads figures of a card has it open for a moment, so a process is accused when two
// scans in a row find it. Descriptors of a card that a child inherits at a fork are closed by the
// library (driver_files.h).

#include <atomic>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "runtime/units.h"
#include "services/attach/run_dir/attached_list.h"
#include "services/attach/sockets/token_book.h"
#include "services/cards/cards.h"

namespace qgpu {

inline constexpr std::size_t kScanProcessesMax = 8'192;
inline constexpr std::size_t kScanFdsMax = 262'144;    // in all, about 1 us each
inline constexpr std::size_t kProcessFdsMax = 65'536;  // of one process; it is not looked further
inline constexpr std::size_t kAccusedMax = 64;         // by one scan; others by the next

// One process, also after its pid was given to another one.
struct ProcessKey {
  std::uint32_t pid = 0;
  std::uint64_t start = 0;  // as /proc has it: clock ticks after the boot
  auto operator<=>(const ProcessKey&) const = default;
};

// A process that has the node of a card open.
struct CardUser {
  ProcessKey process;
  std::string card;
  bool attached = false;
  std::uint64_t task = 0;  // whose token it has; 0: of none, or it is attached and nobody looked
};

// Who is accused, scan by scan: a process that two scans in a row saw with a card open, with the
// token of a task and not attached. Pure; UnheldWatch calls it after each scan.
class UnheldFinder {
 public:
  struct Accused {
    CardUser user;
    bool first = true;  // it was not accused by an earlier scan
  };
  // `looked`: the processes that this scan got to. Of others is believed what was seen last.
  std::vector<Accused> accuse(const std::vector<CardUser>& users,
                              const std::set<std::uint32_t>& looked);

 private:
  std::map<ProcessKey, bool> suspects_;  // and whether it was accused
};

// A card and its device node, as fstat() of an open descriptor tells it.
struct CardNode {
  dev_t device = 0;
  std::string card;
};

// Of NVIDIA's cards. Others have none: what runs on a CPU opens no node.
std::vector<CardNode> cardNodes(const std::vector<Card>& cards);

struct UnheldOptions {
  std::vector<CardNode> nodes;  // none: nobody looks
  bool strict = false;          // who is accused is ended
  Nanos every = seconds(10);
};

// How many were told of, and ended. From any thread.
struct UnheldCounters {
  std::atomic<std::uint64_t> told{0};
  std::atomic<std::uint64_t> ended{0};
};

// The thread that scans. AttachPort starts it; without nodes to look for it starts nothing.
class UnheldWatch {
 public:
  // On the watch's thread. `what`: the process and the card, for people.
  using Accuse = std::function<void(const UnheldFinder::Accused&, const std::string& what)>;
  UnheldWatch(UnheldOptions options, std::string runDir, const TokenBook& book, Accuse accuse);
  UnheldWatch(const UnheldWatch&) = delete;
  UnheldWatch& operator=(const UnheldWatch&) = delete;
  ~UnheldWatch();

  // Scans from now on, each `every`, until this is destroyed, which joins the thread.
  void start();

 private:
  void run();
  void scan();
  bool stopping();
  std::vector<CardUser> findUsers(std::set<std::uint32_t>& looked);
  std::uint64_t taskOf(std::uint32_t pid) const;
  std::uint64_t byEnvironment(std::uint32_t pid) const;
  std::uint64_t byMount(std::uint32_t pid) const;

  const UnheldOptions options_;
  const std::string runDir_;
  const TokenBook& book_;
  const Accuse accuse_;
  UnheldFinder finder_;
  std::uint32_t next_ = 0;  // the pid that the next scan begins with
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all above
};

}  // namespace qgpu
