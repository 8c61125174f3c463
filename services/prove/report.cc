#include "services/prove/report.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <linux/magic.h>
#include <simdjson.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>

#include "runtime/fd.h"
#include "services/base/json.h"

namespace qgpu::prove {
namespace {

using simdjson::dom::element;

constexpr std::string_view kKind = "qgpu-report";
constexpr off_t kDocumentMax = 4 << 20;
constexpr std::size_t kHeadTextMax = 1'024;
constexpr std::array<std::string_view, 3> kVerdicts = {"not proven", "weaker", "proven"};

// The texts of a head and what they are called, for who writes and who reads.
constexpr std::array<std::pair<const char*, std::string Head::*>, 13> kTexts = {{
    {"card", &Head::card},
    {"model", &Head::model},
    {"backend", &Head::backend},
    {"driver", &Head::driver},
    {"kernel", &Head::kernel},
    {"qgpu", &Head::version},
    {"host", &Head::host},
    {"date", &Head::date},
    {"suspend", &Head::suspend},
    {"isolation", &Head::isolation},
    {"realtime", &Head::realtime},
    {"clock", &Head::clock},
    {"command", &Head::command},
}};

void write(JsonWriter& json, const Head& head) {
  json.key("head").beginObject();
  for (const auto& [name, field] : kTexts) json.field(name, head.*field);
  json.key("others_permille").number(head.othersPermille);
  json.key("stolen_permille").number(head.stolenPermille);
  json.endObject();
}

void write(JsonWriter& json, const Promise& promise) {
  json.beginObject().field("id", promise.id).field("promise", promise.says);
  json.field("verdict", nameOf(promise.verdict)).field("why", promise.why);
  json.key("figures").beginObject();
  for (const Figure& figure : promise.figures) json.key(figure.name).number(figure.value);
  json.endObject().field("again", promise.again).endObject();
}

void write(JsonWriter& json, const Curve& curve) {
  json.beginObject().key("kernel_ms").number(curve.kernelMs);
  json.key("start_us").beginArray();
  for (const std::int64_t us : curve.us) json.number(us);
  json.endArray().endObject();
}

// Reads a document and remembers the first thing that is not as it should be.
class Reader {
 public:
  std::string text(const element& object, const char* key) {
    std::string_view value;
    if (object[key].get(value) != simdjson::SUCCESS) miss(key, "text");
    return std::string(value);
  }
  std::int64_t number(const element& object, const char* key) {
    std::int64_t value = 0;
    if (object[key].get(value) != simdjson::SUCCESS) miss(key, "whole number");
    return value;
  }
  void each(const element& object, const char* key, auto&& visit) {
    simdjson::dom::array entries;
    if (object[key].get(entries) != simdjson::SUCCESS) return miss(key, "list");
    for (const element entry : entries) visit(entry);
  }

  Promise promise(const element& from) {
    Promise to;
    to.id = text(from, "id");
    to.says = text(from, "promise");
    to.why = text(from, "why");
    to.again = text(from, "again");
    const auto verdict = std::ranges::find(kVerdicts, text(from, "verdict"));
    if (verdict == kVerdicts.end()) miss("verdict", "verdict");
    if (verdict != kVerdicts.end()) to.verdict = static_cast<Verdict>(verdict - kVerdicts.begin());
    simdjson::dom::object figures;
    if (from["figures"].get(figures) != simdjson::SUCCESS) miss("figures", "object");
    for (const auto field : figures) {
      std::int64_t value = 0;
      if (field.value.get(value) != simdjson::SUCCESS) miss("figures", "object of whole numbers");
      to.figures.push_back({std::string(field.key), value});
    }
    return to;
  }

  Curve curve(const element& from) {
    Curve to;
    to.kernelMs = number(from, "kernel_ms");
    each(from, "start_us", [&](const element& point) {
      std::int64_t us = 0;
      if (point.get(us) != simdjson::SUCCESS) miss("start_us", "list of whole numbers");
      to.us.push_back(us);
    });
    if (to.us.size() != Curve::kPoints) miss("start_us", "list of 101 percentiles");
    return to;
  }

  void miss(const std::string& key, const std::string& kind) {
    if (missing_.empty()) missing_ = "its \"" + key + "\" is no " + kind;
  }
  const std::string& missing() const { return missing_; }

 private:
  std::string missing_;
};

}  // namespace

std::string percentText(std::int64_t permille) {
  return std::to_string(permille / 10) + "." + std::to_string(std::abs(permille % 10)) + " %";
}

std::string_view nameOf(Verdict verdict) {
  return kVerdicts[static_cast<std::size_t>(verdict)];
}

const Figure* Promise::figure(std::string_view name) const {
  const auto found = std::ranges::find(figures, name, &Figure::name);
  return found == figures.end() ? nullptr : &*found;
}

std::size_t Report::count(Verdict verdict) const {
  return static_cast<std::size_t>(std::ranges::count(promises, verdict, &Promise::verdict));
}

std::string jsonOf(const Report& report) {
  JsonWriter json;
  json.beginObject().field("kind", kKind).key("schema").number(kSchema);
  write(json, report.head);
  json.key("promises").beginArray();
  for (const Promise& promise : report.promises) write(json, promise);
  json.endArray().key("online_starts").beginArray();
  for (const Curve& curve : report.curves) write(json, curve);
  json.endArray().endObject();
  return json.take() + "\n";
}

Result<Report> readReport(const std::string& json) {
  simdjson::dom::parser parser;
  element root;
  std::string_view kind;
  if (parser.parse(json).get(root) != simdjson::SUCCESS || !root.is_object() ||
      root["kind"].get(kind) != simdjson::SUCCESS || kind != kKind) {
    return fail(ErrorCode::Corrupt, "this is no report of `qgpuctl prove`");
  }
  Reader read;
  const std::int64_t schema = read.number(root, "schema");
  if (schema > kSchema) {
    return fail(ErrorCode::Unsupported, "the report is of schema " + std::to_string(schema) +
                                            ", and this qgpuctl knows them up to " +
                                            std::to_string(kSchema) + ": take a newer one");
  }
  Report report;
  element head;
  if (root["head"].get(head) != simdjson::SUCCESS || !head.is_object()) {
    return fail(ErrorCode::Corrupt, "the report is damaged: it has no head");
  }
  for (const auto& [name, field] : kTexts) {
    report.head.*field = read.text(head, name);
    if ((report.head.*field).size() > kHeadTextMax) {
      return fail(ErrorCode::Corrupt,
                  std::string("the report is damaged: its \"") + name + "\" is too long");
    }
  }
  report.head.othersPermille = read.number(head, "others_permille");
  report.head.stolenPermille = read.number(head, "stolen_permille");
  read.each(root, "promises",
            [&](const element& one) { report.promises.push_back(read.promise(one)); });
  read.each(root, "online_starts",
            [&](const element& one) { report.curves.push_back(read.curve(one)); });
  if (read.missing().empty()) return report;
  return fail(ErrorCode::Corrupt, "the report is damaged: " + read.missing());
}

Result<std::string> readDocument(const std::string& path) {
  // What it is, before it is opened: that alone does something to some devices.
  const Fd there(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat is {};
  struct statfs on {};
  const bool regular = there.get() >= 0 && ::fstat(there.get(), &is) == 0 && S_ISREG(is.st_mode) &&
                       ::fstatfs(there.get(), &on) == 0 && on.f_type != PROC_SUPER_MAGIC &&
                       on.f_type != SYSFS_MAGIC;
  const std::string again = "/proc/self/fd/" + std::to_string(there.get());
  const Fd file(regular ? ::open(again.c_str(), O_RDONLY | O_CLOEXEC) : -1);
  if (file.get() < 0) return fail(ErrorCode::NotFound, path + " can't be read");
  if (is.st_size > kDocumentMax) return fail(ErrorCode::Corrupt, path + " is too large");
  std::string text(static_cast<std::size_t>(is.st_size), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t n =
        ::pread(file.get(), text.data() + got, text.size() - got, static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  text.resize(got);
  return text;
}

Result<Report> readReportFile(const std::string& path) {
  const Result<std::string> text = readDocument(path);
  if (!text) return text.error();
  return readReport(*text);
}

std::vector<std::string> staleSince(const Head& head, const Standing& now) {
  std::vector<std::string> changed;
  const auto compare = [&](const char* what, const std::string& was, const std::string& is) {
    if (!is.empty() && was != is) changed.push_back(std::string(what) + " " + was + " is " + is);
  };
  compare("driver", head.driver, now.driver);
  compare("kernel", head.kernel, now.kernel);
  compare("qgpu", head.version, now.version);
  return changed;
}

}  // namespace qgpu::prove
