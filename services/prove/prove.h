#pragma once
// `qgpuctl prove`: one report about one card and driver, made of what programs of its own measured
// there. The card must be free of other tasks, and stay so: its policy is changed meanwhile and put
// back.

#include <functional>
#include <string>
#include <vector>

#include "services/prove/report.h"

namespace qgpu::prove {

struct ProveOptions {
  std::string card;  // by any of its names; empty: the first
  std::string only;  // one of proveParts(); empty: all
  bool quick = false;
  std::string folder = "qgpu-report";  // of the report
  std::string key;                     // to sign it with; empty: it is not signed
  std::string verify;                  // a report to look at; empty: one is made
  std::string allowedSigners;          // who may have signed that
};

// What --only takes.
std::vector<std::string> proveParts();

// Who asks whom. Told each step: "share", and what is done.
struct ProveSetting {
  std::string binaries;  // folder of qgpuctl and qgpu-work
  std::string socket;    // of the manager
  std::function<void(const std::string&)> tell;
};

// NotFound: no such card, or no qgpu-work; Conflict: the card has other tasks, which are named;
// Unavailable: no manager, or it was stopped. What could not be measured is no error, but a promise
// that is not proven.
Result<Report> prove(const ProveOptions& options, const ProveSetting& setting);

// Whether SIGINT or SIGTERM stopped it.
bool wasStopped();

// Writes report.json, report.md and its pictures, and signs the first where options say so; the
// path of report.json, absolute.
Result<std::string> writeReport(const ProveOptions& options, const Report& report);

// The report in `options.verify` and who signed it; the errors of readSigned() and
// readReport().
// Corrupt also where a report.md beside it is not its page.
struct Verified {
  Report report;
  std::string signer;
};
Result<Verified> verifyReport(const ProveOptions& options);

}  // namespace qgpu::prove
