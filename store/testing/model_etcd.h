#pragma once
// An etcd as its clients see it: keys with the revisions that made them, transactions, leases. It
// is linearizable and has one clock, which its owner moves. A ModelClient is one client's way
// there; what becomes of each call is its owner's to say, so that answers get lost, calls arrive
// late or never, and a client is cut off.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "store/etcd/kv.h"

namespace qgpu {

class ModelEtcd {
 public:
  // Time goes on: leases that were not kept alive end, with their keys.
  void advanceTo(Nanos now);
  Nanos now() const { return now_; }
  // As advanceTo(), after a time without a majority: whoever leads then gives each lease its whole
  // time anew.
  void leadsAnew(Nanos now);

  Result<KvTxnAnswer> txn(const KvTxn& txn);
  std::vector<KvPair> list(const std::string& from, const std::string& end,
                           std::size_t limit) const;
  std::int64_t grant(Nanos ttl);
  Status keepAlive(std::int64_t lease);
  void revoke(std::int64_t lease);

  std::int64_t revision() const { return revision_; }
  std::size_t size() const { return keys_.size(); }

 private:
  struct Lease {
    Nanos ttl;
    Nanos end;
  };
  void apply(const KvChange& change);

  Nanos now_;
  std::int64_t revision_ = 1;
  std::int64_t lastLease_ = 0;
  std::map<std::string, KvPair> keys_;
  std::map<std::int64_t, Lease> leases_;
};

class ModelClient final : public Kv {
 public:
  enum class Fate : std::uint8_t {
    Answered,
    AnswerLost,  // it is done, and the client doesn't know
    Lost,        // it never arrives
    Late,        // it arrives when deliver() is called, and the client doesn't know
    Refused,     // etcd has no space: nothing is put, and the client knows; the rest goes on
  };

  // `fate` is asked for each call; without one all are answered.
  explicit ModelClient(ModelEtcd& etcd, std::function<Fate()> fate = nullptr)
      : etcd_(etcd), fate_(std::move(fate)) {}

  void setFate(std::function<Fate()> fate) { fate_ = std::move(fate); }
  // What was late arrives now.
  void deliver();
  bool anythingLate() const { return !late_.empty(); }

  Result<KvTxnAnswer> txn(const KvTxn& txn) override;
  Result<std::vector<KvPair>> list(const std::string& from, const std::string& end,
                                   std::size_t limit) override;
  Result<std::int64_t> grant(Nanos ttl) override;
  Status keepAlive(std::int64_t lease) override;
  Status revoke(std::int64_t lease) override;

 private:
  Fate next() { return fate_ ? fate_() : Fate::Answered; }

  ModelEtcd& etcd_;
  std::function<Fate()> fate_;
  std::deque<KvTxn> late_;
};

}  // namespace qgpu
