#include "services/daemons/restore.h"

#include "services/base/wall_time.h"
#include "store/sqlite_store.h"

namespace qgpu {

Result<RowCopy> copyFor(const std::string& path, const std::string& daemon, const std::string& of) {
  auto copy = readCopy(path);
  if (!copy) return copy;
  if (copy->daemon != daemon) {
    return fail(ErrorCode::InvalidArgument, path + " is of a " + copy->daemon +
                                                ", and this is qgpu-" + daemon +
                                                ": give it to qgpu-" + copy->daemon);
  }
  if (!of.empty() && copy->of != of) {
    return fail(ErrorCode::InvalidArgument, path + " is of node " + copy->of + ", and this is " +
                                                of + ": say --nodename=" + copy->of +
                                                " where that is its name");
  }
  return copy;
}

std::string restored(const RowCopy& copy, const std::string& where) {
  return where + " has " + std::to_string(copy.rows.size()) + " rows of " + copy.daemon + " " +
         copy.of + " now, as they were at " + rfc3339(copy.takenUnixMs) + ": start qgpu-" +
         copy.daemon + " on it\n";
}

Status restoreFile(const RowCopy& copy, const std::string& dbfile) {
  auto store = SqliteStore::open(dbfile);
  if (!store) return store.error();
  const Status done = restoreInto(*store, copy, unixMsNow());
  if (done) {
    static_cast<void>(store->checkpoint());  // the rows are stored, wherever they are read from
    return ok();
  }
  return fail(done.error().code, dbfile + ": " + done.error().message);
}

}  // namespace qgpu
