#include "services/ctl/describe.h"

#include "services/api/commands/commands.h"
#include "services/base/json.h"

namespace qgpu::ctl {
namespace {

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

void writeRow(JsonWriter& json, const CommandRow& row) {
  json.field("right", rightName(row.right)).optional("example", row.example);
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

void writeCommands(JsonWriter& json, const CLI::App& app);

// `row`: of the table; null below another command, and for what qgpuctl does by itself.
void writeCommand(JsonWriter& json, const CLI::App& sub, const CommandRow* row) {
  json.beginObject().field("name", sub.get_name());
  json.field("group", sub.get_group()).field("what", sub.get_description());
  if (row != nullptr) writeRow(json, *row);
  writeArguments(json, sub);
  writeOptions(json, sub);
  writeCommands(json, sub);
  json.endObject();
}

void writeCommands(JsonWriter& json, const CLI::App& app) {
  const auto subs = app.get_subcommands([](const CLI::App*) { return true; });
  if (subs.empty()) return;
  json.key("commands").beginArray();
  for (const CLI::App* sub : subs) {
    writeCommand(json, *sub, app.get_parent() == nullptr ? rowNamed(sub->get_name()) : nullptr);
  }
  json.endArray();
}

}  // namespace

std::string describe(const CLI::App& app) {
  JsonWriter json;
  json.beginObject().flag("ok", true);
  writeOptions(json, app);
  writeCommands(json, app);
  json.endObject();
  return json.take();
}

}  // namespace qgpu::ctl
