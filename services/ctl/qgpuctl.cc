// qgpuctl: what a person types. Reads its arguments, asks the daemon, shows the answer.

#include <cstdio>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "actors/ledger/card_name.h"
#include "services/api/commands/render.h"
#include "services/base/base64.h"
#include "services/base/text.h"
#include "services/base/wall_time.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/names.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"
#include "services/ctl/answers/watch.h"
#include "services/ctl/certs/authority.h"
#include "services/ctl/doctor/bundle.h"
#include "services/ctl/drain_plan.h"
#include "services/ctl/event_filter.h"
#include "services/ctl/node_explain.h"
#include "services/ctl/options.h"
#include "services/ctl/prove.h"
#include "services/ctl/run.h"
#include "services/ctl/server.h"
#include "services/ctl/snapshot.h"
#include "services/ctl/submit.h"
#include "services/ctl/top.h"
#include "services/ctl/trace.h"
#include "store/row_copy.h"

namespace qgpu::ctl {
namespace {

int exitWith(Exit code) {
  return static_cast<int>(code);
}

constexpr Nanos kLimit = seconds(10);
constexpr Nanos kSnapshotLimit = seconds(120);  // of all that a large cluster has
constexpr Nanos kNamesLimit = millis(500);      // somebody waits who pressed a key

int noDaemon(const Error& error, const Options& options) {
  std::fprintf(stderr, "qgpuctl: %s\n", error.message.c_str());
  if (error.code == ErrorCode::InvalidArgument) return exitWith(Exit::Usage);  // an address
  if (options.server.empty()) {
    std::fprintf(stderr, "qgpuctl: start one: %s\n", startLine(options.socket).c_str());
  }
  return exitWith(Exit::NoDaemon);
}

Nanos limitOf(const Options& options) {
  return options.daemon == Daemon::Manager ? kLimit : kClusterLimit;
}

// The daemon has no such command, and calls it by another name than was typed.
bool isUnknown(const Error& error) {
  return error.message.starts_with("unknown command");
}

// Whom the command may have been meant for instead; empty where nothing speaks for it.
std::string otherDaemon(const Error& error, const Options& options) {
  const bool target =
      options.command == "cordon" || options.command == "uncordon" || options.command == "drain";
  const bool node =
      options.daemon != Daemon::Scheduler && !options.socket.ends_with("scheduler.sock");
  if (target && node && error.code == ErrorCode::NotFound) {
    return "a card of this node was looked for; of a cluster: --cluster, or --server ADDR";
  }
  if (!isUnknown(error)) return "";
  return "the daemon at " + options.socket +
         (options.daemon == Daemon::Scheduler
              ? " is no scheduler: --server ADDR, or QGPU_SERVER, names one"
              : " is no manager");
}

int refused(const Error& error, const Options& options) {
  const std::string other = otherDaemon(error, options);
  if (!isUnknown(error)) {
    std::fprintf(stderr, "qgpuctl: %s (%s)\n", asTyped(error.message).c_str(),
                 errorName(error.code));
  }
  if (!other.empty()) std::fprintf(stderr, "qgpuctl: %s\n", other.c_str());
  return exitWith(Exit::Refused);
}

int print(const std::string& text) {
  writeOut(text);
  return exitWith(Exit::Ok);
}

// How its answer is shown; cards have short names where their daemon lists them.
Style styleOf(Asker& asker, const Options& options) {
  Style style;
  style.wide = options.output == Output::Wide;
  const Shown shown = options.ask.row->shown;
  const bool cards = shown == Shown::Tasks || shown == Shown::Events ||
                     shown == Shown::Explanation || shown == Shown::Plan;
  if (options.output != Output::Table || !cards) return style;
  const Result<Answer> answer = asker.ask(askFor("cards"), kLimit);
  if (answer) style.cards = CardNames(answer->root());
  return style;
}

// An answer, shown. Programs get the document, a refusal too.
int show(const Answer& answer, const Options& options, const Style& style = {}) {
  if (options.output == Output::Json || options.output == Output::Yaml) {
    print(documentOf(answer.root(), options.output));
    return exitWith(answer.status() ? Exit::Ok : Exit::Refused);
  }
  const Result<std::string> view = viewOf(options.ask.row->shown, answer, style);
  if (!view) return refused(view.error(), options);
  if (options.output == Output::Env) {
    if (!flagOf(answer.root(), "waiting")) return print(exportsOf(answer));
    std::fputs(view->c_str(), stderr);
    return exitWith(Exit::Refused);  // so that a script doesn't go on without an environment
  }
  return print(options.output == Output::Name ? idsOf(options.ask.row->shown, answer) : *view);
}

int show(const Result<Answer>& answer, const Options& options, const Style& style = {}) {
  return answer ? show(*answer, options, style) : noDaemon(answer.error(), options);
}

Answer refusal(const Error& error) {
  Document document;
  writeError(document, error);
  return document;
}

// The question with a number where a task was named: daemons know tasks by their numbers.
Result<Answer> askByName(Asker& asker, Ask ask, Nanos limit) {
  for (std::size_t i = 0; i < ask.words.size(); ++i) {
    std::string& word = ask.words[i];
    if (ask.row->arguments[i].name != "TASK" || word.empty() || parseUint(word)) continue;
    Result<Answer> tasks = asker.ask(askFor("tasks"), limit);
    if (!tasks || !tasks->status()) return tasks;
    const Result<std::uint64_t> task = taskNamed(word, tasks->root());
    if (!task) return refusal(task.error());
    word = std::to_string(*task);
  }
  return asker.ask(ask, limit);
}

// What a manager lists at this moment.
Result<std::vector<Answer>> look(Asker& asker) {
  std::vector<Answer> lists;
  for (const char* list : {"tasks", "cards"}) {
    Result<Answer> answer = asker.ask(askFor(list), kLimit);
    if (!answer) return answer.error();
    lists.push_back(std::move(*answer));
  }
  return lists;
}

// A manager explains by what it lists, twice.
Result<Answer> explainByLists(Asker& asker, const std::string& word) {
  constexpr Nanos kApart = seconds(1);
  const Nanos begun = now();
  Result<std::vector<Answer>> before = look(asker);
  if (!before) return before.error();
  for (Answer& list : *before) {
    if (!list.status()) return std::move(list);
  }
  const auto number = parseUint(word);
  const Result<std::uint64_t> task =
      number ? Result<std::uint64_t>(*number) : taskNamed(word, before->front().root());
  if (!task) return refusal(task.error());
  ::usleep(static_cast<unsigned>(kApart / micros(1)));
  const Result<std::vector<Answer>> after = look(asker);
  if (!after) return after.error();
  return Answer(explainOnNode(*task, {(*before)[0].root(), (*before)[1].root()},
                              {(*after)[0].root(), (*after)[1].root()}, now() - begun));
}

// Whether a scheduler was reached: --socket doesn't say.
Result<bool> isScheduler(Asker& asker, const Options& options) {
  if (options.daemon != Daemon::Either) return options.daemon == Daemon::Scheduler;
  const Result<Answer> status = asker.ask(askFor("status"), kLimit);
  if (!status) return status.error();
  return textOf(status->root(), "role") == "scheduler";
}

int explain(const Options& options) {
  auto asker = reach(options);
  if (!asker) return noDaemon(asker.error(), options);
  const Result<bool> cluster = isScheduler(**asker, options);
  if (!cluster) return noDaemon(cluster.error(), options);
  const Result<Answer> answer = *cluster ? askByName(**asker, options.ask, kClusterLimit)
                                         : explainByLists(**asker, options.ask.words.front());
  return show(answer, options, *cluster && answer ? styleOf(**asker, options) : Style{});
}

// What a drain would do, with nothing done.
Result<Answer> planDrain(Asker& asker, const Options& options, bool cluster) {
  const std::string& target = options.ask.words.front();
  if (cluster) return asker.ask(askFor("whatif", target), kClusterLimit);
  const Result<std::vector<Answer>> lists = look(asker);
  if (!lists) return lists.error();
  return Answer(planNodeDrain(target, (*lists)[0].root(), (*lists)[1].root()));
}

// True for somebody who sits at a terminal.
bool canAnswer() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
}

bool saysYes(const Options& options, const Answer& plan, bool cluster) {
  const std::size_t tasks = concernedBy(plan.root());
  if (tasks == 0) return true;
  const std::string what =
      cluster ? "moves or ends " + std::to_string(tasks) + " task(s), see --dry-run"
              : sayNodeDrain(plan.root());
  std::fprintf(stderr, "qgpuctl: to drain %s %s; go on? [y/N] ",
               printable(options.ask.words.front()).c_str(), what.c_str());
  char said[16] = {};
  return std::fgets(said, sizeof said, stdin) != nullptr && (said[0] == 'y' || said[0] == 'Y');
}

int showPlan(Asker& asker, const Options& options, const Answer& plan, bool cluster) {
  if (!cluster && plan.status() && isTable(options.output)) {
    return print("to drain " + printable(textOf(plan.root(), "card")) + " " +
                 sayNodeDrain(plan.root()) + "\n");
  }
  Options asked = options;
  asked.ask.row = &commandRow("whatif");
  const Style style = styleOf(asker, asked);
  return show(plan, asked, style);
}

int drain(const Options& options) {
  auto asker = reach(options);
  if (!asker) return noDaemon(asker.error(), options);
  const bool asks = !options.yes && canAnswer();
  if (options.dryRun || asks) {
    const Result<bool> cluster = isScheduler(**asker, options);
    if (!cluster) return noDaemon(cluster.error(), options);
    const Result<Answer> plan = planDrain(**asker, options, *cluster);
    if (!plan) return noDaemon(plan.error(), options);
    if (options.dryRun) return showPlan(**asker, options, *plan, *cluster);
    // A plan that fails says no more than the drain itself.
    if (plan->status() && !saysYes(options, *plan, *cluster)) {
      std::fprintf(stderr, "qgpuctl: nothing was changed\n");
      return exitWith(Exit::Refused);
    }
  }
  return show((*asker)->ask(options.ask, limitOf(options)), options);
}

// The names that the daemon knows. One that is slow to list them tells its events all the same.
void teach(EventFilter& filter, Asker& asker, const EventOptions& options) {
  Result<Answer> tasks = Answer("{}");
  Result<Answer> cards = Answer("{}");
  if (!options.task.empty()) tasks = asker.ask(askFor("tasks"), kLimit);
  if (!options.card.empty()) cards = asker.ask(askFor("cards"), kLimit);
  if (tasks && cards) filter.learn(tasks->root(), cards->root());
}

// What the daemon remembers after `since`, as if it had told all in one answer.
Result<Answer> allEvents(Asker& asker, EventFilter& filter, std::uint64_t& since) {
  Document events;
  events.beginObject().flag("ok", true).key("events").beginArray();
  Result<Answer> last = eachEvent(asker, since, kLimit, [&](Value event) {
    if (filter.shows(event)) event.write(events);
  });
  if (!last || !last->status()) return last;
  events.endArray().endObject();
  return Answer(std::move(events));
}

// Over restarts of the daemon too: from the newest event that was shown.
int follow(const Options& options, EventFilter& filter, const Style& style, std::uint64_t last) {
  Backoff backoff = newBackoff();
  bool lost = false;  // and said so
  while (true) {
    auto asker = reach(options);
    Result<Answer> line =
        asker ? (*asker)->ask(askFor("watch", std::to_string(last)), kLimit) : asker.error();
    for (; line; line = (*asker)->nextLine(kNever)) {
      const Status& said = line->status();
      if (!said && said.error().code == ErrorCode::Overloaded) break;  // we were too slow
      if (!said) return refused(said.error(), options);
      backoff.reset();
      lost = false;
      const Value event = eventOf(*line);
      if (!event.exists()) continue;
      last = numberOf(event, "seq");
      if (!filter.shows(event)) continue;
      print(isTable(options.output) ? eventLine(event, style)
                                    : streamed(line->root(), options.output));
      if (std::ferror(stdout) != 0) return exitWith(Exit::Ok);
    }
    if (!line && !lost) {
      std::fprintf(stderr, "qgpuctl: %s; looking again\n", line.error().message.c_str());
    }
    lost = !line;
    rest(backoff);
  }
}

int events(const Options& options) {
  EventFilter filter(options.events, unixMsNow());
  std::uint64_t last = options.events.since;
  int status = exitWith(Exit::Ok);
  Style style;
  {
    auto asker = reach(options);
    if (!asker) return noDaemon(asker.error(), options);
    teach(filter, **asker, options.events);
    const Result<Answer> told = allEvents(**asker, filter, last);
    style = styleOf(**asker, options);
    status = show(told, options, style);
    if (const std::string unknown = filter.unknown(); !unknown.empty()) {
      std::fprintf(stderr, "qgpuctl: %s\n", printable(unknown).c_str());
    }
  }
  if (status != exitWith(Exit::Ok) || !options.events.follow) return status;
  return follow(options, filter, style, last);
}

int submit(const Options& options) {
  Ask ask = options.ask;
  nameRequest(ask.said);
  return show(submitTask(options, ask, [](const Answer&) {}), options);
}

int doctor(const Options& options) {
  const Diagnosis diagnosis = examine(options.doctor, QGPU_VERSION);
  const Telling telling = options.doctor.quiet ? Telling::Findings : Telling::All;
  print(isTable(options.output) ? doctorTable(diagnosis, telling)
                                : documentOf(doctorJson(diagnosis), options.output));
  const std::string& bundle = options.doctor.bundle;
  if (!bundle.empty()) {
    const Status written = writeReport(bundle, reportOf(options.doctor, diagnosis, QGPU_VERSION));
    if (!written) {
      std::fprintf(stderr, "qgpuctl: %s\n", printable(written.error().message).c_str());
      return exitWith(Exit::Refused);
    }
    std::fprintf(stderr, "%s: look it over before you send it\n", printable(bundle).c_str());
  }
  return exitWith(diagnosis.somethingBroken() ? Exit::Refused : Exit::Ok);
}

int certs(const Options& options) {
  const auto made = certificates(options.certs, unixMsNow() / 1000);
  if (!made) {
    std::fprintf(stderr, "qgpuctl: %s\n", printable(made.error().message).c_str());
    const bool typed = made.error().code == ErrorCode::InvalidArgument;
    return exitWith(typed ? Exit::Usage : Exit::Refused);
  }
  return print(isTable(options.output) ? certificatesTable(*made)
                                       : documentOf(certificatesJson(*made), options.output));
}

int join(const Options& options) {
  const auto joined = joinCluster(options.join, unixMsNow() / 1000);
  if (!joined) {
    std::fprintf(stderr, "qgpuctl: %s\n", printable(joined.error().message).c_str());
    const bool typed = joined.error().code == ErrorCode::InvalidArgument;
    return exitWith(typed ? Exit::Usage : Exit::Refused);
  }
  const bool starts = options.join.start && unitReads(options.join.folder);
  const Status started = starts ? startUnit() : ok();
  const bool runs = starts && started;
  print(isTable(options.output) ? joinedText(*joined, runs)
                                : documentOf(joinedJson(*joined, runs), options.output));
  if (started) return exitWith(Exit::Ok);
  std::fprintf(stderr, "qgpuctl: %s\n", printable(started.error().message).c_str());
  return exitWith(Exit::Refused);
}

// What a list of a daemon is called by, and what says more of an entry.
struct NamedList {
  const char* list;
  const char* word;
  const char* meaning;
};
constexpr NamedList kTasks{"tasks", "id", "name"}, kCards{"cards", "id", "model"},
    kNodes{"nodes", "name", "state"};

// A daemon that is not there, or slow, has nothing to add.
void addNames(const Options& options, const NamedList& list, const std::string& typed,
              std::vector<Completion::Word>& to) {
  auto asker = reach(options);
  const Result<Answer> answer =
      asker ? (*asker)->ask(askFor(list.list), kNamesLimit) : asker.error();
  if (!answer) return;
  for (const Value entry : listOf(answer->root(), list.list)) {
    const std::uint64_t number = numberOf(entry, list.word);
    std::string word = number != 0 ? std::to_string(number) : textOf(entry, list.word);
    std::string meaning = textOf(entry, list.meaning);
    // The other name, where that is what was begun.
    if (!typed.empty() && number != 0 && meaning.starts_with(typed)) std::swap(word, meaning);
    const bool card = &list == &kCards && !(typed.size() > 1 && word.starts_with(typed));
    if (card) word = shortCardName(word, static_cast<std::uint32_t>(numberOf(entry, "index")));
    to.push_back({word, meaning});
  }
}

// Names that the daemon knows whom the options before the command mean.
void addNames(const Completion& typed, std::vector<Completion::Word>& to) {
  using More = Completion::More;
  std::vector<std::string> argv = typed.globals;
  argv.emplace_back("status");
  const auto parsed = parseOptions(std::move(argv));
  const auto* asked = std::get_if<Options>(&parsed);
  if (asked == nullptr) return;
  const bool cluster = asked->daemon == Daemon::Scheduler;
  std::vector<Completion::Word> names;
  if (typed.more == More::Tasks) addNames(*asked, kTasks, typed.typed, names);
  const bool nodes = typed.more == More::Nodes || (typed.more == More::Targets && cluster);
  if (nodes) addNames(*asked, kNodes, typed.typed, names);
  const bool cards = typed.more == More::Cards || typed.more == More::Targets;
  if (cards && !nodes) addNames(*asked, kCards, typed.typed, names);
  for (Completion::Word& name : names) {
    if (name.text.starts_with(typed.typed)) to.push_back(std::move(name));
  }
}

// A word and what it is a line, for the scripts of `completion`; or what the shell knows itself.
int complete(const Completion& typed) {
  using More = Completion::More;
  if (typed.more == More::Files) return print(":files\n");
  std::vector<Completion::Word> words = typed.words;
  if (typed.more != More::None && typed.more != More::Programs) addNames(typed, words);
  std::string text;
  for (const auto& [word, meaning] : words) {
    text += printable(word) + '\t' + printable(meaning) + '\n';
  }
  return print(text + (typed.more == More::Programs ? ":programs\n" : ""));
}

int failed(const Error& error) {
  std::fprintf(stderr, "qgpuctl: %s\n", printable(error.message).c_str());
  return exitWith(Exit::Refused);
}

int showSnapshot(const RowCopy& copy, const Options& options) {
  if (isTable(options.output)) return print(snapshotTable(options.file, copy));
  return print(documentOf(snapshotJson(copy), options.output));
}

// What came is read before it is written, so that no file is kept that can't be restored.
int saveSnapshot(const Options& options) {
  auto asker = reach(options);
  if (!asker) return noDaemon(asker.error(), options);
  const Result<Answer> answer = (*asker)->ask(options.ask, kSnapshotLimit);
  if (!answer) return noDaemon(answer.error(), options);
  if (!answer->status()) return refused(answer->status().error(), options);
  const std::string file = fromBase64(textOf(answer->root(), "file")).value_or("");
  const Result<RowCopy> copy = decodeCopy(file);
  if (!copy) return failed(fail(copy.error().code, "the answer " + copy.error().message));
  if (Status written = writeCopyFile(options.file, file); !written) return failed(written.error());
  return showSnapshot(*copy, options);
}

int showSnapshotFile(const Options& options) {
  const Result<RowCopy> copy = readCopy(options.file);
  return copy ? showSnapshot(*copy, options) : failed(copy.error());
}

int act(const Options& options) {
  switch (options.action) {
    case Action::Ask: {
      auto asker = reach(options);
      if (!asker) return noDaemon(asker.error(), options);
      const Result<Answer> answer = askByName(**asker, options.ask, limitOf(options));
      return show(answer, options, answer ? styleOf(**asker, options) : Style{});
    }
    case Action::Submit:
      return submit(options);
    case Action::Events:
      return events(options);
    case Action::Explain:
      return explain(options);
    case Action::Drain:
      return drain(options);
    case Action::Top:
      return top(options);
    case Action::TraceRecord:
      return recordTrace(options);
    case Action::TraceFollow:
      return followTrace(options);
    case Action::Timeline:
      return timeline(options);
    case Action::Run:
      return options.daemon == Daemon::Scheduler ? runInCluster(options) : run(options);
    case Action::Doctor:
      return doctor(options);
    case Action::Prove:
      return prove(options);
    case Action::Certs:
      return certs(options);
    case Action::Join:
      return join(options);
    case Action::SnapshotSave:
      return saveSnapshot(options);
    case Action::SnapshotShow:
      return showSnapshotFile(options);
    case Action::Complete:
      return complete(options.completion);
    case Action::Version:
      return print("qgpuctl " QGPU_VERSION "\n");
  }
  return exitWith(Exit::Usage);
}

}  // namespace
}  // namespace qgpu::ctl

int main(int argc, char** argv) {
  using namespace qgpu::ctl;
  qgpu::keepFreedMemory();
  const auto parsed = parseOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (const auto* exit = std::get_if<ExitNow>(&parsed)) {
    std::fputs(exit->text.c_str(), exit->code == 0 ? stdout : stderr);
    return exit->code;
  }
  return act(std::get<Options>(parsed));
}
