#include "services/ctl/snapshot.h"

#include <map>

#include "services/base/json.h"
#include "services/base/wall_time.h"
#include "services/ctl/answers/table.h"
#include "store/rows.h"

namespace qgpu::ctl {
namespace {

// Rows by the name of their kind.
std::map<std::string, std::uint64_t> counted(const RowCopy& copy) {
  std::map<std::string, std::uint64_t> counts;
  for (const StoredRow& row : copy.rows) {
    const std::string name = describe(row.key);
    ++counts[name.substr(0, name.rfind(' '))];
  }
  return counts;
}

}  // namespace

std::string snapshotTable(const std::string& path, const RowCopy& copy) {
  std::string counts;
  for (const auto& [kind, count] : counted(copy)) {
    counts += (counts.empty() ? "" : ", ") + std::to_string(count) + " " + kind;
  }
  return printable(path + ": qgpu-" + copy.daemon + " of " + copy.of + ", as it was at " +
                   rfc3339(copy.takenUnixMs) + ", by version " + copy.version) +
         "\n" + std::to_string(copy.rows.size()) + " rows: " + counts + "\n";
}

std::string snapshotJson(const RowCopy& copy) {
  JsonWriter json;
  json.beginObject().key("ok").boolean(true);
  json.field("daemon", copy.daemon).field("of", copy.of).field("version", copy.version);
  json.key("taken_unix_ms").number(copy.takenUnixMs);
  json.key("rows").number(std::uint64_t{copy.rows.size()}).key("kinds").beginObject();
  for (const auto& [kind, count] : counted(copy)) json.key(kind).number(count);
  json.endObject().endObject();
  return json.take();
}

}  // namespace qgpu::ctl
