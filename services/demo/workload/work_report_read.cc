#include <simdjson.h>

#include "services/demo/workload/work_report.h"

namespace qgpu::demo {
namespace {

using simdjson::dom::element;

std::int64_t integer(const element& object, const char* key) {
  std::int64_t value = 0;
  return object[key].get(value) == simdjson::SUCCESS ? value : 0;
}

std::uint64_t count(const element& object, const char* key) {
  return static_cast<std::uint64_t>(integer(object, key));
}

double decimal(const element& object, const char* key) {
  double value = 0;
  return object[key].get(value) == simdjson::SUCCESS ? value : 0;
}

std::string text(const element& object, const char* key) {
  std::string_view value;
  return object[key].get(value) == simdjson::SUCCESS ? std::string(value) : std::string();
}

Result<element> rootOf(simdjson::dom::parser& parser, const std::string& json) {
  element root;
  if (parser.parse(json).get(root) != simdjson::SUCCESS || !root.is_object()) {
    return fail(ErrorCode::Corrupt,
                "this is no report of qgpu-work: '" + json.substr(0, 200) + "'");
  }
  return root;
}

void each(const element& object, const char* key, auto&& visit) {
  simdjson::dom::array entries;
  if (object[key].get(entries) != simdjson::SUCCESS) return;
  for (const element entry : entries) visit(entry);
}

}  // namespace

double rateBetween(const std::vector<Mark>& marks, std::size_t first, std::size_t last) {
  if (last >= marks.size() || first >= last || marks[last].atNs <= marks[first].atNs) return 0;
  return static_cast<double>(marks[last].loops - marks[first].loops) * 1e9 /
         static_cast<double>(marks[last].atNs - marks[first].atNs);
}

Result<DeviceNames> parseDeviceNames(const std::string& json) {
  simdjson::dom::parser parser;
  const Result<element> root = rootOf(parser, json);
  if (!root) return root.error();
  return DeviceNames{text(*root, "device"), text(*root, "driver")};
}

Result<MemoryTaken> parseMemoryTaken(const std::string& json) {
  simdjson::dom::parser parser;
  const Result<element> root = rootOf(parser, json);
  if (!root) return root.error();
  return MemoryTaken{count(*root, "bytes"), count(*root, "refused_bytes"), integer(*root, "error"),
                     count(*root, "again_bytes")};
}

Result<WorkReport> parseWorkReport(const std::string& json) {
  simdjson::dom::parser parser;
  const Result<element> parsed = rootOf(parser, json);
  if (!parsed) return parsed.error();
  const element root = *parsed;
  WorkReport report;
  report.device = text(root, "device");
  report.clock = text(root, "clock");
  report.loopsPerMs = decimal(root, "loops_per_ms");
  report.kernels = count(root, "kernels");
  report.loops = count(root, "loops");
  report.itemsChecked = count(root, "items_checked");
  report.wrong = count(root, "wrong_items");
  report.kernelNs = static_cast<std::int64_t>(decimal(root, "kernel_ms") * 1e6);
  report.wallNs = static_cast<std::int64_t>(decimal(root, "wall_ms") * 1e6);
  bool seen = false;
  if (root["progress_seen"].get(seen) == simdjson::SUCCESS) report.progressSeen = seen;
  each(root, "phases", [&](const element& p) {
    report.phases.push_back(
        {integer(p, "start_ns"), integer(p, "end_ns"), count(p, "kernels"), count(p, "loops")});
  });
  each(root, "marks", [&](const element& m) {
    report.marks.push_back({integer(m, "at_ns"), count(m, "loops")});
  });
  each(root, "bursts", [&](const element& b) {
    report.bursts.push_back({integer(b, "submit_ns"), integer(b, "start_ns"), integer(b, "end_ns"),
                             static_cast<std::uint32_t>(integer(b, "kernels"))});
  });
  each(root, "standstills", [&](const element& s) {
    report.standstills.push_back({integer(s, "last_ns"), integer(s, "resumed_ns")});
  });
  return report;
}

}  // namespace qgpu::demo
