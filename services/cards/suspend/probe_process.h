#pragma once
// A process whose kernel counts on a card, to see whether work goes on: qgpu-suspend-probe, what it
// says of its channels, and its count. It ends with the object.

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "services/cards/suspend/probe_page.h"
#include "services/cards/suspend/self_test.h"

namespace qgpu::suspend {

// Of CLOCK_MONOTONIC, and waiting for that long.
Nanos now();
void pass(Nanos time);

class ProbeProcess {
 public:
  static constexpr std::uint32_t kProcess = 1;  // its name in its channels

  explicit ProbeProcess(const SelfTestOptions& what);
  ~ProbeProcess();
  ProbeProcess(const ProbeProcess&) = delete;
  ProbeProcess& operator=(const ProbeProcess&) = delete;

  // Until it counts. Empty; or why it does not.
  std::string begin();
  static constexpr const char* kWrongCount = "the probe failed count";
  // Empty; or why its count is not what it must be.
  std::string end();
  void kill();  // SIGKILL, reaped

  const std::vector<Channel>& channels() const { return channels_; }
  int pidfd() const { return pidfd_; }
  // The kernel's count as it is at some moment from now on. None: in all its patience the probe did
  // not get to look, so nothing is known.
  std::optional<std::uint64_t> count() const;
  enum class Goes : std::uint8_t { On, Not, Unseen };
  Goes goesOnWithin(Nanos limit) const;

 private:
  void start(int page);
  std::string nextLine(Nanos until);
  bool learn(const std::string& line);  // true: it spins

  const SelfTestOptions what_;
  ProbePage* page_ = nullptr;
  pid_t pid_ = -1;
  int pidfd_ = -1, in_ = -1, out_ = -1;
  std::string text_;
  std::vector<Channel> channels_;
  std::map<std::uint32_t, std::uint32_t> engines_;  // of groups
};

}  // namespace qgpu::suspend
