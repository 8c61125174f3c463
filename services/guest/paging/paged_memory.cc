#include "services/guest/paging/paged_memory.h"

#include <cstdlib>

#include "runtime/planted.h"

namespace qgpu::guest {

using paging::Answer;
using Kind = PagedMemory::Step::Kind;

PagedMemory::~PagedMemory() {
  free(records_);
}

// --- what the program does ---

bool PagedMemory::enter() {
  if (phase_ != Phase::In) return false;
  ++entered_;
  return true;
}

void PagedMemory::leave() {
  --entered_;
}

PagedMemory::Chunk PagedMemory::add(std::uint64_t bytes, bool firm) {
  Chunk at = 0;
  while (at < count_ && records_[at].used) ++at;
  if (at == room_) {
    const Chunk more = room_ ? room_ * 2 : 16;
    auto* grown = static_cast<Record*>(realloc(records_, more * sizeof(Record)));
    if (!grown) return kNone;
    records_ = grown;
    room_ = more;
  }
  if (at == count_) ++count_;
  records_[at] = {bytes, Place::Nowhere, true, firm, false, false};
  move(records_[at], Place::Card);
  return at;
}

void PagedMemory::freed(Chunk chunk) {
  if (chunk >= count_) return;
  records_[chunk].freed = true;
  records_[chunk].stays = false;  // it may be one that could not be copied
}

// --- what the manager wants ---

void PagedMemory::follow(paging::Word word) {
  if (word == word_) return;
  word_ = word;
  answer_ = Answer::None;
  noRoom_ = false;
  for (Chunk i = 0; i < count_; ++i) records_[i].stays = false;
  switch (word.phase) {
    case paging::Phase::In:
      phase_ = Phase::Returning;
      break;
    case paging::Phase::Drain:
      phase_ = Phase::Draining;
      break;
    case paging::Phase::Out:
      phase_ = Phase::Leaving;
      break;
  }
}

// Whose memory is all there goes on, as it would have without a manager.
void PagedMemory::orphaned() {
  if (busy_ || phase_ == Phase::In || phase_ == Phase::Returning) return;
  if (QGPU_PLANTED(OrphanGoesOn)) phase_ = Phase::In;
  if (out_ != 0 || QGPU_PLANTED(OrphanWaits)) return;
  QGPU_MARK(OrphanWentOn);
  phase_ = Phase::Returning;
}

// --- what is to be done ---

PagedMemory::Step PagedMemory::next() {
  Step step = stepOfFreed();
  if (step.kind == Kind::None) {
    switch (phase_) {
      case Phase::Draining:
      case Phase::Leaving:
        step = stepOut();
        break;
      case Phase::Returning:
        step = stepIn();
        break;
      default:
        break;
    }
  }
  busy_ = step.kind != Kind::None;
  return step;
}

PagedMemory::Step PagedMemory::nextOfFreed() {
  const Step step = stepOfFreed();
  busy_ = step.kind != Kind::None;
  return step;
}

PagedMemory::Step PagedMemory::stepOfFreed() {
  for (Chunk i = 0; i < count_; ++i) {
    const Record& record = records_[i];
    if (!record.used || !record.freed || record.stays) continue;
    switch (record.place) {
      case Place::Card:
      case Place::Both:
      case Place::Made:
        return {Kind::Release, i};
      case Place::Host:
        QGPU_MARK(FreedWhileOut);
        return {Kind::DropCopy, i};
      default:
        return {Kind::Gone, i};
    }
  }
  return {};
}

PagedMemory::Step PagedMemory::stepOut() {
  const Step step = phase_ == Phase::Leaving ? nextMove() : Step();
  const bool moves = step.kind != Kind::None || phase_ == Phase::Draining;
  if (moves && !idle_) {
    if (entered_ != 0) return {};
    if (!QGPU_PLANTED(IdleByCallsAlone)) return {Kind::AskIdle, kNone};
    idle_ = true;
  }
  if (phase_ == Phase::Draining) {
    answer_ = Answer::Idle;
  } else if (step.kind == Kind::None) {
    phase_ = Phase::Out;
    answer_ = noRoom_ ? Answer::NoRoom : Answer::Left;
  }
  return step;
}

PagedMemory::Step PagedMemory::nextMove() const {
  const std::uint64_t all = in_ + out_;
  const std::uint64_t wanted = all / 1000 * word_.permille + all % 1000 * word_.permille / 1000;
  Step leaves;
  for (Chunk i = 0; i < count_; ++i) {
    const Record& record = records_[i];
    if (!record.used) continue;
    const bool firm = record.firm && !QGPU_PLANTED(FirmLeaves);
    if (record.place == Place::Made && !record.stays) return {Kind::Release, i};
    // What could not be released stays, and its copy goes.
    if (record.place == Place::Both) return {record.stays ? Kind::DropCopy : Kind::Release, i};
    const bool may = record.place == Place::Card && !firm && !record.stays && out_ < wanted;
    if (may && leaves.kind == Kind::None) leaves = {Kind::CopyOut, i};
  }
  return leaves;
}

PagedMemory::Step PagedMemory::stepIn() {
  Chunk copied = kNone;
  for (Chunk i = 0; i < count_; ++i) {
    const Record& record = records_[i];
    if (!record.used) continue;
    if (record.place == Place::Host) return {Kind::Make, i};
    if (record.place == Place::Made) return {Kind::CopyIn, i};
    if (record.place == Place::Both && copied == kNone) copied = i;
  }
  if (copied != kNone) return {Kind::DropCopy, copied};
  phase_ = Phase::In;
  idle_ = false;
  answer_ = Answer::In;
  return {};
}

void PagedMemory::done(Step step, bool well) {
  busy_ = false;
  if (step.kind == Kind::AskIdle) {
    idle_ = well && entered_ == 0;
    return;
  }
  if (step.chunk >= count_) return;
  Record& record = records_[step.chunk];
  const bool hasCopy = record.place == Place::Both || record.place == Place::Made;
  switch (step.kind) {
    case Kind::CopyOut:
      if (well || QGPU_PLANTED(ReleasedUncopied))
        move(record, Place::Both);
      else
        record.stays = !record.freed;
      break;
    case Kind::Release:
      if (well)
        move(record, hasCopy ? Place::Host : Place::Nowhere);
      else
        record.stays = true;
      break;
    case Kind::Make:
      if (well)
        move(record, Place::Made);
      else
        turnBack(record);
      break;
    case Kind::CopyIn:
      if (well)
        move(record, Place::Both);
      else
        turnBack(record);
      break;
    case Kind::DropCopy:
      move(record, record.place == Place::Both ? Place::Card : Place::Nowhere);
      break;
    case Kind::Gone:
      record.used = false;
      break;
    default:
      break;
  }
}

// What was made leaves again: no work ran, so the copies on the host are still what left.
void PagedMemory::turnBack(const Record& record) {
  if (phase_ != Phase::Returning || record.freed) return;
  QGPU_MARK(TurnedBack);
  phase_ = Phase::Leaving;
  noRoom_ = true;
}

void PagedMemory::move(Record& record, Place place) {
  const auto count = [this, &record](Place at, bool there) {
    if (record.firm || at == Place::Nowhere) return;
    std::uint64_t& bytes = at == Place::Host ? out_ : in_;
    bytes = there ? bytes + record.bytes : bytes - record.bytes;
  };
  count(record.place, false);
  record.place = place;
  count(place, true);
}

}  // namespace qgpu::guest
