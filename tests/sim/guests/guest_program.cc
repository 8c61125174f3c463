#include "tests/sim/guests/guest_program.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <utility>

namespace qgpu::sim {

Program::Program(Tenants& home, Tenants::Task& task, std::uint32_t pid, const Plan& plan, Dice dice)
    : home_(home), task_(task), pid_(pid), plan_(plan), dice_(dice), launchesLeft_(plan.launches) {
  later(plan_.start, Do::Connect);
}

std::string Program::text() const {
  static constexpr const char* kStates[] = {"starting", "attaching", "attached", "dead", "gone"};
  return "process " + std::to_string(pid_) + " of task " + std::to_string(task_.spec.task) + " " +
         kStates[static_cast<std::size_t>(state_)] + ", " + std::to_string(queued_) +
         " in flight, " + std::to_string(waiting()) + " waiting" + (silent() ? ", silent" : "") +
         (connected_ ? "" : ", no connection") + (orphan_ ? ", orphan" : "");
}

Fd Program::report() const {
  const ReportMap* report = adoption_ && adoption_->report != nullptr ? adoption_->report : report_;
  return report == nullptr ? Fd() : Fd(::fcntl(report->fd.get(), F_DUPFD_CLOEXEC, 0));
}

// --- time ---

// What a thread was to do is done when its time has come, unless the process is dead then.
Host::Key Program::later(Nanos delay, Do what, std::uint32_t arg) {
  const std::uint64_t code = static_cast<std::uint64_t>(what) << 32 | arg;
  return home_.host_.after(Scope::World, delay, [this, code] {
    on(static_cast<Do>(code >> 32), static_cast<std::uint32_t>(code));
  });
}

void Program::on(Do what, std::uint32_t arg) {
  if (what == Do::MemoryGone) return memoryGone();
  if (what == Do::OwnerWord) return ownerWord();
  if (over()) return;
  onMachine(what, arg);
}

// What happens whatever the threads of the host do.
void Program::onMachine(Do what, std::uint32_t arg) {
  switch (what) {
    case Do::KernelEnd:
      return kernelEnd();
    case Do::Freeze:
      return freeze(arg);
    case Do::Frozen:
      return frozenLooks(arg);
    case Do::ViceBegins:
      return viceBegins();
    case Do::ViceEnds:
      return viceEnds();
    default:
      break;
  }
  if (silent()) return deferred_.push_back({what, arg});
  onHost(what, arg);
}

void Program::onHost(Do what, std::uint32_t arg) {
  switch (what) {
    case Do::Connect:
      if (state_ == State::Starting) startedAt_ = now();
      state_ = State::Attaching;
      return connect();
    case Do::GiveUpHello:
      if (static_cast<std::uint32_t>(helloSerial_) == arg) retryLater(millis(200));
      return;
    case Do::Adopt:
      return adopt();
    case Do::Link:
      return link();
    case Do::Launch:
      return launch(arg);
    case Do::Admit:
      return admit(arg);
    case Do::Wait:
      return wait(arg);
    case Do::AdmitAgain:
      return admitAgain(arg);
    case Do::Synced:
      reap();
      return goOn(arg);
    case Do::Reap:
      reapComes_ = false;
      // A frozen driver thread may hold the driver's locks: a query would wait for the thaw.
      if (load(slot().frozen) != 0 && mustStop(gateWord())) return reapSoon();
      return reap();
    case Do::Parked:
      return store(slot().parked, queued_ != 0 && !running_ && kernel(0).blocked ? 1u : 0u);
    case Do::TellIdle:
      return tellIdle();
    case Do::Context:
      return context();
    case Do::Memory:
      return memory();
    case Do::Reserve:
      return reserve();
    case Do::Scribble:
      return scribble();
    case Do::Storm:
      return storm();
    case Do::Exit:
    case Do::Terminate:
      return die();
    default:
      return;
  }
}

void Program::tell(GuestNews::Kind kind, std::int64_t amount) {
  GuestNews news;
  news.kind = kind;
  news.task = task_.spec.task;
  news.process = pid_;
  news.card = card_;
  news.amount = amount;
  news.inFlight = queued_;
  news.waiting = waiting();
  home_.host_.mix(static_cast<std::uint64_t>(kind) << 32 | pid_);
  home_.watch_.onGuest(news, now());
}

void Program::ring() {
  if (home_.attach_ == nullptr || home_.attach_->life() != doorbellLife_) return;
  home_.attach_->ring(task_.spec.task);
}

// Attached for the first time: its threads begin.
void Program::begin() {
  qgpu_slot& s = slot();
  store(s.pid, pid_);
  store(s.start_time, pid_ * 7ull);
  store(s.owner, pid_);
  for (std::uint32_t i = 0; i < plan_.drivers; i++) store(s.tids[i], pid_ + 1 + i);
  store(s.driver_threads, plan_.drivers);
  while (lastChannel_ < plan_.channels) channels_[++lastChannel_] = 0;
  for (std::uint32_t i = 0; i < plan_.threads; i++) {
    threads_[i].left = plan_.burst;
    threads_[i].timer = later(dice_.magnitude(micros(1), millis(2)), Do::Launch, i);
  }
  for (std::uint32_t i = 0; i < plan_.allocations; i++) {
    later(dice_.magnitude(micros(1), millis(2)), Do::Memory, 1);
  }
  if (plan_.memoryEvery != kNever) later(plan_.memoryEvery, Do::Memory);
  if (plan_.contextEvery != kNever) later(plan_.contextEvery, Do::Context);
  if (plan_.life != kNever) later(plan_.life, Do::Exit);
  if (plan_.vice != Vice::None && !home_.calm_) later(plan_.viceAt, Do::ViceBegins);
}

// --- the end ---

void Program::exitSoon(Nanos min, Nanos max) {
  if (std::exchange(exiting_, true)) return;
  later(dice_.magnitude(min, max), Do::Exit);
}

void Program::killed(bool hard) {
  if (over()) return;
  if (hard) return die();
  if (plan_.deafToTerm || std::exchange(termed_, true)) return;
  later(dice_.magnitude(micros(200), millis(50)), Do::Terminate);
}

void Program::woken(std::uint32_t thread) {
  if (over()) return;
  const Nanos latency = dice_.percent(98) ? dice_.magnitude(micros(1), micros(100))
                                          : dice_.magnitude(micros(100), millis(5));
  if (thread >= kFirstDriver) {
    Driver& driver = drivers_[thread - kFirstDriver];
    home_.host_.cancel(Scope::World, driver.timer);
    driver.timer = later(latency, Do::Frozen, thread - kFirstDriver);
    return;
  }
  home_.host_.cancel(Scope::World, threads_[thread].timer);
  threads_[thread].at = At::Launching;
  threads_[thread].timer = later(latency, Do::Wait, thread);
}

// Its threads stop and its kernels end. What the kernel does about it comes afterwards.
void Program::die() {
  const bool was = state_ == State::Attached;
  state_ = State::Dead;
  if (gate_ != nullptr) {
    for (std::uint32_t i = 0; i < kThreadsMax; i++) gate_->forget(*this, i);
    for (std::uint32_t i = 0; i < kDriversMax; i++) gate_->forget(*this, kFirstDriver + i);
  }
  for (Thread& thread : threads_) {
    home_.host_.cancel(Scope::World, thread.timer);
    thread.waits = false;
  }
  home_.host_.cancel(Scope::World, kernelTimer_);
  home_.host_.cancel(Scope::World, linkTimer_);
  running_ = false;
  queued_ = 0;
  deferred_.clear();
  if (!was) return memoryGone();
  tell(GuestNews::Kind::Died);
  const Nanos robust = dice_.percent(50) ? Nanos(0) : dice_.between(micros(1), micros(200));
  if (robust == Nanos(0)) {
    ownerWord();
  } else {
    later(robust, Do::OwnerWord);
  }
  later(robust + dice_.magnitude(micros(50), millis(100)), Do::MemoryGone);
}

// The kernel walks the robust list of the link thread.
void Program::ownerWord() {
  const std::uint32_t owner = load(slot().owner);
  if ((owner & FUTEX_TID_MASK) == pid_) {
    store(slot().owner, (owner & FUTEX_WAITERS) | FUTEX_OWNER_DIED);
  }
}

void Program::memoryGone() {
  std::int64_t bytes = 0;
  for (const std::int64_t buffer : buffers_) bytes += buffer;
  buffers_.clear();
  const bool was = report_ != nullptr;
  state_ = State::Gone;
  if (was) tell(GuestNews::Kind::BytesReturned, bytes);
  if (adoption_) {
    task_.pages.drop(adoption_->gate);
    task_.pages.drop(adoption_->report);
  }
  task_.pages.drop(gate_);
  task_.pages.drop(report_);
  home_.ended(*this);
}

}  // namespace qgpu::sim
