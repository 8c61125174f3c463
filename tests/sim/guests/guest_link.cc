// The tie to the manager, as services/guest/gate/attach.cc keeps it.
#include <algorithm>
#include <fcntl.h>
#include <utility>

#include "tests/sim/guests/guest_program.h"

namespace qgpu::sim {
namespace {

constexpr Nanos kFirstBackoff = millis(5);
constexpr Nanos kMaxBackoff = millis(200);
constexpr Nanos kMaxRefusedBackoff = seconds(5);
constexpr Nanos kWelcomeWithin = seconds(1);
constexpr Nanos kAttachWithin = seconds(5);
constexpr std::uint32_t kFreezeSignal = 61;  // SIGRTMAX - 3

}  // namespace

void Program::connect() {
  const bool again = state_ == State::Attached;
  if (home_.attach_ == nullptr) return retryLater(kMaxBackoff);
  SimHello hello;
  hello.serial = helloSerial_ = ++home_.lastSerial_;
  hello.pid = pid_;
  hello.start = pid_ * 7ull;
  hello.token = task_.spec.token;
  hello.reattach = again;
  hello.incarnationSeen = incarnationSeen_;
  hello.freezeSignal = plan_.drivers != 0 ? kFreezeSignal : 0;
  if (again) {
    hello.slot = slotIndex_;
    hello.page.reset(::fcntl(report_->fd.get(), F_DUPFD_CLOEXEC, 0));
  }
  home_.attach_->hello(std::move(hello));
  later(kWelcomeWithin, Do::GiveUpHello, static_cast<std::uint32_t>(helloSerial_));
}

void Program::retryLater(Nanos most) {
  helloSerial_ = 0;
  if (state_ != State::Attached && now() - startedAt_ > kAttachWithin) return die();
  backoff_ = std::min(backoff_, most);
  nextConnect_ = now() + backoff_;
  const bool attached = state_ == State::Attached;
  linkIn(attached ? std::min(backoff_, linkTick()) : backoff_);
  backoff_ = backoff_ * 2;
}

// A record for our hello is in our socket: its descriptors are ours, whatever happens to the
// manager from now on.
bool Program::answered(const SimWelcome& welcome) {
  if (helloSerial_ != welcome.serial || state_ == State::Gone) return false;
  helloSerial_ = 0;
  if (over()) return true;  // a process that dies closes its files after its memory is gone
  if (welcome.refused && state_ != State::Attached) {
    task_.over = true;
    exitSoon(micros(100), millis(20));  // no device
    return true;
  }
  if (welcome.refused) {
    if (home_.calm_) exitSoon(seconds(1), seconds(3));  // it would try for ever
    retryLater(kMaxRefusedBackoff);
    return true;
  }
  Adoption adoption;
  adoption.serial = welcome.serial;
  adoption.slot = welcome.slot;
  adoption.incarnation = welcome.incarnation;
  adoption.life = welcome.life;
  adoption.card = welcome.card;
  adoption.again = state_ == State::Attached;
  adoption.gate = &task_.pages.gate(welcome.life, *welcome.pages);
  if (!adoption.again) adoption.report = &task_.pages.report(*welcome.pages);
  adoption_ = adoption;
  later(dice_.magnitude(micros(2), dice_.percent(97) ? micros(100) : millis(20)), Do::Adopt);
  return true;
}

void Program::adopt() {
  Adoption adoption = *std::exchange(adoption_, std::nullopt);
  GateMap* old = gate_;
  gate_ = adoption.gate;
  if (!adoption.again) {
    report_ = adoption.report;
    slotIndex_ = adoption.slot;
    card_ = adoption.card;
    online_ = gatePage().task_class == QGPU_ONLINE;
    state_ = State::Attached;
  }
  if (old != nullptr) {
    // Those who wait on the old page's word must meet the new one.
    old->wake(INT32_MAX);
    task_.pages.drop(old);
  }
  doorbellLife_ = adoption.life;
  notifiedFor_.reset();
  idleRungAt_ = Nanos(0);
  idleUntold_ = false;
  incarnationSeen_ = std::max(incarnationSeen_, adoption.incarnation);
  attachedAt_ = now();
  orphan_ = false;
  store(slot().obeys, adoption.incarnation);
  connected_ = home_.attach_ != nullptr && home_.attach_->life() == adoption.life;
  backoff_ = kFirstBackoff;
  nextConnect_ = Nanos(0);
  home_.attaches_++;
  ring();
  tell(GuestNews::Kind::Attached);
  if (!adoption.again) begin();
  if (connected_) home_.attach_->channelsThere(pid_, adoption.again);
  linkIn(Nanos(0));
}

void Program::connectionLost() {
  if (over()) return;
  if (!connected_ && helloSerial_ == 0) return;
  connected_ = false;
  helloSerial_ = 0;
  backoff_ = kFirstBackoff;
  nextConnect_ = Nanos(0);
  linkIn(dice_.magnitude(micros(10), millis(1)));
}

void Program::linkIn(Nanos delay) {
  home_.host_.cancel(Scope::World, linkTimer_);
  linkTimer_ = later(delay, state_ == State::Attached ? Do::Link : Do::Connect);
}

bool Program::managerLost() const {
  const std::uint64_t beat = std::max(load(gatePage().heartbeat_ns), ns(attachedAt_));
  return ns(now()) > beat && ns(now()) - beat > load(gatePage().orphan_grace_ns);
}

// One look of the link thread.
void Program::link() {
  const bool lost = managerLost();
  if (lost != orphan_) {
    orphan_ = lost;
    if (lost) {
      tell(GuestNews::Kind::Orphaned);
      gate_->wake(INT32_MAX);
    } else if (connected_ && home_.attach_ != nullptr) {
      home_.attach_->channelsOn(pid_);  // what was off is not
    }
  }
  if (lost) putChannelsOn();
  if (connected_) return linkIn(linkTick());
  if (helloSerial_ != 0 || adoption_) return;
  if (now() >= nextConnect_) return connect();
  linkIn(std::min(nextConnect_ - now(), linkTick()));
}

Nanos Program::linkTick() const {
  const Nanos quarter(static_cast<std::int64_t>(load(gatePage().orphan_grace_ns) / 4));
  return std::clamp(quarter, millis(10), millis(250));
}

}  // namespace qgpu::sim
