#include "services/cards/suspend/self_test.h"

#include "services/cards/suspend/probe_process.h"

namespace qgpu::suspend {
namespace {

// --- one method ---

class Trial {
 public:
  Trial(ProbeProcess& probe, Calls& calls, const SelfTestOptions& options, SuspendMethod method)
      : probe_(probe), calls_(calls), options_(options), suspender_(method) {
    tried_.method = method;
    for (const Channel& channel : probe_.channels()) suspender_.made(channel);
  }

  MethodTried go() {
    for (std::uint32_t i = 0; i < options_.toggles && tried_.why.empty(); i++) once();
    if (!putBack()) {
      tried_.why = "what was taken off can't be put back: " + suspender_.why();
      tried_.sure = byDriver_;
    }
    tried_.works = tried_.why.empty();
    return std::move(tried_);
  }
  bool putBack();  // true: nothing is off any more

 private:
  void once();
  bool takeOff();
  void callAll();
  template <typename What>
  bool reach(What what);
  ProbeProcess::Goes goesOn() const;
  void judge(ProbeProcess::Goes whileOff, bool back);

  ProbeProcess& probe_;
  Calls& calls_;
  const SelfTestOptions& options_;
  ChannelSuspender suspender_;
  MethodTried tried_;
  std::string refusal_;
  bool byDriver_ = false;
};

void Trial::callAll() {
  while (const auto order = suspender_.next(now())) {
    const Outcome outcome = calls_.carryOut(*order, tried_.method);
    if (outcome.answer != Answer::kDone) refusal_ = outcome.why;
    byDriver_ = byDriver_ || outcome.answer == Answer::kFailed;
    suspender_.answered(outcome.answer, outcome.gone, now());
  }
}

// As long as another try may help.
template <typename What>
bool Trial::reach(What what) {
  const Nanos until = now() + options_.patience;
  for (;;) {
    callAll();
    if (what()) return true;
    if (suspender_.retryAt() == kNever || now() > until) return false;
    pass(millis(1));
  }
}

bool Trial::putBack() {
  suspender_.release(now());
  return reach([this] { return suspender_.free(); });
}

// While it is off.
ProbeProcess::Goes Trial::goesOn() const {
  pass(options_.settle);
  const auto before = probe_.count();
  pass(options_.watch);
  const auto after = probe_.count();
  if (!before || !after) return ProbeProcess::Goes::Unseen;
  return *after == *before ? ProbeProcess::Goes::Not : ProbeProcess::Goes::On;
}

void Trial::judge(ProbeProcess::Goes whileOff, bool back) {
  using Goes = ProbeProcess::Goes;
  if (whileOff == Goes::On) {
    tried_.why = "the kernel went on while it was off";
    tried_.sure = true;
    return;
  }
  const Goes after = back && whileOff == Goes::Not ? probe_.goesOnWithin(seconds(2)) : whileOff;
  if (after == Goes::Unseen) {
    tried_.why =
        "the probe had no time to look whether its kernel goes on: the machine is too busy";
    tried_.unseen = true;
  } else if (after == Goes::Not) {
    tried_.why = "the kernel did not go on after it was put back";
  }
}

// False: it is not, and why is told.
bool Trial::takeOff() {
  reach([this] { return suspender_.stopped() || suspender_.doubted(); });
  if (suspender_.stopped()) return true;
  tried_.why = (suspender_.doubted() ? suspender_.why() : std::string("the channels are gone")) +
               " (" + refusal_ + ")";
  tried_.sure = suspender_.doubted() && byDriver_;
  return false;
}

// Every second time it is taken off twice, as in a hold that lasts: drivers count.
void Trial::once() {
  const Nanos from = now();
  suspender_.hold(from);
  if (!takeOff()) return;
  tried_.off.push_back(now() - from);
  const bool twice = tried_.off.size() % 2 == 0;
  if (twice) suspender_.again();
  if (twice && !takeOff()) return;
  const ProbeProcess::Goes whileOff = goesOn();
  const Nanos again = now();
  const bool back = putBack();
  if (!twice) tried_.on.push_back(now() - again);
  judge(whileOff, back);
}

std::string tryAll(const SelfTestOptions& options, ProbeProcess& probe, Calls& calls,
                   SelfTest& out) {
  if (const std::string why = probe.begin(); !why.empty()) return why;
  out.channels = probe.channels().size();
  calls.process(ProbeProcess::kProcess, probe.pidfd());
  for (const SuspendMethod method : kSuspendMethods) {
    if (options.only && *options.only != method) continue;
    out.tried.push_back(Trial(probe, calls, options, method).go());
    out.sure = out.tried.back().sure;
    if (out.tried.back().unseen) break;
    if (!out.tried.back().works) continue;
    const std::string wrong = probe.end();
    out.sure = wrong == ProbeProcess::kWrongCount;
    if (wrong.empty()) out.method = method;
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
