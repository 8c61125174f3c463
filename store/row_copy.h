#pragma once
// All rows of a store as one file, to be kept elsewhere and put into an empty store one day:
//
//   qgpu-snapshot 1           text, a line each; 1: format of this file
//   reader 1 0.1.0            the oldest reader of the rows, and the qgpu since which there is one
//   daemon scheduler          whose rows they are
//   of host-7                 node of a manager; host or prefix of a scheduler
//   taken 1764000000000       Unix ms
//   version 0.1.0             of the qgpu that wrote it
//   rows 123
//                             an empty line, then each row: kind, id, length, bytes
//   1b2c3d4e                  the last 8 characters: CRC-32C of all before, hexadecimal
//
// Kept here: D5 (what is damaged is told and never taken), D6 (so is what is newer).

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/journal.h"
#include "runtime/result.h"
#include "store/row_store.h"

namespace qgpu {

struct RowCopy {
  std::string daemon;  // "manager" or "scheduler"
  std::string of;
  std::int64_t takenUnixMs = 0;
  std::string version;
  std::vector<StoredRow> rows;
};

std::string encodeCopy(const RowCopy& copy);
// Corrupt, or Unsupported where a newer qgpu wrote it.
Result<RowCopy> decodeCopy(std::string_view file);

// A file and what it holds; errors name the path. Written beside `path` and renamed over it, for
// its user alone.
Result<RowCopy> readCopy(const std::string& path);
Status writeCopyFile(const std::string& path, std::string_view file);

// The rows as a store has them that goes on later than they were copied. Numbers that may have been
// given since are passed over. Tasks that live are taken over by a manager; a scheduler waits until
// nodes have said what they hold. Drains are cordons, so that nobody is moved or ended by an old
// word, and tokens of machines that were to join are gone.
std::vector<StoredRow> asRestored(const std::vector<StoredRow>& rows, std::int64_t unixMs);

// Whether a commit of which nobody knows the outcome is asked for once more; waits a moment before
// it says so.
using AskAgain = std::function<bool()>;

// Into an empty store, all or nothing. AlreadyExists where rows are.
Status restoreInto(RowStore& store, const RowCopy& copy, std::int64_t unixMs,
                   const AskAgain& askAgain = {});

}  // namespace qgpu
