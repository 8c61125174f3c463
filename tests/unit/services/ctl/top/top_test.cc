// The screen of `qgpuctl top`: what it knows, its keys, and its picture at several sizes.

#include <algorithm>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "services/ctl/answers/table.h"
#include "services/ctl/top/keys.h"
#include "services/ctl/top/top_model.h"
#include "services/ctl/top/top_picture.h"

namespace qgpu::ctl::top_test {
namespace {

using Json = nlohmann::json;
using Kind = Key::Kind;

// A node or a cluster as it answers; times in milliseconds.
struct World {
  Json status = {{"ok", true}, {"node", "here"}, {"uptime_ns", 5'000'000'000}, {"storage", "ok"}};
  Json cards = Json::array(), tasks = Json::array();
  std::vector<CardHistory> histories;

  Json& card(const std::string& id, int index = 0) {
    cards.push_back({{"id", id},
                     {"index", index},
                     {"node", "here"},
                     {"state", "ready"},
                     {"policy", "best-effort"},
                     {"kind", "ordinary"},
                     {"mem_bytes", 16ULL << 30U},
                     {"mem_bound_bytes", 3ULL << 29U},
                     {"used_ns", 0},
                     {"online_ns", 0}});
    return cards.back();
  }
  Json& task(std::uint64_t id, const std::string& name, const std::string& on) {
    tasks.push_back({{"id", id},
                     {"name", name},
                     {"class", "ordinary"},
                     {"node", "here"},
                     {"card", on},
                     {"state", "running"},
                     {"share_permille", 300},
                     {"mem_bytes", 2ULL << 30U},
                     {"mem_used_bytes", 512ULL << 20U},
                     {"used_ns", 0},
                     {"held_ns", 0},
                     {"launches", 0},
                     {"processes", 1}});
    return tasks.back();
  }
  void look(TopModel& model, int ms) const {
    model.take(Answer(status.dump()), Answer(Json{{"ok", true}, {"cards", cards}}.dump()),
               Answer(Json{{"ok", true}, {"tasks", tasks}}.dump()), histories, millis(ms));
  }
};

constexpr const char* kCard = "GPU-5f0c0000-1111-2222-3333-444444444444";

// One card; train had it for the last second of two, and serve for some of it.
World busy() {
  World world;
  world.card(kCard);
  world.task(7, "train", kCard);
  world.task(9, "serve", kCard)["class"] = "online";
  CardHistory history;
  history.card = kCard;
  history.to = seconds(10);
  history.spans = {{Span::Kind::Slice, 7, seconds(5), seconds(10)}};
  history.refused[7] = 3;
  world.histories.push_back(history);
  return world;
}

World crowd(int cards, int tasks) {
  World world;
  for (int i = 0; i < cards; ++i) world.card("sim-" + std::to_string(i), i);
  for (int i = 1; i <= tasks; ++i) {
    world.task(static_cast<std::uint64_t>(i), "task-with-a-long-name-" + std::to_string(i),
               "sim-" + std::to_string(i % cards))["used_ns"] = i * 1'000'000;
  }
  return world;
}

TopModel modelOf(const World& world) {
  TopModel model;
  world.look(model, 1000);
  return model;
}

std::vector<std::string> drawn(const TopModel& model, std::size_t columns, std::size_t rows) {
  std::vector<std::string> lines;
  for (const Line& line : topPicture(model, {columns, rows, true, false})) {
    lines.push_back(plainText(line));
  }
  return lines;
}
std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}
void press(TopModel& model, std::string_view text) {
  for (const char c : text) EXPECT_TRUE(model.press({Kind::Text, std::string(1, c)}));
}
std::vector<std::uint64_t> order(const TopModel& model) {
  std::vector<std::uint64_t> ids;
  for (const TopTask* task : model.shown()) ids.push_back(task->id);
  return ids;
}

using Ids = std::vector<std::uint64_t>;

// --- keys ---

TEST(TopKeys, ArrowsComeInEitherFormAndInParts) {
  KeyReader reader;
  EXPECT_EQ(reader.read("\x1b[A\x1bOB"), (std::vector<Key>{{Kind::Up}, {Kind::Down}}));
  EXPECT_TRUE(reader.read("\x1b").empty());
  EXPECT_TRUE(reader.waits());
  EXPECT_EQ(reader.read("[6~"), (std::vector<Key>{{Kind::PageDown}}));
  EXPECT_FALSE(reader.waits());
}

TEST(TopKeys, AnEscapeAloneIsOneWhenNothingFollows) {
  KeyReader reader;
  EXPECT_TRUE(reader.read("\x1b").empty());
  EXPECT_EQ(reader.end(), (std::vector<Key>{{Kind::Escape}}));
  EXPECT_TRUE(reader.end().empty());
  EXPECT_EQ(reader.read("\x1bq"), (std::vector<Key>{{Kind::Escape}, {Kind::Text, "q"}}));
}

TEST(TopKeys, CharactersAreWholeAndWhatMeansNothingIsPassedOver) {
  KeyReader reader;
  EXPECT_TRUE(reader.read("\xc3").empty());
  EXPECT_EQ(reader.read("\xa9\r\x7f"),
            (std::vector<Key>{{Kind::Text, "é"}, {Kind::Enter}, {Kind::Erase}}));
  EXPECT_TRUE(reader.read("\x1b[15~\x1b[1;5C\x01\xff").empty());
  EXPECT_TRUE(reader.read("\x1b[" + std::string(100, '1')).empty());
  EXPECT_FALSE(reader.waits()) << "no terminal has sequences as long as this";
}

// --- what it knows ---

TEST(TopModel, CountersOfTwoLooksBecomeRates) {
  World world = busy();
  TopModel model;
  world.look(model, 1000);
  EXPECT_FALSE(model.tasks()[0].gotPermille.has_value());
  world.tasks[0]["used_ns"] = 500'000'000;
  world.tasks[0]["held_ns"] = 250'000'000;
  world.tasks[0]["launches"] = 1200;
  world.tasks[1]["gpu_ns"] = 20'000'000;
  world.cards[0]["used_ns"] = 900'000'000;
  world.look(model, 3000);
  EXPECT_EQ(model.tasks()[0].gotPermille, 250u);
  EXPECT_EQ(model.tasks()[0].heldPermille, 125u);
  EXPECT_EQ(model.tasks()[0].work, 1200u);
  EXPECT_EQ(model.tasks()[0].refused, 3u);
  EXPECT_EQ(model.tasks()[1].gotPermille, 10u) << "it takes no slices: its kernels show";
  EXPECT_EQ(model.cards()[0].usedPermille, 450u);
  EXPECT_EQ(model.cards()[0].name, "gpu-0");
}

TEST(TopModel, ATaskOfTheSameNumberThatBeginsAnewHasNoNegativeRate) {
  World world = busy();
  world.tasks[0]["used_ns"] = 900'000'000;
  TopModel model = modelOf(world);
  world.tasks[0]["used_ns"] = 100'000'000;
  world.look(model, 2000);
  EXPECT_EQ(model.tasks()[0].gotPermille, 0u);
}

// Its nodes report every ten seconds.
TEST(TopModel, InAClusterARateStaysUntilTheNextReport) {
  World world = busy();
  world.status = {{"ok", true}, {"role", "scheduler"}};
  TopModel model = modelOf(world);
  world.tasks[0]["used_ns"] = 5'000'000'000;
  for (const int ms : {2000, 3000, 11'000}) {
    world.look(model, ms);
    EXPECT_EQ(model.tasks()[0].gotPermille, 500u) << ms;
  }
  world.look(model, 30'000);
  EXPECT_EQ(model.tasks()[0].gotPermille, 0u) << "overdue";
}

// --- sorting, filtering, picking ---

TEST(TopModel, SIsTheNextColumnAndRTheOtherWayRound) {
  World world = busy();
  TopModel model = modelOf(world);
  world.tasks[1]["gpu_ns"] = 900'000'000;
  world.look(model, 2000);
  EXPECT_EQ(order(model), (Ids{7, 9}));
  press(model, "s");
  EXPECT_EQ(model.sort(), TopSort::Name);
  EXPECT_EQ(order(model), (Ids{9, 7}));
  press(model, "r");
  EXPECT_EQ(order(model), (Ids{7, 9}));
  press(model, "rsss");
  EXPECT_EQ(model.sort(), TopSort::Got);
  EXPECT_EQ(order(model), (Ids{9, 7})) << "the largest first";
  press(model, "SSSSS");
  EXPECT_EQ(model.sort(), TopSort::Refused);
}

TEST(TopModel, AFilterLooksAtAllThatATaskIsCalledBy) {
  TopModel model = modelOf(busy());
  press(model, "/TRAI");
  EXPECT_EQ(order(model), (Ids{7})) << "while it is typed";
  press(model, "q");
  EXPECT_TRUE(order(model).empty()) << "a letter of it";
  EXPECT_TRUE(model.press({Kind::Erase}));
  EXPECT_TRUE(model.press({Kind::Enter}));
  EXPECT_EQ(model.mode(), TopMode::List);
  EXPECT_EQ(order(model), (Ids{7}));
  EXPECT_TRUE(model.press({Kind::Escape}));
  EXPECT_EQ(order(model), (Ids{7, 9}));
  press(model, "/online");
  EXPECT_EQ(order(model), (Ids{9}));
  EXPECT_TRUE(model.press({Kind::Escape}));
  press(model, "/gpu-0");
  EXPECT_EQ(order(model), (Ids{7, 9}));
  press(model, std::string(2 * TopModel::kFilterMax, 'x'));
  EXPECT_EQ(model.filter().size(), TopModel::kFilterMax);
}

TEST(TopModel, ArrowsPickATaskAndEnterExplainsIt) {
  World world = busy();
  TopModel model = modelOf(world);
  EXPECT_EQ(model.picked(), nullptr);
  EXPECT_TRUE(model.press({Kind::Down}));
  EXPECT_EQ(model.picked()->id, 7u);
  EXPECT_TRUE(model.press({Kind::Down}));
  EXPECT_TRUE(model.press({Kind::Down}));
  EXPECT_EQ(model.picked()->id, 9u) << "the last one";
  EXPECT_FALSE(model.explaining().has_value());
  EXPECT_TRUE(model.press({Kind::Enter}));
  EXPECT_EQ(model.explaining(), 9u);
  model.explain("why");
  EXPECT_TRUE(model.press({Kind::Up}));
  EXPECT_EQ(model.explaining(), 7u);
  EXPECT_EQ(model.explanation(), "") << "that was another's";
  world.tasks.erase(0);
  world.look(model, 2000);
  EXPECT_EQ(model.picked()->id, 9u) << "in the row of the one that is gone";
  EXPECT_TRUE(model.press({Kind::Escape}));
  EXPECT_EQ(model.mode(), TopMode::List);
  world.tasks.clear();
  world.look(model, 3000);
  EXPECT_EQ(model.picked(), nullptr);
  EXPECT_TRUE(model.press({Kind::Enter}));
  EXPECT_EQ(model.mode(), TopMode::List) << "there is none";
}

TEST(TopModel, QLeavesFromAnywhereButTheFilter) {
  TopModel model = modelOf(busy());
  const Key q{Kind::Text, "q"};
  EXPECT_FALSE(model.press(q));
  press(model, "?");
  EXPECT_FALSE(model.press(q));
  EXPECT_TRUE(model.press({Kind::Enter}));
  EXPECT_FALSE(model.press(q)) << "of an explanation";
}

// --- the picture ---

TEST(TopPicture, AtEachSizeNoLineIsWiderAndNoneIsLacking) {
  for (const auto& [cards, tasks] : {std::pair{0, 0}, {1, 2}, {3, 40}, {100, 3}, {60, 200}}) {
    World world = cards == 0 ? World() : crowd(cards, tasks);
    TopModel model = modelOf(world);
    world.look(model, 2000);
    for (const auto& [columns, rows] :
         {std::pair<std::size_t, std::size_t>{80, 24}, {60, 10}, {200, 50}, {40, 5}, {80, 1}}) {
      for (const char* keys : {"", "/long", "?"}) {
        TopModel shown = model;
        press(shown, keys);
        const auto lines = drawn(shown, columns, rows);
        EXPECT_EQ(lines.size(), rows);
        for (const std::string& line : lines) {
          EXPECT_LE(width(line), columns) << joined(lines);
        }
      }
    }
  }
}

TEST(TopPicture, At80ColumnsATaskHasAllFiguresAndATimeline) {
  World world = busy();
  TopModel model = modelOf(world);
  world.tasks[0]["used_ns"] = 330'000'000;
  world.tasks[0]["held_ns"] = 660'000'000;
  world.tasks[0]["launches"] = 42;
  world.cards[0]["used_ns"] = 330'000'000;
  world.look(model, 2000);
  const auto lines = drawn(model, 80, 24);
  const std::string all = joined(lines);
  EXPECT_TRUE(lines[0].starts_with("here  1 card  2 tasks  up 5 s")) << all;
  EXPECT_TRUE(lines[0].ends_with("by task")) << all;
  EXPECT_TRUE(lines[3].starts_with(" gpu-0  ready     33%")) << all;
  for (const char* column : {"WANT", "GOT", "HELD", "WORK", "MEMORY", "REF", "-10 s", "now"}) {
    EXPECT_NE(lines[5].find(column), std::string::npos) << column << "\n" << all;
  }
  EXPECT_NE(lines[6].find(" 30%  33%  66%    42   512M/2G   3 "), std::string::npos) << all;
  EXPECT_TRUE(lines[6].ends_with("██████")) << all;
  EXPECT_NE(lines[6].find("   3          "), std::string::npos) << "half is blank\n" << all;
  EXPECT_NE(lines[7].find("serve"), std::string::npos) << all;
  EXPECT_NE(lines[23].find("? help"), std::string::npos) << all;
}

TEST(TopPicture, ANarrowScreenKeepsWhatMattersMost) {
  const auto lines = drawn(modelOf(crowd(2, 3)), 60, 10);
  const std::string all = joined(lines);
  for (const char* column : {"TASK", "NAME", "CARD", "WANT", "GOT"}) {
    EXPECT_NE(lines[6].find(column), std::string::npos) << column << "\n" << all;
  }
  EXPECT_EQ(lines[6].find("PROCS"), std::string::npos) << all;
  EXPECT_NE(lines[7].find("task-with-a…"), std::string::npos) << all;
}

TEST(TopPicture, AWideScreenHasEveryColumn) {
  const auto lines = drawn(modelOf(crowd(2, 3)), 200, 50);
  for (const char* column : {"CLASS", "STATE", "PROCS"}) {
    EXPECT_NE(lines[6].find(column), std::string::npos) << joined(lines);
  }
  EXPECT_NE(lines[2].find("MODEL"), std::string::npos) << joined(lines);
  EXPECT_NE(lines[7].find("task-with-a-long-name-1"), std::string::npos) << joined(lines);
}

TEST(TopPicture, TheRowThatIsPickedIsAlwaysThere) {
  TopModel model = modelOf(crowd(30, 200));
  for (int i = 0; i < 150; ++i) EXPECT_TRUE(model.press({Kind::Down}));
  const auto lines = drawn(model, 80, 24);
  const auto row = std::find_if(lines.begin(), lines.end(),
                                [](const std::string& line) { return line.starts_with(">"); });
  ASSERT_NE(row, lines.end()) << joined(lines);
  EXPECT_TRUE(row->starts_with("> 150 ")) << joined(lines);
  EXPECT_NE(joined(lines).find(" more tasks"), std::string::npos);
  EXPECT_NE(joined(lines).find(" more cards"), std::string::npos);
}

TEST(TopPicture, ACardsIdIsWholeWhereThatIsAskedFor) {
  const TopModel model = modelOf(busy());
  EXPECT_EQ(joined(drawn(model, 80, 24)).find(kCard), std::string::npos);
  std::string text;
  for (const Line& line : topPicture(model, {.columns = 200, .wide = true})) {
    text += plainText(line) + "\n";
  }
  const std::size_t first = text.find(kCard);
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_NE(text.find(kCard, first + 1), std::string::npos) << "of its tasks too\n" << text;
  EXPECT_EQ(text.find("? help"), std::string::npos) << "there are no keys\n" << text;
}

TEST(TopPicture, OfAClusterNodesAndReasonsToWaitAreShown) {
  World world = busy();
  world.status = {{"ok", true}, {"role", "scheduler"}, {"nodes", 1},
                  {"alive", 1}, {"waiting", 1},        {"uptime_ns", 1'000'000'000}};
  world.histories.clear();
  Json& waiting = world.task(12, "later", "");
  waiting["node"] = "";
  waiting["reason"] = "no room";
  TopModel model = modelOf(world);
  world.tasks[0]["used_ns"] = 10'000'000'000;
  world.look(model, 2000);
  const auto lines = drawn(model, 120, 20);
  const std::string all = joined(lines);
  EXPECT_TRUE(lines[0].starts_with("scheduler  1 node, 1 alive  1 card  3 tasks, 1 of them wait"));
  EXPECT_NE(lines[2].find("NODE"), std::string::npos) << all;
  EXPECT_NE(lines[5].find("NODE"), std::string::npos) << all;
  EXPECT_EQ(lines[5].find("REF"), std::string::npos) << "a scheduler doesn't know\n" << all;
  EXPECT_TRUE(lines[6].ends_with("█")) << all;
  EXPECT_TRUE(lines[8].ends_with("no room")) << all;
}

TEST(TopPicture, AnExplanationIsWrappedBelowItsTask) {
  TopModel model = modelOf(busy());
  EXPECT_TRUE(model.press({Kind::Enter}));
  std::string words = "  it";
  for (int i = 0; i < 30; ++i) words += " waits-" + std::to_string(i);
  model.explain("task 7\n" + words + "\n");
  const auto lines = drawn(model, 60, 24);
  const std::string all = joined(lines);
  EXPECT_NE(all.find("\ntask 7\n  it waits-0 "), std::string::npos) << all;
  EXPECT_NE(all.find("\n    waits-"), std::string::npos) << all;
  EXPECT_NE(all.find("waits-29\n"), std::string::npos) << all;
  EXPECT_NE(all.find("Esc back"), std::string::npos) << all;
  EXPECT_EQ(all.find("serve"), std::string::npos) << all;
  for (const std::string& line : lines) EXPECT_LE(width(line), 60u) << line;
}

TEST(TopPicture, ALostDaemonIsSaidAndTheLastFiguresStay) {
  TopModel model = modelOf(busy());
  model.lose("no daemon answers at /run/x (Connection refused)");
  const auto lines = drawn(model, 80, 24);
  EXPECT_EQ(lines[1], "looking again: no daemon answers at /run/x (Connection refused)");
  EXPECT_NE(joined(lines).find("train"), std::string::npos);
}

TEST(TopPicture, ColoursAreOfTheClassAndEnd) {
  const TopModel model = modelOf(busy());
  std::string text;
  for (const Line& line : topPicture(model, {80, 24, true, false})) text += colouredText(line);
  EXPECT_NE(text.find("\x1b[36m"), std::string::npos);
  EXPECT_NE(text.find("\x1b[32m"), std::string::npos);
  EXPECT_NE(text.find("\x1b[31m  3"), std::string::npos) << "refused memory";
  EXPECT_TRUE(text.ends_with("\x1b[0m"));
}

}  // namespace
}  // namespace qgpu::ctl::top_test
