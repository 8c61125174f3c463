#pragma once
// The commands of both daemons: one row of one table each (command_table.cc), from which come the
// line of the admin socket, qgpuctl's parser, who may ask it over RPC, the help and the reference.
// A line becomes a Command, or an error that names what is wrong and what would be right; a Command
// becomes a request. A new command is a member of the requests' union (schema/envelope.capnp for a
// node, schema/cluster.capnp for a cluster), a row here, and the actor's answer. Pure: no socket,
// no clock (C7).

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/result.h"
#include "runtime/units.h"
#include "schema/cluster.capnp.h"
#include "schema/envelope.capnp.h"
#include "services/api/commands/spec.h"

namespace qgpu {

// How long a drain waits for its tasks where nobody says.
inline constexpr Nanos kDrainTimeDefault = seconds(300);
// And how long a token is good by which a machine may join.
inline constexpr Nanos kTokenTimeDefault = seconds(3600);

// What stood behind a command's name, checked. Which of it counts, the row's arguments tell.
struct Arguments {
  std::uint64_t number = 0;  // of a task (0: none, or all), of an event or an entry of a trace
  std::string node;
  std::string card;  // of a node: id, index or "all"; of a cluster: empty for a whole node
  Nanos timeout = kDrainTimeDefault;
  std::string level;
  schema::Policy policy = schema::Policy::BEST_EFFORT;
  schema::Score priority = schema::Score::BINPACK;
  ClusterSpec spec;         // its task.ownerUid and owner process are for the client to set
  bool owned = false;       // by the process that asks
  std::uint32_t count = 0;  // of the tasks that a what-if places; 0: a drain
  std::string path{};       // of a report
  std::string token;        // id of one by which a machine may join
  std::string hash{};       // SHA-256 of its secret: the daemon's to set, as the id of a new one
  Nanos ttl = kTokenTimeDefault;
};

struct Argument {
  // As one daemon takes it; without a name it takes none.
  struct Form {
    std::string_view name;
    Status (*read)(std::string_view word, Arguments& given) = nullptr;
  };
  enum class Need : std::uint8_t { Word, OptionalWord, Rest };  // Rest: of the line, a SPEC

  std::string_view name;  // as qgpuctl has it
  std::string_view meaning;
  Form node;
  Form cluster;
  Need need = Need::Word;
  std::string_view option{};  // of qgpuctl, where it stands behind one: "--timeout"
  std::vector<std::string> (*choices)() = nullptr;  // null: any word
  const Form& on(Side side) const { return side == Side::Node ? node : cluster; }
};

// Over RPC and on a unix socket; who asks over TCP without TLS, or with a certificate that only
// reads, may Read.
enum class Right : std::uint8_t {
  Read,
  OwnTasks,  // have tasks, and end those: every user of the machine
  Change,    // root, the daemon's own user, group qgpu, and whom a certificate says it of
};

// What a client does beside asking the actor.
enum class Does : std::uint8_t {
  Ask,
  List,      // a cluster's is asked for page by page
  Help,      // answers by itself
  Watch,     // tells events as they happen
  Run,       // names the process that asks as the owner of a task
  Snapshot,  // writes one, once the actor has permitted it
  Save,      // tells all rows, once the actor has permitted it
  LogLevel,  // sets it, once the actor has permitted it
  Invite,    // makes a secret first, and tells it with what the actor answers
};

// How qgpuctl shows the answer to a person.
enum class Shown : std::uint8_t {
  Done,
  Info,
  Nodes,
  Cards,
  Tasks,
  Events,
  Assigned,
  Explanation,
  Plan,
  Trace,
  Invited,
  Rows,  // as a table of the list that the answer is: a column for each field
};

struct CommandRow {
  using NodeRequest = schema::Request::Builder;
  using ClusterRequest = schema::ClusterRequest::Builder;

  std::string_view name;
  std::string_view what;
  std::string_view example;             // of qgpuctl's arguments
  std::array<Argument, 2> arguments{};  // those without a name are none
  Right right = Right::Read;
  Does does = Does::Ask;
  Shown shown = Shown::Done;
  // The request that it stands for; null where that daemon does not know it. `help` and `watch`
  // make none.
  void (*askNode)(NodeRequest request, const Arguments& given) = nullptr;
  void (*askCluster)(ClusterRequest request, const Arguments& given) = nullptr;

  bool on(Side side) const {
    if (does == Does::Help || does == Does::Watch) return true;
    return side == Side::Node ? askNode != nullptr : askCluster != nullptr;
  }
  // "drain NODE[/CARD] [TIME]"
  std::string usage(Side side) const;
};

// In the order in which help shows them.
std::span<const CommandRow> commandRows();
const CommandRow* findRow(std::string_view name);     // null: there is none
const CommandRow& commandRow(std::string_view name);  // one that there is

// Whose requests these are; null where no command makes them.
const CommandRow* rowOf(schema::Request::Which which);
const CommandRow* rowOf(schema::ClusterRequest::Which which);

struct Command {
  const CommandRow* row = nullptr;
  Arguments given;
  bool isList() const { return row->does == Does::List && given.number == 0; }
};

// `line` without its newline. InvalidArgument for everything that is no command of that side.
Result<Command> parseCommand(std::string_view line, Side side);

// The same from a word for each argument of the row; an empty one was not given.
Result<Arguments> readArguments(const CommandRow& row, std::span<const std::string> words,
                                Side side);

inline void fillRequest(schema::Request::Builder request, const Command& command) {
  command.row->askNode(request, command.given);
}
inline void fillRequest(schema::ClusterRequest::Builder request, const Command& command) {
  command.row->askCluster(request, command.given);
}

}  // namespace qgpu
