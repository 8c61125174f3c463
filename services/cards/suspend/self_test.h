#pragma once
// Whether, and how, work can be taken off a card and put back here: by trying it on a program of
// our own. What counts is that its kernel does not go on while it is off, goes on afterwards, and
// has counted right in the end; what the driver answered proves nothing. The methods are tried in
// order, and the first that does all of it, every time, is the card's.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/cards/suspend/driver_calls.h"

namespace qgpu::suspend {

struct SelfTestOptions : CardName {
  std::string probe;                     // qgpu-suspend-probe
  std::optional<SuspendMethod> only;     // no other is tried
  std::uint32_t toggles = 20;            // of each method
  std::uint64_t iterations = 1'000'000;  // of the probe's kernel
  Nanos watch = millis(5);               // how long the count must stand still, each time
  Nanos settle = millis(1);              // before it is looked at
  Nanos patience = seconds(20);          // for the probe to begin, to look at its count, to end
};

struct MethodTried {
  SuspendMethod method = SuspendMethod::kDisable;
  bool works = false;
  bool sure = false;    // that it does not was seen, and may not lie in others' work
  bool unseen = false;  // whether it does can't be seen: the machine is too busy
  std::string why;      // it does not
  // How long the calls took: each time, and where it had been taken off once.
  std::vector<Nanos> off, on;
};

struct SelfTest {
  std::optional<SuspendMethod> method;  // that works; none: the card has no `rm`
  std::string why;                      // there is none
  bool sure = false;                    // of the last that was tried
  std::vector<MethodTried> tried;
  std::size_t channels = 0;  // of the probe
};

// Blocks for about a second; starts and ends a process. The caller has one thread, or does not mind
// a fork. Nothing of anybody else is touched.
SelfTest testSuspend(const SelfTestOptions& options);

}  // namespace qgpu::suspend
