#include "tests/sim/checkers/check_storage.h"

#include <algorithm>
#include <capnp/message.h>

#include "schema/rows.capnp.h"

namespace qgpu::sim {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9fb21c651e98df25ULL;
  return hash ^ (hash >> 32);
}

// Of the content, however its words are laid out; 0: the key is gone.
std::uint64_t hashOf(const StoredRow& stored) {
  const auto row = capnp::readMessageUnchecked<schema::Row>(stored.words.data());
  if (row.isErased()) return 0;
  const kj::Array<capnp::word> words = capnp::canonicalize(row);
  std::uint64_t hash = mixed(static_cast<std::uint64_t>(stored.key.kind), stored.key.id);
  const auto bytes = words.asBytes();
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    for (std::size_t b = 0; b < 8; ++b) word |= std::uint64_t{bytes[i + b]} << (8 * b);
    hash = mixed(hash, word);
  }
  return hash | 1;
}

// The first key that is not the same, for a person.
std::string difference(const std::map<RowKey, std::uint64_t>& stored,
                       const std::map<RowKey, std::uint64_t>& found) {
  const auto name = [](RowKey key) {
    return "kind " + std::to_string(static_cast<int>(key.kind)) + " id " + std::to_string(key.id);
  };
  for (const auto& [key, hash] : stored) {
    const auto there = found.find(key);
    if (there == found.end()) return "; missing: " + name(key);
    if (there->second != hash) return "; other: " + name(key);
  }
  for (const auto& [key, hash] : found) {
    if (!stored.contains(key)) return "; more: " + name(key);
  }
  return "";
}

}  // namespace

void StorageCheck::State::set(RowKey key, std::uint64_t hash) {
  if (hash == 0) {
    const auto found = rows.find(key);
    if (found == rows.end()) return;
    digest -= found->second;
    rows.erase(found);
    return;
  }
  std::uint64_t& row = rows[key];
  digest += hash - row;
  row = hash;
}

StorageCheck::State StorageCheck::stateOf(const std::vector<StoredRow>& rows) {
  State state;
  for (const StoredRow& row : rows) state.set(row.key, hashOf(row));
  return state;
}

// --- what a life finds ---

bool StorageCheck::legal(const State& found) {
  State state = stored_;
  bool any = state.digest == found.digest;
  for (const Batch& batch : open_) {
    for (const auto& [key, hash] : batch.changes) state.set(key, hash);
    if (state.digest != found.digest) continue;
    any = true;
    lastFound_ = batch.number;
  }
  return any;
}

// What was found is durable: a later power cut may not take it again, and what was not there may
// not come back.
void StorageCheck::onBoot(const Boot& boot, Nanos) {
  node_ = boot.node;
  lastFound_ = 0;
  State found = stateOf(boot.rows);
  if (stateOf(boot.rowsAgain).digest != found.digest) {
    verdict_.violated("D3", "the rows read twice are not the same");
  }
  if (first_ || boot.databaseLost) {
    if (!boot.rows.empty()) verdict_.violated("D5", "a new database has rows");
  } else if (!legal(found)) {
    verdict_.violated(
        "D1", "life " + std::to_string(boot.life) + " found " + std::to_string(boot.rows.size()) +
                  " rows; " + std::to_string(stored_.rows.size()) +
                  " were acknowledged, and with " + std::to_string(open_.size()) +
                  " more batches it is none of those" + difference(stored_.rows, found.rows));
  }
  first_ = false;
  stored_ = std::move(found);
  open_.clear();
  under_.clear();
  effects_ = 0;
  stalledUntil_ = Nanos(0);
  failedAt_ = kNever;
}

void StorageCheck::onEnd(Ending, Nanos) {
  under_.clear();
  failedAt_ = kNever;
}

// --- batches ---

void StorageCheck::onAppended(std::uint64_t batch, ActorId actor,
                              const std::vector<StoredRow>& rows, Nanos) {
  Changes changes;
  changes.reserve(rows.size());
  for (const StoredRow& row : rows) changes.emplace_back(row.key, hashOf(row));
  open_.push_back({batch, actor, std::move(changes)});
  ++under_[static_cast<std::uint32_t>(actor)];
  failedAt_ = kNever;
}

void StorageCheck::onAnswered(std::uint64_t batch, const Status& status, Nanos now) {
  if (open_.empty() || open_.front().number != batch) {
    return verdict_.violated("D2", "batch " + std::to_string(batch) + " was answered out of turn");
  }
  const Batch answered = std::move(open_.front());
  open_.pop_front();
  const auto under = under_.find(static_cast<std::uint32_t>(answered.actor));
  if (--under->second == 0) under_.erase(under);
  if (!status.ok()) {
    failedAt_ = std::max(now, stalledUntil_);
    return;
  }
  for (const auto& [key, hash] : answered.changes) stored_.set(key, hash);
  if (answered.actor == node_ && rounds_ == Rounds::AlwaysRows) ++effects_;
}

// --- what is said ---

void StorageCheck::onSent(const Carried& message, Nanos) {
  if (message.lane == Lane::Control) return;
  if (!under_.empty()) {
    const auto under = under_.find(static_cast<std::uint32_t>(message.from));
    // With several under way, the answer to the first lets its own messages go.
    if (under != under_.end() && under->second == 1 && effects_ == 0) {
      verdict_.violated("D2", "a message of kind " +
                                  std::to_string(static_cast<int>(message.message.which())) +
                                  " left before the rows of its actor were committed");
    }
  }
  if (!message.message.isCommitted() || message.from != node_) return;
  if (rounds_ == Rounds::MayBeEmpty) return;
  if (effects_ == 0) {
    return verdict_.violated("D2", "a change takes effect that was not committed");
  }
  --effects_;
}

void StorageCheck::onTurn(const Carried&, Nanos now) {
  if (failedAt_ != kNever && now - failedAt_ > kTriesAgain) watchTries(now);
}

void StorageCheck::onStall(Nanos until) {
  stalledUntil_ = std::max(stalledUntil_, until);
  if (failedAt_ != kNever) failedAt_ = std::max(failedAt_, until);
}

void StorageCheck::watchTries(Nanos now) {
  verdict_.violated("D4", "a commit failed " + std::to_string((now - failedAt_) / millis(1)) +
                              " ms ago, and nobody has tried again");
  failedAt_ = kNever;
}

void StorageCheck::onPhase(Phase phase, Nanos now) {
  if (phase == Phase::Restart && failedAt_ != kNever) watchTries(now);
}

}  // namespace qgpu::sim
