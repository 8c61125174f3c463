#include "tests/crash/tenants.h"

#include <algorithm>
#include <fcntl.h>
#include <new>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

// Three quarters of the quota, so that the whole of it is always too much.
std::uint64_t heldBytes(const Wish& wish) {
  return (std::uint64_t{wish.memoryGib} << 30) * 3 / 4;
}

std::vector<std::string> plainArguments(const std::string& file, Pace pace, std::uint64_t held,
                                        std::uint64_t launches) {
  return {testing::binary("qgpu-crash-tenant"),
          file,
          std::to_string(pace.kernelUs),
          std::to_string(pace.gapUs),
          std::to_string(held),
          std::to_string(launches)};
}

// A plain tenant has no driver, so it needs the tie to the manager and nothing else.
testing::Environment tieOf(const Json& bound) {
  return {{"QGPU_SOCKET", bound["env"]["QGPU_SOCKET"]}, {"QGPU_TOKEN", bound["env"]["QGPU_TOKEN"]}};
}

testing::Environment environmentOf(const Json& bound) {
  testing::Environment all;
  for (const auto& [name, value] : bound["env"].items()) all[name] = value;
  return all;
}

TenantRecord* makeRecord(const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(TenantRecord)) != 0) throw Violation("no file " + file);
  void* map = ::mmap(nullptr, sizeof(TenantRecord), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (map == MAP_FAILED) throw Violation("no map of " + file);
  return new (map) TenantRecord();
}

std::string howItEnded(testing::Child& child) {
  return "ended with status " + std::to_string(child.wait().value_or(-1)) + ": " + child.output();
}

std::string milli(std::int64_t ns) {
  return std::to_string(ns / 1'000'000) + " ms";
}

}  // namespace

PlainTenant::PlainTenant(const Wish& wish, const Json& bound, const std::string& recordFile,
                         Pace pace, std::uint64_t launches)
    : name_(wish.name),
      file_(recordFile),
      record_(makeRecord(recordFile)),
      child_(plainArguments(recordFile, pace, launches == 0 ? heldBytes(wish) : 1, launches),
             tieOf(bound)) {}

PlainTenant::~PlainTenant() {
  ::munmap(record_, sizeof *record_);
  ::unlink(file_.c_str());
}

Program::Program(const Wish& wish, const Json& bound, std::vector<std::string> arguments)
    : name_(wish.name),
      task_(bound["task"]),
      child_(
          [&] {
            arguments.insert(arguments.begin(), testing::binary("qgpu-work"));
            return std::move(arguments);
          }(),
          environmentOf(bound)) {}

Json Tenants::bind(const Wish& wish) {
  bindings_.asked(wish);
  Json bound = daemon_.ask(bindLine(wish));
  bindings_.bound(wish.name, bound["task"], bound["token"]);
  return bound;
}

void Tenants::addPlain(const Wish& wish, Pace pace) {
  boundPlain_.push_back(bind(wish));
  plain_.push_back(
      std::make_unique<PlainTenant>(wish, boundPlain_.back(), folder_ + "/" + wish.name, pace));
}

void Tenants::addProgram(const Wish& wish, std::vector<std::string> arguments) {
  boundPrograms_.push_back(bind(wish));
  programs_.push_back(std::make_unique<Program>(wish, boundPrograms_.back(), std::move(arguments)));
}

std::uint64_t Tenants::launches() const {
  std::uint64_t sum = 0;
  for (const auto& tenant : plain_) sum += tenant->record().launches.load();
  return sum;
}

std::uint64_t Tenants::quotaRefusals() const {
  std::uint64_t sum = 0;
  for (const auto& tenant : plain_) sum += tenant->record().refusals.load();
  return sum;
}

void Tenants::checkUnharmed() {
  for (auto& tenant : plain_) {
    const TenantRecord& record = tenant->record();
    const std::string who = "tenant " + tenant->name();
    if (!tenant->child().alive()) throw Violation(who + " " + howItEnded(tenant->child()));
    if (record.overQuota.load() != 0) throw Violation(who + " got memory beyond its quota");
    if (record.incarnationsBack.load() != 0) {
      throw Violation(who + " was given a gate page of an earlier incarnation");
    }
    longestNs_ = std::max(longestNs_, record.longestGapNs.load());
    if (record.longestGapNs.load() > kStandstillMaxNs) {
      throw Violation(who + " stood still for " + milli(record.longestGapNs.load()));
    }
  }
  for (auto& program : programs_) {
    if (program->child().alive()) continue;
    throw Violation("program " + program->name() + " " + howItEnded(program->child()));
  }
}

std::vector<std::uint64_t> Tenants::plainLaunches() const {
  std::vector<std::uint64_t> now;
  for (const auto& tenant : plain_) now.push_back(tenant->record().launches.load());
  return now;
}

std::string Tenants::plainThatWaits(const std::vector<std::uint64_t>& before) const {
  for (std::size_t i = 0; i < plain_.size(); i++) {
    if (plain_[i]->record().launches.load() == before[i]) return plain_[i]->name();
  }
  return "";
}

void Tenants::awaitPlainProgress(milliseconds within) {
  const std::vector<std::uint64_t> before = plainLaunches();
  const auto allMoved = [&] {
    checkUnharmed();
    return plainThatWaits(before).empty();
  };
  if (testing::eventually(allMoved, within)) return;
  throw Violation("without a manager tenant " + plainThatWaits(before) + " waits for more than " +
                  std::to_string(within.count()) + " ms");
}

void Tenants::awaitProgress(milliseconds within) {
  const std::vector<std::uint64_t> before = plainLaunches();
  const auto launchesOf = [&](const Json& tasks, const Program& program) -> std::int64_t {
    for (const Json& t : tasks) {
      if (t["id"] == program.task()) return t["launches"];
    }
    return -1;
  };
  const Json first = programs_.empty() ? Json::array() : daemon_.ask("tasks")["tasks"];
  std::string waiting;
  const auto allMoved = [&] {
    checkUnharmed();
    waiting = plainThatWaits(before);
    if (programs_.empty() || !waiting.empty()) return waiting.empty();
    const Json now = daemon_.ask("tasks")["tasks"];
    for (const auto& program : programs_) {
      if (launchesOf(now, *program) <= launchesOf(first, *program)) waiting = program->name();
    }
    return waiting.empty();
  };
  if (testing::eventually(allMoved, within)) return;
  const Json tasks = daemon_.ask("tasks")["tasks"];
  Json its;
  for (const Json& task : tasks) {
    if (task["name"] == waiting) its = task;
  }
  throw Violation("tenant " + waiting + " launches nothing under a manager that has served for " +
                  std::to_string(within.count()) + " ms: " + its.dump());
}

void Tenants::checkToken(std::size_t which) {
  if (plain_.empty()) return;
  const std::size_t i = which % plain_.size();
  Wish wish;
  wish.name = "token-of-" + plain_[i]->name();
  PlainTenant again(wish, boundPlain_[i], folder_ + "/" + wish.name, Pace{200, 0}, 2);
  const auto status = again.child().wait(kProgressWithin);
  if (status != 0) {
    throw Violation("a process with the token of " + plain_[i]->name() +
                    (status ? " ended with status " + std::to_string(*status) : " hangs") + ": " +
                    again.child().output());
  }
  if (again.record().overQuota.load() != 0 || again.record().refusals.load() == 0) {
    throw Violation("a second process of " + plain_[i]->name() + " got memory beyond the quota");
  }
}

void Tenants::checkProgramQuota(std::size_t which) {
  constexpr int kNoMemory = 3;  // as qgpu-work says it
  if (programs_.empty()) return;
  const std::size_t i = which % programs_.size();
  Wish wish;
  wish.name = "over-quota-in-" + programs_[i]->name();
  Program greedy(wish, boundPrograms_[i], {"--seconds", "1", "--memory-mib", "1100"});
  const auto status = greedy.child().wait(std::chrono::seconds(30));
  if (status == kNoMemory) return;
  throw Violation("a program that allocates beyond the quota of " + programs_[i]->name() +
                  (status ? " ended with status " + std::to_string(*status) : " hangs") +
                  ", wanted 3: " + greedy.child().output());
}

void Tenants::endProgram(Program& program) {
  program.child().signal(SIGTERM);
  const auto status = program.child().wait(std::chrono::seconds(30));
  const std::string said = program.child().output();
  const Json report =
      Json::parse(said.substr(std::min(said.find('{'), said.size())), nullptr, false);
  if (status != 0 || report.is_discarded()) {
    throw Violation("program " + program.name() + " " +
                    (status ? howItEnded(program.child()) : "does not end"));
  }
  kernels_ += report["kernels"].get<std::uint64_t>();
  if (report["wrong_items"] != 0 || report["kernels"] == 0) {
    throw Violation("program " + program.name() + " computed wrong results: " + said);
  }
  for (const Json& stop : report["standstills"]) {
    const std::int64_t ns =
        stop["resumed_ns"].get<std::int64_t>() - stop["last_ns"].get<std::int64_t>();
    longestNs_ = std::max(longestNs_, ns);
    if (ns > kStandstillMaxNs) {
      throw Violation("program " + program.name() + " stood still for " + milli(ns));
    }
  }
}

void Tenants::finish() {
  checkUnharmed();
  for (auto& program : programs_) endProgram(*program);
  programs_.clear();
  plain_.clear();
}

}  // namespace qgpu::crash
