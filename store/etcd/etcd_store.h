#pragma once
// The rows of a scheduler in an etcd that several schedulers share, below one prefix:
//
//   acting            who is seated (seat.h)
//   format            of these keys
//   reader            the least that understands the rows (rows.h)
//   journal/LSN       rows that one transaction added, in commit order; LSN of the first of them
//   rows/KIND/ID      the newest row of a key up to `folded`
//   folded            LSN up to which the journal is in `rows`
//   turn              number of the last change
//
// As in a file (sqlite_store.h), the newest state is `rows` with the journal redone over it, and a
// snapshot folds the journal. A commit is one key, whatever it holds, so that a group of turns
// costs one round of etcd; only what is larger than kPartBytes takes several, of which the last one
// says that it is all.
//
// Every change is guarded by the seat, so that who lost it changes nothing, and by `turn`, which
// each of them moves: a change without an answer may arrive at any later time, and then finds that
// it is not its turn. A commit without an answer is made again, as the same change, until `turn`
// says that it is done. So a commit is Done, Undone for certain, or Unsure; and it stays Unsure
// where the seat is lost, since what had no answer may have been stored before.
//
// Kept here: C1 (guards), D1 (a transaction is whole or absent), D3 (redo is idempotent, a tail
// without its end is cut), D5 (a checksum per row, no holes in the journal), D6 (formats).

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "store/etcd/kv.h"
#include "store/row_store.h"
#include "store/rows.h"

namespace qgpu {

class EtcdStore final : public RowStore {
 public:
  // Of one key's value. etcd takes requests of 1.5 MiB and transactions of 128 changes.
  static constexpr std::size_t kPartBytes = 1 << 20;
  static constexpr std::size_t kChangesMax = 100;

  struct Options {
    std::string prefix;  // with a '/' at its end
    KvCondition guard;   // of the seat
    // Told once, from within a call: another scheduler is seated, or nobody can tell whether a
    // change is stored. This process must end; the store changes nothing any more.
    std::function<void(const std::string& why)> lost;
    std::int64_t reads = kReads;  // another: for tests
  };

  // Reads all keys and cuts an unfinished tail. `kv` outlives the store. Errors, naming the
  // prefix and the fix: Conflict (somebody else is seated), Unsupported (a newer format), Corrupt,
  // Unavailable (etcd does not answer).
  static Result<std::unique_ptr<EtcdStore>> open(Kv& kv, Options options);

  EtcdStore(EtcdStore&&) = default;
  EtcdStore& operator=(EtcdStore&&) = delete;

  Result<std::vector<StoredRow>> load() override;
  Status add(const StoredRow& row) override;
  Commit commit() override;
  const Error& why() const override { return why_; }
  Status snapshot() override;
  std::size_t journalRows() const override { return unfoldedRows_; }
  Status checkpoint() override { return ok(); }
  Status probe() override;
  std::string_view remedy() const override { return "see to etcd (etcdctl endpoint status)"; }

  Lsn lastLsn() const { return committedLsn_; }

 private:
  struct Stored {  // as it stands in a value; bytes are empty where the key is gone
    RowKey key;
    Lsn lsn = 0;
    std::int64_t sum = 0;
    std::string bytes;
  };
  struct Part {
    std::vector<Stored> rows;
    std::size_t size = 0;
  };
  static std::string encode(const std::vector<Stored>& rows, bool last);
  static std::optional<bool> decode(std::string_view value, std::vector<Stored>& to);
  static Result<StoredRow> checked(const Stored& row);

  EtcdStore(Kv& kv, Options options) : kv_(kv), options_(std::move(options)) {}

  Status beginTurn();
  Status checkFormat();
  Result<std::string> valueOf(const std::string& name);
  Status readAll();
  Status readRows();
  Status readJournal();
  Status takePart(const std::string& value, std::vector<Stored>& pending);
  Status cutTail();
  // The change that has this number: ok once it is done. Unavailable: it may be done, or will be.
  Status change(std::uint64_t number, std::vector<KvChange> changes);
  Status change(std::vector<KvChange> changes) { return change(++numbers_, std::move(changes)); }
  Result<bool> wasDone(std::uint64_t number);
  void lost(const std::string& why);
  void committed();
  Commit undone(Error why);
  Error damaged(const std::string& what) const;
  Error unusable(const Error& row) const;
  std::string journalKey(Lsn lsn) const;
  std::string rowKey(RowKey key) const;
  KvChange foldedRow(const Stored& row) const;

  Kv& kv_;
  const Options options_;
  std::vector<Part> adding_;  // of the open transaction
  std::size_t partsPut_ = 0;  // of these, at a commit that is not over
  std::uint64_t number_ = 0;  // of the change that puts the next of them; 0: not tried yet
  bool lost_ = false;
  std::uint64_t numbers_ = 0;                   // given to changes
  std::int64_t turn_ = 0;                       // the revision that the key `turn` is of
  std::optional<RowTable> table_ = RowTable();  // what open() read, until load() takes it
  std::map<RowKey, Stored> unfolded_;           // the newest of each key in the journal
  std::size_t unfoldedRows_ = 0;
  std::set<std::uint64_t> audits_;  // ids of the audit rows
  Lsn committedLsn_ = 0;
  Lsn addedLsn_ = 0;
  Error why_;
};

}  // namespace qgpu
