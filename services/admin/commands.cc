#include "services/admin/commands.h"

#include "runtime/config.h"

namespace qgpu {
namespace {

constexpr CommandInfo info(Verb verb, std::string_view name, std::string_view usage,
                           std::string_view what, bool changes) {
  return {static_cast<std::uint8_t>(verb), name, usage, what, changes};
}

// What follows the name; the number of words is right already.
Status parseArguments(Command& command, const TypedLine& line) {
  const std::vector<std::string_view>& words = line.words;
  switch (command.verb) {
    case Verb::Events:
    case Verb::Watch: {
      const Result<std::uint64_t> since = eventNumber(line);
      if (!since) return since.error();
      command.number = *since;
      return ok();
    }
    case Verb::Policy: {
      const auto policy = parsePolicy(words[2]);
      if (!policy) {
        return wrong(quoted(words[2]) +
                     " is no policy: best-effort, fixed-share or burst-share (be, fs, bs)");
      }
      command.policy = *policy;
      [[fallthrough]];
    }
    case Verb::Cordon:
    case Verb::Uncordon:
    case Verb::Drain: {
      Result<std::string> card = shortWord(words[1], "a card's id");
      if (!card) return card.error();
      command.card = std::move(*card);
      return ok();
    }
    case Verb::Evict:
    case Verb::End: {
      Result<std::uint64_t> task = taskNumber(words[1]);
      if (!task) return task.error();
      command.number = *task;
      return ok();
    }
    case Verb::LogLevel:
      command.level = std::string(words[1].substr(0, kWordMax));
      return ok();
    case Verb::Run: {
      Result<RunSpec> spec = parseRunSpec(line.rest);
      if (!spec) return spec.error();
      command.spec = std::move(*spec);
      return ok();
    }
    default: return ok();
  }
}

}  // namespace

std::span<const CommandInfo> commandInfos() {
  static constexpr CommandInfo kInfos[] = {
      info(Verb::Help, "help", "help", "this list", false),
      info(Verb::Info, "status", "status", "the node in one object", false),
      info(Verb::Cards, "cards", "cards", "every card", false),
      info(Verb::Tasks, "tasks", "tasks", "every task", false),
      info(Verb::Events, "events", "events [SINCE]", "what happened after event SINCE", false),
      info(Verb::Watch, "watch", "watch [SINCE]", "events as they happen, a line each", false),
      info(Verb::Policy, "policy", "policy CARD NAME",
           "best-effort, fixed-share or burst-share for a card or all", true),
      info(Verb::Cordon, "cordon", "cordon CARD", "no new tasks on a card", true),
      info(Verb::Uncordon, "uncordon", "uncordon CARD", "new tasks again", true),
      info(Verb::Drain, "drain", "drain CARD", "cordon, and end the tasks that are there", true),
      info(Verb::Evict, "evict", "evict TASK", "end a task, whoever owns it", true),
      info(Verb::Snapshot, "snapshot", "snapshot", "write a snapshot of the store now", true),
      info(Verb::LogLevel, "loglevel", "loglevel LEVEL",
           "trace, debug, info, warn, error or off", true),
      info(Verb::Run, "run", "run SPEC", "bind a task to a card; SPEC is one JSON object", false),
      info(Verb::End, "end", "end TASK", "end a task of your own", false),
  };
  return kInfos;
}

Result<Command> parseCommand(std::string_view line) {
  const Result<TypedLine> typed = readLine(line, commandInfos());
  if (!typed) return typed.error();
  Command command;
  command.verb = static_cast<Verb>(typed->info->verb);
  command.changes = typed->info->changes;
  if (Status status = parseArguments(command, *typed); !status) return status.error();
  return command;
}

}  // namespace qgpu
