#include "services/ctl/help/describe.h"

#include <algorithm>
#include <array>
#include <utility>

#include "services/api/commands/commands.h"
#include "services/base/json.h"

namespace qgpu::ctl {
namespace {

// Of what no row of the table is, or more than one command.
constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kExamples = {{
    {"what-if place", "what-if place --memory 8 --count 20"},
    {"trace record", "trace record --seconds 10 -o trace.json"},
    {"trace list", "trace list 0 --follow"},
    {"token", "token create node-7"},
    {"top", "top --once"},
    {"timeline", "timeline --seconds 30 --svg cards.svg"},
    {"audit", "audit --since 1h"},
    {"doctor", "doctor --bundle report.txt"},
    {"prove", "prove --quick --sign ~/.ssh/id_ed25519"},
    {"certs", "certs init"},
    {"certs init", "certs init --days 1825d"},
    {"certs issue", "certs issue node-7 --san 10.0.0.7"},
    {"certs renew", "certs renew --before 60d"},
    {"certs show", "certs show"},
    {"join", "join scheduler:12350 --token -"},
    {"snapshot show", "snapshot show scheduler.snapshot"},
    {"version", "version"},
    {"completion", "completion bash"},
    {"man", "man"},
    {"help", "help certs issue"},
    {"what-if drain", "what-if drain node-3"},
}};

const char* rightName(Right right) {
  switch (right) {
    case Right::Read:
      return "read";
    case Right::OwnTasks:
      return "own tasks";
    case Right::Change:
      return "change";
  }
  return "read";
}

// Of the table; null for what qgpuctl does without a daemon.
const CommandRow* rowNamed(std::string_view name) {
  return findRow(name == "what-if" ? "whatif" : name);
}

// Below `above`, as both are typed.
std::string fullName(const std::string& above, const CLI::App& sub) {
  return above.empty() ? sub.get_name() : above + " " + sub.get_name();
}

void writeRow(JsonWriter& json, const CommandRow& row) {
  json.field("right", rightName(row.right));
  json.key("lines").beginObject();
  if (row.on(Side::Node)) json.field("node", row.usage(Side::Node));
  if (row.on(Side::Cluster)) json.field("cluster", row.usage(Side::Cluster));
  json.endObject();
}

void writeOptions(JsonWriter& json, const CLI::App& app) {
  json.key("options").beginArray();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option == app.get_help_ptr()) continue;
    json.beginObject().key("names").beginArray();
    for (const std::string& name : option->get_snames()) json.string("-" + name);
    for (const std::string& name : option->get_lnames()) json.string("--" + name);
    json.endArray();
    if (option->get_items_expected_max() > 0) json.field("value", option->get_type_name());
    json.field("meaning", option->get_description()).endObject();
  }
  json.endArray();
}

void writeArguments(JsonWriter& json, const CLI::App& app) {
  json.key("arguments").beginArray();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    json.beginObject().field("name", option->get_name(true));
    json.field("meaning", option->get_description());
    json.flag("required", option->get_required()).endObject();
  }
  json.endArray();
}

void writeCommands(JsonWriter& json, const CLI::App& app, const std::string& name);

// `row`: of the table; null below another command, and for what qgpuctl does by itself.
void writeCommand(JsonWriter& json, const CLI::App& sub, const std::string& name,
                  const CommandRow* row) {
  json.beginObject().field("name", sub.get_name());
  json.field("group", sub.get_group()).field("what", sub.get_description());
  if (row != nullptr) writeRow(json, *row);
  json.optional("example", exampleOf(name));
  writeArguments(json, sub);
  writeOptions(json, sub);
  writeCommands(json, sub, name);
  json.endObject();
}

void writeCommands(JsonWriter& json, const CLI::App& app, const std::string& name) {
  const auto subs = app.get_subcommands([](const CLI::App*) { return true; });
  if (subs.empty()) return;
  json.key("commands").beginArray();
  for (const CLI::App* sub : subs) {
    writeCommand(json, *sub, fullName(name, *sub),
                 app.get_parent() == nullptr ? rowNamed(sub->get_name()) : nullptr);
  }
  json.endArray();
}

}  // namespace

std::string_view exampleOf(std::string_view command) {
  const auto called = [](const auto& one) { return one.first; };
  const auto* found = std::ranges::find(kExamples, command, called);
  if (found != kExamples.end()) return found->second;
  std::string name(command);
  std::ranges::replace(name, ' ', '-');  // of the table's token-create
  const CommandRow* row = rowNamed(name);
  return row == nullptr ? "" : row->example;
}

std::string describe(const CLI::App& app) {
  JsonWriter json;
  json.beginObject().flag("ok", true);
  writeOptions(json, app);
  writeCommands(json, app, "");
  json.endObject();
  return json.take();
}

}  // namespace qgpu::ctl
