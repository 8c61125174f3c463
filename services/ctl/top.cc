#include "services/ctl/top.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <unistd.h>
#include <utility>

#include "services/base/terminal.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/views.h"
#include "services/ctl/node_explain.h"
#include "services/ctl/server.h"
#include "services/ctl/top/live_terminal.h"
#include "services/ctl/top/top_model.h"
#include "services/ctl/top/top_picture.h"
#include "services/ctl/trace/read_trace.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kLiveAskLimit = seconds(2);  // somebody may press q
constexpr Nanos kReach = seconds(10);        // of the timelines
constexpr std::size_t kTracedMax = 64;       // cards
constexpr std::size_t kPlainColumns = 120;
constexpr std::size_t kWideColumns = 200;

// What the daemon told at one time.
struct Look {
  Answer status = "{}", cards = "{}", tasks = "{}";
  std::vector<CardHistory> histories;
  Nanos at{0};
};

// Asks the daemon, over its restarts.
class Looker {
 public:
  Looker(const Options& options, Nanos limit) : options_(options), limit_(limit) {}

  Status look() {
    Result<Look> told = ask();
    if (!told) {
      asker_.reset();
      readers_.clear();  // of another one's trace
      now_.reset();
      return told.error();
    }
    before_ = std::exchange(now_, std::move(*told));
    return ok();
  }
  const Look& last() const { return *now_; }
  void tell(TopModel& model) {
    model.take(now_->status, now_->cards, now_->tasks, std::move(now_->histories), now_->at);
  }

  // The text for a person.
  std::string explain(std::uint64_t task) {
    if (!now_) return "";
    if (textOf(now_->status.root(), "role") == "scheduler") {
      const auto answer = answerTo(*asker_, askFor("explain", std::to_string(task)), limit_);
      return answer ? viewed(*answer) : answer.error().message;
    }
    const Look& before = before_ ? *before_ : *now_;
    return viewed(explainOnNode(task, {before.tasks.root(), before.cards.root()},
                                {now_->tasks.root(), now_->cards.root()}, now_->at - before.at));
  }

 private:
  std::string viewed(const Answer& answer) const {
    Style style{options_.output == Output::Wide};
    if (!style.wide) style.cards = CardNames(now_->cards.root());
    const Result<std::string> text = viewOf(Shown::Explanation, answer, style);
    return text ? *text : text.error().message;
  }

  Result<Look> ask() {
    if (!asker_) {
      auto reached = reach(options_);
      if (!reached) return reached.error();
      asker_ = std::move(*reached);
    }
    Look look;
    for (const auto& [question, to] :
         {std::pair{"status", &look.status}, std::pair{"cards", &look.cards},
          std::pair{"tasks", &look.tasks}}) {
      Result<Answer> answer = answerTo(*asker_, askFor(question), limit_);
      if (!answer) return answer.error();
      *to = std::move(*answer);
    }
    look.at = now();
    const bool cluster = textOf(look.status.root(), "role") == "scheduler";
    if (!cluster && isTable(options_.output)) {
      if (Status read = readTraces(look); !read) return read.error();
    }
    return look;
  }

  Status readTraces(Look& look) {
    for (const Value card : listOf(look.cards.root(), "cards")) {
      if (look.histories.size() == kTracedMax) break;
      const std::string id = textOf(card, "id");
      TraceReader& reader = readers_.try_emplace(id, id).first->second;
      if (Status read = catchUp(*asker_, reader, limit_); !read) return read;
      const Nanos from = std::max(Nanos(0), reader.now() - kReach);
      reader.forget(from);
      look.histories.push_back(reader.between(from, reader.now()));
    }
    return ok();
  }

  const Options& options_;
  const Nanos limit_;
  std::unique_ptr<Asker> asker_;
  std::map<std::string, TraceReader> readers_;
  std::optional<Look> before_, now_;
};

int noDaemon(const Error& error, const Options& options) {
  std::fprintf(stderr, "qgpuctl: %s\n", error.message.c_str());
  if (options.server.empty()) {
    std::fprintf(stderr, "qgpuctl: start one: %s\n", startLine(options.socket).c_str());
  }
  return static_cast<int>(Exit::NoDaemon);
}

int ended(int signal) {
  return signal == SIGINT ? static_cast<int>(Exit::Ok) : 128 + signal;
}

// --- for a file, a pipe or a program ---

std::string plainPicture(const TopModel& model, const Options& options) {
  const bool wide = options.output == Output::Wide;
  const TopStyle style{
      .columns = wide ? kWideColumns : kPlainColumns, .wide = wide, .title = options.top.title};
  std::string text;
  for (const Line& line : topPicture(model, style)) text += plainText(line) + "\n";
  return text;
}

std::string document(const Look& look, Output output) {
  Document all;
  all.beginObject();
  look.status.root().write(all.key("status"));
  look.cards.root().write(all.key("cards"));
  look.tasks.root().write(all.key("tasks"));
  all.endObject();
  return streamed(all.root(), output);
}

int print(const Options& options, Looker& looker, Nanos interval) {
  LiveTerminal output(false);
  TopModel model;
  const bool table = isTable(options.output);
  // Rates take two looks.
  const std::uint64_t passed = options.top.once && table ? 1 : 0;
  const std::uint64_t last = options.top.once ? 1 + passed : options.top.count;
  Nanos due = now();
  for (std::uint64_t shown = 1;; ++shown) {
    if (table) looker.tell(model);
    if (shown > passed) {
      const std::string gap = table && shown > 1 + passed ? "\n" : "";
      const std::string text =
          table ? plainPicture(model, options) : document(looker.last(), options.output);
      if (!output.write(gap + text)) return static_cast<int>(Exit::Ok);
    }
    if (shown == last) return static_cast<int>(Exit::Ok);
    due += interval;
    while (now() < due) {
      if (const int signal = output.next(due).signal; signal != 0) return ended(signal);
    }
    if (Status looked = looker.look(); !looked) return noDaemon(looked.error(), options);
  }
}

// --- on a terminal ---

class Live {
 public:
  Live(const Options& options, Looker& looker) : options_(options), looker_(looker) {}

  int run(Nanos interval) {
    looker_.tell(model_);
    Nanos due = now();
    for (std::uint64_t shown = 1;; ++shown) {
      explain();
      if (!draw() || shown == options_.top.count) return static_cast<int>(Exit::Ok);
      due = std::max(due + interval, now());  // one that was late does not hurry the next
      do {
        const LiveTerminal::News news = terminal_.next(due);
        if (news.signal != 0) return ended(news.signal);
        for (const Key& key : news.keys) {
          if (!model_.press(key)) return static_cast<int>(Exit::Ok);
        }
        if (news.keys.empty() && !news.redraw) continue;
        if (model_.explanation().empty()) explain();
        if (!draw()) return static_cast<int>(Exit::Ok);
      } while (now() < due);
      if (Status looked = looker_.look(); looked) {
        looker_.tell(model_);
      } else {
        model_.lose(looked.error().message);
      }
    }
  }

 private:
  void explain() {
    const auto task = model_.explaining();
    if (!task || !model_.lost().empty() || model_.picked() == nullptr) return;
    model_.explain(looker_.explain(*task));
  }

  bool draw() {
    const TerminalSize size = terminal_.size();
    const TopStyle style{size.columns, size.rows, speaksUtf8(), options_.output == Output::Wide,
                         options_.top.title};
    std::vector<std::string> lines;
    for (const Line& line : topPicture(model_, style)) {
      lines.push_back(colours_ ? colouredText(line) : plainText(line));
    }
    return terminal_.show(lines);
  }

  const Options& options_;
  Looker& looker_;
  const bool colours_ = takesColours(STDOUT_FILENO);
  TopModel model_;
  LiveTerminal terminal_{true};
};

}  // namespace

int top(const Options& options) {
  const bool live = isTable(options.output) && !options.top.once && isTerminal(STDOUT_FILENO);
  const auto interval = Nanos(static_cast<std::int64_t>(options.top.intervalSeconds * 1e9));
  Looker looker(options, live ? kLiveAskLimit : kAskLimit);
  if (Status looked = looker.look(); !looked) return noDaemon(looked.error(), options);
  return live ? Live(options, looker).run(interval) : print(options, looker, interval);
}

}  // namespace qgpu::ctl
