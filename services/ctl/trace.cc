#include "services/ctl/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "services/base/terminal.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/views.h"
#include "services/ctl/trace/card_history.h"
#include "services/ctl/trace/read_trace.h"
#include "services/ctl/trace/timeline.h"
#include "services/ctl/trace/trace_json.h"

namespace qgpu::ctl {
namespace {

// Between two looks at a card: far less than its ring holds.
constexpr Nanos kPollEvery = millis(250);

int failed(const Error& error, const Options& options) {
  std::fprintf(stderr, "qgpuctl: %s\n", error.message.c_str());
  if (error.code != ErrorCode::Unavailable) return static_cast<int>(Exit::Refused);
  std::fprintf(stderr, "qgpuctl: start one: %s\n", startLine(options.socket).c_str());
  return static_cast<int>(Exit::NoDaemon);
}

// A reader for the card that was named, or for each, with all that there is up to now.
Result<std::vector<TraceReader>> readersOf(Client& client, const std::string& named,
                                           std::vector<Answer>* told = nullptr) {
  std::vector<TraceReader> readers;
  if (named.empty()) {
    const Result<Answer> answer = answerTo(client, askFor("cards"), kAskLimit);
    if (!answer) return answer.error();
    for (const Value card : listOf(answer->root(), "cards")) {
      readers.emplace_back(textOf(card, "id"));
    }
  } else {
    readers.emplace_back(named);
  }
  for (TraceReader& reader : readers) {
    if (Status read = catchUp(client, reader, kAskLimit, told); !read) return read.error();
  }
  return readers;
}

Nanos asTime(double inSeconds) {
  return Nanos(static_cast<std::int64_t>(inSeconds * 1e9));
}

// SIGINT and SIGTERM end a recording early: what was recorded is written all the same.
class EndSignals {
 public:
  EndSignals() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGINT);
    ::sigaddset(&set_, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &set_, nullptr);
  }
  bool within(Nanos time) const {
    const timespec limit{time.value / seconds(1).value, time.value % seconds(1).value};
    return ::sigtimedwait(&set_, nullptr, &limit) > 0;
  }

 private:
  sigset_t set_;
};

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

Error cannotWrite(const std::string& path) {
  return fail(ErrorCode::InvalidArgument, "can't write " + path + ": " + std::strerror(errno));
}

Status writeAll(File file, const std::string& path, const std::string& text) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fclose(file.release()) != 0 || !whole) return cannotWrite(path);
  return ok();
}

// From now on, for as long as was asked, or until a signal.
Result<std::vector<CardHistory>> record(Client& client, std::vector<TraceReader>& readers,
                                        Nanos time) {
  const EndSignals signals;
  Nanos from{0};
  for (const TraceReader& reader : readers) from = std::max(from, reader.now());
  Nanos now = from, until = from + time;
  while (now < until) {
    const bool ended = signals.within(std::min(kPollEvery, until - now));
    now = kNever;
    for (TraceReader& reader : readers) {
      if (Status read = catchUp(client, reader, kAskLimit); !read) return read.error();
      now = std::min(now, reader.now());
    }
    if (ended) until = std::min(until, now);
  }
  std::vector<CardHistory> cards;
  for (const TraceReader& reader : readers) cards.push_back(reader.between(from, until));
  return cards;
}

void sayWhatIsIn(const std::string& path, const std::vector<CardHistory>& cards) {
  std::size_t slices = 0;
  std::uint64_t lost = 0;
  for (const CardHistory& card : cards) {
    lost += card.lost;
    slices += static_cast<std::size_t>(
        std::count_if(card.spans.begin(), card.spans.end(),
                      [](const Span& span) { return span.kind == Span::Kind::Slice; }));
  }
  const Nanos time = cards.empty() ? Nanos(0) : cards.front().to - cards.front().from;
  std::fprintf(stderr, "%s: %.1f s of %zu card(s), %zu slices; open it with ui.perfetto.dev\n",
               path.c_str(), static_cast<double>(time.value) / 1e9, cards.size(), slices);
  if (lost == 0) return;
  std::fprintf(stderr, "qgpuctl: %llu entries were overwritten before they were read\n",
               static_cast<unsigned long long>(lost));
}

TimelineStyle styleOfOutput() {
  TimelineStyle style;
  style.blocks = speaksUtf8();
  style.colours = takesColours(STDOUT_FILENO);
  style.columns =
      std::clamp(terminalSize(STDOUT_FILENO).columns, kTimelineColumnsMin, kTimelineColumnsMax);
  return style;
}

// The last seconds, as far as the traces reach. `told`: the answers as they came.
Result<std::vector<CardHistory>> lookBack(Client& client, const TraceOptions& options,
                                          std::vector<Answer>& told) {
  const Result<std::vector<TraceReader>> readers = readersOf(client, options.card, &told);
  if (!readers) return readers.error();
  std::vector<CardHistory> cards;
  for (const TraceReader& reader : *readers) {
    const Nanos to = reader.now();
    cards.push_back(reader.between(std::max(Nanos(0), to - asTime(options.seconds)), to));
  }
  return cards;
}

}  // namespace

int recordTrace(const Options& options) {
  const std::string& path = options.trace.file;
  const bool toStdout = path == "-";
  Client client(options.socket);
  Result<std::vector<TraceReader>> readers = readersOf(client, options.trace.card);
  if (!readers) return failed(readers.error(), options);
  // Before anything is recorded: what can't be written is said at once.
  File file(toStdout ? ::fdopen(::dup(STDOUT_FILENO), "w") : std::fopen(path.c_str(), "w"));
  if (file == nullptr) return failed(cannotWrite(path), options);
  const auto cards = record(client, *readers, asTime(options.trace.seconds));
  if (!cards) return failed(cards.error(), options);
  if (Status written = writeAll(std::move(file), path, traceJson(*cards) + "\n"); !written) {
    return failed(written.error(), options);
  }
  if (!toStdout) sayWhatIsIn(path, *cards);
  return static_cast<int>(Exit::Ok);
}

// A card does not tell by itself what it does: it is asked for what is after the last number.
int followTrace(const Options& options) {
  Client client(options.socket);
  Ask ask = options.ask;
  for (bool first = true;; first = false) {
    const Result<Answer> answer = answerTo(client, ask, kAskLimit);
    if (!answer) return failed(answer.error(), options);
    const auto entries = listOf(answer->root(), "entries");
    const std::uint64_t last = entries.empty() ? 0 : numberOf(entries.back(), "seq");
    if (last != 0) {
      const bool table = isTable(options.output);
      std::string text =
          table ? *viewOf(Shown::Trace, *answer) : streamed(answer->root(), options.output);
      if (table && !first) text.erase(0, text.find('\n') + 1);  // the head of the columns once
      writeOut(text);
      if (std::ferror(stdout) != 0) return static_cast<int>(Exit::Ok);  // nobody reads any more
      ask.words[1] = std::to_string(last);
    }
    if (last == 0 || last == numberOf(answer->root(), "newest")) {
      ::usleep(static_cast<unsigned>(kPollEvery / micros(1)));
    }
  }
}

int timeline(const Options& options) {
  Client client(options.socket);
  std::vector<Answer> told;
  const Result<std::vector<CardHistory>> cards = lookBack(client, options.trace, told);
  if (!cards) return failed(cards.error(), options);
  if (!options.trace.svg.empty()) {
    File file(std::fopen(options.trace.svg.c_str(), "w"));
    if (file == nullptr) return failed(cannotWrite(options.trace.svg), options);
    const Status written = writeAll(std::move(file), options.trace.svg, timelineSvg(*cards));
    return written ? static_cast<int>(Exit::Ok) : failed(written.error(), options);
  }
  if (isTable(options.output)) {
    writeOut(timelineText(*cards, styleOfOutput()));
  } else {
    for (const Answer& answer : told) writeOut(streamed(answer.root(), options.output));
  }
  return static_cast<int>(Exit::Ok);
}

}  // namespace qgpu::ctl
