#include "tests/crash/syscalls.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

#include "tests/crash/tenants.h"
#include "tests/crash/violation.h"
#include "tests/testing/child_process.h"
#include "tests/testing/eventually.h"

namespace qgpu::crash {
namespace {

// Makes system calls of a running process fail, by strace: from construction until end() or the
// destructor, in every thread. Skipped where strace is not installed or may not look at processes.
class Strace {
 public:
  // inject: one or more of strace's "-e inject=" values, separated by blanks.
  Strace(pid_t process, const std::string& inject);
  ~Strace() { end(); }
  void end();

 private:
  std::unique_ptr<testing::Child> strace_;
};

Strace::Strace(pid_t process, const std::string& inject) {
  std::vector<std::string> argv = {"strace", "-f",       "-p", std::to_string(process),
                                   "-o",     "/dev/null"};
  std::istringstream words(inject);
  std::string traced;
  for (std::string word; words >> word;) {
    traced += (traced.empty() ? "" : ",") + word.substr(0, word.find(':'));
    argv.insert(argv.end(), {"-e", "inject=" + word});
  }
  argv.insert(argv.end(), {"-e", "trace=" + traced});
  strace_ = std::make_unique<testing::Child>(std::move(argv));
  const auto said = [this](const char* what) {
    return strace_->output().find(what) != std::string::npos;
  };
  const bool decided = testing::eventually([&] { return said(" attached") || !strace_->alive(); });
  if (!said(" attached")) {
    throw Skipped("strace " + std::string(decided ? "does not work here: " : "hangs: ") +
                  strace_->output());
  }
}

void Strace::end() {
  if (!strace_) return;
  strace_->signal(SIGINT);  // lets the process go and ends
  strace_->wait(std::chrono::seconds(10));
  strace_.reset();
}

enum class Then : std::uint8_t {
  Serves,   // every bind is granted or refused with a reason
  Refuses,  // as above, and the fault makes it refuse at least one
  Grants,   // nobody notices anything but time
  HangsUp,  // as Serves, or the connection ends at once
  Deaf,     // may not answer while it lasts, but lives and answers afterwards
  Dies,     // ends with status 5 at the first bind
  Either,   // Serves, or ends with a documented status
};

struct Row {
  const char* name;
  const char* inject;  // every second epoll_wait would hit only the inner one of the two in a loop
  Then then;
};

constexpr Row kRows[] = {
    {"a failed fsync", "fdatasync,fsync:error=EIO", Then::Dies},
    {"a full disk at fsync", "fdatasync,fsync:error=ENOSPC", Then::Dies},
    {"a fsync that fails once", "fdatasync,fsync:error=EIO:when=1", Then::Dies},
    {"no entropy", "getrandom:error=ENOSYS", Then::Dies},
    {"writes that fail", "pwrite64:error=EIO", Then::Refuses},
    {"writes to a full disk", "pwrite64:error=ENOSPC", Then::Refuses},
    {"one write of three fails", "pwrite64:error=EIO:when=3+3", Then::Serves},
    {"slow fsync", "fdatasync:delay_enter=300000", Then::Grants},
    {"slow writes", "pwrite64:delay_enter=50000", Then::Grants},
    {"no descriptor for a connection", "accept4:error=EMFILE", Then::Deaf},
    {"no file for a connection", "accept4:error=ENFILE", Then::Deaf},
    {"a connection that went away", "accept4:error=ECONNABORTED:when=1+2", Then::Serves},
    {"no doorbell", "eventfd2:error=EMFILE", Then::Refuses},
    {"no doorbell in the system", "eventfd2:error=ENFILE", Then::Refuses},
    {"no page", "memfd_create:error=EMFILE", Then::Refuses},
    {"no page in the system", "memfd_create:error=ENFILE", Then::Refuses},
    {"no memory for a page", "ftruncate:error=ENOSPC", Then::Refuses},
    {"no sealing", "fcntl:error=EPERM", Then::Either},
    {"no process descriptor", "pidfd_open:error=EMFILE", Then::Serves},
    {"no file", "openat:error=EMFILE", Then::Serves},
    {"no rename", "renameat:error=EIO rename:error=EIO", Then::Serves},
    {"no memory to map", "mmap:error=ENOMEM", Then::Either},
    {"no memory at all", "mmap,brk,mremap:error=ENOMEM", Then::Either},
    {"no watch", "epoll_ctl:error=ENOSPC:when=1+2", Then::Either},
    {"a wait that is interrupted", "epoll_wait,epoll_pwait:error=EINTR:when=1+3", Then::Grants},
    {"a record that is not there yet", "recvmsg:error=EAGAIN:when=1+2", Then::Grants},
    {"a receive that is interrupted", "recvmsg:error=EINTR:when=1+2", Then::Grants},
    {"a guest that does not read", "sendmsg:error=EAGAIN:when=1+2", Then::Serves},
    {"a send that is interrupted", "sendmsg:error=EINTR:when=1+2", Then::Serves},
    {"a client that went away", "writev:error=EPIPE:when=1+2", Then::HangsUp},
    {"a read that is interrupted", "read,readv:error=EINTR:when=1+2", Then::Serves},
};

constexpr int kRestartHelps = 5;  // ExitCode::Environment
constexpr milliseconds kSyscallAnswerWithin = std::chrono::seconds(5);
constexpr milliseconds kDeafFor = milliseconds(700);
constexpr milliseconds kSyscallResumesWithin = std::chrono::seconds(10);
constexpr std::size_t kBinds = 3;
constexpr double kBusyMax = 0.9;  // of one core, while it can't accept

std::int64_t cpuMs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string skipped;
  for (int field = 3; field < 14; field++) fields >> skipped;
  std::int64_t user = 0;
  std::int64_t system = 0;
  fields >> user >> system;
  return (user + system) * 1'000 / ::sysconf(_SC_CLK_TCK);
}

class Trial {
 public:
  explicit Trial(const Row& row)
      : row_(row),
        daemon_({"--cards=sim:2x32", "--max-tasks-per-card=32", "--log-level=off"}),
        tenants_(daemon_, bindings_, daemon_.folder().path()) {}

  // What happened, in a word.
  std::string run() {
    daemon_.start();
    tenants_.addPlain({"before", "ordinary", 1, 5, "sim-0"}, Pace{500, 2'000});
    tenants_.addPlain({"beside", "ordinary", 1, 5, "sim-0"}, Pace{500, 2'000});
    tenants_.awaitProgress();
    {
      Strace strace(daemon_.pid(), row_.inject);
      row_.then == Then::Deaf ? whileDeaf() : whileItLasts();
    }
    std::string what = granted_ == kBinds ? "granted" : refused_ > 0 ? "refused" : "no answer";
    if (diedWith()) {
      what = "ended with " + std::to_string(*diedWith());
      daemon_.start();
    }
    afterwards();
    daemon_.kill();
    daemon_.start();
    checkBindings(daemon_, bindings_);
    tenants_.awaitProgress();
    tenants_.finish();
    return what;
  }

  std::size_t acknowledged() const { return bindings_.acknowledged(); }

 private:
  std::optional<int> diedWith() { return daemon_.wait(milliseconds(0)); }
  bool mayDie() const { return row_.then == Then::Dies || row_.then == Then::Either; }

  // What every row does to the manager: binds, a new process of a tenant, a question, an end.
  void whileItLasts() {
    std::optional<std::uint64_t> task;
    for (std::size_t i = 0; i < kBinds && daemon_.alive(); i++) {
      if (const auto bound = bind("during-" + std::to_string(i))) task = bound;
    }
    if (row_.then == Then::Dies) {
      if (daemon_.wait(kSyscallAnswerWithin) != kRestartHelps) throw wrong("it did not end with 5");
      return;
    }
    if (diedWith() || mayDie()) return checkDeath();
    attach();
    const bool answers = !daemon_.tryAsk("status", kSyscallAnswerWithin).is_null();
    if (!answers && row_.then != Then::HangsUp) throw wrong("status is not answered");
    if (task) end("during-0");
    tenants_.checkUnharmed();
    if (diedWith()) checkDeath();
    if (row_.then == Then::Refuses && refused_ == 0) throw wrong("nothing was refused");
    if (row_.then == Then::Grants && granted_ != kBinds) throw wrong("a bind was not granted");
  }

  // Cheap to be in: it waits for better times, and turns nobody's work off.
  void whileDeaf() {
    const std::int64_t from = cpuMs(daemon_.pid());
    const std::int64_t fromNs = testing::monotonicNs();
    while (testing::monotonicNs() - fromNs < kDeafFor.count() * 1'000'000) {
      daemon_.tryAsk("status", milliseconds(100));
    }
    attach();
    tenants_.awaitProgress();
    if (diedWith()) throw wrong("it ended");
    const double elapsed = static_cast<double>(testing::monotonicNs() - fromNs) / 1e6;
    const double busy = static_cast<double>(cpuMs(daemon_.pid()) - from) / elapsed;
    if (busy > kBusyMax) throw wrong("it takes " + std::to_string(busy) + " of a core meanwhile");
  }

  void checkDeath() {
    const auto status = diedWith();
    if (!status) return;
    const bool documented = *status == 0 || *status == 2 || *status == kRestartHelps;
    if (!mayDie() || !documented) throw wrong("it ended with " + std::to_string(*status));
  }

  std::optional<std::uint64_t> bind(const std::string& name) {
    Wish wish;
    wish.name = name;
    wish.card = "sim-1";
    bindings_.asked(wish);
    const std::int64_t from = testing::monotonicNs();
    const Json answer = daemon_.tryAsk(bindLine(wish), kSyscallAnswerWithin);
    if (answer.is_null()) {
      const bool late = testing::monotonicNs() - from >= kSyscallAnswerWithin.count() * 1'000'000;
      const bool ends = mayDie() && daemon_.wait(milliseconds(500)).has_value();
      if (late || (!ends && row_.then != Then::HangsUp)) throw wrong("a bind has no answer");
      return std::nullopt;
    }
    if (answer["ok"] == true) {
      if (row_.then == Then::Dies) throw wrong("a bind was granted");
      granted_++;
      bindings_.bound(name, answer["task"], answer["token"]);
      return answer["task"];
    }
    refused_++;
    bindings_.refused(name);
    if (answer["error"].get<std::string>().empty()) throw wrong("a refusal without a reason");
    return std::nullopt;
  }

  void end(const std::string& name) {
    const Entry entry = bindings_.entries().at(name);
    if (entry.phase != Phase::Bound) return;
    bindings_.endAsked(name);
    const Json answer = daemon_.tryAsk("end " + std::to_string(entry.task), kSyscallAnswerWithin);
    if (!answer.is_null() && answer["ok"] == true) bindings_.ended(name);
  }

  // It gets a device, or is told why not, within the time that libqgpu gives the manager.
  void attach() {
    Wish wish;
    wish.name = "process";
    const Json bound = tieOfTenant();
    PlainTenant process(wish, bound, daemon_.folder() / "process", Pace{200, 0}, 2);
    const auto status = process.child().wait(kProgressWithin);
    const bool told = status == 1 && !process.child().output().empty();
    if (status == 0 || told) return;
    throw wrong("a new process " + (status ? "ended with " + std::to_string(*status) : "hangs") +
                ": " + process.child().output());
  }

  Json tieOfTenant() const {
    const Entry entry = bindings_.entries().at("before");
    return {{"env", {{"QGPU_SOCKET", daemon_.attachSocket()}, {"QGPU_TOKEN", entry.token}}}};
  }

  // Without a restart, where it lives.
  void afterwards() {
    const pid_t pid = daemon_.pid();
    int tries = 0;
    const bool granted = testing::eventually(
        [&] {
          const Json answer = daemon_.tryAsk("status", kSyscallAnswerWithin);
          if (answer.is_null()) return false;
          Wish wish;
          wish.name = "after-" + std::to_string(tries++);
          wish.card = "sim-1";
          bindings_.asked(wish);
          last_ = daemon_.tryAsk(bindLine(wish), kSyscallAnswerWithin);
          if (last_.is_null()) return false;
          if (last_["ok"] != true) {
            bindings_.refused(wish.name);
            return false;
          }
          bindings_.bound(wish.name, last_["task"], last_["token"]);
          return true;
        },
        kSyscallResumesWithin);
    if (!granted) throw wrong("it is over, and binds are refused: " + last_.dump());
    if (daemon_.pid() != pid || !daemon_.alive()) throw wrong("it is over, and it ended");
    attach();
    tenants_.awaitProgress();
    checkBindings(daemon_, bindings_);
  }

  Violation wrong(const std::string& what) {
    return Violation(std::string(row_.name) + " (" + row_.inject + "): " + what +
                     "; manager: " + daemon_.log());
  }

  const Row& row_;
  Bindings bindings_;
  Daemon daemon_;
  Tenants tenants_;
  Json last_;
  std::size_t granted_ = 0;
  std::size_t refused_ = 0;
};

}  // namespace

std::string runSyscalls(const SyscallOptions& options) {
  const std::int64_t from = testing::monotonicNs();
  Json outcomes = Json::object();
  std::size_t acknowledged = 0;
  for (const Row& row : kRows) {
    if (std::string(row.name).find(options.only) == std::string::npos) continue;
    Trial trial(row);
    const std::string what = trial.run();
    std::fprintf(stderr, "syscalls: %-34s %-50s %s\n", row.name, row.inject, what.c_str());
    outcomes[row.name] = what;
    acknowledged += trial.acknowledged();
  }
  const Json line = {{"part", "syscalls"},
                     {"faults", outcomes.size()},
                     {"acknowledged", acknowledged},
                     {"lost", 0},
                     {"harmed", 0},
                     {"outcomes", outcomes},
                     {"seconds", (testing::monotonicNs() - from) / 1'000'000'000}};
  return line.dump();
}

}  // namespace qgpu::crash
