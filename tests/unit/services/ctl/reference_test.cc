// docs/reference is what the programs say of themselves: commands, flags, events, and the names
// that a Kubernetes cluster sees. The page of metrics is made where they are scraped, in tests/e2e.

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <set>

#include "actors/base/event_kinds.h"
#include "services/api/commands/environment.h"
#include "services/api/commands/spec.h"
#include "services/ctl/answers/views.h"
#include "services/ctl/options.h"
#include "services/daemons/options.h"
#include "services/daemons/scheduler_options.h"
#include "services/kubernetes/pods/event_reasons.h"
#include "services/kubernetes/pods/kube_names.h"
#include "tests/testing/reference_page.h"

namespace qgpu::reference_test {
namespace {

using ctl::flagOf;
using ctl::listOf;
using ctl::textOf;
using ctl::Value;
using testing::cell;
using testing::code;
using testing::expectPage;
using testing::row;

namespace fs = std::filesystem;

// --- commands ---

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

std::string optionRows(Value command) {
  std::string out;
  for (const Value argument : listOf(command, "arguments")) {
    const std::string name = textOf(argument, "name");
    out += "| " + code(flagOf(argument, "required") ? name : "[" + name + "]") + " | " +
           cell(textOf(argument, "meaning")) + " |\n";
  }
  for (const Value option : listOf(command, "options")) {
    std::string names;
    for (const Value name : listOf(option, "names")) {
      if (const auto text = name.text()) names += (names.empty() ? "" : ", ") + std::string(*text);
    }
    std::string value = textOf(option, "value");
    value = value.substr(0, value.find(':'));
    out += "| " + code(names + (value.empty() ? "" : " " + value)) + " | " +
           cell(textOf(option, "meaning")) + " |\n";
  }
  return out.empty() ? out : "\n| | |\n|---|---|\n" + out;
}

std::string commandText(Value command, const std::string& above) {
  const std::string name = above + textOf(command, "name");
  std::string out = "### " + name + "\n\n" + textOf(command, "what") + ".";
  const std::string right = textOf(command, "right");
  if (!right.empty()) out += " Who may: **" + right + "**.";
  out += "\n";
  const std::string example = textOf(command, "example");
  if (!example.empty()) out += "\nExample: " + code("qgpuctl " + example) + "\n";
  out += optionRows(command);
  if (const Value lines = command["lines"]; lines.exists()) {
    const std::string node = textOf(lines, "node");
    const std::string cluster = textOf(lines, "cluster");
    out += "\n";
    if (!node.empty()) out += "`manager.sock`: " + code(node) + (cluster.empty() ? "\n" : "; ");
    if (!cluster.empty()) out += "`scheduler.sock`: " + code(cluster) + "\n";
  }
  for (const Value sub : listOf(command, "commands")) out += "\n" + commandText(sub, name + " ");
  return out;
}

std::string specText() {
  std::string out =
      "## SPEC\n\nOne JSON object. It has a name; every other field may be left out, and one that "
      "nobody knows is an error.\n\n| field | option | of | meaning |\n|---|---|---|---|\n";
  for (const SpecField& field : specFields()) {
    const char* of = !field.only ? "both" : *field.only == Side::Node ? "a node" : "a cluster";
    std::string bounds;
    if (field.form == SpecField::Form::Number) {
      bounds = "; " + std::to_string(field.least) + " to " + std::to_string(field.most);
    }
    if (field.form == SpecField::Form::Size) {
      bounds = "; as a number, GiB (also " + code(std::string(field.inGib)) + ")";
    }
    if (field.form == SpecField::Form::Texts) bounds = "; at most " + std::to_string(field.most);
    out += "| " + code(std::string(field.key)) + " | " +
           (field.option.empty() ? "" : code(std::string(field.option))) + " | " + of + " | " +
           cell(std::string(field.meaning)) + bounds + " |\n";
  }
  return out;
}

ctl::Document described() {
  const auto parsed = ctl::parseOptions({"-o", "json", "help"});
  const auto* said = std::get_if<ctl::ExitNow>(&parsed);
  ctl::Document document;
  const bool known = said != nullptr && said->code == 0 && readJson(said->text, document).ok();
  EXPECT_TRUE(known) << "qgpuctl does not describe itself";
  return document;
}

std::string commandsPage() {
  const ctl::Document document = described();
  const Value root = document.root();
  std::string out = kHead;
  out += "## Options before or after every command\n" + optionRows(root) + "\n";
  std::vector<std::string> groups;
  const std::vector<Value> commands = listOf(root, "commands");
  for (const Value command : commands) {
    const std::string group = textOf(command, "group");
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  for (const std::string& group : groups) {
    out += "## " + (group == "Subcommands" ? "Of qgpuctl itself" : group) + "\n\n";
    for (const Value command : commands) {
      if (textOf(command, "group") == group) out += commandText(command, "") + "\n";
    }
  }
  return out + specText();
}

TEST(Reference, ThePageOfCommandsIsWhatTheTableSays) {
  expectPage("commands.md", commandsPage());
}

// --- flags and variables ---

constexpr const char* kFlagsHead = R"(# Flags and variables

Of the daemons, of `qgpuctl`, and of the environment. This page is generated from the tables that
`--help` shows (`services/daemons/options.cc`, `scheduler_options.cc`), the parser of `qgpuctl`, and
`services/api/commands/environment.h`.

A flag is written `--flag=VALUE` or `--flag VALUE`; of one that is given twice the last counts. TIME
is a number and a unit, `ns`, `us`, `ms`, `s`, `m` or `h`, as in `1.5s`; RANGE is two of them,
`2ms..30ms`. HOST:PORT with port 0 takes any free port. The file of `--config` is TOML with the same
names and values, a line each, as in `policy = "fs"` or `mixed = true`; `--print-config` prints one.
Flags win over it. The form that it had before, `(policy = "fs", mixed = true)`, is read too. A bad
value, wherever it stands, is one line on stderr and exit status 2, and nothing was touched.

)";

std::string flagRows(std::span<const FlagRow> flags) {
  std::string out = "| flag | default | meaning |\n|---|---|---|\n";
  for (const FlagRow& flag : flags) {
    const std::string value = flag.value == nullptr ? "" : std::string(" ") + flag.value;
    out +=
        row({code("--" + (flag.name + value)),
             flag.preset != nullptr ? code(flag.preset) : cell(flag.otherwise()), cell(flag.help)});
  }
  return out + "\n";
}

std::string flagsPage() {
  const ctl::Document document = described();
  std::string out = kFlagsHead;
  out += "## qgpu-manager\n\n" + flagRows(managerFlags());
  out += "## qgpu-scheduler\n\n" + flagRows(schedulerFlags());
  out += "## qgpuctl\n\nBefore or after every [command](commands.md):\n";
  out += optionRows(document.root()) + "\n";
  out += "## Environment\n\n| variable | read by | default | meaning |\n|---|---|---|---|\n";
  for (const VariableEntry& one : kVariables) {
    out += row({code(one.name), cell(one.who), cell(one.preset), cell(one.meaning)});
  }
  return out;
}

TEST(Reference, ThePageOfFlagsIsWhatHelpSays) {
  expectPage("flags.md", flagsPage());
}

// --- events ---

constexpr const char* kEventsHead = R"(# Events

What `qgpuctl events` shows, `events` and `watch` of the admin sockets, and RPC: the story of a node
or a scheduler. An event has a number, a time, a kind, its task, its card or node, a text, and who
asked for it. Each kind is below, with what to do about it; no other kind is told. What a daemon
writes into its log has names of its own. Events of Kubernetes stand with
[its names](kubernetes.md#events).

This page is generated from the catalogue in `actors/base/event_kinds.h`.

)";

std::string eventRows(EventTeller teller) {
  std::string out = "| kind | meaning | what to do |\n|---|---|---|\n";
  for (const EventKindEntry& kind : kEventKinds) {
    if (kind.teller != teller) continue;
    out += row({code(kind.name), cell(kind.meaning), cell(kind.then)});
  }
  return out;
}

TEST(Reference, ThePageOfEventsIsWhatTheCatalogueSays) {
  std::string page = kEventsHead;
  page += "## Of both\n\n" + eventRows(EventTeller::Both);
  page += "\n## Of a node\n\n" + eventRows(EventTeller::Node);
  expectPage("events.md", page + "\n## Of a scheduler\n\n" + eventRows(EventTeller::Scheduler));
}

// --- Kubernetes ---

constexpr const char* kKubernetesHead = R"(# Names on Kubernetes

Resources, labels, annotations and events by which qgpu and a cluster speak. PREFIX is
`tke.cloud.tencent.com`, or what `--resource-prefix` of both daemons says.
[Kubernetes](../operate/kubernetes.md) tells how they are used.

This page is generated from `services/kubernetes/pods/kube_names.h` and `event_reasons.h`.

)";

std::string nameRows(KubeNameKind kind, const char* word) {
  std::string out = row({word, "of", "written by", "meaning"}) + "|---|---|---|---|\n";
  for (const KubeName& name : kKubeNames) {
    if (name.kind != kind) continue;
    out += row({code((name.prefixed ? "PREFIX/" : "") + std::string(name.name)), cell(name.of),
                cell(name.writer), cell(name.meaning)});
  }
  return out + "\n";
}

std::string reasonRows() {
  std::string out = "| reason | type | told by | of | message |\n|---|---|---|---|---|\n";
  for (const EventEntry& entry : kEventEntries) {
    out += row({code(entry.name), entry.type == EventType::Normal ? "Normal" : "Warning",
                entry.speaker == EventSpeaker::Scheduler ? "qgpu-scheduler" : "qgpu-manager",
                entry.of == EventOf::Pod     ? "pod"
                : entry.of == EventOf::Node  ? "node"
                : entry.of == EventOf::Claim ? "ResourceClaim"
                                             : "node, and its pods",
                code(entry.shape)});
  }
  return out;
}

TEST(Reference, ThePageOfKubernetesIsWhatItsCataloguesSay) {
  std::string page = kKubernetesHead;
  page += "## Resources\n\n" + nameRows(KubeNameKind::Resource, "resource");
  page += "## Annotations\n\n" + nameRows(KubeNameKind::Annotation, "annotation");
  page += "## Labels\n\n" + nameRows(KubeNameKind::Label, "label");
  page += "## Taints\n\n" + nameRows(KubeNameKind::Taint, "taint");
  expectPage("kubernetes.md", page + "## Events\n\n" + reasonRows());
}

// --- what the catalogues say is what the code has ---

using Names = std::set<std::string>;

// What `pattern` finds in the files of these folders of the tree, but in the catalogue itself, in
// tests and in what stands in for others. Group 1 is the name.
Names inTree(std::initializer_list<const char*> folders, const char* pattern,
             const char* catalogue) {
  const std::regex names(pattern);
  Names found;
  for (const char* folder : folders) {
    const fs::path root = fs::path(QGPU_SOURCE_ROOT) / folder;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const std::string path = entry.path().string();
      if (!entry.is_regular_file() || path.ends_with(catalogue) || path.ends_with(".md") ||
          path.find("/testing/") != std::string::npos) {
        continue;
      }
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        for (std::sregex_iterator at(line.begin(), line.end(), names), end; at != end; ++at) {
          found.insert((*at)[1]);
        }
      }
    }
  }
  return found;
}

TEST(Reference, EveryVariableInTheCodeIsInTheCatalogue) {
  // Of builds for tests (services/guest/gate/test_hooks.h): where a driver stands without a card,
  // and a patience.
  Names known = {"QGPU_DRIVER_ROOT", "QGPU_ATTACH_TIMEOUT_MS"};
  for (const VariableEntry& one : kVariables) known.insert(std::string(one.name));
  const Names used = inTree(
      {"services", "actors", "runtime", "deploy/systemd"},
      R"rx(["$]((?:QGPU|XDG|KUBERNETES|POD|CUDA|NVIDIA|ROCR)_[A-Z_]*[A-Z]|PORT|KUBECONFIG|)rx"
      R"rx(NO_COLOR|DEMO_JSON|NOTIFY_SOCKET|JOURNAL_STREAM|WATCHDOG_USEC|LD_PRELOAD|)rx"
      R"rx(OPENCL_LAYERS)\b)rx",
      "commands/environment.h");
  for (const std::string& name : used) EXPECT_TRUE(known.contains(name)) << name;
  for (const std::string& name : known) EXPECT_TRUE(used.contains(name)) << name << " is unused";
}

TEST(Reference, EveryNameOnKubernetesIsInTheCatalogue) {
  // Of the node's own files: the kinds of CDI devices and a note in them; and the version of what
  // claims say, without its number.
  Names known = {"qgpu.io/card", "qgpu.io/claim", "qgpu.io/version", "qgpu.io/v"};
  for (const KubeName& name : kKubeNames) known.insert(std::string(name.name));
  const Names used =
      inTree({"services/kubernetes", "deploy"},
             R"rx((qgpu\.io/[a-z]+(?:-[a-z]+)*|mixed-qgpu-enable|app-class|)rx"
             R"rx(qgpu-(?:core-greedy|core|memory|device-enable|schedule-policy)))rx",
             "pods/kube_names.h");
  for (const std::string& name : used) EXPECT_TRUE(known.contains(name)) << name;
  for (const std::string& name : known) EXPECT_TRUE(used.contains(name)) << name << " is unused";
}

}  // namespace
}  // namespace qgpu::reference_test
