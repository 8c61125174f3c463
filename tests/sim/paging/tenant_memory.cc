#include "tests/sim/paging/tenant_memory.h"

#include <algorithm>

namespace qgpu::sim {
namespace {

constexpr Nanos kHeardWithin = millis(150);  // an answer of the manager, with a stall

}  // namespace

void TenantMemory::think() {
  site_.after(site_.dice().magnitude(millis(1), millis(800)), [this] { act(); });
}

void TenantMemory::act() {
  Dice& dice = site_.dice();
  const bool grows = !site_.calm() && dice.percent(60);
  const Bytes step = mebibytes(dice.between(1, std::max<std::int64_t>(1, most_.value >> 20)));
  if (grows && holds_ + step <= quota_) {
    if (site_.card().take(step)) {
      take(step);
    } else if (port_.there()) {
      waiting_ = Waiting{step, site_.now(), 0, 0, ++turns_};
      site_.say("needs", TaskId::kNone, static_cast<std::uint32_t>(index_), step.value);
      ask();
      return watch(turns_);
    }
  } else if (holds_ > Bytes(0)) {
    const Bytes less = std::min(holds_, step);
    holds_ -= less;
    site_.card().give(less);
    port_.othersChanged();
  }
  think();
}

void TenantMemory::ask() {
  waiting_->life = port_.life();
  waiting_->request = port_.need(index_, waiting_->bytes, waiting_->since);
}

// Without an answer for as long as it may take, and a moment more.
void TenantMemory::watch(std::uint64_t turn) {
  site_.after(port_.waitFor() + kHeardWithin, [this, turn] {
    if (!waiting_ || waiting_->turn != turn) return;
    if (port_.there() && port_.life() == waiting_->life) {
      site_.violated("M6", "a need of " + std::to_string(waiting_->bytes.value >> 20) +
                               " MiB has no answer after " +
                               std::to_string((site_.now() - waiting_->since) / millis(1)) + " ms");
    }
    stop();  // its manager ended
  });
}

void TenantMemory::take(Bytes bytes) {
  holds_ += bytes;
  site_.say("took", TaskId::kNone, static_cast<std::uint32_t>(index_), bytes.value);
  port_.othersChanged();
}

void TenantMemory::stop() {
  port_.given(waiting_->request);
  waiting_.reset();
  think();
}

void TenantMemory::answered(std::uint64_t request, bool room) {
  if (!waiting_ || waiting_->request != request) return;
  if (room && site_.card().take(waiting_->bytes)) {
    take(waiting_->bytes);
    return stop();
  }
  if (!room && !port_.mayRefuse()) {
    site_.violated("M6", "a need within its quota is refused, and nobody was ended for it");
  }
  // The card may show room a moment late, or others were quicker: once more, in what time is left.
  if (room && site_.now() < waiting_->since + port_.waitFor()) {
    port_.given(request);
    return ask();
  }
  stop();
}

}  // namespace qgpu::sim
