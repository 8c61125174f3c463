#pragma once
// What was found of one card and its driver: the document that is written, signed, and read again.
// Each promise has a verdict that was measured in this run, or none: a promise is not proven until
// something proves it. Numbers are integers, and their unit ends their name.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu::prove {

// Of the document. A newer one is refused, since it may mean by a field what this reader doesn't.
inline constexpr std::int64_t kSchema = 1;

enum class Verdict : std::uint8_t { NotProven, Weaker, Proven };
std::string percentText(std::int64_t permille);  // "12.3 %"
std::string_view nameOf(Verdict verdict);        // "not proven", "weaker", "proven"

struct Figure {
  std::string name;
  std::int64_t value = 0;
  bool operator==(const Figure&) const = default;
};

struct Promise {
  std::string id;    // "latency-10ms"; stable, for programs
  std::string says;  // the promise, a sentence
  Verdict verdict = Verdict::NotProven;
  std::string why;  // it is weaker, or not proven
  std::vector<Figure> figures;
  std::string again;  // the command that shows it once more

  // Nothing where it has none of that name.
  const Figure* figure(std::string_view name) const;
  bool operator==(const Promise&) const = default;
};

// How long online waited behind kernels of one length.
struct Curve {
  static constexpr std::size_t kPoints = 101;  // the percentiles 0 to 100
  std::int64_t kernelMs = 0;
  std::vector<std::int64_t> us;
  bool operator==(const Curve&) const = default;
};

// What a report holds for: a change of card, driver, kernel or version makes it stale.
struct Head {
  std::string card;
  std::string model;
  std::string backend;
  std::string driver;
  std::string kernel;
  std::string version;  // of the manager
  std::string host;
  std::string date;  // RFC 3339
  std::string suspend;
  std::string isolation;
  std::string realtime;
  std::string clock;    // whose stamps the latencies are
  std::string command;  // that made it
  // Of this machine's CPUs meanwhile, by programs that this one did not start or by the host of a
  // virtual machine: the managers' own time is among it.
  std::int64_t othersPermille = 0;
  std::int64_t stolenPermille = 0;
  bool operator==(const Head&) const = default;
};

struct Report {
  Head head;
  std::vector<Promise> promises;
  std::vector<Curve> curves;

  std::size_t count(Verdict verdict) const;
  bool allHold() const { return !promises.empty() && count(Verdict::NotProven) == 0; }
  bool operator==(const Report&) const = default;
};

std::string jsonOf(const Report& report);
// Corrupt: it is no report. Unsupported: one of a newer schema.
Result<Report> readReport(const std::string& json);
// The same of a file; the errors of readDocument() too.
Result<Report> readReportFile(const std::string& path);
// The text of a file, as a report or its page is one. NotFound: it is no regular file, or may not
// be read; Corrupt: it has more than 4 MiB. Nothing is waited for, as a FIFO would have it.
Result<std::string> readDocument(const std::string& path);

// What of `head` is not so any more; each text names what was and what is. Empty values of `now`
// are not known, and not compared.
struct Standing {
  std::string driver;
  std::string kernel;
  std::string version;
};
std::vector<std::string> staleSince(const Head& head, const Standing& now);

}  // namespace qgpu::prove
