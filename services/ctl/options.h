#pragma once
// What was typed, read in full before anything is done. A mistake is one usage text and exit 2, so
// that no command is carried out by half.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/units.h"
#include "services/base/platform.h"
#include "services/ctl/answers/ask.h"
#include "services/ctl/certs/authority.h"
#include "services/ctl/doctor/doctor.h"
#include "services/ctl/help/completion.h"
#include "services/ctl/join/join.h"
#include "services/ctl/output.h"
#include "services/prove/prove.h"

namespace qgpu::ctl {

// Exit statuses that scripts may rely on. `run` returns CMD's own, or one of the last three.
enum class Exit : int {
  Ok = 0,
  NotProven = 1,  // of `prove`
  Usage = 2,
  Refused = 3,
  NoDaemon = 4,
  RunRefused = 125,     // no room, over quota, no daemon, placed elsewhere: CMD was not started
  NotExecutable = 126,  // as a shell has them
  NotFound = 127,
};

enum class Action : std::uint8_t {
  Ask,  // one question to the daemon, one answer
  Submit,
  Events,
  Explain,
  Drain,
  Top,
  TraceRecord,
  TraceFollow,
  Timeline,
  Run,
  Doctor,
  Prove,
  Certs,
  Join,
  SnapshotSave,
  SnapshotShow,
  Complete,  // what may come next
  Version,
};

// Whom a command asks. What both know (tasks, cordon, drain, ...) asks, the first that is so:
//   the daemon of --socket, the scheduler of --server, the one that the environment names in
//   QGPU_SERVER, this machine's scheduler where --cluster is said, the daemon that the environment
//   names in QGPU_SOCKET, this machine's manager where one listens, and else its scheduler.
// In a task QGPU_SOCKET is the attach socket of libqgpu: then the manager beside it is meant.
// `explain` asks this machine's scheduler first.
// What only a manager or only a scheduler knows is for none but that; QGPU_SERVER is passed over
// for a manager's, a flag that names the other daemon is wrong use.
enum class Daemon : std::uint8_t {
  Manager,
  Scheduler,
  Either,  // whichever listens on the socket that --socket names
};

struct TlsOptions {
  std::string cert;
  std::string key;
  std::string ca;
};

struct TopOptions {
  std::uint64_t count = 0;  // pictures; 0: until a signal
  bool once = false;        // one, of what happened within an interval, and plain
  double intervalSeconds = 1;
  std::string title;  // a line above the picture; empty: none
};

// Of `trace`, and of `timeline`.
struct TraceOptions {
  double seconds = 10;
  std::string card;                 // id or index; empty: each
  std::string file = "trace.json";  // "-": stdout
  std::string svg;                  // file; empty: the terminal
  bool follow = false;              // of `trace list`
};

struct EventOptions {
  std::uint64_t since = 0;  // only later ones
  Nanos age = kNever;       // and none that is older
  std::string task;         // number or name; empty: every task
  std::string card;         // by any of its names; of a cluster NODE or NODE/CARD
  std::vector<std::string> kinds;
  bool follow = false;
  bool changes = false;  // only what somebody asked for: the audit
};

struct Options {
  std::string socket;      // of the daemon that is meant; empty where `server` is not
  std::string server;      // of schedulers, as parseDialList() takes them
  std::string nodeSocket;  // of a run: the admin socket of this machine's manager
  TlsOptions tls;
  Daemon daemon = Daemon::Either;
  Output output = Output::Table;
  Action action = Action::Ask;
  std::string command;               // its name, as it was typed
  Ask ask;                           // what the daemon is asked; of doctor, top and version nothing
  std::vector<std::string> program;  // of `run`: CMD
  bool wait = false;                 // a run or submit: until its task is bound
  bool dryRun = false;               // a drain: only what it would do
  bool yes = false;                  // it is not asked about
  TopOptions top;
  EventOptions events;
  TraceOptions trace;
  DoctorOptions doctor;
  prove::ProveOptions prove;
  CertsOptions certs;
  JoinOptions join;
  std::string file;  // of a snapshot
  Completion completion;
};

// The program is to print `text` and exit with `code` (stdout for 0, else stderr).
struct ExitNow {
  int code = 0;
  std::string text;
};

// argv without the program's name.
std::variant<Options, ExitNow> parseOptions(std::vector<std::string> argv);

// Where a daemon of this user, else that of the machine (run dir `machine`), listens with a socket
// of that name. A run dir of somebody else's is passed over: below /tmp anybody may make one, and
// `run` obeys its manager.
std::string defaultSocket(const Platform& around, const std::string& machine = kMachineRunDir,
                          const std::string& name = "manager.sock");

}  // namespace qgpu::ctl
