#include "services/ctl/views.h"

#include <time.h>

#include <cstdio>

#include "services/ctl/table.h"

namespace qgpu::ctl {
namespace {

using simdjson::dom::element;

std::string ofTotal(std::uint64_t part, std::uint64_t total) {
  return humanBytes(part) + " / " + humanBytes(total);
}

std::string statusView(element root) {
  const auto line = [](const char* name, const std::string& value) {
    char padded[24];
    std::snprintf(padded, sizeof padded, "%-12s", name);
    return padded + printable(value) + "\n";
  };
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
  return out;
}

std::string cardsView(element root) {
  Table table({{"CARD"}, {"MODEL"}, {"STATE"}, {"POLICY"}, {"KIND"}, {"SUSPEND"},
               {"TASKS", Align::Right}, {"MEMORY", Align::Right}, {"SHARE", Align::Right},
               {"GREEDY", Align::Right}, {"PREEMPT P99", Align::Right}});
  for (const element card : listOf(root, "cards")) {
    element preempt;
    std::string p99;
    if (card["preempt_us"].get(preempt) == simdjson::SUCCESS && numberOf(preempt, "n") > 0) {
      p99 = humanTime(numberOf(preempt, "p99") * 1000);
    }
    table.add({textOf(card, "id"), textOf(card, "model"), textOf(card, "state"),
               textOf(card, "policy"), textOf(card, "kind"), textOf(card, "suspend"),
               std::to_string(numberOf(card, "tasks")),
               ofTotal(numberOf(card, "mem_bound_bytes"), numberOf(card, "mem_bytes")),
               humanPermille(numberOf(card, "share_bound_permille")),
               humanPermille(numberOf(card, "greedy_bound_permille")), p99});
  }
  return table.text();
}

std::string stateOf(element task) {
  std::string state = textOf(task, "state");
  if (flagOf(task, "quarantined")) state += ", quarantined";
  if (flagOf(task, "evicting")) state += ", evicting";
  return state;
}

std::string tasksView(element root) {
  Table table({{"TASK", Align::Right}, {"NAME"}, {"CLASS"}, {"CARD"}, {"STATE"},
               {"SHARE", Align::Right}, {"MEMORY", Align::Right}, {"PROCS", Align::Right},
               {"USED", Align::Right}, {"HELD", Align::Right}, {"SLICES", Align::Right},
               {"LAUNCHES", Align::Right}, {"NOTE"}});
  for (const element task : listOf(root, "tasks")) {
    table.add({std::to_string(numberOf(task, "id")), textOf(task, "name"), textOf(task, "class"),
               textOf(task, "card"), stateOf(task), humanPermille(numberOf(task, "share_permille")),
               ofTotal(numberOf(task, "mem_used_bytes"), numberOf(task, "mem_bytes")),
               std::to_string(numberOf(task, "processes")), humanTime(numberOf(task, "used_ns")),
               humanTime(numberOf(task, "held_ns")), humanCount(numberOf(task, "turns")),
               humanCount(numberOf(task, "launches")), textOf(task, "note")});
  }
  return table.text();
}

std::string eventsView(element root) {
  std::string out;
  for (const element event : listOf(root, "events")) out += eventLine(event);
  return out;
}

}  // namespace

std::uint64_t numberOf(element object, std::string_view key) {
  std::uint64_t number = 0;
  if (object[key].get(number) != simdjson::SUCCESS) return 0;
  return number;
}

std::string textOf(element object, std::string_view key) {
  std::string_view text;
  if (object[key].get(text) != simdjson::SUCCESS) return "";
  return std::string(text);
}

bool flagOf(element object, std::string_view key) {
  bool flag = false;
  return object[key].get(flag) == simdjson::SUCCESS && flag;
}

std::vector<element> listOf(element object, std::string_view key) {
  simdjson::dom::array list;
  if (object[key].get(list) != simdjson::SUCCESS) return {};
  return {list.begin(), list.end()};
}

std::string eventLine(element event) {
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
  for (const char* key : {"card", "text"}) {
    const std::string text = printable(textOf(event, key));
    if (!text.empty()) out += "  " + text;
  }
  const std::string actor = printable(textOf(event, "actor"));
  if (!actor.empty()) out += "  (" + actor + ")";
  return out + "\n";
}

Result<std::string> viewOf(const std::string& command, const std::string& answer) {
  simdjson::dom::parser parser;
  element root;
  if (parser.parse(answer).get(root) != simdjson::SUCCESS) {
    return fail(ErrorCode::Corrupt, "the daemon's answer is no JSON document");
  }
  if (command == "status") return statusView(root);
  if (command == "cards") return cardsView(root);
  if (command == "tasks") return tasksView(root);
  if (command == "events") return eventsView(root);
  return printable(textOf(root, "done")) + "\n";
}

}  // namespace qgpu::ctl
