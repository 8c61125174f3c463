#include "runtime/kj/bridge.h"

#include <kj/debug.h>
#include <signal.h>

#include "runtime/kj/streams.h"

namespace qgpu {

namespace {

// KJ events of one turn. WaitScope::poll() would run until KJ is idle, which under a flood of
// calls starves everything else on the loop for a second.
constexpr kj::uint kEventsPerTurn = 256;

kj::TimePoint toKj(Nanos at) {
  return kj::origin<kj::TimePoint>() + at.value * kj::NANOSECONDS;
}
Nanos fromKj(kj::TimePoint at) {
  return Nanos((at - kj::origin<kj::TimePoint>()) / kj::NANOSECONDS);
}

}  // namespace

KjPort::KjPort(Loop& loop)
    : loop_(loop), timer_(toKj(loop.now())), events_(*this), waitScope_(events_) {
  signal(SIGPIPE, SIG_IGN);
  loop_.addGuest(*this);
}

KjPort::~KjPort() {
  loop_.cancel(armedKey_);
  loop_.removeGuest(*this);
}

bool KjPort::wait() {
  KJ_REQUIRE(!inTurn_, ".wait() within the loop would nest it; use .then()");
  drive(UV_RUN_ONCE);
  return woken_.exchange(false);
}

bool KjPort::poll() {
  if (!inTurn_) drive(UV_RUN_NOWAIT);
  return woken_.exchange(false);
}

void KjPort::wake() const {
  woken_.store(true);
  loop_.wake();
}

void KjPort::drive(uv_run_mode mode) {
  driving_ = true;
  uv_run(&loop_.uv(), mode);
  driving_ = false;
  timer_.advanceTo(toKj(loop_.now()));
}

void KjPort::turn() {
  if (!driving_) {
    inTurn_ = true;
    timer_.advanceTo(toKj(loop_.now()));
    if (woken_.exchange(false)) drainExecutor();
    if (events_.isRunnable()) events_.run(kEventsPerTurn);
    inTurn_ = false;
  }
  armTimer();
}

// Asked of the queue itself and not of setRunnable(), which KJ calls late during .wait().
bool KjPort::maySleep() {
  armTimer();
  return !events_.isRunnable() && !woken_.load();
}

// Work that another thread sent through kj::Executor enters the queue only when KJ polls its port;
// waiting for a ready promise is the one bounded way to make it do so.
void KjPort::drainExecutor() {
  woken_.store(true);
  waitScope_.setBusyPollInterval(0);
  kj::Promise<void>(kj::READY_NOW).wait(waitScope_);
  waitScope_.setBusyPollInterval(kj::maxValue);
}

// An alarm that is too early costs one empty turn, so only an earlier deadline moves it.
void KjPort::armTimer() {
  KJ_IF_MAYBE (at, timer_.nextEvent()) {
    const Nanos deadline = fromKj(*at);
    if (deadline >= armedFor_) return;
    loop_.cancel(armedKey_);
    armedFor_ = deadline;
    armedKey_ = loop_.at(deadline, [this] { armedFor_ = kNever; });
  }
}

KjBridge::KjBridge(Loop& loop)
    : port_(loop), lowLevel_(newKjStreams(port_)), io_(kj::newAsyncIoProvider(*lowLevel_)) {}

}  // namespace qgpu
