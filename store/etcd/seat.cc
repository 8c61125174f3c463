#include "store/etcd/seat.h"

#include <algorithm>
#include <utility>

#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::int64_t kKeptPerTtl = 4;  // rounds in which a lease is kept alive, in its time
constexpr char kBetween = '\n';          // identity and address of a holder

}  // namespace

std::string encodeHolder(const SeatHolder& holder) {
  return holder.identity + kBetween + holder.address;
}

std::optional<SeatHolder> decodeHolder(const std::string& value) {
  const std::size_t at = value.find(kBetween);
  if (at == std::string::npos || value.find(kBetween, at + 1) != std::string::npos) return {};
  return SeatHolder{value.substr(0, at), value.substr(at + 1)};
}

KvCondition Seat::guard() const {
  QGPU_CHECK(state_ == State::Seated, "a guard is of who is seated");
  return {keyOf(options_.prefix), created_, KvCondition::Of::Created};
}

Nanos Seat::step(Nanos now) {
  if (state_ == State::Lost) return kNever;
  return state_ == State::Seated ? keep(now) : look(now);
}

Nanos Seat::failed(const Error& why) {
  health_ = why;
  return options_.lookEvery;
}

Nanos Seat::look(Nanos now) {
  const std::string key = keyOf(options_.prefix);
  const auto found = kv_.list(key, key + '\0', 1);
  if (!found) return failed(found.error());
  health_ = ok();
  if (found->empty()) {
    other_.reset();
    return take(now);
  }
  const KvPair& holder = found->front();
  const std::optional<SeatHolder> who = decodeHolder(holder.value);
  if (who && who->identity == options_.identity) {
    QGPU_MARK(SeatFoundAgain);
    // Ours, by a call that had no answer; of how old its lease is nothing is known.
    lease_ = holder.lease;
    seated(holder.created, now - options_.ttl);
    return keep(now);
  }
  if (who && isEnded(*who)) {
    QGPU_MARK(SeatOfTheEnded);
    const Status over = kv_.revoke(holder.lease);
    if (!over && over.error().code != ErrorCode::NotFound) return failed(over.error());
    other_.reset();
    return take(now);
  }
  other_ = who ? *who : SeatHolder{"somebody who is no qgpu-scheduler", ""};
  return options_.lookEvery;
}

bool Seat::isEnded(const SeatHolder& who) const {
  if (QGPU_PLANTED(AnyoneTakenForEnded)) return !ended_.empty();
  return who.identity == ended_;
}

// A lease of an earlier try is left to end by itself where it is not fresh any more.
Nanos Seat::take(Nanos now) {
  if (now - leaseSince_ > options_.ttl / kKeptPerTtl) lease_ = 0;
  if (lease_ == 0) {
    const auto granted = kv_.grant(options_.ttl);
    if (!granted) return failed(granted.error());
    lease_ = *granted;
    leaseSince_ = now;
  }
  KvTxn txn;
  txn.when = {{keyOf(options_.prefix), 0, KvCondition::Of::Created}};
  if (QGPU_PLANTED(SeatTakenAnyway)) txn.when.clear();
  txn.then = {{KvChange::Does::Put,
               keyOf(options_.prefix),
               {},
               encodeHolder({options_.identity, options_.address}),
               lease_}};
  const auto answer = kv_.txn(txn);
  if (!answer) {
    if (answer.error().code != ErrorCode::Unavailable) lease_ = 0;
    return failed(answer.error());
  }
  if (!answer->done) return options_.lookEvery;
  seated(answer->revision, leaseSince_);
  return options_.ttl / kKeptPerTtl;
}

void Seat::seated(std::int64_t created, Nanos since) {
  state_ = State::Seated;
  created_ = created;
  heldUntil_ = since + options_.ttl;
  other_.reset();
}

Nanos Seat::keep(Nanos now) {
  const Status kept = kv_.keepAlive(lease_);
  if (kept) {
    health_ = ok();
    leaseSince_ = now;
    heldUntil_ = std::max(heldUntil_, now + options_.ttl);
    return options_.ttl / kKeptPerTtl;
  }
  if (kept.error().code == ErrorCode::NotFound) {
    state_ = State::Lost;
    health_ = kept;
    return kNever;
  }
  return failed(kept.error());
}

void Seat::leave() {
  if (lease_ != 0) static_cast<void>(kv_.revoke(lease_).ok());
  state_ = State::Lost;
}

}  // namespace qgpu
