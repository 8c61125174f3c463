#include "services/ctl/top.h"

#include <cstdio>
#include <errno.h>
#include <optional>
#include <signal.h>
#include <simdjson.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "services/base/yaml.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl {
namespace {

using simdjson::dom::element;

// The part of `elapsed` by which a counter of ns grew; nothing without a picture before.
std::string shareOf(std::uint64_t before, std::uint64_t after, Nanos elapsed) {
  if (elapsed.value <= 0 || after < before) return "";
  const auto grown = static_cast<std::int64_t>(after - before);
  return humanPermille(static_cast<std::uint64_t>(mulDiv(grown, 1000, elapsed.value)));
}

std::string rateOf(std::uint64_t before, std::uint64_t after, Nanos elapsed) {
  if (elapsed.value <= 0 || after < before) return "";
  const auto grown = static_cast<std::int64_t>(after - before);
  return humanCount(static_cast<std::uint64_t>(mulDiv(grown, seconds(1).value, elapsed.value)));
}

std::string memoryOf(element object, const char* part, const char* total) {
  return humanBytes(numberOf(object, part)) + " / " + humanBytes(numberOf(object, total));
}

// The terminal while it shows the picture: another screen, without a cursor.
class Screen {
 public:
  explicit Screen(bool terminal) : terminal_(terminal) { enter(); }
  ~Screen() { leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void enter() const {
    if (terminal_) put("\x1b[?1049h\x1b[?25l");
  }
  void leave() const {
    if (terminal_) put("\x1b[?25h\x1b[?1049l");
  }
  // False where nobody reads any more.
  bool show(const std::string& picture) const {
    return put(terminal_ ? "\x1b[H" + fitted(picture) + "\x1b[J" : picture);
  }

 private:
  static bool put(const std::string& text) {
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
           std::fflush(stdout) == 0;
  }

  // No more lines and columns than there are: a wrapped line would move everything.
  static std::string fitted(const std::string& picture) {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
      size.ws_col = 80;
      size.ws_row = 24;
    }
    std::string out;
    std::size_t start = 0;
    for (unsigned row = 0; row + 1 < size.ws_row && start < picture.size(); ++row) {
      const std::size_t end = picture.find('\n', start);
      std::string line = picture.substr(start, end - start);
      while (width(line) > size.ws_col) line.pop_back();
      out += line + "\x1b[K\n";
      if (end == std::string::npos) break;
      start = end + 1;
    }
    return out;
  }

  const bool terminal_;
};

// Signals that end or interrupt the view come when it looks for them.
class Signals {
 public:
  Signals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) {
      ::sigaddset(&set_, signal);
    }
    ::sigprocmask(SIG_BLOCK, &set_, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
  }
  // The signal that came within `time`, if any.
  std::optional<int> within(Nanos time) const {
    const timespec limit{time.value / seconds(1).value, time.value % seconds(1).value};
    const int signal = ::sigtimedwait(&set_, nullptr, &limit);
    if (signal < 0) return std::nullopt;
    return signal;
  }

 private:
  sigset_t set_;
};

// One picture of the daemon, or why not.
Result<std::string> look(Client& client, TopView& view, Output output) {
  std::vector<Answer> answers;
  for (const char* const question : {"status", "cards", "tasks"}) {
    Result<Answer> answer = client.ask(askFor(question), seconds(6));
    if (!answer) return answer.error();
    if (!answer->status()) return answer->status().error();
    answers.push_back(std::move(*answer));
  }
  if (!isTable(output)) {
    const std::string json = R"({"status":)" + answers[0].text() + R"(,"cards":)" +
                             answers[1].text() + R"(,"tasks":)" + answers[2].text() + "}";
    return streamed(json, output);
  }
  return view.picture(answers[0], answers[1], answers[2], now());
}

// Until the next picture is due. The signal that ends the view, if one came.
std::optional<int> pause(const Signals& signals, const Screen& screen, Nanos until) {
  while (true) {
    const Nanos left = until - now();
    const std::optional<int> signal = signals.within(left.value > 0 ? left : Nanos());
    if (!signal || *signal == SIGWINCH) return std::nullopt;
    if (*signal != SIGTSTP) return signal;
    screen.leave();
    ::kill(::getpid(), SIGSTOP);
    screen.enter();
    return std::nullopt;
  }
}

}  // namespace

std::string TopView::cards(element root, Nanos elapsed) {
  Table table({{"CARD"}, {"POLICY"}, {"KIND"}, {"STATE"}, {"USED", Align::Right},
               {"ONLINE", Align::Right}, {"HOLDER", Align::Right}, {"MEMORY", Align::Right},
               {"TASKS", Align::Right}});
  std::map<std::string, Counters> counted;
  for (const element card : listOf(root, "cards")) {
    const std::string id = textOf(card, "id");
    const Counters is{numberOf(card, "used_ns"), numberOf(card, "online_ns"), 0};
    const auto was = cardsBefore_.find(id);
    const bool known = was != cardsBefore_.end();
    const Nanos span = known ? elapsed : Nanos();
    const Counters old = known ? was->second : is;
    const std::uint64_t holder = numberOf(card, "holder");
    table.add({wide_ ? id : names_.shortOf(textOf(card, "node"), id), textOf(card, "policy"),
               textOf(card, "kind"), textOf(card, "state"), shareOf(old.used, is.used, span),
               shareOf(old.online, is.online, span), holder == 0 ? "" : std::to_string(holder),
               memoryOf(card, "mem_bound_bytes", "mem_bytes"),
               std::to_string(numberOf(card, "tasks"))});
    counted[id] = is;
  }
  cardsBefore_ = std::move(counted);
  return table.text();
}

std::string TopView::tasks(element root, Nanos elapsed) {
  Table table({{"TASK", Align::Right}, {"NAME"}, {"CLASS"}, {"CARD"}, {"STATE"},
               {"SHARE", Align::Right}, {"USED", Align::Right}, {"LAUNCH/S", Align::Right},
               {"MEMORY", Align::Right}, {"PROCS", Align::Right}});
  std::map<std::uint64_t, Counters> counted;
  for (const element task : listOf(root, "tasks")) {
    const std::uint64_t id = numberOf(task, "id");
    const Counters is{numberOf(task, "used_ns"), 0, numberOf(task, "launches")};
    const auto was = tasksBefore_.find(id);
    const bool known = was != tasksBefore_.end();
    const Nanos span = known ? elapsed : Nanos();
    const Counters old = known ? was->second : is;
    const std::string ids = textOf(task, "card");
    table.add({std::to_string(id), textOf(task, "name"), textOf(task, "class"),
               wide_ ? ids : names_.shortOf(textOf(task, "node"), ids), textOf(task, "state"),
               humanPermille(numberOf(task, "share_permille")), shareOf(old.used, is.used, span),
               rateOf(old.launches, is.launches, span),
               memoryOf(task, "mem_used_bytes", "mem_bytes"),
               std::to_string(numberOf(task, "processes"))});
    counted[id] = is;
  }
  tasksBefore_ = std::move(counted);
  return table.text();
}

std::string TopView::picture(const Answer& status, const Answer& cardsNow, const Answer& tasksNow,
                             Nanos at) {
  const element node = status.root();
  const Nanos elapsed = before_ == Nanos() ? Nanos() : at - before_;
  before_ = at;
  names_ = CardNames(cardsNow.root());
  return printable(textOf(node, "node")) + "  up " + humanTime(numberOf(node, "uptime_ns")) +
         "  storage " + printable(textOf(node, "storage")) + "  real-time " +
         printable(textOf(node, "realtime")) + "\n\n" + cards(cardsNow.root(), elapsed) + "\n" +
         tasks(tasksNow.root(), elapsed);
}

int top(const Options& options) {
  const bool terminal = isTable(options.output) && ::isatty(STDOUT_FILENO) == 1;
  const auto interval = Nanos(static_cast<std::int64_t>(options.top.intervalSeconds * 1e9));
  Client client(options.socket);
  TopView view(options.output);
  Result<std::string> picture = look(client, view, options.output);
  if (!picture) {
    std::fprintf(stderr, "qgpuctl: %s\nqgpuctl: start one: %s\n", picture.error().message.c_str(),
                 startLine(options.socket).c_str());
    return static_cast<int>(Exit::NoDaemon);
  }
  const Signals signals;
  const Screen screen(terminal);
  Nanos due = now();
  for (std::uint64_t shown = 1;; ++shown) {
    if (!picture && !terminal) return static_cast<int>(Exit::NoDaemon);
    const std::string gap = !terminal && isTable(options.output) && shown > 1 ? "\n" : "";
    const std::string text =
        picture ? *picture : "qgpuctl: " + picture.error().message + "; looking again\n";
    if (!screen.show(gap + text)) return static_cast<int>(Exit::Ok);
    if (shown == options.top.count) return static_cast<int>(Exit::Ok);
    due += interval;
    const std::optional<int> signal = pause(signals, screen, due);
    if (signal) return *signal == SIGINT ? static_cast<int>(Exit::Ok) : 128 + *signal;
    picture = look(client, view, options.output);
  }
}

}  // namespace qgpu::ctl
