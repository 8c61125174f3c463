#pragma once
// What was typed, read in full before anything is done. A mistake is one usage text and exit 2, so
// that no command is carried out by half.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "services/daemons/surroundings.h"

namespace qgpu::ctl {

// Exit statuses that scripts may rely on. `run` returns CMD's own, or one of the last three.
enum class Exit : int {
  Ok = 0,
  Usage = 2,
  Refused = 3,
  NoDaemon = 4,
  RunRefused = 125,     // no room, over quota, no daemon: CMD was not started
  NotExecutable = 126,  // as a shell has them
  NotFound = 127,
};

enum class Output : std::uint8_t { Table, Json };

enum class Action : std::uint8_t {
  Ask,     // one line to the daemon, one answer
  Events,
  Top,
  Run,
  Version,
};

struct RunOptions {
  std::string name;  // empty: of the command
  std::string taskClass = "ordinary";
  std::optional<std::uint64_t> memoryGib;
  std::optional<std::uint64_t> corePercent;
  std::optional<std::uint64_t> cards;
  std::string card;
  std::vector<std::string> command;
};

struct TopOptions {
  std::uint64_t count = 0;  // pictures; 0: until a signal
  double intervalSeconds = 1;
};

struct EventOptions {
  std::uint64_t since = 0;
  bool follow = false;
};

struct Options {
  std::string socket;
  Output output = Output::Table;
  Action action = Action::Ask;
  std::string command;  // its name: how the answer is shown
  std::string line;     // for Ask: what the daemon is told
  RunOptions run;
  TopOptions top;
  EventOptions events;
};

// The program is to print `text` and exit with `code` (stdout for 0, else stderr).
struct ExitNow {
  int code = 0;
  std::string text;
};

// argv without the program's name.
std::variant<Options, ExitNow> parseOptions(std::vector<std::string> argv);

// Where a manager of this user, else that of the machine (run dir `machine`), listens. A run dir of
// somebody else's is passed over: below /tmp anybody may make one, and `run` obeys its manager.
std::string defaultSocket(const Surroundings& around, const std::string& machine = kMachineRunDir);

}  // namespace qgpu::ctl
