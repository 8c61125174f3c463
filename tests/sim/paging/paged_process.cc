#include "tests/sim/paging/paged_process.h"

#include <algorithm>

namespace qgpu::sim {
namespace {

constexpr std::uint64_t kGarbage = 0xdeadbeef;

std::uint64_t stirred(std::uint64_t value, std::uint64_t by) {
  return (value ^ by) * 1099511628211ULL + 1;
}

Bytes asBytes(std::uint64_t bytes) {
  return Bytes(static_cast<std::int64_t>(bytes));
}

}  // namespace

PagedProcess::PagedProcess(PagingSite& site, const PagingOptions& options, PagedTask& task,
                           std::uint32_t index)
    : site_(site), options_(options), task_(task), index_(index) {}

void PagedProcess::start() {
  wake();
  think();
}

Bytes PagedProcess::onCard() const {
  return torn_ ? Bytes(0) : asBytes(memory_.bytesIn());
}

Bytes PagedProcess::in() const {
  return onCard() + pending_;
}

Bytes PagedProcess::out() const {
  return dead_ ? Bytes(0) : asBytes(memory_.bytesOut());
}

bool PagedProcess::orphan() const {
  return site_.now() > task_.page.heartbeat + kOrphanGrace;
}

bool PagedProcess::gatePasses() const {
  return task_.page.gateOpen || orphan();
}

// --- the program ---

void PagedProcess::think() {
  if (dead_) return;
  site_.after(site_.dice().magnitude(micros(100), millis(30)), [this] { act(); });
}

void PagedProcess::act() {
  if (dead_) return;
  if (stopped()) {
    site_.after(stoppedUntil_ - site_.now(), [this] { act(); });
    return;
  }
  const std::uint64_t what = site_.dice().below(100);
  const bool few = contents_.size() < 3;
  if (what < 60 && !few) return launch();
  if (what < 85 || few) return site_.calm() ? launch() : allocate();
  release();
  think();
}

// A thread that has passed the gate may be late to launch: the library knows of it as entered.
void PagedProcess::launch() {
  if (!gatePasses() || !memory_.enter()) return wait();
  site_.after(site_.dice().magnitude(micros(1), micros(300)), [this] {
    if (dead_) return;
    for (const auto& [chunk, content] : contents_) {
      if (content.onCard || content.freed) continue;
      site_.violated(orphan() ? "M7" : "M1",
                     "a kernel of task " + std::to_string(static_cast<std::uint64_t>(task_.id)) +
                         " begins, and chunk " + std::to_string(chunk) + " is away");
    }
    ++running_;
    ++kernels_;
    site_.say("kernel", task_.id, index_, static_cast<std::int64_t>(running_));
    site_.after(kernelLasts(), [this] { kernelEnds(); });
    memory_.leave();
    think();
  });
}

Nanos PagedProcess::kernelLasts() {
  Dice& dice = site_.dice();
  if (site_.calm()) return dice.magnitude(micros(10), millis(20));
  const bool endless = options_.has(PagingFault::EndlessKernels) && dice.below(1000) < 3;
  if (endless) return dice.between(seconds(5), seconds(18));
  return dice.magnitude(micros(10), std::max(options_.kernelMax, micros(20)));
}

void PagedProcess::kernelEnds() {
  if (dead_) return;
  --running_;
  ++serial_;
  for (auto& [chunk, content] : contents_) {
    if (content.freed) continue;
    content.card = stirred(content.card, serial_);
    content.wrote = stirred(content.wrote, serial_);
  }
}

// As quotas are kept: the bytes are added first, then the sum is looked at, then the driver asked.
void PagedProcess::allocate() {
  Dice& dice = site_.dice();
  const bool firm = dice.percent(15);
  const Bytes bytes = mebibytes(dice.between(1, std::max<std::int64_t>(1, options_.chunkMib)));
  const Bytes left = firm ? task_.firmQuota - task_.firm : task_.quota - task_.has;
  if (bytes > left) return launch();
  if (!memory_.enter()) return wait();
  const auto count = [this, firm](Bytes more) {
    (firm ? task_.firm : task_.has) += more;
    if (!firm) pending_ += more;
  };
  count(bytes);
  site_.after(dice.magnitude(micros(1), micros(500)), [=, this] {
    if (dead_) return;
    const bool passes = firm || task_.has <= task_.page.limit;
    if (passes && site_.card().take(bytes)) {
      if (!firm) pending_ -= bytes;
      allocated(bytes, firm);
      wanted_ = Bytes(0);
      think();
    } else {
      count(-bytes);
      // What the card itself refuses is for the program to hear; above the limit it waits.
      wanted_ = passes ? Bytes(0) : bytes;
      site_.say(passes ? "no memory" : "wants", task_.id, index_, bytes.value);
      passes ? think() : wait();
    }
    memory_.leave();
    tell();
  });
}

void PagedProcess::allocated(Bytes bytes, bool firm) {
  const Chunk chunk = memory_.add(static_cast<std::uint64_t>(bytes.value), firm);
  Content content;
  content.bytes = bytes;
  content.firm = firm;
  content.card = content.wrote = stirred(++serial_, chunk);
  contents_[chunk] = content;
  site_.say("allocated", task_.id, index_, bytes.value);
}

// As CUDA's free, after what runs.
void PagedProcess::release() {
  if (contents_.empty() || running_ != 0) return;
  auto each = contents_.begin();
  std::advance(each, static_cast<std::ptrdiff_t>(site_.dice().below(contents_.size())));
  if (each->second.freed) return;
  each->second.freed = true;
  memory_.freed(each->first);
  pump();
}

// --- the library's thread ---

// A waiting thread looks when the page changes, and now and then: others of its task free memory.
void PagedProcess::wait() {
  waits_ = true;
  site_.after(millis(20), [this] {
    if (dead_ || !waits_) return;
    if (site_.dice().percent(3)) release();  // another thread of it
    wake();
    if (waits_) wait();
  });
}

void PagedProcess::wake() {
  if (dead_ || stopped()) return;
  pump();
  if (!waits_ || !memory_.isIn()) return;
  if (wanted_ == Bytes(0) && !gatePasses()) return;
  const bool never = task_.has + wanted_ > task_.quota;  // another process was quicker
  if (!never && wanted_ > Bytes(0) && task_.has + wanted_ > task_.page.limit) return;
  waits_ = false;
  wanted_ = Bytes(0);
  think();
}

void PagedProcess::pump() {
  if (dead_ || stepping_ || stopped()) return;
  memory_.follow(paging::unpack(task_.page.word));
  if (orphan()) memory_.orphaned();
  const Step step = memory_.next();
  const bool came = memory_.isIn() && !wasIn_;
  wasIn_ = memory_.isIn();
  if (came) cameIn();
  tell();
  if (step.kind == Step::Kind::None) {
    if (came) site_.after(micros(1), [this] { wake(); });
    if (memory_.isIn() || memory_.answer() != paging::Answer::None || looks_) return;
    looks_ = true;  // a call is still inside
    site_.after(millis(1), [this] {
      looks_ = false;
      pump();
    });
    return;
  }
  stepping_ = true;
  if (step.kind == Step::Kind::CopyOut) copied_ = contents_.at(step.chunk).card;
  site_.after(lasts(step), [this, step] { finish(step); });
}

void PagedProcess::finish(const Step& step) {
  if (dead_) return;
  if (stopped()) {
    site_.after(stoppedUntil_ - site_.now(), [this, step] { finish(step); });
    return;
  }
  stepping_ = false;
  const bool well = perform(step);
  memory_.done(step, well);
  if (step.kind != Step::Kind::AskIdle || well) return pump();
  site_.after(micros(500), [this] { pump(); });
}

Nanos PagedProcess::lasts(const Step& step) {
  switch (step.kind) {
    case Step::Kind::CopyOut:
    case Step::Kind::CopyIn:
      return Nanos(contents_.at(step.chunk).bytes.value / (std::int64_t{options_.mibPerMs} << 20) *
                   1'000'000) +
             micros(20);
    case Step::Kind::AskIdle:
      return micros(10);
    default:
      return site_.dice().magnitude(micros(5), micros(500));
  }
}

bool PagedProcess::perform(const Step& step) {
  if (step.kind == Step::Kind::AskIdle) return running_ == 0;
  Content& content = contents_.at(step.chunk);
  const bool full = !site_.calm() && options_.has(PagingFault::HostFull);
  const bool errs = !site_.calm() && options_.has(PagingFault::DriverErrors);
  const bool refuses = (full && site_.dice().percent(10)) || (errs && site_.dice().percent(3));
  switch (step.kind) {
    case Step::Kind::CopyOut:
      content.onHost = true;
      content.host = refuses ? kGarbage : copied_;
      if (running_ != 0) site_.violated("M2", "memory is copied under kernels");
      return !refuses;
    case Step::Kind::Release:
      if (refuses && errs) return false;
      if (!content.freed && running_ != 0) {
        site_.violated("M2", "memory leaves under " + std::to_string(running_) + " kernels");
      }
      if (!content.freed && content.firm) site_.violated("M8", "firm memory leaves the card");
      content.onCard = false;
      site_.card().give(content.bytes);
      site_.say("released", task_.id, index_, content.bytes.value);
      break;
    case Step::Kind::Make:
      if (!site_.card().take(content.bytes)) {
        site_.say("no room", task_.id, index_, content.bytes.value);
        return false;
      }
      content.onCard = true;
      content.card = kGarbage;
      break;
    case Step::Kind::CopyIn:
      if (refuses && errs) return false;
      content.card = content.host;
      break;
    case Step::Kind::DropCopy:
      if (!content.freed && !errs && mayMake()) checkAllThere();
      content.onHost = false;
      break;
    case Step::Kind::Gone:
      (content.firm ? task_.firm : task_.has) -= content.bytes;
      contents_.erase(step.chunk);
      break;
    default:
      break;
  }
  return true;
}

void PagedProcess::cameIn() {
  site_.say("in", task_.id, index_, static_cast<std::int64_t>(memory_.bytesIn()));
  for (const auto& [chunk, content] : contents_) {
    if (content.freed || (content.onCard && content.card == content.wrote)) continue;
    if (orphan() && !content.onCard) continue;  // the next kernel tells (M7)
    site_.violated("M5", "chunk " + std::to_string(chunk) + " came back as another");
  }
}

// Copies on the host are kept until everything is in (M5).
void PagedProcess::checkAllThere() {
  for (const auto& [chunk, content] : contents_) {
    if (content.freed || content.onCard) continue;
    site_.violated("M5", "a copy is given up, and chunk " + std::to_string(chunk) + " is away");
  }
}

bool PagedProcess::couldGoOn() const {
  const bool moves = stepping_ || running_ != 0;
  return !dead_ && !stopped() && memory_.bytesOut() == 0 && !moves && !memory_.isIn();
}

// As a doorbell, for what the manager does not know.
void PagedProcess::tell() {
  const Told now{memory_.answer(), memory_.word().epoch, in(), out(), wanted_};
  if (now == told_) return;
  told_ = now;
  site_.ring(task_.id);
}

void PagedProcess::stopUntil(Nanos time) {
  if (dead_ || stopped()) return;
  stoppedUntil_ = time;
  site_.say("stopped", task_.id, index_, (time - site_.now()).value);
  site_.after(time - site_.now(), [this] { wake(); });
}

// --- its end ---

void PagedProcess::kill() {
  if (dead_) return;
  dead_ = true;
  running_ = 0;
  site_.say("dies", task_.id, index_, in().value);
  site_.ring(task_.id);
  const bool slow = options_.has(PagingFault::SlowDeaths) && !site_.calm();
  site_.after(site_.dice().magnitude(micros(100), slow ? seconds(4) : millis(60)),
              [this] { tearDown(); });
}

void PagedProcess::tearDown() {
  for (const auto& [chunk, content] : contents_) {
    if (content.onCard) site_.card().give(content.bytes);
    (content.firm ? task_.firm : task_.has) -= content.bytes;
  }
  task_.has -= pending_;
  pending_ = Bytes(0);
  torn_ = true;
  site_.ring(task_.id);
}

}  // namespace qgpu::sim
