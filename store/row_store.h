#pragma once
// A home of rows that outlive their daemon: a transaction at a time, one writer. SqliteStore keeps
// them in a file of this machine, EtcdStore in an etcd that several schedulers share. Calls may
// wait for a disk or a network, so a journal makes them on a thread of its own.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/journal.h"
#include "runtime/result.h"

namespace qgpu {

// Audit rows tell a story and are not state: a snapshot keeps only this many of the newest.
inline constexpr std::int64_t kAuditRowsMax = 10'000;

class RowStore {
 public:
  virtual ~RowStore() = default;

  // The newest row of each key, validated; keys whose newest row is `erased` are left out.
  virtual Result<std::vector<StoredRow>> load() = 0;

  // Adds one row to the open transaction, beginning one where there is none. A failure undoes
  // everything since the last commit().
  virtual Status add(const StoredRow& row) = 0;

  enum class Commit : std::uint8_t {
    Done,    // what was added is durable
    Undone,  // nothing of it is stored; why() says for what reason
    Unsure,  // it may be stored: nothing but another commit() tells, soon
  };
  virtual Commit commit() = 0;
  // Of the last commit() that was not Done.
  virtual const Error& why() const = 0;

  // Makes what load() has to read short again. Not between add() and commit().
  virtual Status snapshot() = 0;
  // Rows that a snapshot would fold.
  virtual std::size_t journalRows() const = 0;
  // To be called when nothing is waiting.
  virtual Status checkpoint() = 0;
  // Tells whether a commit would succeed now.
  virtual Status probe() = 0;

  // What a person can do where it fails: "free space or mend the disk".
  virtual std::string_view remedy() const = 0;
};

}  // namespace qgpu
