// The table of commands itself; see commands.h.

#include "runtime/config.h"
#include "services/api/commands/command_line.h"
#include "services/api/commands/commands.h"
#include "services/api/commands/schema_names.h"

namespace qgpu {
namespace {

using Need = Argument::Need;
using Node = schema::Request::Builder;
using Cluster = schema::ClusterRequest::Builder;

// Copies what was read, or passes its error on.
template <typename T, typename To>
Status keep(Result<T> read, To& to) {
  if (!read) return read.error();
  to = std::move(*read);
  return ok();
}

// --- how a word is read ---

Status readTask(std::string_view word, Arguments& given) {
  const auto number = parseUint(word);
  if (!number || *number == 0) return wrong(quoted(word) + " is no task id: `tasks` lists them");
  given.number = *number;
  return ok();
}

Status readSince(std::string_view word, Arguments& given) {
  const auto number = parseUint(word);
  if (!number) return wrong(quoted(word) + " is no sequence number");
  given.number = *number;
  return ok();
}

Status readCard(std::string_view word, Arguments& given) {
  given.card = std::string(word.substr(0, kWordMax));
  if (word.size() <= kWordMax) return ok();
  return wrong("a card's id has at most " + std::to_string(kWordMax) + " characters");
}

Status readPath(std::string_view word, Arguments& given) {
  given.path = std::string(word);
  return ok();
}

Status readTarget(std::string_view word, Arguments& given) {
  return parseTarget(word, given.node, given.card);
}

Status readNodeCard(std::string_view word, Arguments& given) {
  if (Status read = readTarget(word, given); !read) return read;
  if (!given.card.empty()) return ok();
  return wrong(quoted(word) + " names no card: NODE/CARD, as `cards` lists them");
}

Status readPolicy(std::string_view word, Arguments& given) {
  if (keep(parsePolicy(word), given.policy)) return ok();
  return wrong(quoted(word) + " is no policy: " + policyForms());
}

Status readPriority(std::string_view word, Arguments& given) {
  const auto score = scoreFromName(word);
  if (!score || *score > schema::Score::FGD) {
    return wrong(quoted(word) + " is no priority: binpack, spread or fgd");
  }
  given.priority = *score;
  return ok();
}

Status readTime(std::string_view word, Arguments& given) {
  return keep(parseDuration(word), given.timeout);
}

Status readLevel(std::string_view word, Arguments& given) {
  given.level = std::string(word.substr(0, kWordMax));
  return ok();
}

Status readToken(std::string_view word, Arguments& given) {
  given.token = std::string(word.substr(0, kWordMax));
  return ok();
}

Status readNode(std::string_view word, Arguments& given) {
  given.node = std::string(word.substr(0, kWordMax));
  if (word.size() <= kWordMax) return ok();
  return wrong("a node's name has at most " + std::to_string(kWordMax) + " characters");
}

Status readTtl(std::string_view word, Arguments& given) {
  return keep(parseDuration(word), given.ttl);
}

Status readAsked(std::string_view json, Side side, Arguments& given) {
  Result<SaidSpec> said = readSpec(json, side);
  if (!said) return said.error();
  Result<AskedTask> asked = fillSpec(std::move(*said));
  if (!asked) return asked.error();
  given.spec = std::move(asked->spec);
  given.owned = asked->owned;
  return ok();
}
Status readRun(std::string_view json, Arguments& given) {
  return readAsked(json, Side::Node, given);
}
Status readSubmit(std::string_view json, Arguments& given) {
  return readAsked(json, Side::Cluster, given);
}

Status readTaskOrSpec(std::string_view text, Arguments& given) {
  return text.starts_with('{') ? readSubmit(text, given) : readTask(text, given);
}

Status readQuestion(std::string_view json, Arguments& given) {
  Result<PlaceOrDrain> question = parsePlaceOrDrain(json);
  if (!question) return question.error();
  given.spec = std::move(question->place);
  given.count = question->count;
  given.node = std::move(question->node);
  given.card = std::move(question->card);
  return ok();
}

// --- arguments that several commands have ---

constexpr Argument kSince = {.name = "SINCE",
                             .meaning = "only after this sequence number",
                             .node = {"SINCE", readSince},
                             .cluster = {"SINCE", readSince},
                             .need = Need::OptionalWord};
constexpr Argument kTarget = {
    .name = "TARGET",
    .meaning = "a card: id, index or short name; of a cluster NODE or NODE/CARD",
    .node = {"CARD", readCard},
    .cluster = {"NODE[/CARD]", readTarget}};
constexpr Argument kNodeTask = {
    .name = "TASK", .meaning = "its number or name", .node = {"TASK", readTask}, .cluster = {}};
constexpr Argument kClusterTask = {
    .name = "TASK", .meaning = "its number or name", .node = {}, .cluster = {"TASK", readTask}};

void fillTarget(schema::Target::Builder out, const Arguments& given) {
  out.setNode(ptr(given.node));
  out.setCard(ptr(given.card));
}

// --- the rows ---

constexpr CommandRow kRows[] = {
    {.name = "help",
     .what = "this list, or how a command is used",
     .example = "help run",
     .does = Does::Help},
    {.name = "status",
     .what = "the node, or the cluster, in a few lines",
     .example = "status",
     .shown = Shown::Info,
     .askNode = [](Node r, const Arguments&) { r.setInfo(); },
     .askCluster = [](Cluster r, const Arguments&) { r.setInfo(); }},
    {.name = "nodes",
     .what = "every node of the cluster",
     .example = "nodes",
     .does = Does::List,
     .shown = Shown::Nodes,
     .askCluster = [](Cluster r, const Arguments&) { r.setNodes(); }},
    {.name = "cards",
     .what = "every card: memory, shares, policy, who is on it",
     .example = "cards",
     .does = Does::List,
     .shown = Shown::Cards,
     .askNode = [](Node r, const Arguments&) { r.setCards(); },
     .askCluster = [](Cluster r, const Arguments&) { r.setCards(); }},
    {.name = "tasks",
     .what = "every task: where it is, what it may use and has used",
     .example = "-o json tasks",
     .arguments = {{{.name = "TASK",
                     .meaning = "of a cluster: this one alone, by its number also when it ended "
                                "lately",
                     .node = {},
                     .cluster = {"TASK", readTask},
                     .need = Need::OptionalWord}}},
     .does = Does::List,
     .shown = Shown::Tasks,
     .askNode = [](Node r, const Arguments&) { r.setTasks(); },
     .askCluster =
         [](Cluster r, const Arguments& given) {
           auto ids = r.initTasks(given.number == 0 ? 0 : 1);
           if (given.number != 0) ids.set(0, given.number);
         }},
    {.name = "events",
     .what = "what happened",
     .example = "events --follow",
     .arguments = {{kSince}},
     .shown = Shown::Events,
     .askNode = [](Node r, const Arguments& given) { r.setEvents(given.number); },
     .askCluster = [](Cluster r, const Arguments& given) { r.setEvents(given.number); }},
    {.name = "watch",
     .what = "events as they happen, a line each",
     .example = {},
     .arguments = {{kSince}},
     .does = Does::Watch},
    {.name = "trace",
     .what = "what a card did: slices, holds, online tasks that woke",
     .example = "trace record --seconds 10 -o trace.json",
     .arguments = {{{.name = "CARD",
                     .meaning = "id or index of a card; of a cluster NODE/CARD",
                     .node = {"CARD", readCard},
                     .cluster = {"NODE/CARD", readNodeCard}},
                    kSince}},
     .shown = Shown::Trace,
     .askNode =
         [](Node r, const Arguments& given) {
           auto query = r.initTrace();
           query.setCard(ptr(given.card));
           query.setSince(given.number);
         },
     .askCluster =
         [](Cluster r, const Arguments& given) {
           auto query = r.initTrace();
           fillTarget(query.initTarget(), given);
           query.setSince(given.number);
         }},
    {.name = "run",
     .what = "run a command as a task on a card",
     .example = "run --memory 2 --core 30 -- ./train.sh",
     .arguments = {{{.name = "SPEC",
                     .meaning = "what the task asks for: one JSON object",
                     .node = {"SPEC", readRun},
                     .cluster = {},
                     .need = Need::Rest}}},
     .right = Right::OwnTasks,
     .does = Does::Run,
     .askNode = [](Node r, const Arguments& given) { writeSpec(given.spec.task, r.initBind()); }},
    {.name = "end",
     .what = "end a task of your own on this node",
     .example = "end 7",
     .arguments = {{kNodeTask}},
     .right = Right::OwnTasks,
     .askNode = [](Node r, const Arguments& given) { r.setUnbind(given.number); }},
    {.name = "evict",
     .what = "end a task of this node, whoever owns it",
     .example = "evict 7",
     .arguments = {{kNodeTask}},
     .right = Right::Change,
     .askNode = [](Node r, const Arguments& given) { r.setEvict(given.number); }},
    {.name = "policy",
     .what = "how a card, or all, is shared between tasks",
     .example = "policy all burst-share",
     .arguments = {{{.name = "CARD",
                     .meaning = "a card: id, index or short name; or all",
                     .node = {"CARD", readCard},
                     .cluster = {}},
                    {.name = "NAME",
                     .meaning = "the policy",
                     .node = {"NAME", readPolicy},
                     .cluster = {},
                     .choices = policyWords}}},
     .right = Right::Change,
     .askNode =
         [](Node r, const Arguments& given) {
           auto policy = r.initPolicy();
           policy.setCard(ptr(given.card));
           policy.setPolicy(given.policy);
         }},
    {.name = "report",
     .what = "keep where the newest report of `prove` on a card lies",
     .example = "report 0 /var/lib/qgpu/report-0/report.json",
     .arguments = {{{.name = "CARD",
                     .meaning = "id, index or short name of a card",
                     .node = {"CARD", readCard},
                     .cluster = {}},
                    {.name = "PATH",
                     .meaning = "of report.json, from /, without blanks",
                     .node = {"PATH", readPath},
                     .cluster = {}}}},
     .right = Right::Change,
     .askNode =
         [](Node r, const Arguments& given) {
           auto report = r.initReport();
           report.setCard(ptr(given.card));
           report.setPath(ptr(given.path));
         }},
    {.name = "submit",
     .what = "place a task; answers node, card, token and environment",
     .example = "submit --memory 8 --core 50",
     .arguments = {{{.name = "SPEC",
                     .meaning = "what the task asks for: one JSON object",
                     .node = {},
                     .cluster = {"SPEC", readSubmit},
                     .need = Need::Rest}}},
     .right = Right::OwnTasks,
     .shown = Shown::Assigned,
     .askCluster = [](Cluster r,
                      const Arguments& given) { writeClusterSpec(given.spec, r.initSubmit()); }},
    {.name = "delete",
     .what = "end a task of the cluster, or take it from the queue",
     .example = "delete 12",
     .arguments = {{kClusterTask}},
     .right = Right::OwnTasks,
     .askCluster = [](Cluster r, const Arguments& given) { r.setDelete(given.number); }},
    {.name = "explain",
     .what = "why it is where it is, what it gets, or why it waits",
     .example = "explain train",
     .arguments = {{{.name = "TASK",
                     .meaning = "its number or name",
                     .node = {},
                     .cluster = {"TASK|SPEC", readTaskOrSpec},
                     .need = Need::Rest}}},
     .shown = Shown::Explanation,
     .askCluster =
         [](Cluster r, const Arguments& given) {
           if (given.number != 0) return r.setExplain(given.number);
           writeClusterSpec(given.spec, r.initExplainSpec());
         }},
    {.name = "whatif",
     .what = "try something on a copy of the cluster",
     .example = "what-if drain node-3",
     .arguments = {{{.name = "SPEC",
                     .meaning = "{\"place\":SPEC,\"count\":N} or {\"drain\":\"NODE[/CARD]\"}",
                     .node = {},
                     .cluster = {"SPEC", readQuestion},
                     .need = Need::Rest}}},
     .shown = Shown::Plan,
     .askCluster =
         [](Cluster r, const Arguments& given) {
           auto question = r.initWhatIf();
           if (given.count == 0) return fillTarget(question.initDrain(), given);
           auto place = question.initPlace();
           writeClusterSpec(given.spec, place.initSpec());
           place.setCount(given.count);
         }},
    {.name = "preempt",
     .what = "whom a waiting task would evict; nothing is done",
     .example = "preempt 12",
     .arguments = {{kClusterTask}},
     .shown = Shown::Plan,
     .askCluster = [](Cluster r, const Arguments& given) { r.setPreempt(given.number); }},
    {.name = "cordon",
     .what = "no new tasks on a card or node",
     .example = "cordon 0",
     .arguments = {{kTarget}},
     .right = Right::Change,
     .askNode = [](Node r, const Arguments& given) { r.setCordon(ptr(given.card)); },
     .askCluster = [](Cluster r, const Arguments& given) { fillTarget(r.initCordon(), given); }},
    {.name = "uncordon",
     .what = "new tasks there again",
     .example = "uncordon 0",
     .arguments = {{kTarget}},
     .right = Right::Change,
     .askNode = [](Node r, const Arguments& given) { r.setUncordon(ptr(given.card)); },
     .askCluster = [](Cluster r, const Arguments& given) { fillTarget(r.initUncordon(), given); }},
    {.name = "drain",
     .what = "cordon it; a node ends its tasks, a cluster moves them",
     .example = "--cluster drain node-3 --timeout 10m",
     .arguments = {{kTarget,
                    {.name = "TIME",
                     .meaning = "of a cluster: what has found no other place by then is ended and "
                                "waits (5m)",
                     .node = {},
                     .cluster = {"TIME", readTime},
                     .need = Need::OptionalWord,
                     .option = "--timeout"}}},
     .right = Right::Change,
     .askNode = [](Node r, const Arguments& given) { r.setDrain(ptr(given.card)); },
     .askCluster =
         [](Cluster r, const Arguments& given) {
           auto drain = r.initDrain();
           fillTarget(drain.initTarget(), given);
           drain.setTimeoutNs(static_cast<std::uint64_t>(given.timeout.value));
         }},
    {.name = "priority",
     .what = "where ordinary tasks go: binpack, spread or fgd",
     .example = "priority fgd",
     .arguments = {{{.name = "NAME",
                     .meaning = "binpack, spread or fgd",
                     .node = {},
                     .cluster = {"NAME", readPriority}}}},
     .right = Right::Change,
     .askCluster = [](Cluster r, const Arguments& given) { r.setPriority(given.priority); }},
    {.name = "token-create",
     .what = "lets one machine join, once, as this node, by `qgpuctl join`",
     .example = "token create node-7",
     .arguments = {{{.name = "NODE",
                     .meaning = "the name of the node, as its manager's --nodename",
                     .node = {},
                     .cluster = {"NODE", readNode}},
                    {.name = "TIME",
                     .meaning = "it is good for so long, 1m to 24h (1h)",
                     .node = {},
                     .cluster = {"TIME", readTtl},
                     .need = Need::OptionalWord,
                     .option = "--ttl"}}},
     .right = Right::Change,
     .does = Does::Invite,
     .shown = Shown::Invited,
     .askCluster =
         [](Cluster r, const Arguments& given) {
           auto invite = r.initInvite();
           invite.setId(ptr(given.token));
           invite.setNode(ptr(given.node));
           invite.setHash(ptr(given.hash));
           invite.setTtlNs(static_cast<std::uint64_t>(given.ttl.value));
         }},
    {.name = "token-list",
     .what = "the tokens by which machines may join; their secrets are not kept",
     .example = "token list",
     .right = Right::Change,
     .shown = Shown::Rows,
     .askCluster = [](Cluster r, const Arguments&) { r.setTokens(); }},
    {.name = "token-revoke",
     .what = "nobody joins by this token any more",
     .example = "token revoke 1f2e3d4c",
     .arguments = {{{.name = "ID",
                     .meaning = "as `token list` shows it",
                     .node = {},
                     .cluster = {"ID", readToken}}}},
     .right = Right::Change,
     .askCluster = [](Cluster r, const Arguments& given) { r.setRevoke(ptr(given.token)); }},
    {.name = "limits",
     .what = "how near the daemon is to its bounds, and what happens there",
     .example = "limits",
     .shown = Shown::Rows,
     .askNode = [](Node r, const Arguments&) { r.setLimits(); },
     .askCluster = [](Cluster r, const Arguments&) { r.setLimits(); }},
    {.name = "snapshot",
     .what = "let the daemon write a snapshot of its store",
     .example = "snapshot",
     .right = Right::Change,
     .does = Does::Snapshot,
     .askNode = [](Node r, const Arguments&) { r.setSnapshot(); },
     .askCluster = [](Cluster r, const Arguments&) { r.setSnapshot(); }},
    {.name = "snapshot-save",
     .what = "a copy of all that the daemon stores, into a file",
     .example = "snapshot save scheduler.snapshot",
     .right = Right::Change,
     .does = Does::Save,
     .askNode = [](Node r, const Arguments&) { r.setSave(); },
     .askCluster = [](Cluster r, const Arguments&) { r.setSave(); }},
    {.name = "loglevel",
     .what = "trace, debug, info, warn, error or off",
     .example = "loglevel debug",
     .arguments = {{{.name = "LEVEL",
                     .meaning = "trace, debug, info, warn, error or off",
                     .node = {"LEVEL", readLevel},
                     .cluster = {"LEVEL", readLevel}}}},
     .right = Right::Change,
     .does = Does::LogLevel,
     .askNode = [](Node r, const Arguments& given) { r.setLogLevel(ptr(given.level)); },
     .askCluster = [](Cluster r, const Arguments& given) { r.setLogLevel(ptr(given.level)); }},
};

}  // namespace

std::span<const CommandRow> commandRows() {
  return kRows;
}

}  // namespace qgpu
