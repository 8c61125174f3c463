#pragma once
// The tenants that live through everything a test does to their manager, and what they must not
// notice: none ends, none stands still beyond the orphan grace, none gets more than its quota, all
// results are right (C9, A14). Two kinds: plain ones (tenant.cc), which are cheap, and unmodified
// OpenCL programs under libqgpu.so, which check what they compute.

#include <memory>
#include <string>
#include <vector>

#include "tests/crash/daemon.h"
#include "tests/crash/tenant_record.h"

namespace qgpu::crash {

// Without a manager a task runs on after 5 s; the rest is for a busy machine. Under kills a tenant
// may wait between two calm moments as well.
inline constexpr milliseconds kProgressWithin = std::chrono::seconds(12);
inline constexpr std::int64_t kStandstillMaxNs = 20'000'000'000;

struct Pace {
  std::uint64_t kernelUs = 500;
  std::uint64_t gapUs = 2'000;
};

class PlainTenant {
 public:
  // `bound`: the answer to its bind. `launches` 0: until it is killed.
  PlainTenant(const Wish& wish, const Json& bound, const std::string& recordFile, Pace pace,
              std::uint64_t launches = 0);
  ~PlainTenant();
  PlainTenant(const PlainTenant&) = delete;
  PlainTenant& operator=(const PlainTenant&) = delete;

  const std::string& name() const { return name_; }
  const TenantRecord& record() const { return *record_; }
  testing::Child& child() { return child_; }

 private:
  std::string name_;
  std::string file_;
  TenantRecord* record_;
  testing::Child child_;  // last: it shares the record
};

class Program {
 public:
  Program(const Wish& wish, const Json& bound, std::vector<std::string> arguments);

  const std::string& name() const { return name_; }
  std::uint64_t task() const { return task_; }
  testing::Child& child() { return child_; }

 private:
  std::string name_;
  std::uint64_t task_;
  testing::Child child_;
};

class Tenants {
 public:
  // `folder` takes the records of plain tenants.
  Tenants(Daemon& daemon, Bindings& bindings, std::string folder)
      : daemon_(daemon), bindings_(bindings), folder_(std::move(folder)) {}

  // Each binds, starts, and returns at once. The manager must serve.
  void addPlain(const Wish& wish, Pace pace);
  void addProgram(const Wish& wish, std::vector<std::string> arguments);

  std::size_t count() const { return plain_.size() + programs_.size(); }
  std::size_t programs() const { return programs_.size(); }
  std::int64_t longestStandstillNs() const { return longestNs_; }
  std::uint64_t launches() const;  // of plain ones
  std::vector<std::uint64_t> plainLaunches() const;
  // The name of a plain one that has launched nothing since; empty: all have.
  std::string plainThatWaits(const std::vector<std::uint64_t>& before) const;
  std::uint64_t quotaRefusals() const;
  std::uint64_t kernelsChecked() const { return kernels_; }  // of programs, once ended

  // Each throws a Violation that names the tenant. They cost: nothing; one list; what it takes.
  void checkUnharmed();
  void awaitProgress(milliseconds within = kProgressWithin);
  // As above, of plain ones alone: it needs no manager.
  void awaitPlainProgress(milliseconds within = kProgressWithin);
  // A new process shows an old token, works within its quota, and gets nothing beyond it.
  void checkToken(std::size_t which);
  // An OpenCL program of a task asks for more than its quota and gets the error of the API.
  void checkProgramQuota(std::size_t which);
  // Ends them in their own good time; results must have been right to the last.
  void finish();

 private:
  Json bind(const Wish& wish);
  void endProgram(Program& program);

  Daemon& daemon_;
  Bindings& bindings_;
  const std::string folder_;
  std::vector<std::unique_ptr<PlainTenant>> plain_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::vector<Json> boundPlain_;
  std::vector<Json> boundPrograms_;
  std::int64_t longestNs_ = 0;
  std::uint64_t kernels_ = 0;
};

}  // namespace qgpu::crash
