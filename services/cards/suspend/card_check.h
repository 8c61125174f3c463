#pragma once
// Whether a card still takes what its self-test found at the manager's start. Tenants can make the
// driver refuse what is asked of their channels, so their refusals say nothing of a card: before it
// is given up, the same self-test is made anew, of the one method, on a program of the manager's
// own, in which no tenant has a hand. It uses the card for about a tenth of a second, and so it is
// asked for rarely (Holds). Only what was seen of that program counts: that the driver refuses its
// channels, or that its kernel goes on while it is off. Where nothing can be seen (no memory left
// on the card, a kernel of others that does not let ours run) nothing is said.
//
// The test blocks, forks and maps drivers, so it has a process of its own, `qgpu-suspend-probe
// check`, which is killed when this ends or time is up.

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>

#include "runtime/fd.h"
#include "runtime/loop.h"
#include "services/cards/suspend/holds.h"
#include "services/cards/suspend/self_test.h"

namespace qgpu::suspend {

inline constexpr const char* kVerdictWords[] = {"works", "fails", "unclear"};  // by Verdict::Says

class CardCheck {
 public:
  virtual ~CardCheck() = default;
  // Returns at once; one at a time. `done` runs on the loop, once, and not after this is gone.
  virtual void start(Loop& loop, std::function<void(Verdict)> done) = 0;
};

class ProbeCheck final : public CardCheck {
 public:
  static constexpr Nanos kPatience = seconds(90);

  ProbeCheck(CardName card, SuspendMethod method, std::string probe)
      : card_(std::move(card)), method_(method), probe_(std::move(probe)) {}
  ~ProbeCheck() override { end(); }

  void start(Loop& loop, std::function<void(Verdict)> done) override;

 private:
  std::string spawn();
  void finish(Verdict verdict);
  void end();

  const CardName card_;
  const SuspendMethod method_;
  const std::string probe_;
  Loop* loop_ = nullptr;
  std::function<void(Verdict)> done_;
  pid_t pid_ = -1;
  Fd pidfd_, out_;
  FdWatch exit_;  // ends before its descriptor
  Loop::TimerKey deadline_ = 0;
};

}  // namespace qgpu::suspend
