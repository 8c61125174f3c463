#include "services/suspend/self_test.h"

#include "services/suspend/probe_process.h"

namespace qgpu::suspend {
namespace {

// --- one rung ---

class Trial {
 public:
  Trial(ProbeProcess& probe, Calls& calls, const SelfTestOptions& options, Rung rung)
      : probe_(probe), calls_(calls), options_(options), ladder_(rung) {
    tried_.rung = rung;
    for (const Channel& channel : probe_.channels()) ladder_.made(channel);
  }

  RungTried go() {
    for (std::uint32_t i = 0; i < options_.toggles && tried_.why.empty(); i++) once();
    if (!putBack()) {
      tried_.why = "what was taken off can't be put back: " + ladder_.why();
      tried_.sure = byDriver_;
    }
    tried_.works = tried_.why.empty();
    return std::move(tried_);
  }
  bool putBack();  // true: nothing is off any more

 private:
  void once();
  void callAll();
  bool standsStill() const;

  ProbeProcess& probe_;
  Calls& calls_;
  const SelfTestOptions& options_;
  Ladder ladder_;
  RungTried tried_;
  std::string refusal_;
  bool byDriver_ = false;
};

void Trial::callAll() {
  while (const auto order = ladder_.next(now())) {
    const Outcome outcome = calls_.carryOut(*order, tried_.rung);
    if (outcome.answer != Answer::kDone) refusal_ = outcome.why;
    byDriver_ = byDriver_ || outcome.byDriver;
    ladder_.answered(outcome.answer, outcome.gone, now());
  }
}

bool Trial::putBack() {
  ladder_.release(now());
  const Nanos until = now() + options_.patience;
  for (;;) {
    callAll();
    if (ladder_.free()) return true;
    if (now() > until) return false;
    pass(millis(1));
  }
}

bool Trial::standsStill() const {
  pass(options_.settle);
  const std::uint64_t before = probe_.count();
  pass(options_.watch);
  return probe_.count() == before;
}

void Trial::once() {
  const Nanos from = now();
  ladder_.hold(from);
  callAll();
  if (!ladder_.stopped()) {
    tried_.why = (ladder_.doubted() ? ladder_.why() : std::string("the channels are gone")) + " (" +
                 refusal_ + ")";
    tried_.sure = ladder_.doubted() && byDriver_;
    return;
  }
  tried_.off.push_back(now() - from);
  const bool still = standsStill();
  const Nanos again = now();
  const bool back = putBack();
  tried_.on.push_back(now() - again);
  if (!still) {
    tried_.why = "the kernel went on while it was off";
    tried_.sure = true;
  } else if (!back || !probe_.movesWithin(seconds(2))) {
    tried_.why = "the kernel did not go on after it was put back";
  }
}

std::string tryAll(const SelfTestOptions& options, ProbeProcess& probe, Calls& calls,
                   SelfTest& out) {
  if (const std::string why = probe.begin(); !why.empty()) return why;
  out.channels = probe.channels().size();
  calls.process(ProbeProcess::kProcess, probe.pidfd());
  for (const Rung rung : kRungs) {
    if (options.only && *options.only != rung) continue;
    out.tried.push_back(Trial(probe, calls, options, rung).go());
    out.sure = out.tried.back().sure;
    if (!out.tried.back().works) continue;
    const std::string wrong = probe.end();
    if (wrong.empty()) out.rung = rung;
    return wrong;
  }
  return out.tried.back().why;
}

}  // namespace

SelfTest testSuspend(const SelfTestOptions& options) {
  SelfTest found;
  const auto calls = DriverCalls::open(options);
  if (!calls) {
    found.why = calls.error().message;
    return found;
  }
  ProbeProcess probe(options);
  found.why = tryAll(options, probe, **calls, found);
  return found;
}

}  // namespace qgpu::suspend
