#include "services/ctl/options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "actors/model.h"
#include "actors/placement/what_if.h"
#include "services/admin/words.h"
#include "services/base/json.h"

namespace qgpu::ctl {
namespace {

constexpr const char* kFooter = R"(
what both a node and a cluster know asks this machine's manager, unless --server, --cluster or
QGPU_SERVER=ADDR in the environment says a scheduler, or only a scheduler is here; certificates may
stand in QGPU_TLS_CERT, QGPU_TLS_KEY and QGPU_TLS_CA

examples:
  qgpuctl run --memory 2 --core 30 -- ./train.sh    a task with 2 GiB and 30 percent of a card
  qgpuctl run --class online --memory 4 -- ./serve  gets the card the moment it wants it
  qgpuctl top                                       who runs now
  qgpuctl policy all burst-share                    change how the cards are shared
  qgpuctl -o json tasks                             for programs
  qgpuctl doctor                                    what is wrong with this machine's installation

of a cluster, on the scheduler's machine or with --server or QGPU_SERVER:
  qgpuctl submit --memory 8 --core 50               says node, card, token and environment
  qgpuctl explain 12                                why a task waits, and what would help
  qgpuctl what-if place --memory 8 --count 20       where 20 of these would land
  qgpuctl what-if drain node-3                      where its tasks would go
  qgpuctl --cluster drain node-3 --timeout 10m      and does it

exit status: 0 done, 2 wrong use, 3 refused, or doctor found something, 4 no daemon; `run`: that of
CMD, 125 refused, 126 CMD can't be executed, 127 CMD not found
)";

constexpr const char* kRunFooter = R"(
usage: qgpuctl run [OPTIONS] -- CMD...

Binds a task to a card, starts CMD with libqgpu in it, forwards signals, ends the task when CMD
ends, and returns CMD's exit status. A restart of the manager does not disturb CMD.

examples:
  qgpuctl run -- clpeak
  qgpuctl run --name train --memory 2 --core 30 -- python3 train.py --epochs 3
  qgpuctl run --class offline --core 50 -- ./batch.sh
)";

// The commands that are one line to the daemon, with the name of their argument.
struct Simple {
  const char* name;
  const char* argument;  // nullptr: none
  Daemon daemon;
  const char* what;
  const char* meaning = "";  // of the argument
};
constexpr const char* kTarget = "id or index of a card; of a cluster NODE or NODE/CARD";
constexpr Simple kSimple[] = {
    {"status", nullptr, Daemon::Either, "the node, or the cluster, in a few lines"},
    {"cards", nullptr, Daemon::Either, "every card: memory, shares, policy, who is on it"},
    {"tasks", nullptr, Daemon::Either, "every task: where it is, what it may use and has used"},
    {"cordon", "TARGET", Daemon::Either, "no new tasks on a card or node", kTarget},
    {"uncordon", "TARGET", Daemon::Either, "new tasks there again", kTarget},
    {"evict", "TASK", Daemon::Manager, "end a task of this node, whoever owns it", "its number"},
    {"end", "TASK", Daemon::Manager, "end a task of your own on this node", "its number"},
    {"snapshot", nullptr, Daemon::Either, "let the daemon write a snapshot of its store"},
    {"loglevel", "LEVEL", Daemon::Either, "trace, debug, info, warn, error or off"},
    {"nodes", nullptr, Daemon::Scheduler, "every node of the cluster"},
    {"delete", "TASK", Daemon::Scheduler, "end a task of the cluster, or take it from the queue",
     "its number"},
    {"explain", "TASK", Daemon::Scheduler, "why it is where it is, or why it waits", "its number"},
    {"priority", "NAME", Daemon::Scheduler, "where ordinary tasks go: binpack, spread or fgd"},
};

// `1.5` and `2GiB` are not cut off at what could be read of them, and are told the unit.
CLI::Validator whole(const std::string& unit, std::uint64_t least, std::uint64_t most) {
  const std::string range = std::to_string(least) + " to " + std::to_string(most);
  const auto check = [=](const std::string& word) -> std::string {
    const auto number = parseUint(word);
    if (number && *number >= least && *number <= most) return "";
    return "\"" + word + "\" is not a whole number of " + unit + " from " + range;
  };
  return CLI::Validator(check, range);
}

class Parser {
 public:
  Parser() {
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.set_help_flag("-h,--help", "this text");
    app_.add_option("--socket", options_.socket, "admin socket of the daemon")->type_name("PATH");
    app_.add_option("--server", options_.server, "a scheduler: HOST:PORT or unix:PATH")
        ->type_name("ADDR");
    app_.add_flag("-c,--cluster", cluster_, "the cluster, where both could be meant");
    app_.add_option("--tls-cert", options_.tls.cert, "certificate shown to --server, PEM")
        ->type_name("FILE");
    app_.add_option("--tls-key", options_.tls.key, "its key, PEM")->type_name("FILE");
    app_.add_option("--tls-ca", options_.tls.ca, "who signed the scheduler's certificate, PEM")
        ->type_name("FILE");
    app_.add_option("-o,--output", output_, "table or json (what the daemon answered, a line each)")
        ->check(CLI::IsMember({"table", "json"}))
        ->type_name("FORMAT");
    addRun();
    addTop();
    for (const Simple& simple : kSimple) addSimple(simple);
    addDrain();
    addEvents("events", "what happened");
    addEvents("audit", "of that, who changed what");
    addPolicy();
    addSubmit();
    addPreempt();
    addWhatIf();
    addDoctor();
    app_.add_subcommand("version", "of this program")->callback([this] {
      choose(Action::Version, "version", Daemon::Either);
    });
    addHelp();
    group("On this node", Daemon::Manager);
    group("Of this node, or of a cluster", Daemon::Either);
    group("Of a cluster", Daemon::Scheduler);
    app_.footer(kFooter);   // last, or every subcommand would show it
  }

  std::variant<Options, ExitNow> parse(std::vector<std::string> argv) {
    options_.run.command = splitCommand(argv);
    const std::string* command = firstWord(argv);
    const auto named = [&](CLI::App* sub) { return sub->get_name() == *command; };
    if (command == nullptr && argv.empty()) {
      return ExitNow{static_cast<int>(Exit::Usage), app_.help()};
    }
    if (command != nullptr && app_.get_subcommands(named).empty()) {
      if (const std::string* option = strangeOption(argv)) {
        return usage("there is no option " + *option + " before a command");
      }
      return usage("there is no command \"" + *command + "\"");
    }
    std::reverse(argv.begin(), argv.end());  // CLI11 takes them from the back
    try {
      app_.parse(argv);
    } catch (const CLI::CallForHelp&) {
      return ExitNow{0, app_.help()};
    } catch (const CLI::ParseError& error) {
      return usage(error.what());
    }
    if (helpAsked_) return help();
    if (auto wrong = readSince()) return std::move(*wrong);
    if (options_.action == Action::Run && options_.run.command.empty()) {
      return usage("run: which command? qgpuctl run [OPTIONS] -- CMD...");
    }
    options_.output = output_ == "json" ? Output::Json : Output::Table;
    if (auto wrong = chooseDaemon()) return std::move(*wrong);
    if (options_.action == Action::Doctor) chooseRunDir();
    return options_;
  }

 private:
  // True for an option of qgpuctl, or of `run`, whose value is the next argument.
  bool takesValue(const std::string& word) const {
    const CLI::Option* option = app_.get_option_no_throw(word);
    if (option == nullptr) option = run_->get_option_no_throw(word);
    return option != nullptr && option->get_items_expected_max() > 0;
  }

  // The first word that is neither an option nor the value of one.
  const std::string* firstWord(const std::vector<std::string>& argv) const {
    for (std::size_t i = 0; i < argv.size(); ++i) {
      const bool option = argv[i].size() > 1 && argv[i][0] == '-';
      if (!option) return &argv[i];
      if (takesValue(argv[i])) ++i;
    }
    return nullptr;
  }

  // The first option before the first word that qgpuctl doesn't have: the word may be its value.
  const std::string* strangeOption(const std::vector<std::string>& argv) const {
    for (std::size_t i = 0; i < argv.size() && argv[i].starts_with('-'); ++i) {
      const std::string name = argv[i].substr(0, argv[i].find('='));
      if (app_.get_option_no_throw(name) == nullptr) return &argv[i];
      if (takesValue(argv[i])) ++i;
    }
    return nullptr;
  }

  // Takes CMD and its arguments off the end of argv: what follows `--`, or the first word after
  // `run` that is no option. So CMD's own options are never mistaken for ours.
  std::vector<std::string> splitCommand(std::vector<std::string>& argv) const {
    std::size_t i = 0;
    bool seenRun = false;
    for (; i < argv.size(); ++i) {
      const std::string& word = argv[i];
      if (word == "--") break;
      if (word.size() > 1 && word[0] == '-') {
        if (takesValue(word)) ++i;
      } else if (!seenRun) {
        if (word != "run") return {};
        seenRun = true;
      } else {
        break;
      }
    }
    if (!seenRun || i >= argv.size()) return {};
    const std::size_t first = argv[i] == "--" ? i + 1 : i;
    std::vector<std::string> command(argv.begin() + static_cast<std::ptrdiff_t>(first), argv.end());
    argv.resize(i);
    return command;
  }

  std::optional<ExitNow> chooseDaemon() {
    const int named = int{!options_.socket.empty()} + int{!options_.server.empty()} + int{cluster_};
    if (named > 1) return usage("--socket, --server and --cluster name different daemons");
    if (!options_.socket.empty()) return std::nullopt;
    const bool node = options_.daemon == Daemon::Manager || options_.action == Action::Doctor;
    if (node && named > 0) {
      return usage(options_.command + " asks the node itself: leave --server and --cluster out" +
                   (options_.command == "evict" || options_.command == "end"
                        ? "; `delete` ends a task of the cluster"
                        : ""));
    }
    if (!node && options_.server.empty()) options_.server = environment("QGPU_SERVER");
    const std::string manager = defaultSocket(around_, kMachineRunDir, "manager.sock");
    const std::string scheduler = defaultSocket(around_, kMachineRunDir, "scheduler.sock");
    if (options_.daemon == Daemon::Either) {
      const auto listens = [](const std::string& path) {
        return ::access(path.c_str(), F_OK) == 0;
      };
      const bool cluster = cluster_ || !options_.server.empty() ||
                           (!listens(manager) && listens(scheduler));
      options_.daemon = cluster ? Daemon::Scheduler : Daemon::Manager;
    }
    if (options_.server.empty()) {
      options_.socket = options_.daemon == Daemon::Scheduler ? scheduler : manager;
      return std::nullopt;
    }
    const auto orElse = [](std::string& value, const char* name) {
      if (value.empty()) value = environment(name);
    };
    orElse(options_.tls.cert, "QGPU_TLS_CERT");
    orElse(options_.tls.key, "QGPU_TLS_KEY");
    orElse(options_.tls.ca, "QGPU_TLS_CA");
    return std::nullopt;
  }

  // Doctor looks where other commands ask. On another machine's disk that is the machine's folder,
  // unless a socket there was named.
  void chooseRunDir() {
    DoctorOptions& doctor = options_.doctor;
    if (!doctor.runDir.empty()) return;
    const bool named = app_.count("--socket") > 0;
    const bool elsewhere = !named && doctor.root != "/";
    doctor.runDir = elsewhere ? kMachineRunDir
                              : std::filesystem::absolute(options_.socket).parent_path().string();
  }

  // A heading of the help for the commands of this daemon.
  void group(const char* title, Daemon daemon) {
    for (const auto& [sub, whose] : commands_) {
      if (whose == daemon) sub->group(title);
    }
  }
  CLI::App* addCommand(const char* name, const char* what, Daemon daemon) {
    CLI::App* sub = app_.add_subcommand(name, what);
    commands_.emplace_back(sub, daemon);
    return sub;
  }

  std::optional<ExitNow> readSince() {
    if (since_.empty()) return std::nullopt;
    const auto number = parseUint(since_);
    if (!number) return usage("\"" + since_ + "\" is no sequence number: `events` shows them");
    options_.events.since = *number;
    return std::nullopt;
  }

  ExitNow usage(const std::string& what) {
    return {static_cast<int>(Exit::Usage),
            "qgpuctl: " + what + "\n`qgpuctl help` shows how it is used\n"};
  }
  void choose(Action action, const char* command, Daemon daemon) {
    options_.action = action;
    options_.command = command;
    options_.daemon = daemon;
  }

  void addSimple(const Simple& simple) {
    CLI::App* sub = addCommand(simple.name, simple.what, simple.daemon);
    if (simple.argument != nullptr) addArgument(sub, simple.argument, simple.meaning);
    sub->callback([this, &simple] {
      choose(Action::Ask, simple.name, simple.daemon);
      options_.line = simple.name;
      if (simple.argument != nullptr) options_.line += " " + argument_;
    });
  }

  void addArgument(CLI::App* sub, const char* name, const char* meaning) {
    sub->add_option(name, argument_, meaning)->required()->check(oneWord())->type_name("");
  }

  void addPolicy() {
    CLI::App* sub =
        addCommand("policy", "how a card, or all, is shared between tasks", Daemon::Manager);
    addArgument(sub, "CARD", "id or index of a card, or all");
    sub->add_option("NAME", policy_, "best-effort, fixed-share or burst-share")
        ->required()
        ->check(CLI::IsMember(
            {"best-effort", "fixed-share", "burst-share", "be", "fs", "bs"}));
    sub->callback([this] {
      choose(Action::Ask, "policy", Daemon::Manager);
      options_.line = "policy " + argument_ + " " + policy_;
    });
  }

  void addDrain() {
    CLI::App* sub = addCommand("drain", "cordon it; a node ends its tasks, a cluster moves them",
                               Daemon::Either);
    addArgument(sub, "TARGET", kTarget);
    sub->add_option("--timeout", timeout_,
                    "of a cluster: what has found no other place by then is ended and waits (5m)")
        ->check(oneWord())
        ->type_name("TIME");
    sub->callback([this] {
      choose(Action::Ask, "drain", timeout_.empty() ? Daemon::Either : Daemon::Scheduler);
      options_.line = "drain " + argument_ + (timeout_.empty() ? "" : " " + timeout_);
    });
  }

  // What a task asks for, wherever it is to run.
  void addTask(CLI::App* sub, const char* nameMeaning) {
    RunOptions& run = options_.run;
    sub->add_option("--name", run.name, nameMeaning)->type_name("NAME");
    sub->add_option("--class", run.taskClass, "online, offline or ordinary (default)")
        ->check(CLI::IsMember({"online", "offline", "ordinary"}));
    sub->add_option("--memory", run.memoryGib, "GiB of card memory (default 1)")
        ->check(whole("GiB", 1, kMemoryGibMax))
        ->type_name("GIB");
    sub->add_option("--core", run.corePercent, "percent of a card (default 10; online: none)")
        ->check(whole("percent", 0, std::uint64_t{kTaskCardsMax} * 100))
        ->type_name("PERCENT");
    sub->add_option("--cards", run.cards, "more than one: whole cards of its own")
        ->check(whole("cards", 1, kTaskCardsMax))
        ->type_name("N");
  }

  void addRun() {
    CLI::App* sub = addCommand("run", "run a command as a task on a card", Daemon::Manager);
    run_ = sub;
    sub->footer(kRunFooter);
    addTask(sub, "of the task (default: of CMD)");
    sub->add_option("--card", options_.run.card, "a certain card (default: the node chooses)")
        ->type_name("ID");
    sub->callback([this] { choose(Action::Run, "run", Daemon::Manager); });
  }

  void addPlace(CLI::App* sub) {
    PlaceOptions& place = options_.place;
    addTask(sub, "of the task (default: task)");
    sub->add_option("--node", place.node, "a certain node (default: the scheduler chooses)")
        ->type_name("NAME");
    sub->add_option("--card", options_.run.card, "a certain card of that node")->type_name("ID");
    sub->add_option("--model", place.models, "only cards of this model; may be repeated")
        ->allow_extra_args(false)
        ->type_name("MODEL");
    sub->add_option("--cpu-milli", place.cpuMilli, "thousandths of a CPU of the node, counted")
        ->type_name("MILLI");
    sub->add_option("--host-memory", place.hostMemoryGib, "GiB of the node's memory, counted")
        ->type_name("GIB");
    sub->add_option("--application", place.application, "replicas of one are kept apart")
        ->type_name("NAME");
    const CLI::IsMember scores({"binpack", "spread", "fgd", "random", "best-fit"});
    sub->add_option("--node-score", place.nodeScore, "how its node is chosen")->check(scores);
    sub->add_option("--card-score", place.cardScore, "how its card is chosen")->check(scores);
    sub->add_flag("--preempt", place.preempt,
                  "may evict offline tasks where it fits nowhere (for whoever may change things)");
  }

  void addSubmit() {
    CLI::App* sub = addCommand(
        "submit", "place a task; answers node, card, token and environment", Daemon::Scheduler);
    addPlace(sub);
    sub->add_option("--request-id", options_.place.requestId,
                    "asked again, the same task is answered")
        ->type_name("ID");
    sub->add_flag("--wait", options_.place.wait, "until it is bound, however long that takes");
    sub->callback([this] { choose(Action::Submit, "submit", Daemon::Scheduler); });
  }

  // Tasks evict by themselves where they were submitted with --preempt: this only asks.
  void addPreempt() {
    CLI::App* sub = addCommand("preempt", "whom a waiting task would evict; nothing is done",
                               Daemon::Scheduler);
    addArgument(sub, "TASK", "its number");
    sub->add_flag_callback("--dry-run", [] {},
                           "the only way there is: `submit --preempt` does it in earnest");
    sub->callback([this] {
      choose(Action::Ask, "preempt", Daemon::Scheduler);
      options_.line = "preempt " + argument_;
    });
  }

  void addWhatIf() {
    CLI::App* sub =
        addCommand("what-if", "try something on a copy of the cluster", Daemon::Scheduler);
    sub->require_subcommand(1);
    CLI::App* place = sub->add_subcommand("place", "where tasks like this would land");
    addPlace(place);
    place->add_option("--count", options_.place.count, "so many of them (default 1)")
        ->check(whole("tasks", 1, WhatIf::kCountMax))
        ->type_name("N");
    place->callback([this] {
      choose(Action::Ask, "what-if", Daemon::Scheduler);
      options_.line = "whatif {\"place\":" + submitSpec(options_.run, options_.place) +
                      ",\"count\":" + std::to_string(options_.place.count) + "}";
    });
    CLI::App* drain = sub->add_subcommand("drain", "where the tasks of a node or card would go");
    addArgument(drain, "TARGET", "NODE or NODE/CARD");
    drain->callback([this] {
      choose(Action::Ask, "what-if", Daemon::Scheduler);
      JsonWriter json;
      json.beginObject().field("drain", argument_).endObject();
      options_.line = "whatif " + json.take();
    });
  }

  // Needs no daemon: it is for when there is none.
  void addDoctor() {
    CLI::App* sub = addCommand("doctor", "what breaks qgpu on this machine, and what mends it",
                               Daemon::Manager);
    DoctorOptions& doctor = options_.doctor;
    sub->add_option("--root", doctor.root, "look at the machine below DIR (default /)")
        ->check(CLI::ExistingDirectory)
        ->type_name("DIR");
    sub->add_option("--kube-scheduler", doctor.kubeScheduler,
                    "its static pod or configuration (default: where kubeadm has it)")
        ->type_name("FILE");
    sub->add_option("--run-dir", doctor.runDir,
                    "folder of the daemons' sockets (default: where other commands ask)")
        ->type_name("DIR");
    sub->callback([this] { choose(Action::Doctor, "doctor", Daemon::Either); });
  }

  void addHelp() {
    CLI::App* sub = app_.add_subcommand("help", "this text, or how COMMAND is used");
    sub->add_option("COMMAND", argument_, "one of those above");
    sub->callback([this] { helpAsked_ = true; });
  }

  ExitNow help() {
    if (argument_.empty()) {
      // Not app_.help(): once a subcommand was typed, that is the subcommand's.
      return {0, app_.get_formatter()->make_help(&app_, "qgpuctl", CLI::AppFormatMode::Normal)};
    }
    const auto named = [&](CLI::App* sub) { return sub->get_name() == argument_; };
    const auto found = app_.get_subcommands(named);
    if (found.empty()) return usage("there is no command \"" + argument_ + "\"");
    return {0, found.front()->help("qgpuctl")};
  }

  void addTop() {
    CLI::App* sub = addCommand("top", "a live view of cards and tasks", Daemon::Manager);
    sub->add_option("-n,--count", options_.top.count, "end after so many pictures")
        ->check(CLI::NonNegativeNumber)
        ->type_name("COUNT");
    sub->add_option("--interval", options_.top.intervalSeconds, "between pictures (default 1)")
        ->check(CLI::Range(0.1, 3600.0))
        ->type_name("SECONDS");
    sub->callback([this] { choose(Action::Top, "top", Daemon::Manager); });
  }

  void addEvents(const char* name, const char* what) {
    CLI::App* sub = addCommand(name, what, Daemon::Either);
    CLI::Option* since =
        sub->add_option("SINCE", since_, "only after this sequence number")->type_name("");
    sub->add_option("--since", since_, "the same")->excludes(since)->type_name("SEQ");
    sub->add_flag("-f,--follow", options_.events.follow,
                  "and what happens from now on, over restarts of the daemon");
    sub->callback([this, changes = std::string_view(name) == "audit"] {
      choose(Action::Events, "events", Daemon::Either);
      options_.events.changes = changes;
    });
  }

  // A blank or a line end would make two arguments, or two commands, of one.
  static CLI::Validator oneWord() {
    return CLI::Validator(
        [](const std::string& text) {
          return text.empty() || text.find_first_of(" \t\r\n") != std::string::npos
                     ? std::string("one word without blanks")
                     : std::string();
        },
        "");
  }

  static std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  }

  CLI::App app_{"qgpuctl: run programs on shared GPU cards, and see and change who gets what",
                "qgpuctl"};
  const CLI::App* run_ = nullptr;  // the subcommand, within app_
  std::vector<std::pair<CLI::App*, Daemon>> commands_;
  const Surroundings around_ = Surroundings::ofThisProcess();
  Options options_;
  std::string since_;
  std::string output_ = "table";
  std::string argument_;
  std::string timeout_;
  bool cluster_ = false;
  std::string policy_;
  bool helpAsked_ = false;
};

}  // namespace

std::variant<Options, ExitNow> parseOptions(std::vector<std::string> argv) {
  return Parser().parse(std::move(argv));
}

std::string submitSpec(const RunOptions& task, const PlaceOptions& place) {
  JsonWriter json;
  json.beginObject();
  json.field("name", task.name.empty() ? "task" : task.name).field("class", task.taskClass);
  const auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) json.field(key, value);
  };
  const auto number = [&](const char* key, const std::optional<std::uint64_t>& value) {
    if (value) json.count(key, *value);
  };
  number("memory_gib", task.memoryGib);
  number("core_percent", task.corePercent);
  number("cards", task.cards);
  text("card", task.card);
  text("node", place.node);
  if (!place.models.empty()) {
    json.key("models").beginArray();
    for (const std::string& model : place.models) json.string(model);
    json.endArray();
  }
  number("cpu_milli", place.cpuMilli);
  number("host_memory_gib", place.hostMemoryGib);
  text("application", place.application);
  text("node_score", place.nodeScore);
  text("card_score", place.cardScore);
  if (place.preempt) json.flag("preempt", true);
  text("request_id", place.requestId);
  json.endObject();
  return json.take();
}

std::string defaultSocket(const Surroundings& around, const std::string& machine,
                          const std::string& name) {
  const std::string folder = defaultRunDir(around);
  const std::string own = folder + "/" + name;
  const std::string shared = machine + "/" + name;
  struct stat info {};
  const bool there = ::lstat(folder.c_str(), &info) == 0;
  if (there && (!S_ISDIR(info.st_mode) || info.st_uid != around.uid)) return shared;
  const bool listens = there && ::access(own.c_str(), F_OK) == 0;
  return !listens && ::access(shared.c_str(), F_OK) == 0 ? shared : own;
}

}  // namespace qgpu::ctl
