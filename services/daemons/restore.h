#pragma once
// `--restore=FILE` of a daemon: puts a snapshot (store/row_copy.h) into its store, which must be
// empty, and ends. The daemon itself is started afterwards, as always.

#include <cstdint>
#include <string>

#include "runtime/result.h"
#include "store/row_copy.h"

namespace qgpu {

// A snapshot of this daemon, "manager" or "scheduler", of `of` where that is not empty.
Result<RowCopy> copyFor(const std::string& path, const std::string& daemon, const std::string& of);

// What a person reads afterwards, in a line.
std::string restored(const RowCopy& copy, const std::string& where);

// Into the SQLite file of a daemon that does not run. Errors name the file.
Status restoreFile(const RowCopy& copy, const std::string& dbfile);

}  // namespace qgpu
