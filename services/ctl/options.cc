#include "services/ctl/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/base/event_kinds.h"
#include "actors/model.h"
#include "actors/placement/what_if.h"
#include "runtime/config.h"
#include "services/api/commands/schema_names.h"
#include "services/base/wrong_use.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/help/describe.h"
#include "services/ctl/help/man_page.h"

namespace qgpu::ctl {
namespace {

constexpr std::array<const char*, 6> kOutputs = {"table", "wide", "json", "yaml", "name", "env"};
constexpr std::uint64_t kPicturesMax = 1'000'000'000;  // of `top`
constexpr std::size_t kTitleMax = 200;                 // bytes, of its title

constexpr const char* kFooter = R"(
what both a node and a cluster know asks this machine's manager, unless --server, --cluster or
QGPU_SERVER=ADDR in the environment says a scheduler, or only a scheduler is here; QGPU_SOCKET=PATH
stands for --socket; certificates may stand in QGPU_TLS_CERT, QGPU_TLS_KEY and QGPU_TLS_CA. These
options may stand before or after a command

examples:
  qgpuctl run --memory 1.5GiB --core 30 -- ./train  a task with 1.5 GiB and 30 percent of a card
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

exit status: 0 done, 1 `prove` found what is not proven, 2 wrong use, 3 refused, or doctor found
what breaks qgpu ([fail]), 4 no daemon; `run`: that of CMD, 125 CMD was not started, 126 CMD can't
be executed, 127 CMD not found
)";

constexpr const char* kRunFooter = R"(
usage: qgpuctl run [OPTIONS] -- CMD...

Binds a task to a card, starts CMD with libqgpu in it, forwards signals, ends the task when CMD
ends, and returns CMD's exit status. A restart of the manager does not disturb CMD. On a terminal it
says at the end what the task got.

With --cluster, or --server ADDR, the scheduler chooses the place, and may let the task wait. CMD
starts where that is on this machine. Where it is on another one, the task is ended again, where it
was is said, and the exit status is 125: --node NAME keeps it to one. However qgpuctl ends, by
ctrl-c too, the task ends with it.

examples:
  qgpuctl run -- clpeak
  qgpuctl run --name train --memory 2 --core 30 -- python3 train.py --epochs 3
  qgpuctl run --class offline --core 50 -- ./batch.sh
  qgpuctl run --cluster --node $(hostname) --memory 2 -- ./train
)";

constexpr double kTraceSecondsMax = 600;

Daemon daemonOf(const CommandRow& row) {
  if (row.on(Side::Node) && row.on(Side::Cluster)) return Daemon::Either;
  return row.on(Side::Node) ? Daemon::Manager : Daemon::Scheduler;
}

// `1.5` and `2x` are not cut off at what could be read of them, and are told the unit.
CLI::Validator whole(const std::string& unit, std::uint64_t least, std::uint64_t most) {
  const std::string range = std::to_string(least) + " to " + std::to_string(most);
  const auto check = [=](const std::string& word) -> std::string {
    const auto number = parseUint(word);
    if (number && *number >= least && *number <= most) return "";
    return "\"" + word + "\" is not a whole number of " + unit + " from " + range;
  };
  return CLI::Validator(check, range);
}

// A number with a point, and no word of any length in the answer to a wrong one.
CLI::Validator fraction(const std::string& unit, double least, double most) {
  const auto shown = [](double number) { return CLI::detail::to_string(number); };
  const std::string range = shown(least) + " to " + shown(most);
  const auto check = [=](const std::string& word) -> std::string {
    double number = 0;
    const bool read = CLI::detail::lexical_cast(word, number);
    if (read && number >= least && number <= most) return "";
    return "\"" + word + "\" is not a number of " + unit + " from " + range;
  };
  return CLI::Validator(check, range);
}

CLI::Validator sizeOf(const SpecField& field) {
  const auto check = [&field](const std::string& word) -> std::string {
    const Result<std::uint64_t> size = readSize(field, word);
    return size ? "" : size.error().message;
  };
  return CLI::Validator(check, "");
}

// One of these words.
constexpr std::size_t kChoicesShown = 10;
CLI::Validator oneOf(const std::vector<std::string>& choices) {
  const auto check = [=](const std::string& word) -> std::string {
    if (std::ranges::count(choices, word) != 0) return "";
    const bool few = choices.size() <= kChoicesShown;
    return "\"" + word + "\" is none of " +
           (few ? CLI::detail::join(choices, ", ")
                : "the " + std::to_string(choices.size()) + " that there are") +
           didYouMean(word, choices);
  };
  return CLI::Validator(check, "{" + CLI::detail::join(choices, ",") + "}");
}

std::vector<const CLI::App*> subcommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> eventKinds() {
  std::vector<std::string> names;
  for (const EventKindEntry& kind : kEventKinds) names.emplace_back(kind.name);
  return names;
}

// One thing that a task may ask for, and whether it was typed.
struct Said {
  const SpecField* field = nullptr;
  bool given = false;
  SaidValue value;

  void take(const std::string& text) {
    given = true;
    value.text = text;
    if (field->form == SpecField::Form::Number) value.number = parseUint(text).value_or(0);
    if (field->form == SpecField::Form::Size) {
      const Result<std::uint64_t> mib = readSize(*field, text);
      value.number = mib ? *mib : 0;
    }
  }
};

std::vector<Said> allFields() {
  std::vector<Said> all;
  for (const SpecField& field : specFields()) all.push_back({&field, false, {}});
  return all;
}

class Parser {
 public:
  Parser() {
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.set_help_flag("-h,--help", "this text");
    app_.set_version_flag("--version", "qgpuctl " QGPU_VERSION "\n", "of this program");
    app_.add_option("--socket", options_.socket, "admin socket of the daemon")->type_name("PATH");
    app_.add_option("--server", options_.server,
                    "a scheduler: HOST:PORT, unix:PATH or srv:NAME; of several, ADDR,ADDR")
        ->type_name("ADDR");
    app_.add_flag("-c,--cluster", cluster_, "the cluster, where both could be meant");
    app_.add_option("--tls-cert", options_.tls.cert, "certificate shown to --server, PEM")
        ->type_name("FILE");
    app_.add_option("--tls-key", options_.tls.key, "its key, PEM")->type_name("FILE");
    app_.add_option("--tls-ca", options_.tls.ca, "who signed the scheduler's certificate, PEM")
        ->type_name("FILE");
    app_.add_option(
            "-o,--output", output_,
            "table, wide (with more columns), json (what the daemon answered, a line each), "
            "yaml, name (of a list: the ids), or env (of submit: exports for `eval`)")
        ->check(oneOf({kOutputs.begin(), kOutputs.end()}))
        ->type_name("FORMAT");
    for (const CommandRow& row : commandRows()) addRow(row);
    addTop();
    addTimeline();
    addEvents("audit", "of what happened, who changed what");
    addDoctor();
    addProve();
    addCerts();
    addJoin();
    app_.add_subcommand("version", "of this program")->callback([this] {
      choose(Action::Version, "version", Daemon::Either);
    });
    addShells();
    addHelp();
    group("On this node", Daemon::Manager);
    group("Of this node, or of a cluster", Daemon::Either);
    group("Of a cluster", Daemon::Scheduler);
    lastCounts(app_);
    addExamples(app_, "");
    app_.footer(kFooter);  // last, or every subcommand would show it
  }

  std::variant<Options, ExitNow> parse(std::vector<std::string> argv) {
    if (!argv.empty() && argv.front() == "complete") return next({argv.begin() + 1, argv.end()});
    options_.program = splitCommand(argv);
    if (argv.empty()) return ExitNow{static_cast<int>(Exit::Usage), app_.help()};
    if (auto wrong = strangeWord(argv)) return std::move(*wrong);
    std::reverse(argv.begin(), argv.end());  // CLI11 takes them from the back
    try {
      app_.parse(argv);
    } catch (const CLI::CallForHelp&) {
      return ExitNow{0, app_.help()};
    } catch (const CLI::CallForVersion& version) {
      return ExitNow{0, version.what()};
    } catch (const CLI::RequiredError&) {
      return usage(whatIsMissing());
    } catch (const CLI::ExcludesError&) {
      return usage(whatExcludes());
    } catch (const CLI::ArgumentMismatch& error) {
      return usage(whatLacksValue(error.what()));
    } catch (const CLI::ExtrasError& error) {
      const std::string said = error.what();
      return usage(commandAtHand() + "does not take \"" + said.substr(said.find(": ") + 2) + "\"");
    } catch (const CLI::ParseError& error) {
      return usage(error.what());
    }
    if (helpAsked_) return help();
    if (!toPrint_.empty()) return ExitNow{0, toPrint_};
    if (auto wrong = readSince()) return std::move(*wrong);
    say();
    if (options_.action == Action::Run && options_.program.empty()) {
      return usage("run: which command? qgpuctl run [OPTIONS] -- CMD...");
    }
    options_.output = static_cast<Output>(std::ranges::find(kOutputs, output_) - kOutputs.begin());
    if (options_.output == Output::Name && !isList()) {
      return usage("-o name is for lists: nodes, cards and tasks");
    }
    if (options_.output == Output::Env && options_.action != Action::Submit) {
      return usage("-o env is for submit: eval \"$(qgpuctl -o env submit ...)\"");
    }
    if (options_.action == Action::Run) {
      if (auto wrong = chooseWhereToRun()) return std::move(*wrong);
    }
    if (auto wrong = chooseDaemon()) return std::move(*wrong);
    if (options_.action == Action::Doctor) {
      chooseRunDir();
      chooseCertificates(options_.tls);
      options_.doctor.cert = options_.tls.cert;
      options_.doctor.key = options_.tls.key;
      options_.doctor.ca = options_.tls.ca;
    }
    return options_;
  }

 private:
  // --- what was wrong, in our words ---

  // "what-if place ", with a blank at its end where it is one.
  std::string commandAtHand() const {
    std::string command;
    for (const CLI::App* at = at_; at != &app_; at = at->get_parent()) {
      command.insert(0, at->get_name() + " ");
    }
    return command;
  }
  static std::string nameOf(const CLI::Option& option) {
    const bool named = !option.get_lnames().empty();
    return named ? "--" + option.get_lnames().front() : option.get_name(true);
  }
  std::string whatIsMissing() const {
    if (at_ == &app_) return "which command? as in `qgpuctl status`";
    std::vector<std::string> names;
    for (const CLI::App* sub : subcommandsOf(*at_)) names.push_back(sub->get_name());
    if (!names.empty()) {
      return commandAtHand() + "needs one of these words: " + CLI::detail::join(names, ", ");
    }
    for (const CLI::Option* option : at_->get_options()) {
      if (!option->get_required() || option->count() > 0) continue;
      return commandAtHand() + "needs " + nameOf(*option) + ": " + option->get_description();
    }
    return commandAtHand() + "needs more words";
  }
  std::string whatExcludes() const {
    for (const CLI::Option* option : at_->get_options()) {
      for (const CLI::Option* other : option->get_excludes()) {
        if (option->count() == 0 || other->count() == 0) continue;
        return nameOf(*option) + " and " + nameOf(*other) + " exclude each other: leave one out";
      }
    }
    return "two of these options exclude each other: leave one out";
  }
  // `said` begins with the name of the option.
  std::string whatLacksValue(const std::string& said) const {
    const std::string name = said.substr(0, said.find(':'));
    const CLI::Option* option = findOption(name);
    if (option == nullptr || option->get_items_expected_max() == 0) {
      return name + " takes no value: leave it out";
    }
    return name + " needs one value, " + option->get_type_name() + ": " + option->get_description();
  }

  // True for an option of qgpuctl, or of the command at hand, whose value is the next argument.
  bool takesValue(const std::string& word) const {
    const CLI::Option* option = findOption(word);
    return option != nullptr && option->get_items_expected_max() > 0;
  }

  // What was said that nothing of ours is called: a command, or an option of the command at hand.
  // CLI11 would tell of what is missing first, and of the value of such an option as of a word.
  std::optional<ExitNow> strangeWord(const std::vector<std::string>& argv) {
    for (std::size_t i = 0; i < argv.size() && argv[i] != "--"; ++i) {
      const std::string& word = argv[i];
      if (word.size() < 2 || word[0] != '-') {
        const auto subs = subcommandsOf(*at_);
        const auto sub = std::ranges::find(subs, word, &CLI::App::get_name);
        if (sub == subs.end() && !subs.empty()) return usage(strangeCommand(word));
        if (sub != subs.end()) at_ = *sub;
        continue;
      }
      const std::string name = word.substr(0, word.find('='));
      const bool attached = word[1] != '-' && findOption(word.substr(0, 2)) != nullptr;  // -ojson
      if (!attached && findOption(name) == nullptr) return usage(strangeOption(name));
      if (takesValue(word)) ++i;
    }
    return std::nullopt;
  }

  const CLI::Option* findOption(const std::string& name) const {
    const CLI::Option* option = at_->get_option_no_throw(name);
    return option != nullptr ? option : app_.get_option_no_throw(name);
  }
  std::string strangeOption(const std::string& name) const {
    std::vector<std::string> known;
    for (const CLI::App* app : {at_, static_cast<const CLI::App*>(&app_)}) {
      for (const CLI::Option* option : app->get_options()) {
        for (const std::string& one : option->get_lnames()) known.push_back("--" + one);
      }
    }
    return "there is no option " + name +
           (at_ == &app_ ? " before a command" : " of " + at_->get_name()) +
           didYouMean(name, known);
  }
  std::string strangeCommand(const std::string& word) const {
    std::vector<std::string> known;
    for (const CLI::App* sub : subcommandsOf(*at_)) known.push_back(sub->get_name());
    return "there is no command \"" + (at_ == &app_ ? "" : at_->get_name() + " ") + word + "\"" +
           didYouMean(word, known);
  }

  // Takes CMD and its arguments off the end of argv: what follows `--`, or the first word after
  // `run` that is no option. So CMD's own options are never mistaken for ours.
  std::vector<std::string> splitCommand(std::vector<std::string>& argv) const {
    std::size_t i = 0;
    bool seenRun = false;
    const auto takesValue = [this](const std::string& word) {
      const CLI::Option* option = app_.get_option_no_throw(word);
      if (option == nullptr) option = run_->get_option_no_throw(word);
      return option != nullptr && option->get_items_expected_max() > 0;
    };
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

  bool isList() const {
    return options_.action == Action::Ask && options_.ask.row->does == Does::List;
  }

  // With a scheduler named it places the task, and this machine's manager has its programs.
  std::optional<ExitNow> chooseWhereToRun() {
    if (cluster_ || !options_.server.empty()) {
      options_.daemon = Daemon::Scheduler;
      options_.wait = true;
      const std::filesystem::path chosen = environment("QGPU_SOCKET");
      options_.nodeSocket = chosen.empty() ? defaultSocket(around_, kMachineRunDir, "manager.sock")
                                           : (chosen.parent_path() / "manager.sock").string();
      return std::nullopt;
    }
    for (const Said& said : said_) {
      if (!said.given || said.field->only != Side::Cluster) continue;
      return usage(std::string(said.field->option) +
                   " is for `run --cluster`, where the scheduler places the task");
    }
    return std::nullopt;
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
    const std::string chosen = environment("QGPU_SOCKET");
    const std::string beside = besideAttachSocket(chosen);
    if (options_.server.empty() && !chosen.empty() && beside.empty()) {
      if (cluster_) options_.daemon = Daemon::Scheduler;
      options_.socket = inFolderOf(chosen);
      return std::nullopt;
    }
    const std::string manager =
        beside.empty() ? defaultSocket(around_, kMachineRunDir, "manager.sock") : beside;
    const std::string scheduler = defaultSocket(around_, kMachineRunDir, "scheduler.sock");
    if (options_.daemon == Daemon::Either) {
      const auto listens = [](const std::string& path) {
        return ::access(path.c_str(), F_OK) == 0;
      };
      // A scheduler knows more of why a task is where it is.
      const bool first = options_.action == Action::Explain || !listens(manager);
      const bool cluster = cluster_ || !options_.server.empty() || (first && listens(scheduler));
      options_.daemon = cluster ? Daemon::Scheduler : Daemon::Manager;
    }
    if (options_.server.empty()) {
      options_.socket = options_.daemon == Daemon::Scheduler ? scheduler : manager;
      return std::nullopt;
    }
    chooseCertificates(options_.tls);
    return std::nullopt;
  }

  static void chooseCertificates(TlsOptions& tls) {
    const auto orElse = [](std::string& value, const char* name) {
      if (value.empty()) value = environment(name);
    };
    orElse(tls.cert, "QGPU_TLS_CERT");
    orElse(tls.key, "QGPU_TLS_KEY");
    orElse(tls.ca, "QGPU_TLS_CA");
  }

  // The socket of the daemon that is meant in the run dir of one that was named, or that one.
  std::string inFolderOf(const std::string& socket) const {
    const std::filesystem::path path = socket;
    const bool known =
        path.filename() == "manager.sock" || path.filename() == "scheduler.sock" || cluster_;
    if (!known || options_.daemon == Daemon::Either) return socket;
    const bool cluster = options_.daemon == Daemon::Scheduler;
    return path.parent_path() / (cluster ? "scheduler.sock" : "manager.sock");
  }

  // The manager's socket where `path` is the attach socket of one, as in a task's environment.
  static std::string besideAttachSocket(const std::string& path) {
    constexpr std::string_view kAttach = "attach.sock";
    const std::size_t name = path.rfind('/') + 1;
    return path.substr(name) == kAttach ? path.substr(0, name) + "manager.sock" : "";
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
  CLI::App* addCommand(std::string_view name, std::string_view what, Daemon daemon) {
    CLI::App* sub = app_.add_subcommand(std::string(name), std::string(what));
    commands_.emplace_back(sub, daemon);
    return sub;
  }

  std::optional<ExitNow> readSince() {
    if (since_.empty()) return std::nullopt;
    const auto number = parseUint(since_);
    const auto age = parseDuration(since_);
    if (number) {
      options_.events.since = *number;
    } else if (age) {
      options_.events.age = *age;
    } else {
      return usage("\"" + since_ +
                   "\" is neither the number of an event, which `events` shows, nor "
                   "a time of at most 24h, as in 30m");
    }
    return std::nullopt;
  }

  // With where to look: at the command at hand, where one was said.
  ExitNow usage(const std::string& what) const {
    const std::string command = commandAtHand();
    return {static_cast<int>(Exit::Usage),
            "qgpuctl: " + shortNumbers(printable(what)) + "\n`qgpuctl " +
                (command.empty() ? "help" : command + "--help") + "` shows how it is used\n"};
  }
  void choose(Action action, const char* command, Daemon daemon) {
    options_.action = action;
    options_.command = command;
    options_.daemon = daemon;
  }
  void choose(Action action, const CommandRow& row, Daemon daemon) {
    choose(action, row.name.data(), daemon);
    options_.ask.row = &row;
    options_.ask.words.assign(words_.begin(), words_.end());
  }

  // Most commands are what their row says; of the others qgpuctl does more than ask.
  void addRow(const CommandRow& row) {
    if (row.does == Does::Help || row.does == Does::Watch) return;  // `help`; `events --follow`
    if (row.name == "run") return addRun(row);
    if (row.name == "submit") return addSubmit(row);
    if (row.name == "whatif") return addWhatIf(row);
    if (row.name == "trace") return addTrace(row);
    if (row.name == "snapshot") return addSnapshot(row);
    if (row.name == "snapshot-save") return;  // with that one
    if (row.name == "events") return addEvents("events", row.what.data());
    // A node's answer is made here, of what it lists.
    const bool explains = row.name == "explain";
    const Daemon whose = explains ? Daemon::Either : daemonOf(row);
    const Action action = explains              ? Action::Explain
                          : row.name == "drain" ? Action::Drain
                                                : Action::Ask;
    CLI::App* sub = addRowCommand(row, whose);
    if (action == Action::Drain) {
      sub->add_flag("--dry-run", options_.dryRun, "only say which tasks would end or move");
      sub->add_flag("-y,--yes", options_.yes, "go on without a question, also on a terminal");
    }
    for (std::size_t i = 0; i < row.arguments.size(); ++i) addArgument(sub, row, i);
    // Tasks evict by themselves where they were submitted with --preempt: this only asks.
    if (row.name == "preempt") {
      sub->add_flag_callback(
          "--dry-run", [] {}, "the only way there is: `submit --preempt` does it in earnest");
    }
    sub->callback([this, &row, whose, action] {
      Daemon daemon = whose;
      for (std::size_t i = 0; i < row.arguments.size(); ++i) {
        const bool ofClusters = row.arguments[i].node.name.empty() && action != Action::Explain;
        if (!words_[i].empty() && ofClusters) daemon = Daemon::Scheduler;
      }
      choose(action, row, daemon);
    });
  }

  // What the table calls token-create is `token create` here.
  CLI::App* addRowCommand(const CommandRow& row, Daemon whose) {
    constexpr std::string_view kTokens = "token-";
    if (!row.name.starts_with(kTokens)) return addCommand(row.name, row.what, whose);
    if (tokens_ == nullptr) {
      tokens_ = addCommand("token", "by which machines join a cluster, each once", whose);
      tokens_->require_subcommand(1);
    }
    return tokens_->add_subcommand(std::string(row.name.substr(kTokens.size())),
                                   std::string(row.what));
  }

  void addArgument(CLI::App* sub, const CommandRow& row, std::size_t i) {
    const Argument& argument = row.arguments[i];
    if (argument.name.empty()) return;
    const bool named = !argument.option.empty();
    std::string meaning(argument.meaning);
    if (argument.choices != nullptr) meaning += ": " + CLI::detail::join(argument.choices(), ", ");
    CLI::Option* option =
        sub->add_option(std::string(named ? argument.option : argument.name), words_[i], meaning);
    option->type_name(named ? std::string(argument.name) : "");
    if (argument.need != Argument::Need::OptionalWord) option->required();
    if (argument.choices == nullptr) {
      // A task's name may hold blanks: its number is what is told.
      const bool task = argument.name == "TASK";
      option->check(task ? without("\t\r\n", "a number or a name") : oneWord());
    } else {
      option->check(oneOf(argument.choices()));
    }
  }

  // Of an option that takes one value and is given twice, as by an alias and by hand.
  static void lastCounts(CLI::App& app) {
    for (CLI::Option* option : app.get_options()) {
      const bool named = !option->get_lnames().empty() || !option->get_snames().empty();
      if (named && option->get_items_expected_max() == 1) option->take_last();
    }
    for (CLI::App* sub : app.get_subcommands({})) lastCounts(*sub);
  }

  // What a task asks for, wherever it is to run.
  void addSpec(CLI::App* sub, std::optional<Side> side) {
    for (Said& said : said_) {
      const SpecField& field = *said.field;
      if (field.option.empty() || (side && field.only && *field.only != *side)) continue;
      const std::string name(field.option);
      const std::string meaning =
          std::string(field.meaning) + (!side && field.only ? "; with --cluster" : "");
      CLI::Option* option = nullptr;
      if (field.form == SpecField::Form::Flag) {
        option = sub->add_flag_callback(
            name, [&said] { said.given = said.value.flag = true; }, meaning);
      } else if (field.form == SpecField::Form::Texts) {
        option = sub->add_option_function<std::vector<std::string>>(
                        name,
                        [&said](const std::vector<std::string>& texts) {
                          said.given = true;
                          said.value.texts = texts;
                        },
                        meaning)
                     ->allow_extra_args(false);
      } else {
        option = sub->add_option_function<std::string>(
            name, [&said](const std::string& text) { said.take(text); }, meaning);
      }
      if (field.form == SpecField::Form::Choice) option->check(oneOf(field.choices()));
      if (field.form == SpecField::Form::Number) {
        option->check(whole(std::string(field.unit), field.least, field.most));
      }
      if (field.form == SpecField::Form::Size) option->check(sizeOf(field));
      if (field.form != SpecField::Form::Flag) option->type_name(std::string(field.type));
    }
  }

  void addRun(const CommandRow& row) {
    CLI::App* sub = addCommand(row.name, row.what, Daemon::Manager);
    run_ = sub;
    sub->footer(kRunFooter);
    addSpec(sub, std::nullopt);
    sub->add_flag("--wait", options_.wait,
                  "for room, however long that takes; with --cluster always");
    sub->callback([this, &row] { choose(Action::Run, row, Daemon::Manager); });
  }

  void addSubmit(const CommandRow& row) {
    CLI::App* sub = addCommand(row.name, row.what, Daemon::Scheduler);
    addSpec(sub, Side::Cluster);
    sub->add_flag("--wait", options_.wait, "until it is bound, however long that takes");
    sub->callback([this, &row] { choose(Action::Submit, row, Daemon::Scheduler); });
  }

  void addWhatIf(const CommandRow& row) {
    CLI::App* sub = addCommand("what-if", row.what, Daemon::Scheduler);
    sub->require_subcommand(1);
    CLI::App* place = sub->add_subcommand("place", "where tasks like this would land");
    addSpec(place, Side::Cluster);
    place->add_option("--count", count_, "so many of them (default 1)")
        ->check(whole("tasks", 1, WhatIf::kCountMax))
        ->type_name("N");
    place->callback([this, &row] {
      choose(Action::Ask, row, Daemon::Scheduler);
      options_.ask.count = count_;
    });
    CLI::App* drain = sub->add_subcommand("drain", "where the tasks of a node or card would go");
    drain->add_option("TARGET", words_[0], "NODE or NODE/CARD")
        ->required()
        ->check(oneWord())
        ->type_name("");
    drain->callback([this, &row] { choose(Action::Ask, row, Daemon::Scheduler); });
  }

  void addTrace(const CommandRow& row) {
    CLI::App* sub = addCommand(row.name, row.what, Daemon::Manager);
    sub->require_subcommand(1);
    CLI::App* record =
        sub->add_subcommand("record", "a file for Perfetto of what is done from now on");
    addTraceWindow(record, "record for so long (default 10)");
    record->add_option("-o,--file", options_.trace.file, "Trace Event Format (default trace.json)")
        ->type_name("FILE");
    record->callback([this] { choose(Action::TraceRecord, "trace", Daemon::Manager); });
    CLI::App* list = sub->add_subcommand("list", "the entries as the card's manager keeps them");
    for (std::size_t i = 0; i < row.arguments.size(); ++i) addArgument(list, row, i);
    list->add_flag("-f,--follow", options_.trace.follow, "and what happens from now on");
    list->callback([this, &row] {
      if (options_.trace.follow) return choose(Action::TraceFollow, row, Daemon::Manager);
      choose(Action::Ask, row, Daemon::Either);
    });
  }

  // By itself it is an order to the daemon; the others are about files of ours.
  void addSnapshot(const CommandRow& row) {
    CLI::App* sub = addCommand(row.name, row.what, Daemon::Either);
    sub->require_subcommand(0, 1);
    sub->callback([this, sub, &row] {
      if (sub->get_subcommands().empty()) choose(Action::Ask, row, Daemon::Either);
    });
    const CommandRow& save = commandRow("snapshot-save");
    const auto add = [&](const char* name, std::string_view what, Action action) {
      CLI::App* one = sub->add_subcommand(name, std::string(what));
      one->add_option("FILE", options_.file, "where it is, or is to be")->required()->type_name("");
      one->callback([this, action, &save] { choose(action, save, Daemon::Either); });
    };
    add("save", save.what, Action::SnapshotSave);
    add("show", "what a file of `snapshot save` has in it; asks no daemon", Action::SnapshotShow);
  }

  void addTraceWindow(CLI::App* sub, const char* meaning) {
    sub->add_option("--seconds", options_.trace.seconds, meaning)
        ->check(fraction("seconds", 0.1, kTraceSecondsMax))
        ->type_name("SECONDS");
    sub->add_option("--card", options_.trace.card, "id or index of a card (default: each)")
        ->check(oneWord())
        ->type_name("CARD");
  }

  void addTimeline() {
    CLI::App* sub =
        addCommand("timeline", "what each card did lately, as a picture", Daemon::Manager);
    addTraceWindow(sub, "look back so far (default 10)");
    sub->add_option("--svg", options_.trace.svg, "write the picture to a file instead")
        ->type_name("FILE");
    sub->callback([this] { choose(Action::Timeline, "timeline", Daemon::Manager); });
  }

  // What was typed of a task, in the order of the fields; its name and class are always said.
  void say() {
    SaidSpec& spec = options_.ask.said;
    for (Said& said : said_) {
      const bool always = said.field->key == "name" || said.field->key == "class";
      if (!said.given && !always) continue;
      if (!said.given && said.field->key == "class") said.value.text = "ordinary";
      if (said.field->key == "name" && said.value.text.empty()) {
        const std::string program = options_.program.empty() ? "task" : options_.program.front();
        said.value.text = program.substr(program.rfind('/') + 1);
      }
      spec.emplace_back(said.field, said.value);
    }
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
    sub->add_option("--bundle", doctor.bundle,
                    "also a report to send to others: a new file, without tokens and keys")
        ->type_name("FILE");
    sub->add_flag("-q,--quiet", doctor.quiet, "what was found alone, not what is well");
    sub->footer(
        "\nWith --tls-cert, --tls-key and --tls-ca, or with QGPU_TLS_CERT and so on, it looks "
        "at those too.\n"
        "\nexit status: 3 where there is a [fail] line; with [warn] lines alone it is 0.\n");
    sub->callback([this] { choose(Action::Doctor, "doctor", Daemon::Either); });
  }

  void addProve() {
    CLI::App* sub =
        addCommand("prove", "measures what holds on a card, and writes a report that can be signed",
                   Daemon::Manager);
    prove::ProveOptions& prove = options_.prove;
    sub->add_option("--card", prove.card, "id, index or short name (default: the first)")
        ->check(oneWord())
        ->type_name("CARD");
    sub->add_flag("--quick", prove.quick, "short runs: half a minute, with few bursts and shares");
    sub->add_option("--only", prove.only, "one part alone, which is no report of the card")
        ->check(oneOf(prove::proveParts()))
        ->type_name("PART");
    sub->add_option("--dir", prove.folder,
                    "folder of report.json, report.md and pictures (default qgpu-report)")
        ->type_name("DIR");
    sub->add_option("--sign", prove.key, "sign report.json with an SSH key, by ssh-keygen")
        ->type_name("KEY");
    CLI::Option* verify =
        sub->add_option("--verify", prove.verify,
                        "measure nothing: whether report.json is what was signed, and what it says")
            ->type_name("FILE");
    CLI::Option* signers = sub->add_option("--allowed-signers", prove.allowedSigners,
                                           "who may have signed it, as ssh-keygen reads them")
                               ->type_name("FILE");
    verify->needs(signers);
    signers->needs(verify);
    for (const char* name : {"--card", "--quick", "--only", "--dir", "--sign"}) {
      verify->excludes(sub->get_option(name));
    }
    sub->footer(
        "\nThe card must be free of tasks, and stay so meanwhile.\n"
        "\nexit status: 0 each promise is proven, or weaker as the report says; 1 one is not "
        "proven; 3 the card has tasks, or FILE is not what was signed.\n");
    sub->callback([this] { choose(Action::Prove, "prove", Daemon::Manager); });
  }

  // Needs no daemon: the folder of a CA is on whatever machine one likes.
  void addCerts() {
    CLI::App* sub =
        addCommand("certs", "a CA, and the certificates of a cluster", Daemon::Scheduler);
    sub->require_subcommand(1);
    const auto add = [&](const char* name, const char* what, Certs which) {
      CLI::App* one = sub->add_subcommand(name, what);
      one->add_option("--dir", options_.certs.folder, "folder of the CA (default /etc/qgpu/certs)")
          ->type_name("DIR");
      one->callback([this, which] {
        choose(Action::Certs, "certs", Daemon::Scheduler);
        options_.certs.what = which;
      });
      return one;
    };
    CLI::App* init = add("init", "makes a CA: ca.key, which stays there, and ca.pem", Certs::Init);
    addDays(init, "it is good for so long (default 3650d)", options_.certs.days);
    init->add_flag("--force", options_.certs.force, "also where there is one");
    addIssue(add("issue", "a key and a certificate, NAME.key and NAME.pem", Certs::Issue));
    CLI::App* renew =
        add("renew", "for what ends soon another NAME.pem, of the same key", Certs::Renew);
    addDays(renew, "what ends within (default 30d)", options_.certs.before, "--before");
    addDays(renew, "they are good for so long (default: as they were)", options_.certs.days);
    CLI::App* show = add("show", "what is in the folder, and until when", Certs::Show);
    addDays(show, "what ends within is told (default 30d)", options_.certs.before, "--before");
  }

  // Asks no daemon of this machine, which may have none yet.
  void addJoin() {
    CLI::App* sub =
        addCommand("join", "makes this machine a node of a cluster, by a token", Daemon::Scheduler);
    JoinOptions& join = options_.join;
    sub->add_option("SCHEDULER", join.door, "HOST:PORT, as `token create` said it there")
        ->required()
        ->check(oneWord())
        ->type_name("");
    sub->add_option("--token", join.token, "the token; -: the first line of stdin")
        ->required()
        ->check(oneWord())
        ->type_name("TOKEN");
    sub->add_option("--nodename", join.node, "name of this node (default: the host name)")
        ->check(oneWord())
        ->type_name("NAME");
    sub->add_option("--dir", join.folder,
                    "folder of key, certificates and configuration (default /etc/qgpu)")
        ->check(oneWord())
        ->type_name("DIR");
    sub->add_flag("--force", join.force, "also where these files are there already");
    sub->add_flag_callback(
        "--no-start", [&join] { join.start = false; }, "leave the manager's unit as it is");
    sub->callback([this] { choose(Action::Join, "join", Daemon::Scheduler); });
  }

  void addIssue(CLI::App* sub) {
    CertsOptions& certs = options_.certs;
    sub->add_option("NAME", certs.name, "of the node, of the scheduler's host, or of a person")
        ->required()
        ->type_name("");
    sub->add_option("--role", certs.role, "what it may do (default node)")
        ->check(oneOf(certificateRoles()))
        ->type_name("ROLE");
    sub->add_option("--san", certs.names, "also a name or address of it; may be repeated")
        ->allow_extra_args(false)
        ->type_name("NAME");
    addDays(sub, "it is good for so long (default 365d)", certs.days);
    sub->add_flag("--force", certs.force, "also where there is one of this name");
  }

  static void addDays(CLI::App* sub, const char* meaning, std::uint64_t& days,
                      const char* name = "--days") {
    const auto read = [](std::string word) {
      if (word.ends_with('d')) word.pop_back();
      return parseUint(word);
    };
    const auto check = [read](const std::string& word) -> std::string {
      const auto number = read(word);
      if (number && *number >= 1 && *number <= CertsOptions::kDaysMax) return "";
      return "\"" + word + "\" is not a whole number of days from 1d to " +
             std::to_string(CertsOptions::kDaysMax) + "d";
    };
    sub->add_option_function<std::string>(
           name, [read, &days](const std::string& word) { days = read(word).value_or(0); }, meaning)
        ->check(CLI::Validator(check, ""))
        ->type_name("DAYS");
  }

  Options next(const std::vector<std::string>& words) {
    options_.action = Action::Complete;
    options_.completion = complete(app_, words);
    return options_;
  }

  void addShells() {
    CLI::App* sub = app_.add_subcommand("completion", "a script that completes what is typed");
    sub->footer(
        "\nbash:  source <(qgpuctl completion bash)     in ~/.bashrc\n"
        "zsh:   source <(qgpuctl completion zsh)      in ~/.zshrc, after compinit\n"
        "fish:  qgpuctl completion fish | source      in ~/.config/fish/config.fish\n");
    sub->add_option("SHELL", words_[0], "which reads it")
        ->required()
        ->check(oneOf(shells()))
        ->type_name("");
    sub->callback([this] { toPrint_ = completionScript(words_[0]); });
    app_.add_subcommand("man", "the manual page, as man(1) reads it")->callback([this] {
      toPrint_ = manPage(app_, kFooter, QGPU_VERSION);
    });
  }

  void addHelp() {
    CLI::App* sub = app_.add_subcommand("help", "this text, or how COMMAND is used");
    sub->add_option("COMMAND", helpOf_, "one of those above, and of its own");
    sub->callback([this] { helpAsked_ = true; });
  }

  ExitNow help() {
    if (helpOf_.empty() && output_ == "json") return {0, describe(app_) + "\n"};
    if (helpOf_.empty()) {
      // Not app_.help(): once a subcommand was typed, that is the subcommand's.
      return {0, app_.get_formatter()->make_help(&app_, "qgpuctl", CLI::AppFormatMode::Normal)};
    }
    at_ = &app_;
    std::string above;
    for (const std::string& word : helpOf_) {
      const auto subs = subcommandsOf(*at_);
      const auto found = std::ranges::find(subs, word, &CLI::App::get_name);
      if (found == subs.end()) return usage(strangeCommand(word));
      above += (above.empty() ? "" : " ") + (at_ == &app_ ? "qgpuctl" : at_->get_name());
      at_ = *found;
    }
    return {0, at_->help(above)};
  }

  void addExamples(CLI::App& app, const std::string& above) {
    for (CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
      const std::string name = above + sub->get_name();
      const std::string known = sub->get_footer();
      if (known.find("example") == std::string::npos) {
        sub->footer(known + "\nexample:\n  qgpuctl " + std::string(exampleOf(name)) + "\n");
      }
      addExamples(*sub, name + " ");
    }
  }

  void addTop() {
    CLI::App* sub = addCommand("top", "a live screen of cards and tasks; ? there says its keys",
                               Daemon::Either);
    CLI::Option* once = sub->add_flag("--once", options_.top.once,
                                      "one plain picture of the interval from now, and end");
    sub->add_option("-n,--count", options_.top.count, "end after so many pictures")
        ->check(whole("pictures", 0, kPicturesMax))
        ->excludes(once)
        ->type_name("COUNT");
    sub->add_option("--interval", options_.top.intervalSeconds, "between pictures (default 1)")
        ->check(fraction("seconds", 0.1, 3600))
        ->type_name("SECONDS");
    const auto fits = [](const std::string& text) {
      return text.size() <= kTitleMax
                 ? std::string()
                 : "a title has at most " + std::to_string(kTitleMax) + " bytes";
    };
    sub->add_option("--title", options_.top.title, "a line above the picture")
        ->check(CLI::Validator(fits, ""))
        ->type_name("TEXT");
    sub->callback([this] { choose(Action::Top, "top", Daemon::Either); });
  }

  void addEvents(const char* name, const char* what) {
    CLI::App* sub = addCommand(name, what, Daemon::Either);
    CLI::Option* since =
        sub->add_option("SINCE", since_, "only after this event, or not older than this: 17, 30m")
            ->type_name("");
    sub->add_option("--since", since_, "the same")->excludes(since)->type_name("SEQ|TIME");
    EventOptions& events = options_.events;
    sub->add_option("--task", events.task, "only of this task, by number or name")
        ->type_name("TASK");
    sub->add_option("--card", events.card, "only of this card; of a cluster NODE or NODE/CARD")
        ->type_name("CARD");
    sub->add_option("--kind", events.kinds, "only of this kind; may be repeated")
        ->allow_extra_args(false)
        ->check(oneOf(eventKinds()).description(""))
        ->type_name("KIND");
    sub->add_flag("-f,--follow", options_.events.follow,
                  "and what happens from now on, over restarts of the daemon");
    sub->callback([this, changes = std::string_view(name) == "audit"] {
      choose(Action::Events, commandRow("events"), Daemon::Either);
      options_.events.changes = changes;
    });
  }

  // A blank or a line end would make two arguments, or two commands, of one.
  static CLI::Validator oneWord() { return without(" \t\r\n", "one word without blanks"); }
  static CLI::Validator without(const char* these, const char* expected) {
    const auto check = [=](const std::string& text) -> std::string {
      return text.empty() || text.find_first_of(these) != std::string::npos ? expected : "";
    };
    return CLI::Validator(check, "");
  }

  static std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  }

  CLI::App app_{"qgpuctl: run programs on shared GPU cards, and see and change who gets what",
                "qgpuctl"};
  CLI::App* tokens_ = nullptr;     // `token`, within app_
  const CLI::App* run_ = nullptr;  // the subcommand, within app_
  const CLI::App* at_ = &app_;     // the command at hand, or app_ before one was said
  std::vector<std::pair<CLI::App*, Daemon>> commands_;
  const Platform around_ = Platform::ofThisProcess();
  Options options_;
  std::string since_;
  std::string output_ = "table";
  std::array<std::string, std::tuple_size_v<decltype(CommandRow::arguments)>> words_;
  std::vector<Said> said_ = allFields();
  std::uint32_t count_ = 1;
  bool cluster_ = false;
  bool helpAsked_ = false;
  std::vector<std::string> helpOf_;
  std::string toPrint_;
};

}  // namespace

std::variant<Options, ExitNow> parseOptions(std::vector<std::string> argv) {
  return Parser().parse(std::move(argv));
}

std::string defaultSocket(const Platform& around, const std::string& machine,
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
