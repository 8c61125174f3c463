// docs/reference is what the programs say of themselves. QGPU_WRITE_REFERENCE=1 writes it anew.

#include <fstream>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <sstream>
#include <stdlib.h>

#include "services/api/commands/spec.h"
#include "services/ctl/options.h"
#include "services/ctl/views.h"

namespace qgpu::ctl {
namespace {

using simdjson::dom::element;

constexpr const char* kHead = R"(# Commands

Of `qgpuctl`, and of the admin sockets `manager.sock` and `scheduler.sock` below the run dir, which
take one command a line and answer one JSON document a line. Over RPC each is a member of the
request that `ask` takes (`schema/node.capnp`, `schema/scheduler.capnp`).

This page is generated from the table in `services/api/commands/command_table.cc`, the fields of a
SPEC in `services/api/commands/spec.cc` and the parser of `qgpuctl`. `qgpuctl -o json help` prints
the same for programs.

Who may: **read**: everybody who can connect. **own tasks**: every user of the machine, for tasks of
their own. **change**: root, the daemon's own user, group `qgpu`, and whom a certificate says it of.

)";

// A cell of a table keeps to its line and column.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string code(const std::string& text) {
  return "`" + cell(text) + "`";
}

std::string optionRows(element command) {
  std::string out;
  for (const element argument : listOf(command, "arguments")) {
    const std::string name = textOf(argument, "name");
    out += "| " + code(flagOf(argument, "required") ? name : "[" + name + "]") + " | " +
           cell(textOf(argument, "meaning")) + " |\n";
  }
  for (const element option : listOf(command, "options")) {
    std::string names;
    for (const element name : listOf(option, "names")) {
      std::string_view text;
      if (name.get(text) == simdjson::SUCCESS)
        names += (names.empty() ? "" : ", ") + std::string(text);
    }
    std::string value = textOf(option, "value");
    value = value.substr(0, value.find(':'));
    out += "| " + code(names + (value.empty() ? "" : " " + value)) + " | " +
           cell(textOf(option, "meaning")) + " |\n";
  }
  return out.empty() ? out : "\n| | |\n|---|---|\n" + out;
}

std::string commandText(element command, const std::string& above) {
  const std::string name = above + textOf(command, "name");
  std::string out = "### " + name + "\n\n" + textOf(command, "what") + ".";
  const std::string right = textOf(command, "right");
  if (!right.empty()) out += " Who may: **" + right + "**.";
  out += "\n";
  const std::string example = textOf(command, "example");
  if (!example.empty()) out += "\n    qgpuctl " + example + "\n";
  out += optionRows(command);
  element lines;
  if (command["lines"].get(lines) == simdjson::SUCCESS) {
    const std::string node = textOf(lines, "node");
    const std::string cluster = textOf(lines, "cluster");
    out += "\n";
    if (!node.empty()) out += "`manager.sock`: " + code(node) + (cluster.empty() ? "\n" : "; ");
    if (!cluster.empty()) out += "`scheduler.sock`: " + code(cluster) + "\n";
  }
  for (const element sub : listOf(command, "commands")) out += "\n" + commandText(sub, name + " ");
  return out;
}

std::string specText() {
  std::string out =
      "## SPEC\n\nOne JSON object; every field may be left out, and one that nobody knows is an "
      "error.\n\n| field | option | of | meaning |\n|---|---|---|---|\n";
  for (const SpecField& field : specFields()) {
    const char* of = !field.only ? "both" : *field.only == Side::Node ? "a node" : "a cluster";
    std::string bounds;
    if (field.form == SpecField::Form::Number) {
      bounds = "; " + std::to_string(field.least) + " to " + std::to_string(field.most);
    }
    if (field.form == SpecField::Form::Texts) bounds = "; at most " + std::to_string(field.most);
    out += "| " + code(std::string(field.key)) + " | " +
           (field.option.empty() ? "" : code(std::string(field.option))) + " | " + of + " | " +
           cell(std::string(field.meaning)) + bounds + " |\n";
  }
  return out;
}

std::string reference() {
  const auto parsed = parseOptions({"-o", "json", "help"});
  const auto* said = std::get_if<ExitNow>(&parsed);
  if (said == nullptr || said->code != 0) return "qgpuctl does not describe itself";
  simdjson::dom::parser parser;
  element root;
  if (parser.parse(said->text).get(root) != simdjson::SUCCESS) return "that is no JSON";
  std::string out = kHead;
  out += "## Options before or after every command\n" + optionRows(root) + "\n";
  std::vector<std::string> groups;
  const std::vector<element> commands = listOf(root, "commands");
  for (const element command : commands) {
    const std::string group = textOf(command, "group");
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  for (const std::string& group : groups) {
    out += "## " + (group == "Subcommands" ? "Of qgpuctl itself" : group) + "\n\n";
    for (const element command : commands) {
      if (textOf(command, "group") == group) out += commandText(command, "") + "\n";
    }
  }
  return out + specText();
}

TEST(Reference, ThePageOfCommandsIsWhatTheTableSays) {
  const std::string path = QGPU_SOURCE_ROOT "/docs/reference/commands.md";
  const std::string wanted = reference();
  if (::getenv("QGPU_WRITE_REFERENCE") != nullptr) std::ofstream(path) << wanted;
  std::ifstream file(path);
  std::stringstream is;
  is << file.rdbuf();
  EXPECT_EQ(is.str(), wanted) << "stale: run it with QGPU_WRITE_REFERENCE=1, and commit the page";
}

}  // namespace
}  // namespace qgpu::ctl
