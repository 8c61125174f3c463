// What cards did, from the manager's answers to histories, Perfetto's file and pictures.

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "services/ctl/answers/table.h"
#include "services/ctl/options.h"
#include "services/ctl/trace/card_history.h"
#include "services/ctl/trace/timeline.h"
#include "services/ctl/trace/trace_json.h"

namespace qgpu::ctl::trace_test {
namespace {

using Json = nlohmann::json;
using Kind = Span::Kind;

constexpr std::uint64_t kServe = 1, kTrain = 7;

// The answers of a manager, entry by entry; times in milliseconds.
class Told {
 public:
  Told& at(std::int64_t ms, const char* kind, std::uint64_t task, std::int64_t sinceMs = 0) {
    Json entry = {{"seq", ++seq_}, {"at_ns", ms * 1'000'000}, {"kind", kind}};
    if (task != 0) entry["task"] = task;
    if (sinceMs != 0) entry["since_ns"] = sinceMs * 1'000'000;
    entries_.push_back(entry);
    now_ = ms;
    return *this;
  }
  // What was told since the last call, as one answer.
  Answer answer(std::uint64_t lost = 0) {
    const Json document = {{"ok", true},
                           {"card", "sim-0"},
                           {"now_ns", now_ * 1'000'000},
                           {"newest", seq_},
                           {"lost", lost},
                           {"entries", std::exchange(entries_, Json::array())},
                           {"tasks",
                            {{{"id", kServe}, {"name", "serve"}, {"class", "online"}},
                             {{"id", kTrain}, {"name", "tr<ai>n"}, {"class", "offline"}}}}};
    return Answer(document.dump());
  }
  void skip(std::uint64_t entries) { seq_ += entries; }

 private:
  std::uint64_t seq_ = 0;
  std::int64_t now_ = 0;
  Json entries_ = Json::array();
};

// A slice of train from 10 to 60 ms; serve wakes at 58, and the card is released at 190.
Told& hybrid(Told& told) {
  return told.at(1, "joined", kServe)
      .at(1, "joined", kTrain)
      .at(10, "ready", kTrain, 9)
      .at(10, "running", kTrain)
      .at(59, "suspending", kTrain, 58)
      .at(59, "online-active", kServe, 58)
      .at(59, "running", kServe, 58)
      .at(60, "gate-shut", kTrain, 58)
      .at(62, "suspended", kTrain)
      .at(90, "idle", kServe)
      .at(190, "released", 0, 90)
      .at(190, "running", kTrain);
}

CardHistory hybridHistory() {
  Told told;
  TraceReader reader("sim-0");
  const Answer answer = hybrid(told).at(300, "memory-refused", kTrain).answer();
  reader.add(answer.root());
  return reader.between(millis(0), millis(400));
}

std::vector<Span> spansOf(const CardHistory& card, std::uint64_t task, Kind kind) {
  std::vector<Span> found;
  for (const Span& span : card.spans) {
    if (span.task == task && span.kind == kind) found.push_back(span);
  }
  return found;
}

TEST(CardHistory, AnOnlineTasksWakeEndsASliceAndItsReleaseResumesIt) {
  const CardHistory card = hybridHistory();
  const auto slices = spansOf(card, kTrain, Kind::Slice);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].from, millis(10));
  EXPECT_EQ(slices[0].to, millis(62));
  EXPECT_EQ(slices[1].from, millis(190));
  EXPECT_EQ(slices[1].to, millis(400)) << "under way at the end";
  const auto holds = spansOf(card, kTrain, Kind::Hold);
  ASSERT_EQ(holds.size(), 1u);
  EXPECT_EQ(holds[0].from, millis(59));
  EXPECT_EQ(holds[0].to, millis(62));
  const auto waits = spansOf(card, kTrain, Kind::Wait);
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].from, millis(9)) << "since its work came";
  EXPECT_EQ(waits[1].from, millis(62));
  EXPECT_EQ(waits[1].to, millis(190));
  const auto work = spansOf(card, kServe, Kind::Work);
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].from, millis(58)) << "since its submit";
  EXPECT_EQ(work[0].to, millis(90));
  const auto online = spansOf(card, 0, Kind::Online);
  ASSERT_EQ(online.size(), 1u);
  EXPECT_EQ(online[0].to, millis(190));
  ASSERT_EQ(card.preemptions.size(), 1u);
  EXPECT_EQ(card.preemptions[0].online, kServe);
  EXPECT_EQ(card.preemptions[0].held, kTrain);
  EXPECT_EQ(card.preemptions[0].shut - card.preemptions[0].submit, millis(2));
  EXPECT_EQ(card.tasks.at(kServe).name, "serve");
}

TEST(CardHistory, OnlyWhatLiesWithinTheTimeIsInIt) {
  Told told;
  TraceReader reader("sim-0");
  const Answer answer = hybrid(told).answer();
  reader.add(answer.root());
  const CardHistory card = reader.between(millis(20), millis(40));
  ASSERT_EQ(card.spans.size(), 1u);
  EXPECT_EQ(card.spans[0].from, millis(20));
  EXPECT_EQ(card.spans[0].to, millis(40));
  EXPECT_TRUE(card.moments.empty());
  EXPECT_TRUE(card.preemptions.empty());
}

TEST(CardHistory, ADeathAnOverrunAndALeaveEndWhatIsUnderWay) {
  for (const char* end : {"idle", "overrun", "left", "drained"}) {
    Told told;
    TraceReader reader("sim-0");
    const Answer answer =
        told.at(10, "running", kTrain).at(30, "suspending", kTrain).at(40, end, kTrain).answer();
    reader.add(answer.root());
    const CardHistory card = reader.between(millis(0), millis(100));
    ASSERT_EQ(card.spans.size(), 2u) << end;
    EXPECT_EQ(card.spans[0].to, millis(40)) << end;
    EXPECT_EQ(card.spans[1].to, millis(40)) << end;
  }
}

TEST(CardHistory, IsReadPartByPartAndKnowsWhatItLost) {
  Told told;
  TraceReader reader("sim-0");
  told.skip(100);
  const Answer first = told.at(10, "running", kTrain).answer(100);
  reader.add(first.root());
  EXPECT_TRUE(reader.caughtUp());
  EXPECT_EQ(reader.since(), 101u);
  EXPECT_EQ(reader.between(millis(0), millis(50)).lost, 0u) << "nobody wanted these";
  EXPECT_EQ(reader.between(millis(0), millis(50)).from, millis(10)) << "as far as it reaches";
  told.skip(5);
  const Answer second = told.at(30, "suspended", kTrain).answer(5);
  reader.add(second.root());
  EXPECT_EQ(reader.between(millis(0), millis(50)).lost, 5u);
  EXPECT_EQ(reader.entries(), 2u);
}

TEST(CardHistory, AManagerThatWasStartedAnewIsReadFromItsBeginning) {
  Told old, fresh;
  TraceReader reader("sim-0");
  old.skip(500);
  const Answer before = old.at(10, "running", kTrain).answer();
  reader.add(before.root());
  const Answer after = fresh.at(20, "joined", kTrain).answer();
  reader.add(after.root());
  EXPECT_EQ(reader.since(), 1u);
  EXPECT_TRUE(reader.caughtUp());
}

TEST(CardHistory, EntriesOfANewerManagerAreLeftOut) {
  Told told;
  TraceReader reader("sim-0");
  const Answer answer = told.at(10, "teleported", kTrain).at(20, "running", kTrain).answer();
  reader.add(answer.root());
  EXPECT_EQ(reader.entries(), 1u);
  EXPECT_EQ(reader.since(), 2u);
}

// As one who looks on for a whole day does.
TEST(CardHistory, WhatGoesOnIsStillKnownWhenItsBeginningWasForgotten) {
  Told told;
  TraceReader reader("sim-0");
  const Answer first = hybrid(told).at(300, "memory-refused", kTrain).answer();
  reader.add(first.root());
  for (const int ms : {30, 70, 150, 250}) {
    const CardHistory before = reader.between(millis(ms), millis(400));
    reader.forget(millis(ms));
    const CardHistory after = reader.between(millis(ms), millis(400));
    ASSERT_EQ(after.spans.size(), before.spans.size()) << ms;
    for (std::size_t i = 0; i < after.spans.size(); ++i) {
      EXPECT_EQ(after.spans[i].from, before.spans[i].from) << ms;
      EXPECT_EQ(after.spans[i].to, before.spans[i].to) << ms;
      EXPECT_EQ(after.spans[i].task, before.spans[i].task) << ms;
    }
    EXPECT_EQ(after.from, millis(ms));
    EXPECT_EQ(after.tasks.count(kTrain), 1u);
  }
  EXPECT_EQ(reader.entries(), 1u);
  reader.forget(millis(500));
  EXPECT_EQ(reader.between(millis(500), millis(600)).refused.at(kTrain), 1u);
  const Answer left = told.at(700, "left", kTrain).answer();
  reader.add(left.root());
  reader.forget(millis(800));
  EXPECT_TRUE(reader.between(millis(800), millis(900)).refused.empty()) << "nothing of the dead";
  EXPECT_TRUE(reader.between(millis(800), millis(900)).spans.empty());
}

// --- Perfetto ---

std::vector<Json> eventsOf(const Json& trace, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST(TraceJson, HasCardsAsProcessesTasksAsThreadsAndSpansAsCompleteEvents) {
  const Json trace = Json::parse(traceJson({hybridHistory(), hybridHistory()}));
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  EXPECT_EQ(trace.at("otherData").at("clock"), "CLOCK_MONOTONIC");
  std::map<std::pair<int, int>, std::string> threads;
  std::set<int> processes, tids;
  for (const Json& event : eventsOf(trace, "M")) {
    const int pid = event.at("pid"), tid = event.at("tid");
    if (event.at("name") == "process_name") {
      EXPECT_EQ(event.at("args").at("name"), "sim-0");
      EXPECT_NE(pid, 0);
      processes.insert(pid);
    }
    if (event.at("name") != "thread_name") continue;
    EXPECT_NE(tid, 0);
    EXPECT_TRUE(tids.insert(tid).second) << "a number is one thread's alone";
    threads[{pid, tid}] = event.at("args").at("name");
  }
  EXPECT_EQ(processes.size(), 2u);
  EXPECT_EQ(threads.size(), 6u) << "of each card itself and two tasks";
  std::map<std::string, int> counts;
  for (const Json& event : eventsOf(trace, "X")) {
    const std::string& thread = threads.at({event.at("pid"), event.at("tid")});
    const std::string name = event.at("name");
    ++counts[name];
    EXPECT_GE(event.at("dur").get<std::int64_t>(), 0);
    EXPECT_EQ(event.at("cat"), name);
    if (name == "slice" || name == "hold" || name == "wait") {
      EXPECT_EQ(thread, "tr<ai>n (7, offline)");
    }
    if (name == "work") {
      EXPECT_EQ(thread, "serve (1, online)");
    }
    if (name == "online") {
      EXPECT_EQ(thread, "card");
    }
  }
  EXPECT_EQ(counts, (std::map<std::string, int>{
                        {"slice", 4}, {"hold", 2}, {"wait", 4}, {"work", 2}, {"online", 2}}));
  const auto moments = eventsOf(trace, "i");
  EXPECT_TRUE(std::any_of(moments.begin(), moments.end(),
                          [](const Json& event) { return event.at("name") == "memory-refused"; }));
}

// A viewer draws an arrow between the spans that enclose its two ends.
TEST(TraceJson, AFlowLeadsFromTheOnlineTasksWorkToTheHoldOfTheOther) {
  const Json trace = Json::parse(traceJson({hybridHistory()}));
  const auto starts = eventsOf(trace, "s"), ends = eventsOf(trace, "f");
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(starts[0].at("id"), ends[0].at("id"));
  EXPECT_EQ(starts[0].at("cat"), ends[0].at("cat"));
  EXPECT_EQ(starts[0].at("name"), ends[0].at("name"));
  EXPECT_EQ(ends[0].at("bp"), "e");
  EXPECT_EQ(ends[0].at("ts").get<int>() - starts[0].at("ts").get<int>(), 2000) << "microseconds";
  const auto encloses = [](const Json& span, const Json& point) {
    const std::int64_t from = span.at("ts"), at = point.at("ts");
    return span.at("tid") == point.at("tid") && from <= at &&
           at <= from + span.at("dur").get<std::int64_t>();
  };
  bool fromWork = false, toHold = false;
  for (const Json& span : eventsOf(trace, "X")) {
    fromWork = fromWork || (span.at("name") == "work" && encloses(span, starts[0]));
    toHold = toHold || (span.at("name") == "hold" && encloses(span, ends[0]));
  }
  EXPECT_TRUE(fromWork);
  EXPECT_TRUE(toHold);
}

TEST(TraceJson, NothingIsADocumentToo) {
  EXPECT_TRUE(Json::parse(traceJson({})).at("traceEvents").empty());
}

// --- pictures ---

std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return lines;
}

TEST(Timeline, FitsTheTerminalWithARowForEachTask) {
  for (const std::size_t columns : {60u, 80u, 133u}) {
    TimelineStyle style;
    style.columns = columns;
    style.blocks = columns != 60;
    const std::string picture = timelineText({hybridHistory()}, style);
    const auto lines = linesOf(picture);
    ASSERT_GE(lines.size(), 6u) << picture;
    for (const std::string& line : lines)
      EXPECT_LE(width(line), std::max<std::size_t>(columns, 80));
    EXPECT_EQ(lines[0], "sim-0: 0.4 s, 2 slices, 1 holds");
    EXPECT_EQ(lines[1], "  gates shut for online: 1, within 2 ms");
    EXPECT_EQ(width(lines[2]), columns) << lines[2];
    EXPECT_EQ(width(lines[3]), columns) << lines[3];
    EXPECT_NE(lines[2].find("serve"), std::string::npos);
    EXPECT_NE(lines[2].find("8%"), std::string::npos) << lines[2];
    EXPECT_NE(lines[3].find("66%"), std::string::npos) << lines[3];
    EXPECT_NE(lines[3].find('!'), std::string::npos) << "refused memory";
    EXPECT_NE(picture.find("tr<ai>n: memory-refused"), std::string::npos) << picture;
    EXPECT_EQ(picture.find('\x1b'), std::string::npos);
  }
}

TEST(Timeline, ALongNameOfACardIsCutToTheTerminal) {
  CardHistory card = hybridHistory();
  card.card = std::string(100, 'x');
  const auto lines = linesOf(timelineText({card}, {}));
  EXPECT_EQ(width(lines[0]), 80u) << lines[0];
  EXPECT_TRUE(lines[0].ends_with("x: 0.4 s, 2 slices, 1 holds")) << lines[0];
}

TEST(Timeline, ShowsWhenATaskHadTheCardAndWhenItWaited) {
  TimelineStyle style;
  Told told;
  TraceReader reader("sim-0");
  const Answer answer = told.at(1, "running", kTrain).at(200, "suspended", kTrain).answer();
  reader.add(answer.root());
  const auto lines = linesOf(timelineText({reader.between(millis(0), millis(400))}, style));
  const std::size_t open = lines[1].find('|'), shut = lines[1].rfind('|');
  const std::string cells = lines[1].substr(open + 1, shut - open - 1);
  EXPECT_EQ(cells[cells.size() / 4], '#');
  EXPECT_EQ(cells[cells.size() * 3 / 4], '_');
}

TEST(Timeline, IsColouredByClassWhereThatIsWanted) {
  TimelineStyle style;
  style.colours = true;
  const std::string picture = timelineText({hybridHistory()}, style);
  EXPECT_NE(picture.find("\x1b[34m"), std::string::npos);
  EXPECT_NE(picture.find("\x1b[32m"), std::string::npos);
}

TEST(Timeline, ACardOnWhichNothingHappenedSaysSo) {
  CardHistory idle;
  idle.card = "sim-1";
  idle.to = seconds(1);
  EXPECT_NE(timelineText({idle}, {}).find("nothing happened"), std::string::npos);
}

TEST(Timeline, TheSvgIsOneFileThatNeedsNothingElse) {
  const std::string svg = timelineSvg({hybridHistory(), hybridHistory()});
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(svg.find("tr&lt;ai&gt;n"), std::string::npos);
  EXPECT_EQ(svg.find("tr<ai>n"), std::string::npos);
  EXPECT_EQ(svg.find("href"), std::string::npos);
  EXPECT_NE(svg.find("class=\"offline\""), std::string::npos);
  EXPECT_NE(svg.find("class=\"hold\""), std::string::npos);
}

TEST(Timeline, SpansThatNobodyCanTellApartAreDrawnAsOne) {
  Told told;
  for (std::int64_t ms = 1; ms < 20'001; ms += 2) {
    told.at(ms, "running", kTrain).at(ms + 1, "idle", kTrain);
  }
  TraceReader reader("sim-0");
  const Answer answer = told.answer();
  reader.add(answer.root());
  EXPECT_LT(timelineSvg({reader.between(millis(0), seconds(20))}).size(), 400'000u);
}

// --- what is typed ---

TEST(TraceOptions, OfARecordAndATimeline) {
  const auto parsed = [](std::vector<std::string> argv) {
    auto result = parseOptions(std::move(argv));
    const auto* options = std::get_if<Options>(&result);
    return options == nullptr ? Options() : *options;
  };
  const Options record =
      parsed({"trace", "record", "--seconds", "2.5", "--card", "sim-0", "-o", "t.json"});
  EXPECT_EQ(record.action, Action::TraceRecord);
  EXPECT_EQ(record.trace.seconds, 2.5);
  EXPECT_EQ(record.trace.card, "sim-0");
  EXPECT_EQ(record.trace.file, "t.json");
  EXPECT_EQ(parsed({"trace", "record"}).trace.file, "trace.json");
  const Options timeline = parsed({"timeline", "--svg", "t.svg"});
  EXPECT_EQ(timeline.action, Action::Timeline);
  EXPECT_EQ(timeline.trace.svg, "t.svg");
  EXPECT_EQ(timeline.daemon, Daemon::Manager);
  EXPECT_EQ(parsed({"-o", "json", "timeline"}).output, Output::Json);
  EXPECT_EQ(lineOf(parsed({"trace", "list", "sim-0", "12"}).ask), "trace sim-0 12");
  const Options far = parsed({"--cluster", "trace", "list", "n-1/sim-0"});
  EXPECT_EQ(far.daemon, Daemon::Scheduler);
  EXPECT_EQ(lineOf(far.ask), "trace n-1/sim-0");
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"trace"},
                                                {"trace", "record", "--seconds", "0"},
                                                {"trace", "record", "--seconds", "601"},
                                                {"timeline", "--card", "a b"}}) {
    const auto result = parseOptions(wrong);
    const auto* exit = std::get_if<ExitNow>(&result);
    ASSERT_NE(exit, nullptr) << wrong.back();
    EXPECT_EQ(exit->code, 2) << wrong.back();
  }
}

}  // namespace
}  // namespace qgpu::ctl::trace_test
