#include "services/admin/cluster_commands.h"

#include "runtime/check.h"
#include "runtime/config.h"
#include "services/admin/words.h"

namespace qgpu {
namespace {

constexpr CommandInfo info(ClusterVerb verb, std::string_view name, std::string_view usage,
                           std::string_view what, bool changes) {
  return {static_cast<std::uint8_t>(verb), name, usage, what, changes};
}

Status parseDrain(ClusterCommand& command, const TypedLine& line) {
  command.timeout = kDrainTimeDefault;
  if (line.words.size() < 3) return ok();
  const Result<Nanos> timeout = parseDuration(line.words[2]);
  if (!timeout) return timeout.error();
  command.timeout = *timeout;
  return ok();
}

Status parseNumber(ClusterCommand& command, Result<std::uint64_t> number) {
  if (!number) return number.error();
  command.number = *number;
  return ok();
}

Status parseSpec(ClusterCommand& command, std::string_view json) {
  Result<SubmitSpec> spec = parseSubmitSpec(json);
  if (!spec) return spec.error();
  command.spec = std::move(*spec);
  return ok();
}

// What follows the name; the number of words is right already.
Status parseArguments(ClusterCommand& command, const TypedLine& line) {
  const std::vector<std::string_view>& words = line.words;
  switch (command.verb) {
    case ClusterVerb::Tasks:
      return words.size() < 2 ? ok() : parseNumber(command, taskNumber(words[1]));
    case ClusterVerb::Delete:
    case ClusterVerb::Preempt: return parseNumber(command, taskNumber(words[1]));
    case ClusterVerb::Events:
    case ClusterVerb::Watch: return parseNumber(command, eventNumber(line));
    case ClusterVerb::Submit: return parseSpec(command, line.rest);
    case ClusterVerb::Explain:
      if (!line.rest.starts_with('{')) return parseNumber(command, taskNumber(line.rest));
      command.verb = ClusterVerb::ExplainSpec;
      return parseSpec(command, line.rest);
    case ClusterVerb::WhatIf: {
      Result<PlaceOrDrain> question = parsePlaceOrDrain(line.rest);
      if (!question) return question.error();
      command.question = std::move(*question);
      return ok();
    }
    case ClusterVerb::Cordon:
    case ClusterVerb::Uncordon:
    case ClusterVerb::Drain:
      if (Status target = parseTarget(words[1], command.node, command.card); !target) {
        return target;
      }
      return parseDrain(command, line);
    case ClusterVerb::Priority: {
      const Result<schema::Score> score = parsePriority(words[1]);
      if (!score) return score.error();
      command.priority = *score;
      return ok();
    }
    case ClusterVerb::LogLevel:
      command.level = std::string(words[1].substr(0, kWordMax));
      return ok();
    default: return ok();
  }
}

void fillTarget(schema::Target::Builder out, const std::string& node, const std::string& card) {
  out.setNode(ptr(node));
  out.setCard(ptr(card));
}

void fillWhatIf(schema::WhatIf::Builder out, const PlaceOrDrain& question, std::uint32_t uid) {
  if (question.count == 0) return fillTarget(out.initDrain(), question.node, question.card);
  auto place = out.initPlace();
  fillSubmit(place.initSpec(), question.place, uid);
  place.setCount(question.count);
}

}  // namespace

std::span<const CommandInfo> clusterCommandInfos() {
  using V = ClusterVerb;
  static constexpr CommandInfo kInfos[] = {
      info(V::Help, "help", "help", "this list", false),
      info(V::Info, "status", "status", "the scheduler in one object", false),
      info(V::Nodes, "nodes", "nodes", "every node", false),
      info(V::Cards, "cards", "cards", "every card of every node", false),
      info(V::Tasks, "tasks", "tasks [TASK]", "every task, or one, also when it ended lately",
           false),
      info(V::Submit, "submit", "submit SPEC", "place a task; SPEC is one JSON object", false),
      info(V::Delete, "delete", "delete TASK", "end a task of your own, or any", false),
      info(V::Explain, "explain", "explain TASK|SPEC", "why it is where it is, or why it waits",
           false),
      info(V::WhatIf, "whatif", "whatif SPEC",
           "try it on a copy: {\"place\":SPEC,\"count\":N} or {\"drain\":\"NODE[/CARD]\"}", false),
      info(V::Preempt, "preempt", "preempt TASK", "whom a waiting task would evict; only asked",
           false),
      info(V::Cordon, "cordon", "cordon NODE[/CARD]", "no new tasks there", true),
      info(V::Uncordon, "uncordon", "uncordon NODE[/CARD]", "new tasks again", true),
      info(V::Drain, "drain", "drain NODE[/CARD] [TIME]",
           "cordon, and move its tasks; what is left after TIME (5m) ends", true),
      info(V::Priority, "priority", "priority NAME",
           "binpack, spread or fgd: where ordinary tasks go", true),
      info(V::Events, "events", "events [SINCE]", "what happened after event SINCE", false),
      info(V::Watch, "watch", "watch [SINCE]", "events as they happen, a line each", false),
      info(V::Snapshot, "snapshot", "snapshot", "write a snapshot of the store now", true),
      info(V::LogLevel, "loglevel", "loglevel LEVEL",
           "trace, debug, info, warn, error or off", true),
  };
  return kInfos;
}

Result<ClusterCommand> parseClusterCommand(std::string_view line) {
  const Result<TypedLine> typed = readLine(line, clusterCommandInfos());
  if (!typed) return typed.error();
  ClusterCommand command;
  command.verb = static_cast<ClusterVerb>(typed->info->verb);
  command.changes = typed->info->changes;
  if (Status status = parseArguments(command, *typed); !status) return status.error();
  return command;
}

Result<schema::Score> parsePriority(std::string_view name) {
  const auto score = scoreFromName(name);
  if (score && *score <= schema::Score::FGD) return *score;
  return wrong(quoted(name) + " is no priority: binpack, spread or fgd");
}

bool isList(const ClusterCommand& command) {
  return command.verb == ClusterVerb::Nodes || command.verb == ClusterVerb::Cards ||
         (command.verb == ClusterVerb::Tasks && command.number == 0);
}

void fillClusterRequest(schema::ClusterRequest::Builder request, const ClusterCommand& command,
                        std::uint32_t uid) {
  switch (command.verb) {
    case ClusterVerb::Info: request.setInfo(); return;
    case ClusterVerb::Nodes: request.setNodes(); return;
    case ClusterVerb::Cards: request.setCards(); return;
    case ClusterVerb::Tasks: {
      auto ids = request.initTasks(command.number == 0 ? 0 : 1);
      if (command.number != 0) ids.set(0, command.number);
      return;
    }
    case ClusterVerb::Submit: fillSubmit(request.initSubmit(), command.spec, uid); return;
    case ClusterVerb::Delete: request.setDelete(command.number); return;
    case ClusterVerb::Explain: request.setExplain(command.number); return;
    case ClusterVerb::ExplainSpec:
      fillSubmit(request.initExplainSpec(), command.spec, uid);
      return;
    case ClusterVerb::WhatIf: fillWhatIf(request.initWhatIf(), command.question, uid); return;
    case ClusterVerb::Preempt: request.setPreempt(command.number); return;
    case ClusterVerb::Cordon: fillTarget(request.initCordon(), command.node, command.card); return;
    case ClusterVerb::Uncordon:
      fillTarget(request.initUncordon(), command.node, command.card);
      return;
    case ClusterVerb::Drain: {
      auto drain = request.initDrain();
      fillTarget(drain.initTarget(), command.node, command.card);
      drain.setTimeoutNs(static_cast<std::uint64_t>(command.timeout.value));
      return;
    }
    case ClusterVerb::Priority: request.setPriority(command.priority); return;
    case ClusterVerb::Events: request.setEvents(command.number); return;
    case ClusterVerb::Snapshot: request.setSnapshot(); return;
    case ClusterVerb::LogLevel: request.setLogLevel(ptr(command.level)); return;
    case ClusterVerb::Help:
    case ClusterVerb::Watch: break;
  }
  QGPU_CHECK(false, "help and watch are no requests");
}

}  // namespace qgpu
