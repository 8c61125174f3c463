#pragma once
// The checks of tests/gpu. Each adds its findings; one that can't go on throws a Violation, which
// is a finding as well.

#include "tests/gpu/scene.h"

namespace qgpu::gpu {

struct Stage {
  const TheCard& card;
  Record& record;
  bool quick = false;           // short runs, as on the stand-in: flows count, not figures
  std::uint64_t spinPerMs = 0;  // iterations of a kernel in a millisecond of the bare card
  std::uint64_t mixPerMs = 0;

  std::string spins(double ms) const {
    return std::to_string(static_cast<std::uint64_t>(static_cast<double>(spinPerMs) * ms));
  }
  // Of figures that depend on how fast everything is: a quick run only tells them.
  Verdict timed(bool met) const {
    if (quick) return Verdict::kReported;
    return met ? Verdict::kMet : Verdict::kMissed;
  }
  int seconds(int whole) const { return quick ? 1 : whole; }
  int count(int whole, int few) const { return quick ? few : whole; }
};

void checkQuota(Stage& stage);         // each way of taking memory, against the quota
void checkShared(Stage& stage);        // memory that outlives the process that allocated it
void checkTorch(Stage& stage);         // PyTorch unmodified, where there is one
void checkHook(Stage& stage);          // what a launch costs more
void checkAlone(Stage& stage);         // one offline program, of its bare rate
void checkShares(Stage& stage);        // fixed shares, and one of four processes
void checkLatency(Stage& stage);       // online behind offline's long kernels
void checkTimeslices(Stage& stage);    // the card's own turns, beneath a gate that holds nobody
void checkRungs(Stage& stage);         // whether channels can be taken off this card, and how
void checkSuspends(Stage& stage);      // results after many holds
void checkKills(Stage& stage);         // tenant and manager killed while a task is held
void checkLate(Stage& stage);          // channels that come while their task is held
void checkWait(Stage& stage);          // a long hold, and one by a manager that does not run
void checkInterference(Stage& stage);  // holds while others keep the driver busy

}  // namespace qgpu::gpu
