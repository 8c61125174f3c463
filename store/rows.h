#pragma once
// Rows between memory and disk: their checksum, their validation, and redo. Pure but for memory;
// no SQLite here, so it is tested by itself.
//
// Kept here: D3 (redo of any suffix, any number of times, gives the same state) and D5 (bytes from
// disk are checked in full before anyone reads them without checks).

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/journal.h"
#include "runtime/result.h"

namespace qgpu {

// Position in the journal, one per row, counted from 1; it never goes back.
using Lsn = std::int64_t;

inline constexpr std::size_t kRowBytesMax = 64 * 1024;  // of one row
inline constexpr int kRowNestingMax = 16;               // pointers deep

std::span<const std::byte> bytesOf(const StoredRow& row);

// Rows say more over time, and what is added may matter to who reads them. Beside the rows stands
// the least reader that understands them, and since which version there is one, so that an older
// qgpu refuses them by a version's name. What a reader may pass over raises neither number.
struct Needs {
  std::int64_t number = 1;
  const char* since = "0.1.0";
};
inline constexpr std::int64_t kReads = 1;  // what this qgpu understands
inline constexpr Needs kNeeds = {};        // what it writes needs

Error needsNewer(const std::string& since);
// Unsupported where what stands there needs a later reader than `reads`.
Status checkReader(std::int64_t number, const std::string& since, std::int64_t reads);

// Text of a key for messages: "task 12".
std::string describe(RowKey key);

// The checksum stored beside a row: over its key, its position and its bytes, so that a row that
// lands under another key or position is noticed as well. 32 bits, never negative.
std::int64_t checksum(RowKey key, Lsn lsn, std::span<const std::byte> bytes);

// True for a row that says "this key is gone". `row` was built by this process.
bool isErased(const StoredRow& row);

// InvalidArgument for a row that could not be read back: empty, too long, or not of its key's kind.
Status checkOwnRow(const StoredRow& row);

// Bytes from disk as a row: a flat single-segment message, read in full with limits and copied, so
// that capnp::readMessageUnchecked of the result is safe. Unsupported: of a kind that only a newer
// qgpu can have written, where the checksum says that the bytes are as written. Corrupt: all else.
Result<StoredRow> decodeRow(RowKey key, std::span<const std::byte> bytes);

// One stored row, checked against its checksum as well; without words where `bytes` are empty, for
// a key that is gone.
Result<StoredRow> checkedRow(RowKey key, Lsn lsn, std::span<const std::byte> bytes,
                             std::int64_t sum);

// The newest row of every key: what snapshot and journal add up to.
class RowTable {
 public:
  // Applies one stored row; no words means that the key is gone. A position at or before the
  // newest one seen for the key changes nothing.
  void redo(Lsn lsn, StoredRow row);

  // Rows that exist, by key.
  std::vector<StoredRow> rows() const;
  // Checksum of rows(), for comparing two states.
  std::uint64_t digest() const;

 private:
  struct Entry {
    Lsn lsn = 0;
    Words words;
  };
  std::map<RowKey, Entry> newest_;
};

}  // namespace qgpu
