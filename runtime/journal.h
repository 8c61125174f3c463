#pragma once
// The seam between actors and durable storage. The dispatcher hands the rows of one turn to the
// Journal as one batch and keeps the turn's ordinary sends until the batch is committed (D2).
// store/ implements it on SQLite; tests bring one in memory. actors/ and store/ never meet.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/message_words.h"
#include "runtime/result.h"

namespace qgpu {

enum class RowKind : std::uint16_t {
  Node = 1,
  Card = 2,
  Task = 3,
  Audit = 4,
  Cluster = 5,
  ClusterNode = 6,
  ClusterTask = 7,  // the scheduler's
};

struct RowKey {
  RowKind kind = RowKind::Node;
  std::uint64_t id = 0;
  auto operator<=>(const RowKey&) const = default;
};

// One row: a flat single-segment message with a schema::Row root (capnp::readMessageUnchecked
// reads what we built ourselves; rows from disk are validated by store/ before they get here).
struct StoredRow {
  RowKey key;
  Words words;
};

// The term with which schedulers begin on a store that is not the one that nodes knew: a copy, or a
// new one (C1). Terms counted from an earlier such begin are others, since nobody restarts once in
// 8 s for ever; a later one is told by the nodes. In 500 years it reaches the bound of terms.
constexpr std::uint64_t termAt(std::uint64_t unixMs) {
  return unixMs / 8'000;
}

class Journal {
 public:
  virtual ~Journal() = default;

  // Told on the loop that appended, in append order. A failed batch changed nothing on disk.
  using Committed = std::function<void(Status)>;

  // Takes the rows of one turn. Batches commit in order; several may share one transaction.
  // Returns at once; `done` is called later, never from inside append().
  virtual void append(std::vector<StoredRow> rows, Committed done) = 0;
};

}  // namespace qgpu
