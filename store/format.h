#pragma once
// The shape of the database file and how an older shape becomes today's. The number of the shape
// is stored in the file; it grows whenever a table changes, never when a row's Cap'n Proto schema
// merely grows.
//
// Kept here: D6. A step runs in one transaction together with its new number, so a crash leaves
// either the old shape or the new one.

#include <cstdint>
#include <span>
#include <string>

#include "runtime/result.h"
#include "store/rows.h"
#include "store/sqlite.h"

namespace qgpu {

// Turns format `from` into format from + 1.
struct Migration {
  std::int64_t from;
  const char* sql;
};

struct Formats {
  std::int64_t current;
  const char* create;  // the tables of `current`, in an empty database
  std::span<const Migration> migrations;
  std::int64_t reads = kReads;
  Needs needs = kNeeds;  // of what is written from now on
};

// What this program writes.
extern const Formats kFormats;

// True where the database has no tables at all. Fails where it is locked or not a database.
Result<bool> isEmpty(Sqlite& db);

// The number in the file. Unsupported for a database that is not qgpu's.
Result<std::int64_t> readFormat(Sqlite& db);

// Ok where createOrMigrate() can make the database current. Reads only.
Status checkFormat(Sqlite& db, const Formats& formats);

// Brings the database to formats.current; needs a passed checkFormat().
Status createOrMigrate(Sqlite& db, const Formats& formats);

}  // namespace qgpu
