#pragma once
// What qgpu asks of etcd, as plain types: transactions that hold only while a key is as it was,
// lists of keys, and leases. EtcdStore and Seat decide over it; services/etcd/ asks a real etcd,
// and the simulator a modelled one. Calls wait for the answer, for as long as the implementation
// says.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

struct KvPair {
  std::string key;
  std::string value;
  std::int64_t created = 0;   // the revision of the store that made the key
  std::int64_t modified = 0;  // and that put its value
  std::int64_t lease = 0;     // the key goes with it; 0: with none
};

// True where `key` lives and was made, or got its value, by that revision; 0: where there is no
// such key.
struct KvCondition {
  enum class Of : std::uint8_t { Created, Modified };
  std::string key;
  std::int64_t revision = 0;
  Of of = Of::Created;
};

struct KvChange {
  enum class Does : std::uint8_t {
    Put,
    Delete,  // of [key, end), or of `key` alone where `end` is empty
  };
  Does does = Does::Put;
  std::string key;
  std::string end;
  std::string value;
  std::int64_t lease = 0;  // the key goes with it; 0: with none
};

// All of it or nothing. A key may be changed once.
struct KvTxn {
  std::vector<KvCondition> when;  // all of them
  std::vector<KvChange> then;
};
struct KvTxnAnswer {
  bool done = false;          // false: a condition did not hold, and nothing changed
  std::int64_t revision = 0;  // of the store, after it
};

class Kv {
 public:
  virtual ~Kv() = default;

  // Errors: Unavailable: it may be done or not, also later than now; all other codes: it is not
  // done and never will be.
  virtual Result<KvTxnAnswer> txn(const KvTxn& txn) = 0;
  // Keys of [from, end), in order, `limit` at most, as the majority has them now.
  virtual Result<std::vector<KvPair>> list(const std::string& from, const std::string& end,
                                           std::size_t limit) = 0;
  // A lease that ends `ttl` after it was last kept alive, as etcd counts.
  virtual Result<std::int64_t> grant(Nanos ttl) = 0;
  // NotFound: it is over.
  virtual Status keepAlive(std::int64_t lease) = 0;
  virtual Status revoke(std::int64_t lease) = 0;
};

// The first key behind all that begin with `prefix`, which is not empty and has no byte 0xff last.
inline std::string endOfPrefix(std::string prefix) {
  prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

}  // namespace qgpu
