// Memory by the quota's rule (services/guest/gate/quota.cc), and what is wrong with some processes.
#include <algorithm>
#include <utility>

#include "tests/sim/guests/guest_program.h"

namespace qgpu::sim {
namespace {

constexpr int kAskTries = 3;
constexpr std::size_t kBuffersMax = 6;

}  // namespace

// --- memory ---

void Program::memory() {
  if (plan_.memoryEvery != kNever && !home_.resting_) later(plan_.memoryEvery, Do::Memory);
  if (exiting_ || reserving_) return;
  if (buffers_.size() >= kBuffersMax || (!buffers_.empty() && dice_.percent(40))) {
    const std::size_t which = dice_.below(buffers_.size());
    const std::int64_t bytes = std::exchange(buffers_[which], buffers_.back());
    buffers_.pop_back();
    tell(GuestNews::Kind::Freed, bytes);
    subtract(slot().bytes, bytes);
    return;
  }
  const std::int64_t quota = static_cast<std::int64_t>(load(gatePage().quota_bytes));
  const std::int64_t percent = dice_.percent(3) ? 101 : dice_.between(1, 70);
  reserving_ = Reserving{std::max<std::int64_t>(1, quota / 100 * percent), 0};
  add(slot().bytes, reserving_->bytes);
  if (races()) {
    later(dice_.magnitude(Nanos(50), micros(50)), Do::Reserve);
  } else {
    reserve();
  }
}

std::uint64_t Program::sumOfBytes() const {
  std::uint64_t sum = 0;
  for (const qgpu_slot& s : report_->page().slot) {
    if (__builtin_add_overflow(sum, load(s.bytes), &sum)) return ~0ull;
  }
  return sum;
}

// It was added to our slot; now the sum over all slots says whether it stays.
void Program::reserve() {
  const Reserving asked = *reserving_;
  if (sumOfBytes() <= load(gatePage().quota_bytes)) {
    store(slot().bytes_peak, std::max(load(slot().bytes_peak), load(slot().bytes)));
    buffers_.push_back(asked.bytes);
    reserving_.reset();
    return tell(GuestNews::Kind::Allocated, asked.bytes);
  }
  subtract(slot().bytes, asked.bytes);
  if (asked.tries + 1 >= kAskTries) {
    reserving_.reset();
    return tell(GuestNews::Kind::Refused, asked.bytes);
  }
  reserving_->tries++;
  add(slot().bytes, asked.bytes);
  if (races()) {
    later(dice_.magnitude(Nanos(50), micros(50)), Do::Reserve);
  } else {
    reserve();
  }
}

// --- vices ---

void Program::viceBegins() {
  if (home_.calm_) return;
  if (plan_.vice == Vice::Dies) {
    const bool idle = queued_ == 0 && dice_.percent(95);
    if (!idle) return die();
    later(dice_.magnitude(micros(50), millis(5)), Do::ViceBegins);
    return;
  }
  active_ = true;
  if (plan_.viceFor != kNever) later(plan_.viceFor, Do::ViceEnds);
  switch (plan_.vice) {
    case Vice::Ignores:
    case Vice::Hides:
      tell(GuestNews::Kind::Disobeys);
      for (std::uint32_t i = 0; i < plan_.threads; i++) {
        if (threads_[i].at != At::Gate) continue;
        gate_->forget(*this, i);
        woken(i);
      }
      return;
    case Vice::Lies:
      return scribble();
    case Vice::Silent:
      tell(GuestNews::Kind::Silent);
      if (plan_.hangs) home_.host_.cancel(Scope::World, std::exchange(kernelTimer_, 0));
      return;
    case Vice::Storms:
      stormsLeft_ = static_cast<std::uint32_t>(dice_.between(20, 2'000));
      return storm();
    default:
      return;
  }
}

void Program::viceEnds() {
  if (!active_) return;
  if (silent()) return silenceEnds();
  active_ = false;
}

// Everything that its threads were to do in the meantime, they do now.
void Program::silenceEnds() {
  active_ = false;
  for (const Deferred& step : std::exchange(deferred_, {})) {
    const Host::Key key = later(dice_.magnitude(micros(1), millis(1)), step.what, step.arg);
    const bool ofThread = step.what == Do::Launch || step.what == Do::Admit ||
                          step.what == Do::Wait || step.what == Do::AdmitAgain ||
                          step.what == Do::Synced;
    if (ofThread) threads_[step.arg].timer = key;
    if (step.what == Do::Link || step.what == Do::Connect) linkTimer_ = key;
  }
  if (running_ && kernelTimer_ == 0) kernelTimer_ = later(kernel(0).left, Do::KernelEnd);
}

void Program::calm() {
  if (over() || !active_) return;
  if (silent() && dice_.percent(50)) return die();
  viceEnds();
}

void Program::storm() {
  if (!active_ || stormsLeft_-- == 0) {
    active_ = false;
    return;
  }
  ring();
  later(dice_.magnitude(micros(10), micros(500)), Do::Storm);
}

std::uint64_t Program::nonsense(std::uint64_t was) {
  switch (dice_.below(8)) {
    case 0:
      return 0;
    case 1:
      return ~0ull;
    case 2:
      return dice_.word();
    case 3:
      return ns(now()) + ns(seconds(3'600));
    case 4:
      return was - dice_.below(5);
    case 5:
      return was + dice_.below(5);
    case 6:
      return was + QGPU_MAX_INFLIGHT + dice_.below(3);
    default:
      return dice_.below(100);
  }
}

void Program::scribbleField(qgpu_slot& s) {
  const auto scribbleOn = [this](auto& word) { store(word, nonsense(load(word))); };
  switch (dice_.below(25)) {  // stamps are what the arbiter hears of
    case 19:
    case 20:
    case 21:
      return store(s.last_submit_ns, ns(now() + seconds(dice_.between(1, 1'000'000))));
    case 22:
    case 23:
    case 24:
      return store(s.last_retire_ns, ns(now() + seconds(dice_.between(1, 1'000'000))));
    case 0:
      return scribbleOn(s.admitted);
    case 1:
      return scribbleOn(s.retired);
    case 2:
      return scribbleOn(s.last_submit_ns);
    case 3:
      return scribbleOn(s.last_retire_ns);
    case 4:
      return scribbleOn(s.waiting);
    case 5:
      return scribbleOn(s.parked);
    case 6:
      return scribbleOn(s.launches);
    case 7:
      return scribbleOn(s.gpu_ns);
    case 8:
      return scribbleOn(s.window_used_ns);
    case 9:
      return scribbleOn(s.bytes);
    case 10:
      return scribbleOn(s.bytes_peak);
    case 11:
      return scribbleOn(s.owner);
    case 12:
      return scribbleOn(s.pid);
    case 13:
      return scribbleOn(s.start_time);
    case 14:
      return scribbleOn(s.frozen);
    case 15:
      return scribbleOn(s.driver_threads);
    case 16:
      return scribbleOn(s.frozen_ns);
    case 17:
      return scribbleOn(s.tids[dice_.below(QGPU_DRIVER_THREADS)]);
    default:
      return scribbleOn(s.obeys);
  }
}

void Program::scribble() {
  if (!active_) return;
  if (!std::exchange(toldLies_, true)) tell(GuestNews::Kind::Lies);
  qgpu_report_page& page = report_->page();
  const std::uint64_t where = dice_.below(20);
  if (where < 14) {
    scribbleField(slot());
  } else if (where < 19) {
    scribbleField(page.slot[dice_.below(QGPU_SLOTS)]);
  } else {
    store(page.magic, nonsense(load(page.magic)));
    store(page.task, nonsense(load(page.task)));
  }
  if (dice_.percent(30)) ring();
  later(dice_.magnitude(micros(20), millis(50)), Do::Scribble);
}

}  // namespace qgpu::sim
