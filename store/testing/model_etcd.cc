#include "store/testing/model_etcd.h"

#include <algorithm>
#include <set>
#include <utility>

namespace qgpu {
namespace {

constexpr std::size_t kChangesMax = 128;      // etcd's --max-txn-ops
constexpr std::size_t kRequestMax = 3 << 19;  // and --max-request-bytes

Error away() {
  return fail(ErrorCode::Unavailable, "etcd does not answer");
}
Error full() {
  return fail(ErrorCode::Overloaded, "etcdserver: mvcc: database space exceeded");
}

}  // namespace

void ModelEtcd::advanceTo(Nanos now) {
  now_ = std::max(now_, now);
  std::set<std::int64_t> over;
  for (const auto& [id, lease] : leases_) {
    if (lease.end <= now_) over.insert(id);
  }
  for (const std::int64_t id : over) revoke(id);
}

void ModelEtcd::leadsAnew(Nanos now) {
  now_ = std::max(now_, now);
  for (auto& [id, lease] : leases_) lease.end = now_ + lease.ttl;
}

void ModelEtcd::apply(const KvChange& change) {
  if (change.does == KvChange::Does::Put) {
    KvPair& pair = keys_[change.key];
    if (pair.created == 0) pair = {change.key, {}, revision_, 0, 0};
    pair.value = change.value;
    pair.modified = revision_;
    pair.lease = change.lease;
    return;
  }
  const auto from = keys_.lower_bound(change.key);
  const std::string end = change.end.empty() ? change.key + '\0' : change.end;
  keys_.erase(from, std::max(change.key, end) == end ? keys_.lower_bound(end) : from);
}

Result<KvTxnAnswer> ModelEtcd::txn(const KvTxn& txn) {
  std::size_t bytes = 0;
  for (const KvChange& change : txn.then) {
    bytes += change.key.size() + change.value.size();
    if (change.lease != 0 && !leases_.contains(change.lease)) {
      return fail(ErrorCode::NotFound, "etcdserver: requested lease not found");
    }
  }
  if (txn.then.size() > kChangesMax || bytes > kRequestMax) {
    return fail(ErrorCode::InvalidArgument, "etcdserver: request is too large");
  }
  for (const KvCondition& condition : txn.when) {
    const auto found = keys_.find(condition.key);
    std::int64_t revision = 0;
    if (found != keys_.end()) {
      const bool created = condition.of == KvCondition::Of::Created;
      revision = created ? found->second.created : found->second.modified;
    }
    if (revision != condition.revision) return KvTxnAnswer{false, revision_};
  }
  if (!txn.then.empty()) ++revision_;
  for (const KvChange& change : txn.then) apply(change);
  return KvTxnAnswer{true, revision_};
}

std::vector<KvPair> ModelEtcd::list(const std::string& from, const std::string& end,
                                    std::size_t limit) const {
  std::vector<KvPair> found;
  for (auto at = keys_.lower_bound(from); at != keys_.end() && at->first < end; ++at) {
    if (found.size() == limit) break;
    found.push_back(at->second);
  }
  return found;
}

std::int64_t ModelEtcd::grant(Nanos ttl) {
  leases_[++lastLease_] = {ttl, now_ + ttl};
  return lastLease_;
}

Status ModelEtcd::keepAlive(std::int64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return fail(ErrorCode::NotFound, "the lease is over");
  found->second.end = now_ + found->second.ttl;
  return ok();
}

void ModelEtcd::revoke(std::int64_t lease) {
  leases_.erase(lease);
  ++revision_;
  std::erase_if(keys_, [lease](const auto& entry) { return entry.second.lease == lease; });
}

void ModelClient::deliver() {
  for (const KvTxn& txn : std::exchange(late_, {})) static_cast<void>(etcd_.txn(txn).ok());
}

Result<KvTxnAnswer> ModelClient::txn(const KvTxn& txn) {
  switch (next()) {
    case Fate::Answered:
      return etcd_.txn(txn);
    case Fate::AnswerLost:
      static_cast<void>(etcd_.txn(txn).ok());
      return away();
    case Fate::Late:
      late_.push_back(txn);
      return away();
    case Fate::Lost:
      return away();
    case Fate::Refused:
      return full();
  }
  return away();
}

Result<std::vector<KvPair>> ModelClient::list(const std::string& from, const std::string& end,
                                              std::size_t limit) {
  const Fate fate = next();
  if (fate != Fate::Answered && fate != Fate::Refused) return away();
  return etcd_.list(from, end, limit);
}

Result<std::int64_t> ModelClient::grant(Nanos ttl) {
  switch (next()) {
    case Fate::Answered:
      return etcd_.grant(ttl);
    case Fate::AnswerLost:
      etcd_.grant(ttl);
      return away();
    default:
      return away();
  }
}

Status ModelClient::keepAlive(std::int64_t lease) {
  switch (next()) {
    case Fate::Answered:
    case Fate::Refused:
      return etcd_.keepAlive(lease);
    case Fate::AnswerLost:
      static_cast<void>(etcd_.keepAlive(lease).ok());
      return away();
    default:
      return away();
  }
}

Status ModelClient::revoke(std::int64_t lease) {
  if (next() != Fate::Answered) return away();
  etcd_.revoke(lease);
  return ok();
}

}  // namespace qgpu
