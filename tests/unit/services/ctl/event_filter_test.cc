// Which events a person wants to see, and which task or card a name means.

#include "services/ctl/event_filter.h"

#include <gtest/gtest.h>

#include "services/ctl/answers/client.h"
#include "services/ctl/answers/names.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl::event_filter_test {
namespace {

const Answer kTasks(R"({"ok":true,"tasks":[{"id":7,"name":"train"},{"id":9,"name":"serve"},)"
                    R"({"id":11,"name":"serve"}]})");
const Answer kCards(R"({"ok":true,"cards":[{"id":"GPU-aa","index":0,"node":"n-1"},)"
                    R"({"id":"GPU-bb","index":1,"node":"n-1"}]})");

// What is shown of these, by number.
std::vector<std::uint64_t> shown(const EventOptions& options, std::vector<std::string> events,
                                 std::int64_t now = 1'000'000) {
  EventFilter filter(options, now);
  filter.learn(kTasks.root(), kCards.root());
  std::vector<std::uint64_t> seqs;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Answer event(R"({"seq":)" + std::to_string(i + 1) + "," + events[i] + "}");
    if (filter.shows(event.root())) seqs.push_back(i + 1);
  }
  return seqs;
}

EventOptions ofTask(const std::string& task) {
  EventOptions options;
  options.task = task;
  return options;
}
EventOptions ofCard(const std::string& card) {
  EventOptions options;
  options.card = card;
  return options;
}
EventOptions ofAge(Nanos age) {
  EventOptions options;
  options.age = age;
  return options;
}
EventOptions ofKinds(std::vector<std::string> kinds, const std::string& task = "") {
  EventOptions options = ofTask(task);
  options.kinds = std::move(kinds);
  return options;
}

using Seqs = std::vector<std::uint64_t>;

const std::vector<std::string> kStory = {
    R"("kind":"task-bound","task":3,"card":"GPU-aa","text":"train: ordinary","unix_ms":100000)",
    R"("kind":"task-ended","task":3,"card":"","text":"unbound","unix_ms":200000)",
    R"("kind":"task-bound","task":7,"card":"GPU-aa,GPU-bb","text":"train: x","unix_ms":300000)",
    R"("kind":"task-bound","task":8,"card":"GPU-bb","text":"trainer: x","unix_ms":990000)",
    R"("kind":"card-cordoned","task":0,"card":"GPU-bb","text":"","actor":"uid 0","unix_ms":999999)",
};

TEST(EventFilter, ShowsAllWhereNothingIsAsked) {
  EXPECT_EQ(shown({}, kStory).size(), 5u);
}

TEST(EventFilter, SaysWhichNameNobodyHas) {
  const auto unknown = [](const EventOptions& options) {
    EventFilter filter(options, 0);
    EXPECT_EQ(filter.unknown(), "") << "before anything is listed";
    filter.learn(kTasks.root(), kCards.root());
    for (const std::string& event : kStory) filter.shows(Answer("{" + event + "}").root());
    return filter.unknown();
  };
  EXPECT_EQ(unknown({}), "");
  EXPECT_EQ(unknown(ofTask("srve")), "no task \"srve\" is known lately: did you mean serve?");
  EXPECT_EQ(unknown(ofTask("99")), "no task \"99\" is known lately");
  for (const char* known : {"serve", "trainer", "3", "9"}) EXPECT_EQ(unknown(ofTask(known)), "");
  EXPECT_EQ(unknown(ofCard("n-2")), "no card \"n-2\" is known lately: did you mean n-1?");
  for (const char* known : {"n-1", "n-1/0", "GPU-bb", "1"}) EXPECT_EQ(unknown(ofCard(known)), "");
}

TEST(EventFilter, KnowsATaskByItsNumberAndAllThatHadItsName) {
  EXPECT_EQ(shown(ofTask("3"), kStory), (Seqs{1, 2}));
  EXPECT_EQ(shown(ofTask("train"), kStory), (Seqs{1, 2, 3}));
  EXPECT_EQ(shown(ofTask("nobody"), kStory), Seqs{});
  // Of a cluster a task is submitted, and one that was adopted is known by the list alone.
  EXPECT_EQ(shown(ofTask("serve"),
                  {R"("kind":"task-submitted","task":2,"text":"serve: online")",
                   R"("kind":"task-adopted","task":9)", R"("kind":"task-waits","task":2)"}),
            (Seqs{1, 2, 3}));
}

TEST(EventFilter, KnowsACardByAnyOfItsNames) {
  for (const char* name : {"GPU-bb", "gpu-1", "1", "n-1/gpu-1", "n-1/GPU-bb"}) {
    const Seqs expected = std::string(name).starts_with("n-") ? Seqs{} : Seqs{3, 4, 5};
    EXPECT_EQ(shown(ofCard(name), kStory), expected) << name;
    EXPECT_EQ(shown(ofCard(name), {R"("kind":"cordoned","card":"n-1/GPU-bb")",
                                   R"("kind":"cordoned","card":"n-1/GPU-aa")"}),
              Seqs{1})
        << name;
  }
  EXPECT_EQ(shown(ofCard("n-1"), {R"("kind":"cordoned","card":"n-1/GPU-bb")",
                                  R"("kind":"node-joined","card":"n-1")",
                                  R"("kind":"node-joined","card":"n-10")"}),
            (Seqs{1, 2}));
}

TEST(EventFilter, TakesKindsAgeAndWhoAskedTogether) {
  EXPECT_EQ(shown(ofKinds({"task-ended", "card-cordoned"}), kStory), (Seqs{2, 5}));
  EXPECT_EQ(shown(ofAge(seconds(700)), kStory), (Seqs{3, 4, 5}));
  EXPECT_EQ(shown(ofAge(seconds(1)), kStory), Seqs{5});
  EXPECT_EQ(shown(ofAge(seconds(24 * 3600)), kStory).size(), 5u) << "no time before 1970";
  EventOptions audit;
  audit.changes = true;
  EXPECT_EQ(shown(audit, kStory), Seqs{5});
  EXPECT_EQ(shown(ofKinds({"task-ended"}, "train"), kStory), Seqs{2})
      << "a name is learnt from what is not shown";
}

TEST(Names, ATaskIsCalledByANameThatFitsItAlone) {
  EXPECT_EQ(*taskNamed("train", kTasks.root()), 7u);
  EXPECT_EQ(taskNamed("nobody", kTasks.root()).error().code, ErrorCode::NotFound);
  const auto several = taskNamed("serve", kTasks.root());
  EXPECT_EQ(several.error().code, ErrorCode::Conflict);
  EXPECT_EQ(several.error().message,
            "2 tasks are called \"serve\": say which by its number, of 9, 11");
  std::string many = R"({"ok":true,"tasks":[)";
  for (int i = 1; i <= 30; ++i) {
    many += (i == 1 ? "" : ",") + (R"({"name":"a","id":)" + std::to_string(i) + "}");
  }
  const auto thirty = taskNamed("a", Answer(many + "]}").root());
  EXPECT_TRUE(thirty.error().message.ends_with("of 1, 2, 3, 4, 5, 6, 7, 8, ..."))
      << thirty.error().message;
}

TEST(Names, ACardIsShortWhereItIsKnown) {
  const CardNames names(kCards.root());
  EXPECT_EQ(names.shortOf("n-1", "GPU-bb"), "gpu-1");
  EXPECT_EQ(names.shortOf("n-1", "GPU-aa,GPU-bb,GPU-cc"), "gpu-0,gpu-1,GPU-cc");
  EXPECT_EQ(names.shortOf("n-2", "GPU-aa"), "GPU-aa");
  EXPECT_EQ(names.shortOf("n-1", ""), "");
  EXPECT_EQ(CardNames().shortOf("n-1", "GPU-aa"), "GPU-aa");
}

}  // namespace
}  // namespace qgpu::ctl::event_filter_test
