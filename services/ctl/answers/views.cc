#include "services/ctl/answers/views.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <time.h>

#include "actors/ledger/card_name.h"
#include "services/base/wall_time.h"
#include "services/ctl/answers/table.h"

namespace qgpu::ctl {
namespace {

std::string ofTotal(std::uint64_t part, std::uint64_t total) {
  return humanBytes(part) + " / " + humanBytes(total);
}

std::string line(const char* name, const std::string& value) {
  char padded[24];
  std::snprintf(padded, sizeof padded, "%-12s", name);
  return padded + printable(value) + "\n";
}

std::string clusterStatusView(Value root) {
  std::string out = line("scheduler", "pid " + std::to_string(numberOf(root, "pid")) + ", term " +
                                          std::to_string(numberOf(root, "term")) + ", up " +
                                          humanTime(numberOf(root, "uptime_ns")));
  out += line("version", textOf(root, "version"));
  out += line("nodes", std::to_string(numberOf(root, "nodes")) + ", " +
                           std::to_string(numberOf(root, "alive")) + " alive");
  out += line("cards", std::to_string(numberOf(root, "cards")));
  out += line("tasks", std::to_string(numberOf(root, "tasks")) + ", " +
                           std::to_string(numberOf(root, "waiting")) + " of them wait");
  for (const Value pending : listOf(root, "pending")) {
    out += line("waiting", std::to_string(numberOf(pending, "tasks")) + " " +
                               textOf(pending, "class") + ": " + textOf(pending, "reason"));
  }
  out += line("priority", textOf(root, "priority"));
  out += line("storage", textOf(root, "storage"));
  return out;
}

std::string statusView(Value root) {
  std::string out = line("node", textOf(root, "node"));
  out += line("version", textOf(root, "version"));
  out += line("manager", "pid " + std::to_string(numberOf(root, "pid")) + ", incarnation " +
                             std::to_string(numberOf(root, "incarnation")) + ", up " +
                             humanTime(numberOf(root, "uptime_ns")));
  out += line("cards", std::to_string(numberOf(root, "cards")));
  out += line("tasks", std::to_string(numberOf(root, "tasks")));
  out += line("policy", textOf(root, "policy"));
  out += line("mixed", flagOf(root, "mixed") ? "yes: online and offline tasks" : "no");
  out += line("slice", humanTime(numberOf(root, "slice_min_ns")) + " to " +
                           humanTime(numberOf(root, "slice_max_ns")));
  out += line("online idle", humanTime(numberOf(root, "online_idle_ns")));
  out += line("real-time", textOf(root, "realtime"));
  out += line("storage", textOf(root, "storage"));
  out += line("cluster", textOf(root, "cluster"));
  return out;
}

// By name and number, as a person counts: node-2 before node-10.
bool comesBefore(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  while (!a.empty() && !b.empty()) {
    if (digit(a.front()) && digit(b.front())) {
      const auto number = [&](std::string_view& text) {
        const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
        const std::string_view digits = text.substr(0, end);
        text.remove_prefix(end);
        return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
      };
      const std::string_view first = number(a);
      const std::string_view second = number(b);
      if (first.size() != second.size()) return first.size() < second.size();
      if (first != second) return first < second;
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

// A list in the order of one of its texts; else as the daemon told it.
std::vector<Value> sortedList(Value root, std::string_view list, std::string_view key) {
  std::vector<Value> all = listOf(root, list);
  std::stable_sort(all.begin(), all.end(),
                   [key](Value a, Value b) { return comesBefore(textOf(a, key), textOf(b, key)); });
  return all;
}

// True for the cards of more than one node, which need a column for it.
bool severalNodes(Value root, std::string_view list) {
  std::string first;
  for (const Value item : listOf(root, list)) {
    const std::string node = textOf(item, "node");
    if (first.empty()) first = node;
    if (node != first) return true;
  }
  return false;
}

std::string nameOf(Value card, const Style& style) {
  const std::string id = textOf(card, "id");
  const auto index = static_cast<std::uint32_t>(numberOf(card, "index"));
  return style.wide ? id : shortCardName(id, index);
}

// Where a task or an event is, by the names of its cards.
std::string placeOf(const Style& style, const std::string& node, const std::string& ids) {
  return style.wide ? ids : style.cards.shortOf(node, ids);
}

// A table's columns and cells, of which only a wide one has those after `plain`.
class Columns {
 public:
  Columns(const Style& style, std::vector<Table::Column> plain, std::vector<Table::Column> wide)
      : plain_(plain.size()), wide_(style.wide), table_(joined(std::move(plain), wide, style)) {}

  void add(std::vector<std::string> cells) {
    if (!wide_) cells.resize(plain_);
    table_.add(std::move(cells));
  }
  std::string text() const { return table_.text(); }

 private:
  static std::vector<Table::Column> joined(std::vector<Table::Column> plain,
                                           const std::vector<Table::Column>& wide,
                                           const Style& style) {
    if (style.wide) plain.insert(plain.end(), wide.begin(), wide.end());
    return plain;
  }

  std::size_t plain_;
  bool wide_;
  Table table_;
};

// Below the cards: what a person may want to know of how they are shared. Cards of which the same
// is said share a line; many of them are a number.
std::string cardNotes(Value root, bool several, const Style& style) {
  constexpr std::size_t kNamed = 4;
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;
  const std::vector<Value> all = sortedList(root, "cards", "node");
  for (const Value card : all) {
    const std::string name = (several ? textOf(card, "node") + "/" : "") + nameOf(card, style);
    const std::string why = textOf(card, "suspend_why");
    const std::string memory = textOf(card, "memory_counted");
    const auto say = [&](const std::string& words) {
      auto said = std::find_if(notes.begin(), notes.end(),
                               [&](const auto& note) { return note.first == words; });
      if (said == notes.end()) said = notes.insert(said, {words, {}});
      said->second.push_back(name);
    };
    if (!why.empty()) say(textOf(card, "suspend") + ": " + why);
    if (!memory.empty()) say("memory counts " + memory);
  }
  std::string out;
  for (const auto& [words, cards] : notes) {
    std::string whose = std::to_string(cards.size()) + " cards";
    if (cards.size() > 1 && cards.size() == all.size()) {
      whose = "all cards";
    } else if (cards.size() <= kNamed) {
      whose.clear();
      for (const std::string& card : cards) whose += (whose.empty() ? "" : ", ") + card;
    }
    out += printable(whose + ": " + words) + "\n";
  }
  return out;
}

std::string cardsView(Value root, const Style& style) {
  const bool several = severalNodes(root, "cards");
  Columns table(style,
                {{"CARD"},
                 {"MODEL"},
                 {"STATE"},
                 {"POLICY"},
                 {"KIND"},
                 {"SUSPEND"},
                 {"TASKS", Align::Right},
                 {"MEMORY", Align::Right},
                 {"SHARE", Align::Right},
                 {"GREEDY", Align::Right},
                 {"PREEMPT P99", Align::Right}},
                {{"SHORT"},
                 {"ISOLATION"},
                 {"BACKEND"},
                 {"HOLDER", Align::Right},
                 {"HOLDS", Align::Right},
                 {"OVERRUNS", Align::Right}});
  for (const Value card : sortedList(root, "cards", "node")) {
    const Value preempt = card["preempt_us"];
    std::string p99;
    if (numberOf(preempt, "n") > 0) {
      p99 = humanTime(numberOf(preempt, "p99") * 1000);
    }
    const std::string node = several ? textOf(card, "node") + "/" : "";
    const std::uint64_t holder = numberOf(card, "holder");
    table.add({node + nameOf(card, style), textOf(card, "model"), textOf(card, "state"),
               textOf(card, "policy"), textOf(card, "kind"), textOf(card, "suspend"),
               std::to_string(numberOf(card, "tasks")),
               ofTotal(numberOf(card, "mem_bound_bytes"), numberOf(card, "mem_bytes")),
               humanPermille(numberOf(card, "share_bound_permille")),
               humanPermille(numberOf(card, "greedy_bound_permille")), p99, nameOf(card, {}),
               textOf(card, "isolation"), textOf(card, "backend"),
               holder == 0 ? "" : std::to_string(holder), humanCount(numberOf(card, "holds")),
               humanCount(numberOf(card, "overruns"))});
  }
  return table.text() + cardNotes(root, several, style);
}

std::string stateOf(Value task) {
  std::string state = textOf(task, "state");
  if (flagOf(task, "quarantined")) state += ", quarantined";
  if (flagOf(task, "evicting")) state += ", evicting";
  return state;
}

std::string tasksView(Value root, const Style& style) {
  Columns table(style,
                {{"TASK", Align::Right},
                 {"NAME"},
                 {"CLASS"},
                 {"CARD"},
                 {"STATE"},
                 {"SHARE", Align::Right},
                 {"MEMORY", Align::Right},
                 {"PROCS", Align::Right},
                 {"USED", Align::Right},
                 {"HELD", Align::Right},
                 {"SLICES", Align::Right},
                 {"LAUNCHES", Align::Right},
                 {"NOTE"}},
                {{"PEAK", Align::Right},
                 {"OVERRUN", Align::Right},
                 {"UID", Align::Right},
                 {"PID", Align::Right}});
  for (const Value task : listOf(root, "tasks")) {
    const std::uint64_t pid = numberOf(task, "owner_pid");
    table.add({std::to_string(numberOf(task, "id")), textOf(task, "name"), textOf(task, "class"),
               placeOf(style, textOf(task, "node"), textOf(task, "card")), stateOf(task),
               humanPermille(numberOf(task, "share_permille")),
               ofTotal(memoryUsed(task), numberOf(task, "mem_bytes")),
               std::to_string(numberOf(task, "processes")), humanTime(numberOf(task, "used_ns")),
               humanTime(numberOf(task, "held_ns")), humanCount(numberOf(task, "turns")),
               humanCount(numberOf(task, "launches")), textOf(task, "note"),
               humanBytes(numberOf(task, "mem_peak_bytes")),
               humanTime(numberOf(task, "overrun_ns")), std::to_string(numberOf(task, "owner_uid")),
               pid == 0 ? "" : std::to_string(pid)});
  }
  return table.text();
}

// What a task may use of its cards; one with whole cards has all their memory.
std::string shareOf(Value task) {
  const std::uint64_t cards = numberOf(task, "cards");
  return humanPermille(numberOf(task, "share_permille") * (isWhole(task) && cards > 1 ? cards : 1));
}
std::string memoryOf(Value task) {
  const std::uint64_t used = memoryUsed(task);
  return isWhole(task) ? humanBytes(used) + " / all" : ofTotal(used, numberOf(task, "mem_bytes"));
}

std::string clusterTasksView(Value root, const Style& style) {
  Columns table(style,
                {{"TASK", Align::Right},
                 {"NAME"},
                 {"CLASS"},
                 {"NODE"},
                 {"CARD"},
                 {"STATE"},
                 {"SHARE", Align::Right},
                 {"MEMORY", Align::Right},
                 {"PROCS", Align::Right},
                 {"USED", Align::Right},
                 {"REASON"}},
                {{"HELD", Align::Right},
                 {"SLICES", Align::Right},
                 {"LAUNCHES", Align::Right},
                 {"UID", Align::Right},
                 {"APPLICATION"}});
  for (const Value task : listOf(root, "tasks")) {
    table.add({std::to_string(numberOf(task, "id")), textOf(task, "name"), textOf(task, "class"),
               textOf(task, "node"), placeOf(style, textOf(task, "node"), textOf(task, "card")),
               textOf(task, "state"), shareOf(task), memoryOf(task),
               std::to_string(numberOf(task, "processes")), humanTime(numberOf(task, "used_ns")),
               textOf(task, "reason"), humanTime(numberOf(task, "held_ns")),
               humanCount(numberOf(task, "turns")), humanCount(numberOf(task, "launches")),
               std::to_string(numberOf(task, "owner_uid")), textOf(task, "application")});
  }
  return table.text();
}

std::string nodesView(Value root, const Style& style) {
  Columns table(style,
                {{"NODE"},
                 {"STATE"},
                 {"CARDS", Align::Right},
                 {"TASKS", Align::Right},
                 {"MEMORY", Align::Right},
                 {"SHARE", Align::Right},
                 {"GREEDY", Align::Right},
                 {"MIXED"},
                 {"VERSION"}},
                {{"CPU", Align::Right}, {"HOST MEMORY", Align::Right}});
  for (const Value node : sortedList(root, "nodes", "name")) {
    std::string state = textOf(node, "state");
    if (flagOf(node, "draining")) {
      state += ", draining";
    } else if (flagOf(node, "cordoned")) {
      state += ", cordoned";
    }
    const auto cpus = [&](const char* key) { return humanPermille(numberOf(node, key)); };
    table.add({textOf(node, "name"), state, std::to_string(numberOf(node, "cards")),
               std::to_string(numberOf(node, "tasks")),
               ofTotal(numberOf(node, "mem_bound_bytes"), numberOf(node, "mem_bytes")),
               humanPermille(numberOf(node, "share_bound_permille")),
               humanPermille(numberOf(node, "greedy_bound_permille")),
               flagOf(node, "mixed") ? "yes" : "no", textOf(node, "version"),
               cpus("cpu_bound_milli") + " / " + cpus("cpu_milli"),
               ofTotal(numberOf(node, "host_mem_bound_bytes"), numberOf(node, "host_mem_bytes"))});
  }
  return table.text();
}

std::string textsOf(Value object, std::string_view key) {
  std::string out;
  for (const Value text : listOf(object, key)) {
    const auto one = text.text();
    if (one) out += (out.empty() ? "" : ",") + std::string(*one);
  }
  return out;
}

std::string submitView(Value root) {
  const std::string id = std::to_string(numberOf(root, "task"));
  if (flagOf(root, "waiting")) {
    const std::string reason = textOf(root, "reason");
    return "task " + id + " waits" + (reason.empty() ? " for room" : ": " + printable(reason)) +
           "\n`qgpuctl explain " + id + "` says what would help\n";
  }
  std::string out = line("task", id) + line("node", textOf(root, "node")) +
                    line("card", textsOf(root, "cards")) + line("token", textOf(root, "token"));
  for (const Value variable : root["env"]) {
    const auto value = variable.text();
    if (!value) continue;
    out += line("environment", printable(std::string(variable.key()) + "=" + std::string(*value)));
  }
  return out;
}

std::string invitedView(Value root) {
  const std::string node = printable(textOf(root, "node"));
  return "token " + printable(textOf(root, "id")) + " lets one machine join as " + node +
         ", once, until " + rfc3339(static_cast<std::int64_t>(numberOf(root, "until_unix_ms"))) +
         "; there, as root:\nqgpuctl join " + printable(textOf(root, "door")) + " --nodename " +
         node + " --token " + printable(textOf(root, "token")) + "\n";
}

std::string explainView(Value root, const Style& style) {
  std::string out = printable(textOf(root, "text")) + "\n";
  for (const Value line : listOf(root, "lines")) {
    if (const auto text = line.text()) out += "  " + printable(*text) + "\n";
  }
  const std::string remedy = textOf(root, "remedy");
  if (!remedy.empty()) out += "what would help: " + printable(remedy) + "\n";
  if (listOf(root, "nodes").empty()) return out;
  Table table({{"NODE"}, {"CARD"}, {"REASON"}, {"MISSING"}});
  for (const Value node : listOf(root, "nodes")) {
    const std::string card = textOf(node, "card");
    std::string missing = textOf(node, "text");
    if (!card.empty() && missing.starts_with(card + ": ")) missing.erase(0, card.size() + 2);
    table.add({textOf(node, "node"), placeOf(style, textOf(node, "node"), card),
               textOf(node, "reason"), missing});
  }
  return out + "\n" + table.text();
}

std::string numbersOf(Value object, std::string_view key) {
  std::string out;
  for (const Value one : listOf(object, key)) {
    const auto number = one.number();
    if (number) out += (out.empty() ? "" : ",") + std::to_string(*number);
  }
  return out;
}

// Imagined tasks have no number, and those that land alike share a line.
struct LandingLine {
  std::uint64_t task = 0;
  std::uint64_t count = 1;
  std::vector<std::string> cells;  // node, cards, evicted tasks, reason
};

std::vector<LandingLine> landingLines(Value root, const Style& style) {
  std::vector<LandingLine> lines;
  for (const char* list : {"landed", "stay"}) {
    for (const Value landing : listOf(root, list)) {
      const std::string node = textOf(landing, "node");
      LandingLine line{
          numberOf(landing, "task"),
          1,
          {node.empty() ? "nowhere" : node, placeOf(style, node, textsOf(landing, "cards")),
           numbersOf(landing, "evicts"), textOf(landing, "reason")}};
      const auto alike = std::find_if(lines.begin(), lines.end(), [&](const LandingLine& other) {
        return line.task == 0 && other.task == 0 && other.cells == line.cells;
      });
      if (alike == lines.end()) {
        lines.push_back(std::move(line));
      } else {
        ++alike->count;
      }
    }
  }
  return lines;
}

std::string whatIfView(Value root, const Style& style) {
  const std::vector<LandingLine> lines = landingLines(root, style);
  const bool imagined = !lines.empty() && lines.front().task == 0;
  Table table(
      {{imagined ? "TASKS" : "TASK", Align::Right}, {"NODE"}, {"CARD"}, {"EVICTS"}, {"REASON"}});
  for (const LandingLine& one : lines) {
    // How many land nowhere stands in the reason.
    const bool counted = one.task != 0 || one.cells.front() != "nowhere";
    std::vector<std::string> cells = {counted ? std::to_string(one.task == 0 ? one.count : one.task)
                                              : ""};
    cells.insert(cells.end(), one.cells.begin(), one.cells.end());
    table.add(std::move(cells));
  }
  const auto change = [&](const char* before, const char* after) {
    return humanPermille(numberOf(root, before)) + " -> " + humanPermille(numberOf(root, after));
  };
  return (lines.empty() ? "no task is concerned\n" : table.text()) + "\n" +
         line("allocated",
              change("allocated_before_permille", "allocated_after_permille") + " of all cards") +
         line("fragments", change("fragment_before_permille", "fragment_after_permille") +
                               " of all cards, free but of no use to typical tasks");
}

bool ofCluster(Value root) {
  for (const Value task : listOf(root, "tasks")) {
    return task["place"].exists();
  }
  return false;
}

std::string eventsView(Value root, const Style& style) {
  std::string out;
  for (const Value event : listOf(root, "events")) out += eventLine(event, style);
  return out;
}

std::string traceView(Value root) {
  std::map<std::uint64_t, std::string> names;
  for (const Value task : listOf(root, "tasks")) {
    names[numberOf(task, "id")] = textOf(task, "name");
  }
  const std::uint64_t now = numberOf(root, "now_ns");
  Table table({{"SEQ", Align::Right},
               {"BEFORE", Align::Right},
               {"KIND"},
               {"TASK", Align::Right},
               {"NAME"}});
  for (const Value entry : listOf(root, "entries")) {
    const std::uint64_t task = numberOf(entry, "task");
    const std::uint64_t at = numberOf(entry, "at_ns");
    table.add({std::to_string(numberOf(entry, "seq")), humanTime(now > at ? now - at : 0),
               textOf(entry, "kind"), task == 0 ? "" : std::to_string(task), names[task]});
  }
  return table.text();
}

}  // namespace

bool isWhole(Value task) {
  return numberOf(task, "share_permille") >= 1000;
}

std::string eventLine(Value event, const Style& style) {
  const std::uint64_t ms = numberOf(event, "unix_ms");
  const auto at = static_cast<time_t>(ms / 1000);
  tm local{};
  ::localtime_r(&at, &local);
  char time[40];
  std::strftime(time, sizeof time, "%F %T", &local);
  char head[96];
  std::snprintf(head, sizeof head, "%6llu  %s.%03u  ",
                static_cast<unsigned long long>(numberOf(event, "seq")), time,
                static_cast<unsigned>(ms % 1000));
  std::string out = head + printable(textOf(event, "kind"));
  const std::uint64_t task = numberOf(event, "task");
  if (task != 0) out += "  task " + std::to_string(task);
  for (const std::string& text :
       {placeOf(style, "", textOf(event, "card")), textOf(event, "text")}) {
    if (!text.empty()) out += "  " + printable(text);
  }
  const std::string actor = printable(textOf(event, "actor"));
  if (!actor.empty()) out += "  (" + actor + ")";
  return out + "\n";
}

namespace {

// A number by the unit that the end of its name says.
std::string numberText(std::string_view key, std::uint64_t number) {
  if (key.ends_with("_bytes")) return humanBytes(number);
  if (key.ends_with("_ns")) return humanTime(number);
  if (key.ends_with("_permille")) return humanPermille(number);
  if (key.ends_with("_unix_ms")) return rfc3339(static_cast<std::int64_t>(number));
  return std::to_string(number);
}

// "mem_used_bytes" as "MEM USED".
std::string titleOf(std::string_view key) {
  for (const std::string_view unit : {"_bytes", "_ns", "_permille", "_unix_ms"}) {
    if (key.ends_with(unit)) key.remove_suffix(unit.size());
  }
  std::string title;
  for (const char c : key) {
    title += c == '_' ? ' ' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return title;
}

// The first list of the answer; every field of its first entry is a column.
std::string rowsView(Value root) {
  if (!root.isObject()) return "";
  for (const Value list : root) {
    if (!list.isList()) continue;
    if (list.begin() == list.end() || !(*list.begin()).isObject()) break;
    const Value first = *list.begin();
    std::vector<Table::Column> columns;
    for (const Value cell : first) {
      columns.push_back({titleOf(cell.key()), cell.number() ? Align::Right : Align::Left});
    }
    Table table(std::move(columns));
    for (const Value row : list) {
      std::vector<std::string> cells;
      for (const Value cell : first) {
        const auto number = row[cell.key()].number();
        cells.push_back(number ? numberText(cell.key(), *number) : textOf(row, cell.key()));
      }
      table.add(std::move(cells));
    }
    return table.text();
  }
  return "none\n";
}

}  // namespace

std::string exportsOf(const Answer& answer) {
  const auto ofName = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  std::string out;
  for (const Value variable : answer.root()["env"]) {
    const std::string name(variable.key());
    const auto value = variable.text();
    const bool takes =
        !name.empty() && (name[0] < '0' || name[0] > '9') && std::ranges::all_of(name, ofName);
    if (!value || !takes) continue;
    out += "export " + name + "='";
    for (const char c : *value) out += c == '\'' ? "'\\''" : std::string(1, c);
    out += "'\n";
  }
  return out;
}

std::string idsOf(Shown shown, const Answer& answer) {
  std::string out;
  const Value root = answer.root();
  if (shown == Shown::Nodes) {
    for (const Value node : sortedList(root, "nodes", "name")) {
      out += printable(textOf(node, "name")) + "\n";
    }
  } else if (shown == Shown::Cards) {
    const bool several = severalNodes(root, "cards");
    for (const Value card : sortedList(root, "cards", "node")) {
      out += printable((several ? textOf(card, "node") + "/" : "") + textOf(card, "id")) + "\n";
    }
  } else {
    for (const Value task : listOf(root, "tasks")) {
      out += std::to_string(numberOf(task, "id")) + "\n";
    }
  }
  return out;
}

Result<std::string> viewOf(Shown shown, const Answer& answer, const Style& style) {
  if (!answer.status()) return answer.status().error();
  const Value root = answer.root();
  switch (shown) {
    case Shown::Info:
      return textOf(root, "role") == "scheduler" ? clusterStatusView(root) : statusView(root);
    case Shown::Nodes:
      return nodesView(root, style);
    case Shown::Cards:
      return cardsView(root, style);
    case Shown::Tasks:
      if (listOf(root, "tasks").empty()) return std::string("no tasks\n");
      return ofCluster(root) ? clusterTasksView(root, style) : tasksView(root, style);
    case Shown::Events:
      return eventsView(root, style);
    case Shown::Assigned:
      return submitView(root);
    case Shown::Explanation:
      return explainView(root, style);
    case Shown::Plan:
      return whatIfView(root, style);
    case Shown::Trace:
      return traceView(root);
    case Shown::Invited:
      return invitedView(root);
    case Shown::Rows:
      return rowsView(root);
    case Shown::Done:
      break;
  }
  const std::string done = textOf(root, "done");
  return (done.empty() ? "done" : printable(done)) + "\n";
}

}  // namespace qgpu::ctl
