#include "services/ctl/run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <errno.h>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "actors/base/event_kinds.h"
#include "actors/base/tenant_variables.h"
#include "services/base/json.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"
#include "services/ctl/answers/watch.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kEndLimit = seconds(2);  // for ending the task while the manager restarts
constexpr Nanos kBindLimit = seconds(10);
constexpr int kEndPauseMs = 100;
constexpr Nanos kJoinLimit = seconds(5);  // for a manager that is about to join its scheduler
constexpr int kJoinPauseMs = 50;
constexpr Nanos kNewsLimit = seconds(60);    // without news of room it is asked for again
constexpr Nanos kSettleLimit = millis(200);  // for the manager to see that CMD has ended
constexpr int kSettlePauseMs = 10;

std::string environmentNow(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string joined(const std::string& first, const std::string& rest) {
  return rest.empty() ? first : first + ":" + rest;
}

[[noreturn]] void execute(const Options& options, const Environment& environment) {
  for (const std::string& name : strangers(environment, ::environ)) ::unsetenv(name.c_str());
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> words = options.program;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int error = errno;
  const bool missing = error == ENOENT;
  std::fprintf(stderr, "qgpuctl: %s: %s\n", argv[0],
               missing ? "command not found" : std::strerror(error));
  std::fflush(stderr);
  ::_exit(static_cast<int>(missing ? Exit::NotFound : Exit::NotExecutable));
}

// The manager may be restarting; after a while it sees by itself that the owner is gone.
void endTask(Client& client, std::uint64_t id) {
  for (Nanos waited{}; waited < kEndLimit; waited += millis(kEndPauseMs)) {
    if (client.ask(askFor("end", std::to_string(id)), seconds(1))) return;
    ::usleep(kEndPauseMs * 1000);
  }
}

// What the manager says of its scheduler while it is on its way there; else empty.
std::string joining(Client& client) {
  const Result<Answer> answer = client.ask(askFor("status"), kBindLimit);
  const std::string standing = answer ? textOf(answer->root(), "cluster") : "";
  const bool onItsWay = standing.starts_with("joining") || standing.starts_with("no scheduler");
  return onItsWay ? standing : "";
}

// Just after its start a manager has not joined its scheduler, and would refuse. It gets a moment;
// then it says itself what is the matter.
void awaitJoin(Client& client) {
  bool told = false;
  for (Nanos waited{}; waited < kJoinLimit; waited += millis(kJoinPauseMs)) {
    const std::string standing = joining(client);
    if (standing.empty()) return;
    if (!std::exchange(told, true)) {
      std::fprintf(stderr,
                   "qgpuctl: the manager has not joined its scheduler yet (%s): waiting up "
                   "to %d s\n",
                   printable(standing).c_str(), static_cast<int>(kJoinLimit / seconds(1)));
    }
    ::usleep(kJoinPauseMs * 1000);
  }
}

// Refusals that may be over once a task ends, or somebody changes something.
bool mayPass(const Error& error) {
  return error.code == ErrorCode::NoRoom || error.code == ErrorCode::Cordoned ||
         (error.code == ErrorCode::Conflict && !error.message.starts_with("request "));
}

// True for an event after which there may be room.
bool makesRoom(Value event) {
  constexpr std::string_view kKinds[] = {"task-ended",     "task-lost",  "card-uncordoned",
                                         "policy-changed", "storage-ok", "cluster"};
  return std::ranges::count(kKinds, textOf(event, "kind")) != 0;
}

// The manager's answer to the bind; with --wait the last one, over restarts of the manager too: it
// knows by the request's name what it bound before its answer was lost.
Result<Answer> bindTask(Client& client, const Options& options) {
  if (!options.wait) return client.ask(options.ask, kBindLimit);
  Ask ask = options.ask;
  nameRequest(ask.said);
  Backoff backoff = newBackoff();
  bool told = false;
  while (true) {
    Client watch(options.socket);
    const bool watched = startWatch(watch, kBindLimit);
    Result<Answer> answer = client.ask(ask, kBindLimit);
    if (!answer && !told) return answer;
    if (answer && (answer->status() || !mayPass(answer->status().error()))) return answer;
    if (!std::exchange(told, true)) {
      std::fprintf(stderr, "qgpuctl: waiting for room (ctrl-c ends that): %s\n",
                   printable(answer->status().error().message).c_str());
    }
    client.close();  // its place is for others
    if (answer && watched) {
      backoff.reset();
      awaitEvent(watch, kNewsLimit, makesRoom);
    } else {
      rest(backoff);
    }
  }
}

// The task among all that the manager has; nothing where it is not there any more. What its
// processes did last comes with their end, which the manager sees a moment after we do.
Value findTask(const Answer& tasks, std::uint64_t id) {
  for (const Value task : listOf(tasks.root(), "tasks")) {
    if (numberOf(task, "id") == id) return task;
  }
  return {};
}

Answer tasksAtTheEnd(Client& client, std::uint64_t id) {
  for (Nanos waited{};; waited += millis(kSettlePauseMs)) {
    Result<Answer> tasks = client.ask(askFor("tasks"), kEndLimit);
    if (!tasks) return Answer("{}");
    const bool settled = numberOf(findTask(*tasks, id), "processes") == 0;
    if (settled || waited >= kSettleLimit) return std::move(*tasks);
    ::usleep(kSettlePauseMs * 1000);
  }
}

// What the manager has told of refused memory last; empty where nothing was refused.
std::string refusedMemory(Client& client, std::uint64_t id) {
  std::string said;
  std::uint64_t since = 0;
  static_cast<void>(eachEvent(client, since, kEndLimit, [&](Value event) {
    const bool ours = numberOf(event, "task") == id && textOf(event, "kind") == kMemoryRefused;
    if (ours) said = textOf(event, "text");
  }));
  return said;
}

// To the person at the terminal, who may want to choose another share or quota next time.
void sayWhatItGot(Client& client, std::uint64_t id, Nanos elapsed) {
  const Answer tasks = tasksAtTheEnd(client, id);
  const Value task = findTask(tasks, id);
  if (!task.exists()) return;
  const std::string refused = refusedMemory(client, id);
  std::fprintf(stderr, "qgpuctl: %s%s\n", gotLine(task, elapsed).c_str(),
               refused.empty() ? "" : ("; " + printable(refused)).c_str());
}

}  // namespace

int refuseRun(const std::string& message, const std::string& help) {
  std::fprintf(stderr, "qgpuctl: %s\n", asTyped(message).c_str());
  if (!help.empty()) std::fprintf(stderr, "qgpuctl: %s\n", help.c_str());
  return static_cast<int>(Exit::RunRefused);
}

std::string gotLine(Value task, Nanos elapsed) {
  const std::uint64_t wanted = numberOf(task, "share_permille");
  const std::uint64_t cards = std::max<std::uint64_t>(1, numberOf(task, "cards"));
  const auto used = static_cast<std::int64_t>(numberOf(task, "used_ns") / cards);
  const std::int64_t got = elapsed.value > 0 ? mulDiv(used, 1000, elapsed.value) : 0;
  return printable(textOf(task, "name")) + ": " +
         humanTime(static_cast<std::uint64_t>(elapsed.value)) +
         (wanted == 0 ? "" : ", wanted " + humanPermille(wanted)) + ", got " +
         humanPermille(static_cast<std::uint64_t>(got)) + " of the card, held for " +
         humanTime(numberOf(task, "held_ns")) + ", memory at most " +
         humanBytes(numberOf(task, "mem_peak_bytes")) + " of " +
         humanBytes(numberOf(task, "mem_bytes"));
}

// The daemon's sentences put what helps after a colon or a semicolon; ours would contradict it.
std::string helpFor(const Error& error) {
  if (error.message.find_first_of(":;") != std::string::npos) return "";
  switch (error.code) {
    case ErrorCode::NoRoom:
      return "--wait waits for a task to end; or ask for less: --memory, --core; `qgpuctl cards` "
             "shows what is free";
    case ErrorCode::Infeasible:
      return "no card here is big enough: ask for less --memory, --core or --cards";
    case ErrorCode::Cordoned:
      return "`qgpuctl uncordon CARD`, or choose another --card";
    case ErrorCode::Conflict:
      return "a card holds ordinary tasks, or online and offline ones: choose another --card or "
             "--class";
    case ErrorCode::NotFound:
      return "`qgpuctl cards` lists the cards";
    case ErrorCode::Overloaded:
    case ErrorCode::Unavailable:
      return "try again in a moment; `qgpuctl status` says how it is";
    default:
      return "`qgpuctl run --help` shows how it is used";
  }
}

Result<BoundTask> parseBound(const Answer& answer) {
  if (!answer.status()) return answer.status().error();
  const Value environment = answer.root()["env"];
  BoundTask bound;
  if (!environment.isObject()) {
    return fail(ErrorCode::Corrupt, "the daemon told no environment for the task");
  }
  bound.id = numberOf(answer.root(), "task");
  for (const Value variable : environment) {
    const auto value = variable.text();
    if (value) bound.environment.emplace_back(variable.key(), *value);
  }
  return bound;
}

std::string attachSocketOf(const std::string& socket) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(socket, error);
  return whole.parent_path() / "attach.sock";
}

Result<Environment> tenantEnvironment(const BoundTask& bound, const std::string& library,
                                      const std::string& attachSocket,
                                      const std::string& preloadNow, const std::string& layersNow) {
  if (library.empty()) {
    return fail(ErrorCode::NotFound,
                "libqgpu.so is not beside this program (../lib/libqgpu.so): set QGPU_LIB to it");
  }
  if (library.find_first_of(" :") != std::string::npos) {
    return fail(ErrorCode::InvalidArgument,
                "\"" + library +
                    "\" holds a blank or a colon, which LD_PRELOAD can't carry: set "
                    "QGPU_LIB to a path without");
  }
  Environment out;
  for (const auto& [name, value] : bound.environment) {
    if (taskMayCarry(name, value)) out.emplace_back(name, value);
  }
  out.emplace_back("QGPU_SOCKET", attachSocket);
  out.emplace_back("LD_PRELOAD", joined(library, preloadNow));
  out.emplace_back("OPENCL_LAYERS", joined(library, layersNow));
  return out;
}

std::vector<std::string> strangers(const Environment& given, const char* const* now) {
  std::vector<std::string> names;
  for (; now != nullptr && *now != nullptr; ++now) {
    const std::string_view entry(*now);
    const std::string name(entry.substr(0, entry.find('=')));
    const auto same = [&](const auto& pair) { return pair.first == name; };
    if (!name.starts_with("POCL_") || std::any_of(given.begin(), given.end(), same)) continue;
    names.push_back(name);
  }
  return names;
}

std::string findLibrary() {
  const std::string chosen = environmentNow("QGPU_LIB");
  if (!chosen.empty()) return chosen;
  const std::string folder = binaryFolder();
  const std::string beside = folder.substr(0, folder.rfind('/')) + "/lib/libqgpu.so";
  return ::access(beside.c_str(), R_OK) == 0 ? beside : "";
}

Result<std::string> libraryOfPrograms() {
  std::string library = findLibrary();
  if (library.empty() || ::access(library.c_str(), R_OK) == 0) return library;
  return fail(ErrorCode::NotFound, library + ": " + std::strerror(errno));
}

Result<Environment> environmentOf(const BoundTask& bound, const std::string& library,
                                  const std::string& socket) {
  return tenantEnvironment(bound, library, attachSocketOf(socket), environmentNow("LD_PRELOAD"),
                           environmentNow("OPENCL_LAYERS"));
}

int runProgram(const Options& options, const Environment& environment, Client& manager,
               std::uint64_t task) {
  manager.close();  // a command may run for days; its place is for others
  const Nanos begun = now();
  ChildWaiter waiter;
  const pid_t child = ::fork();
  if (child == 0) {
    waiter.release();
    execute(options, environment);
  }
  if (child < 0) {
    return refuseRun(std::string("can't start a process: ") + std::strerror(errno), "");
  }
  const int status = waiter.wait(child);
  const bool shown = isTable(options.output) && ::isatty(STDERR_FILENO) == 1;
  if (shown) sayWhatItGot(manager, task, now() - begun);
  return status;
}

int run(const Options& options) {
  const Result<std::string> library = libraryOfPrograms();
  if (!library) return refuseRun(library.error().message, "QGPU_LIB names libqgpu.so");
  Client client(options.socket);
  awaitJoin(client);
  const Result<Answer> answer = bindTask(client, options);
  if (!answer) return refuseRun(answer.error().message, "start one: " + startLine(options.socket));
  const Result<BoundTask> bound = parseBound(*answer);
  if (!bound) return refuseRun(bound.error().message, helpFor(bound.error()));
  const Result<Environment> environment = environmentOf(*bound, *library, options.socket);
  const int status = environment ? runProgram(options, *environment, client, bound->id)
                                 : refuseRun(environment.error().message, "");
  endTask(client, bound->id);
  return status;
}

// --- ChildWaiter ---------------------------------------------------------------------------------

ChildWaiter::ChildWaiter() {
  ::sigemptyset(&caught_);
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT}) {
    // One that was ignored from the start, as by nohup, stays ignored for us and for CMD.
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) ::sigaddset(&caught_, signal);
  }
  ::sigaddset(&caught_, SIGCHLD);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;  // inherited as ignored, it would take the exit status from us
  ::sigaction(SIGCHLD, &standard, nullptr);
  ::sigprocmask(SIG_BLOCK, &caught_, &before_);
}

ChildWaiter::~ChildWaiter() {
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void ChildWaiter::release() const {
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int ChildWaiter::wait(pid_t child) {
  int status = 0;
  while (!reap(child, status)) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&caught_, &info);
    if (signal > 0 && signal != SIGCHLD) forward(child, signal, info.si_code);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// True once the child has ended. When it stops at the terminal's wish, so do we, or the shell
// would never see the job stop; its continuation is passed on when we are continued.
bool ChildWaiter::reap(pid_t child, int& status) const {
  while (true) {
    const pid_t pid = ::waitpid(child, &status, WNOHANG | WUNTRACED);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) {  // nobody else waits for our child
      status = 0;
      return true;
    }
    if (pid == 0) return false;
    if (!WIFSTOPPED(status)) return true;
    const int by = WSTOPSIG(status);
    if (by != SIGTSTP && by != SIGTTIN && by != SIGTTOU) continue;
    ::kill(::getpid(), SIGSTOP);
    ::kill(child, SIGCONT);
  }
}

// What the terminal sends goes to the whole foreground group: a child in ours has it already.
void ChildWaiter::forward(pid_t child, int signal, int code) const {
  const bool fromTerminal = code == SI_KERNEL;
  if (fromTerminal && ::getpgid(child) == ::getpgrp()) return;
  ::kill(child, signal);
}

}  // namespace qgpu::ctl
