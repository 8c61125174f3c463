#pragma once
// What breaks installations of qgpu, found before a person has to: `qgpuctl doctor`. It looks at
// this machine's files and sockets alone, asks daemons for their version, and changes nothing.
//
// Everything is looked at below a root folder, so that a test brings a machine of its own and a
// person looks at another machine's mounted disk. A finding always names what was found and what
// mends it; what can't be known here is left unsaid.

#include <string>
#include <vector>

namespace qgpu::ctl {

struct DoctorOptions {
  std::string root = "/";
  std::string kubeScheduler;  // its static pod or configuration; empty: where kubeadm has it
  std::string runDir;         // of the daemons' sockets
  std::string bundle;         // file for a report; empty: none
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
void examineDaemons(DoctorContext& context, const std::string& version);  // sockets, versions
void examineCertificates(DoctorContext& context);                         // flags, config files
void examineKubelet(DoctorContext& context);                              // device plugins
void examineKubeScheduler(DoctorContext& context);                        // the extender

Diagnosis examine(const DoctorOptions& options, const std::string& version);

std::string doctorTable(const Diagnosis& diagnosis);
std::string doctorJson(const Diagnosis& diagnosis);

}  // namespace qgpu::ctl
