#pragma once
// What breaks installations of qgpu, found before a person has to: `qgpuctl doctor`. It looks at
// this machine's files and sockets alone, asks daemons for their version, and changes nothing.
//
// Everything is looked at below a root folder, so that a test brings a machine of its own and a
// person looks at another machine's mounted disk. A finding always names what was found and what
// mends it; what can't be known here is left unsaid.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/ctl/answers/client.h"
#include "services/prove/prove.h"

namespace qgpu::ctl {

struct DoctorOptions {
  std::string root = "/";
  std::string kubeScheduler;  // its static pod or configuration; empty: where kubeadm has it
  std::string runDir;         // of the daemons' sockets
  std::string bundle;         // file for a report; empty: none
  bool quiet = false;         // findings alone
  // A pair that somebody shows to a scheduler, and who signed that one's; empty: none is looked at.
  std::string cert, key, ca;

  std::string path(const std::string& absolute) const;
};

struct Fact {
  std::string name;
  std::string value;
};

struct Finding {
  std::string code;  // stable, for programs
  std::string what;
  std::string fix;

  // True where everything still works.
  bool isWarning() const;
};

struct Diagnosis {
  std::vector<Fact> facts;
  std::vector<Finding> findings;
  std::vector<std::string> well{};  // what was looked at and is as it should be

  // True where a finding is more than a warning.
  bool somethingBroken() const;
};

// What a check needs: a machine to look at, and where to say what it found.
struct DoctorContext {
  const DoctorOptions& options;
  Diagnosis& diagnosis;

  std::string path(const std::string& absolute) const { return options.path(absolute); }
  void well(std::string what) { diagnosis.well.push_back(std::move(what)); }
  void fact(std::string name, std::string value);
  void finding(std::string code, std::string what, std::string fix);
};

// The checks. `version`: of this program, which daemons should share.
void examineMachine(DoctorContext& context);                              // kernel, driver, folders
void examineHost(DoctorContext& context);                                 // disk, clock, memory
void examineDaemons(DoctorContext& context, const std::string& version);  // sockets, versions
void examineNode(DoctorContext& context);                                 // what a manager says
void examineCertificates(DoctorContext& context);                         // flags, config files
void examineKubelet(DoctorContext& context);                              // device plugins
void examineKubeScheduler(DoctorContext& context);                        // the extender

// What is made of what was measured there.
struct DiskRoom {
  std::uint64_t freeBytes = 0;
  std::uint64_t freeFiles = 0;
  std::uint64_t walBytes = 0;  // the largest log of a database
};
void judgeDisk(DoctorContext& context, const std::string& folder, const DiskRoom& room);
void judgeClock(DoctorContext& context, bool synchronised);
// Whether qgpu knows the calls by which this NVIDIA driver is asked for memory.
void judgeCounting(DoctorContext& context, const std::string& driver);
// Whether cards of this NVIDIA driver can be held by `rm`; `kernel`: two numbers.
void judgeRm(DoctorContext& context, const std::string& driver,
             const std::vector<unsigned>& kernel);

// The newest report of a card: whether it still holds.
struct CardOfReport {
  std::string id;
  std::string name;  // to people
};
void judgeReport(DoctorContext& context, const CardOfReport& card,
                 const Result<prove::Report>& report, const prove::Standing& now,
                 std::int64_t nowUnixMs);
void examineReport(DoctorContext& context, Value card, const std::string& version);

Diagnosis examine(const DoctorOptions& options, const std::string& version);

enum class Telling : std::uint8_t { All, Findings };
std::string doctorTable(const Diagnosis& diagnosis, Telling telling = Telling::All);
std::string doctorJson(const Diagnosis& diagnosis);

}  // namespace qgpu::ctl
