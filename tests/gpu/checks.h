#pragma once
// The checks of tests/gpu. Each adds its findings; one that can't go on throws a Violation, which
// is a finding as well.

#include <algorithm>

#include "tests/gpu/isolation_report.h"
#include "tests/gpu/scene.h"

namespace qgpu::gpu {

constexpr double kKernelMs = 10;  // of offline programs

struct CheckContext {
  const TheCard& card;
  Record& record;
  bool quick = false;           // short runs, as on the stand-in: flows count, not figures
  std::uint64_t spinPerMs = 0;  // iterations of a kernel in a millisecond of the bare card
  std::uint64_t mixPerMs = 0;

  // Of at least one turn: a kernel of none never tells that it began.
  std::string spins(double ms) const {
    const auto turns = static_cast<std::uint64_t>(static_cast<double>(spinPerMs) * ms);
    return std::to_string(std::max<std::uint64_t>(1, turns));
  }
  // Of figures that depend on how fast everything is: a quick run only tells them.
  Verdict timed(bool met) const {
    if (quick) return Verdict::kReported;
    return met ? Verdict::kMet : Verdict::kMissed;
  }
  // The same of a promise whose figures do.
  Finding judged(const prove::Promise& promise) const {
    Finding finding = findingOf(promise);
    if (!quick) return finding;
    finding.verdict = Verdict::kReported;
    finding.why.clear();
    return finding;
  }
  int seconds(int whole) const { return quick ? 1 : whole; }
  int count(int whole, int few) const { return quick ? few : whole; }
};

void checkQuota(CheckContext& context);      // each way of taking memory, against the quota
void checkShared(CheckContext& context);     // memory that outlives the process that allocated it
void checkTorch(CheckContext& context);      // PyTorch unmodified, where there is one
void checkInference(CheckContext& context);  // PyTorch serves, beside PyTorch that trains
void checkHook(CheckContext& context);       // what a launch costs more
void checkAlone(CheckContext& context);      // one offline program, of its bare rate
void checkShares(CheckContext& context);     // fixed shares, and one of four processes
void checkStarts(CheckContext& context);     // online behind kernels of each length of `prove`
void checkLatency(CheckContext& context);    // online behind offline's long kernels
void checkTimeslices(
    CheckContext& context);  // the card's own turns, beneath a gate that holds nobody
void checkSuspendMethods(
    CheckContext& context);                 // whether channels can be taken off this card, and how
void checkLayout(CheckContext& context);    // how the driver lays its calls out
void checkSuspends(CheckContext& context);  // results after many holds
void checkKills(CheckContext& context);     // tenant and manager killed while a task is held
void checkLate(CheckContext& context);      // channels that come while their task is held
void checkWait(CheckContext& context);      // a long hold, and one by a manager that does not run
void checkPaging(CheckContext& context);  // memory that leaves the card for online, and comes back
void checkInterference(CheckContext& context);  // holds while others keep the driver busy

}  // namespace qgpu::gpu
