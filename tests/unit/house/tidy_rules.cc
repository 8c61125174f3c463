#include "tests/unit/house/tidy_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <span>
#include <string>

#include "tests/unit/house/tidy_text.h"

namespace qgpu::tidy {
namespace {

constexpr std::size_t kColumnsMax = 100;
constexpr std::size_t kSmallHeaderLines = 60;
constexpr int kFunctionLinesMax = 70;
constexpr std::size_t kRoomFilesMax = 30;  // what one looks over in a folder

// What a stranger reads first, in full: what is longer goes to docs/.
constexpr std::string_view kFrontPage = "README.md";
constexpr std::size_t kFrontPageBytesMax = 6'144;

using Words = std::span<const std::string_view>;

// Who may include whom: schema <- runtime <- {actors, store} <- services, and the rooms of actors/
// and services/ among themselves. The longest name that a path begins with says which row holds;
// what a row may include it names by room, or by file: of the actors, services outside the daemons
// name each header that they use. Each row names rows above it alone, so there is no cycle.
struct Room {
  std::string_view name;
  std::array<std::string_view, 20> mayInclude;
};
constexpr Room kRooms[] = {
    {"schema", {"schema"}},
    {"runtime", {"runtime", "schema"}},
    {"actors", {"actors/model.h", "runtime", "schema"}},
    {"actors/arbiter", {"actors/arbiter", "actors/model.h", "actors/policies.h", "runtime"}},
    {"actors/ledger", {"actors/ledger", "actors/model.h", "actors/policies.h", "runtime"}},
    {"actors/placement",
     {"actors/placement", "actors/ledger", "actors/model.h", "actors/policies.h", "runtime"}},
    {"actors/membership", {"actors/membership", "actors/model.h", "runtime"}},
    {"actors/residency", {"actors/residency", "actors/model.h", "runtime"}},
    {"actors/base",
     {"actors/base", "actors/ledger", "actors/model.h", "actors/policies.h", "runtime", "schema"}},
    {"actors/card",
     {"actors/card", "actors/base", "actors/arbiter", "actors/residency", "actors/model.h",
      "actors/policies.h", "runtime", "schema"}},
    {"actors/member", {"actors/member", "actors/base", "actors/model.h", "runtime", "schema"}},
    {"actors/node",
     {"actors/node", "actors/base", "actors/arbiter", "actors/ledger", "actors/model.h", "runtime",
      "schema"}},
    {"actors/join", {"actors/join", "actors/base", "actors/model.h", "runtime", "schema"}},
    {"actors/scheduler",
     {"actors/scheduler", "actors/join", "actors/base", "actors/ledger", "actors/placement",
      "actors/membership", "actors/model.h", "runtime", "schema"}},
    {"store", {"store", "runtime", "schema"}},
    {"services/base", {"services/base", "runtime", "schema"}},
    {"services/wire", {"services/wire"}},
    {"services/nvidia_abi", {"services/nvidia_abi"}},
    {"services/guest/gate", {"services/guest/gate", "services/wire", "services/nvidia_abi"}},
    {"services/guest/paging",
     {"services/guest/paging", "services/guest/gate", "services/wire", "runtime/planted.h"}},
    {"services/guest/rm", {"services/guest/rm", "services/guest/gate", "services/nvidia_abi"}},
    {"services/guest/opencl",
     {"services/guest/opencl", "services/guest/gate", "services/guest/rm"}},
    {"services/guest/cuda",
     {"services/guest/cuda", "services/guest/gate", "services/guest/paging", "services/guest/rm",
      "services/nvidia_abi"}},
    {"services/guest/hip", {"services/guest/hip", "services/guest/gate", "services/guest/cuda"}},
    {"services/guest/symbols",
     {"services/guest/symbols", "services/guest/gate", "services/guest/cuda",
      "services/guest/hip"}},
    {"services/guest/nvml",
     {"services/guest/nvml", "services/guest/gate", "services/guest/cuda", "services/wire"}},
    {"services/cards/suspend", {"services/cards/suspend", "services/nvidia_abi", "runtime"}},
    {"services/cards",
     {"services/cards", "services/cards/suspend", "services/nvidia_abi", "services/base",
      "actors/base/card_facts.h", "actors/base/tenant_variables.h", "runtime", "schema"}},
    {"services/guard", {"services/guard", "services/nvidia_abi", "runtime"}},
    {"services/attach",
     {"services/attach", "services/guard", "services/cards", "services/nvidia_abi", "services/wire",
      "services/base", "store", "actors/arbiter/arbiter.h", "actors/base/event_kinds.h", "runtime",
      "schema"}},
    {"services/api/commands",
     {"services/api/commands", "services/base", "actors/base/codec.h",
      "actors/base/tenant_variables.h", "actors/model.h", "actors/placement/what_if.h",
      "actors/scheduler/codec.h", "runtime", "schema"}},
    {"services/api/admin",
     {"services/api/admin", "services/api/commands", "services/base", "runtime", "schema"}},
    {"services/api/metrics",
     {"services/api/metrics", "services/api/commands", "services/base", "actors/base/codec.h",
      "actors/base/latency_times.h", "runtime", "schema"}},
    {"services/api/rpc",
     {"services/api/rpc", "services/api/commands", "services/base", "actors/base/codec.h",
      "actors/base/event_kinds.h", "actors/model.h", "actors/scheduler/codec.h", "runtime",
      "schema"}},
    {"services/api/join",
     {"services/api/join", "services/api/rpc", "services/api/commands", "services/base", "runtime",
      "schema"}},
    {"services/web",
     {"services/web", "services/api/commands", "services/base", "runtime", "schema"}},
    {"services/kubernetes/pods",
     {"services/kubernetes/pods", "services/base", "actors/base/card_facts.h",
      "actors/ledger/fit.h", "runtime", "schema"}},
    {"services/kubernetes/client",
     {"services/kubernetes/client", "services/kubernetes/pods", "services/base", "runtime"}},
    {"services/kubernetes/bridge",
     {"services/kubernetes/bridge", "services/kubernetes/client", "services/kubernetes/pods",
      "services/api/rpc", "services/api/commands", "services/base", "actors/base/codec.h",
      "actors/member/held_record.h", "runtime", "schema"}},
    {"services/kubernetes/extender",
     {"services/kubernetes/extender", "services/kubernetes/client", "services/kubernetes/pods",
      "services/api/commands", "services/base", "actors/base/latency_record.h",
      "actors/placement/cluster_ledger.h", "actors/placement/pod_fit.h",
      "actors/placement/pod_trial.h", "actors/placement/preemption.h",
      "actors/scheduler/cluster_view.h", "actors/scheduler/codec.h", "runtime", "schema"}},
    {"services/kubernetes/grpc", {"services/kubernetes/grpc", "runtime"}},
    {"services/kubernetes/device_plugin",
     {"services/kubernetes/device_plugin", "services/kubernetes/grpc", "services/kubernetes/pods",
      "services/cards/paths/node_paths.h", "services/cards/paths/nvidia_paths.h",
      "services/api/rpc", "services/api/commands", "services/base", "services/wire",
      "actors/base/tenant_variables.h", "runtime", "schema"}},
    {"services/kubernetes/claims",
     {"services/kubernetes/claims", "services/kubernetes/client", "services/kubernetes/pods",
      "services/cards/pci_place.h", "services/api/rpc", "services/api/commands", "services/base",
      "actors/base/codec.h", "actors/ledger/fit.h", "actors/model.h", "runtime", "schema"}},
    {"services/kubernetes/webhook",
     {"services/kubernetes/webhook", "services/kubernetes/claims", "services/kubernetes/client",
      "services/kubernetes/pods", "services/api/commands", "services/base", "runtime"}},
    {"services/kubernetes/claim_plugin",
     {"services/kubernetes/claim_plugin", "services/kubernetes/claims",
      "services/kubernetes/device_plugin", "services/kubernetes/grpc", "services/kubernetes/pods",
      "services/base", "runtime"}},
    {"services/kubernetes/agent",
     {"services/kubernetes/agent", "services/kubernetes/claims",
      "services/kubernetes/device_plugin", "services/kubernetes/client", "services/kubernetes/pods",
      "services/cards", "services/guard", "services/api/rpc", "services/api/commands",
      "services/base", "actors/base/codec.h", "actors/base/event_kinds.h", "actors/ledger/fit.h",
      "actors/model.h", "runtime", "schema"}},
    {"services/etcd", {"services/etcd", "services/base", "store", "runtime"}},
    {"services/replay",
     {"services/replay", "services/api/commands", "services/base", "store/crc32c.h",
      "actors/base/asker.h", "actors/scheduler/scheduler_actor.h", "runtime", "schema"}},
    {"services/demo/workload", {"services/demo/workload", "runtime"}},
    {"services/demo/tenants",
     {"services/demo/tenants", "services/demo/workload", "services/base", "runtime"}},
    {"services/demo",
     {"services/demo", "services/demo/tenants", "services/demo/workload", "services/base",
      "runtime"}},
    {"services/prove",
     {"services/prove", "services/demo/tenants", "services/demo/workload", "services/api/commands",
      "services/cards/paths/node_paths.h", "services/cards/suspend/detached.h", "services/base",
      "actors/ledger/card_name.h", "runtime", "schema"}},
    {"services/ctl",
     {"services/ctl",
      "services/prove",
      "services/kubernetes/device_plugin",
      "services/kubernetes/pods",
      "services/api/join",
      "services/api/rpc",
      "services/api/commands",
      "services/base",
      "services/nvidia_abi",
      "actors/base/event_kinds.h",
      "actors/base/event_log.h",
      "actors/base/tenant_variables.h",
      "actors/ledger/card_name.h",
      "actors/model.h",
      "actors/placement/what_if.h",
      "actors/policies.h",
      "store/row_copy.h",
      "store/rows.h",
      "runtime",
      "schema"}},
    {"services/daemons",
     {"services/daemons", "services/kubernetes", "services/etcd", "services/replay", "services/api",
      "services/prove", "services/web", "services/attach", "services/guard", "services/cards",
      "services/base", "store", "actors", "runtime", "schema"}},
    {"tests/testing", {"tests/testing", "services/base"}},
};

// Each third-party header has one home; tests and benches may look at anything.
struct Home {
  std::string_view header;  // or its beginning
  std::string_view path;    // beginning of the paths that may include it
};
constexpr Home kHomes[] = {
    {"uv.h", "runtime/"},
    {"sqlite3.h", "store/"},
    {"kj/async", "runtime/kj/"},
    {"kj/async", "services/"},
    {"kj/compat/", "services/"},
    {"kj/timer.h", "runtime/kj/"},
    {"kj/timer.h", "services/"},
    {"capnp/rpc", "runtime/kj/"},
    {"capnp/rpc", "services/"},
    {"capnp/ez-rpc", "services/"},
    {"spdlog/", "runtime/log."},
    {"CLI/", "services/"},
    {"simdjson", "services/"},
    {"CL/", "services/"},
    {"gtest/", "runtime/testing/"},
    {"grpcpp/", "services/etcd/"},
    {"grpcpp/", "services/kubernetes/grpc/"},
    {"grpcpp/", "services/kubernetes/claim_plugin/"},
    {"grpcpp/", "services/kubernetes/device_plugin/"},
    {"yaml-cpp/", "services/base/yaml."},
    {"toml++/", "services/base/toml."},
    {"bpf/", "services/guard/"},
};

// Drivers that tests play: they share no declaration with what meets them.
constexpr std::string_view kDriverStandIns[] = {"tests/cuda_stand_in/", "tests/rm_stand_in/"};

// Decisions without I/O: they see the units, Result, QGPU_CHECK, each other and std.
constexpr std::string_view kCores[] = {"actors/arbiter/", "actors/ledger/", "actors/membership/",
                                       "actors/placement/", "services/attach/roster"};
constexpr std::string_view kCoreIncludes[] = {"actors/model.h",   "actors/policies.h",
                                              "runtime/check.h",  "runtime/planted.h",
                                              "runtime/result.h", "runtime/units.h"};

// Failure, ownership and determinism: STYLE 3, 4 and 16.
constexpr std::string_view kNotInActorsAndStore[] = {"throw", "try", "catch", "shared_ptr", "new"};
constexpr std::string_view kNotDeterministic[] = {
    "rand(", "random_device", "time(", "system_clock", "steady_clock", "high_resolution_clock"};
constexpr std::string_view kUnordered[] = {"unordered_map", "unordered_set"};
constexpr std::string_view kSleeps[] = {"sleep_for", "sleep_until", "sleep(",
                                        "usleep(",   "nanosleep(",  "clock_nanosleep("};

// Names that parts of this program had once and that say little to a reader, in lower case, and
// what to write in their place. Written in halves, so that this file passes its own rule.
struct DeadTerm {
  std::string_view term;
  std::string_view instead;
};
constexpr DeadTerm kDeadTerms[] = {
    {"like"
     "wise",
     "say what is the same"},
    {"surround"
     "ings",
     "platform"},
    {"shep"
     "herd",
     "child waiter"},
    {"de"
     "sk",
     "handler"},
    {"lad"
     "der",
     "suspend methods"},
    {"bu"
     "ry",
     "reap"},
    {"bur"
     "ied",
     "reaped"},
};

// Reasons of Kubernetes events stand in one catalogue; environment variables begin like them.
constexpr std::string_view kEventReasons = "services/kubernetes/pods/event_reasons.h";
constexpr std::string_view kEventReasonStart = "\"QGPU";

// A word that has its reason where it stands.
struct Allowed {
  std::string_view path;
  std::string_view word;
  std::string_view reason;
};
constexpr Allowed kAllowed[] = {
    {"store/testing/memory_disk.cc", "new", "places SQLite's file handle in memory of its own"},
};

constexpr std::string_view kTop[] = {".ci",
                                     ".clang-format",
                                     ".clang-tidy",
                                     ".git",
                                     ".gitattributes",
                                     ".gitignore",
                                     "CHANGELOG.md",
                                     "CMakeLists.txt",
                                     "CMakePresets.json",
                                     "CONTRIBUTING.md",
                                     "LICENSE",
                                     "README.md",
                                     "SECURITY.md",
                                     "actors",
                                     "bench",
                                     "deploy",
                                     "dev",
                                     "docs",
                                     "runtime",
                                     "schema",
                                     "services",
                                     "store",
                                     "tests"};

// C headers that guests of any age include, with guards instead of the pragma.
constexpr std::string_view kCHeaders[] = {"services/wire/gate_abi.h"};

bool under(std::string_view path, std::string_view start) {
  return path.starts_with(start);
}
// Whether a path is this file, or lies in this room.
bool within(std::string_view path, std::string_view room) {
  return under(path, room) && (path.size() == room.size() || path[room.size()] == '/');
}
const Room* roomOf(std::string_view path) {
  const Room* found = nullptr;
  for (const Room& room : kRooms) {
    const bool longer = found == nullptr || room.name.size() > found->name.size();
    if (within(path, room.name) && longer) found = &room;
  }
  return found;
}
bool isHeader(std::string_view path) {
  return path.ends_with(".h");
}
bool isCpp(std::string_view path) {
  return isHeader(path) || path.ends_with(".cc");
}
bool isCode(std::string_view path) {
  for (const auto ending : {".capnp", ".cmake", ".cl", ".sh", ".ts", ".tsx", ".mjs", ".css", ".py",
                            "CMakeLists.txt", "dev"}) {
    if (path.ends_with(ending)) return true;
  }
  return isCpp(path);
}
bool isFreeToInclude(std::string_view path) {
  return under(path, "tests/") || under(path, "bench/");
}

bool isCore(std::string_view path) {
  return std::any_of(std::begin(kCores), std::end(kCores),
                     [&](std::string_view room) { return under(path, room); });
}

// Whatever their case; `lower` has no capitals.
bool sameLetters(std::string_view part, std::string_view lower) {
  return std::equal(part.begin(), part.end(), lower.begin(), lower.end(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  });
}

bool contains(Words words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Collects what one file breaks.
class Check {
 public:
  explicit Check(const SourceFile& file)
      : file_(file), path_(file.path), code_(codeOf(file.text)), lines_(linesOf(file.text)) {}

  std::vector<Finding> run() {
    checkPlainText();
    checkFrontPage();
    if (under(path_, "schema/")) checkSchemaFile();
    if (isCpp(path_) || path_.ends_with(".capnp") || path_.ends_with(".py")) checkTerms();
    if (!isCpp(path_)) return std::move(found_);
    checkIncludes();
    checkOwnHeader();
    if (isHeader(path_)) checkHeaderOpening();
    checkLengths();
    checkWords();
    checkEventReasons();
    return std::move(found_);
  }

 private:
  void add(std::size_t line, std::string rule, std::string what) {
    found_.push_back({file_.path, static_cast<int>(line), std::move(rule), std::move(what)});
  }

  void checkPlainText() {
    // Written in halves, so that this file passes its own rule.
    static constexpr std::string_view kPromises[] = {
        "TO"
        "DO",
        "FIX"
        "ME",
        "XX"
        "X",
        "HA"
        "CK"};
    static constexpr std::string_view kMachines[] = {
        "/wo"
        "rk/",
        "/tmp/ba"
        "sh_"};
    const bool wrapped = isCode(path_);
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const std::string_view line = lines_[i];
      if (line.find('\t') != std::string_view::npos) add(i + 1, "tab", "use blanks");
      if (line.ends_with(' ') || line.ends_with('\r')) add(i + 1, "trailing", "blank at the end");
      if (wrapped && columnsOf(line) > kColumnsMax) {
        add(i + 1, "columns", std::to_string(columnsOf(line)) + " of at most 100");
      }
      for (const auto word : kPromises) {
        if (findWord(line, word) != std::string_view::npos) {
          add(i + 1, "promise", "do it, or open an issue");
        }
      }
      for (const auto path : kMachines) {
        if (line.find(path) != std::string_view::npos) add(i + 1, "machine-path", "of one machine");
      }
    }
    if (!file_.text.empty() && !file_.text.ends_with('\n')) {
      add(lines_.size(), "newline", "the last line has no end");
    }
  }

  void checkTerms() {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      for (const std::string_view part : partsOf(lines_[i])) {
        for (const DeadTerm& dead : kDeadTerms) {
          if (!sameLetters(part, dead.term)) continue;
          add(i + 1, "dead-term", std::string(part) + ": " + std::string(dead.instead));
        }
      }
    }
  }

  void checkFrontPage() {
    const std::size_t bytes = file_.text.size();
    if (path_ != kFrontPage || bytes <= kFrontPageBytesMax) return;
    add(1, "front-page",
        std::to_string(bytes) + " bytes of at most " + std::to_string(kFrontPageBytesMax) +
            ": move the rest to docs/");
  }

  void checkSchemaFile() {
    if (path_.ends_with(".capnp") || path_.ends_with("/CMakeLists.txt")) return;
    add(1, "schema-only", "schema/ holds .capnp files only");
  }

  void checkIncludes() {
    for (const Include& include : includesOf(file_.text)) {
      if (include.quoted) checkRoom(include), checkStandIn(include);
      if (!isFreeToInclude(path_)) checkHome(include);
      if (isCore(path_)) checkCoreInclude(include);
    }
  }

  void checkRoom(const Include& include) {
    const auto line = static_cast<std::size_t>(include.line);
    const std::string target(include.target);
    if (target.find('/') == std::string::npos) {
      add(line, "root-include", "write \"" + target + "\" from the root of the repository");
      return;
    }
    const Room* room = roomOf(path_);
    if (room == nullptr) {
      if (!isFreeToInclude(path_)) add(line, "no-room", "give its folder a row in kRooms");
      return;
    }
    const bool may = std::any_of(
        room->mayInclude.begin(), room->mayInclude.end(),
        [&](std::string_view one) { return !one.empty() && within(include.target, one); });
    if (!may) add(line, "layering", std::string(room->name) + "/ must not include " + target);
  }

  // A number that the product has wrong must meet a driver that does not know it.
  void checkStandIn(const Include& include) {
    const bool ours = under(include.target, "services/guest/") ||
                      under(include.target, "services/nvidia_abi/") ||
                      under(include.target, "services/cards/suspend/");
    const bool driver = std::any_of(std::begin(kDriverStandIns), std::end(kDriverStandIns),
                                    [&](std::string_view one) { return under(path_, one); });
    if (!ours || !driver) return;
    add(static_cast<std::size_t>(include.line), "stand-in",
        "a driver's stand-in must not include " + std::string(include.target));
  }

  void checkHome(const Include& include) {
    bool known = false;
    bool home = false;
    for (const Home& h : kHomes) {
      if (!under(include.target, h.header)) continue;
      known = true;
      home = home || under(path_, h.path);
    }
    if (known && !home) {
      add(static_cast<std::size_t>(include.line), "home",
          "<" + std::string(include.target) + "> has its home elsewhere");
    }
  }

  void checkCoreInclude(const Include& include) {
    const bool ours = contains(kCoreIncludes, include.target) || isCore(include.target);
    // Headers of std have neither folder nor ending.
    const bool std = include.target.find_first_of("/.") == std::string_view::npos;
    if (include.quoted ? ours : std) return;
    add(static_cast<std::size_t>(include.line), "pure-core",
        "a pure core must not include " + std::string(include.target));
  }

  void checkOwnHeader() {
    if (!file_.hasOwnHeader || isHeader(path_)) return;
    const auto includes = includesOf(file_.text);
    const std::string own = file_.path.substr(0, file_.path.size() - 3) + ".h";
    if (!includes.empty() && includes.front().quoted && includes.front().target == own) return;
    add(includes.empty() ? 1 : static_cast<std::size_t>(includes.front().line), "own-header",
        "include \"" + own + "\" first");
  }

  void checkHeaderOpening() {
    if (contains(kCHeaders, path_)) return;
    if (lines_.empty() || lines_[0] != "#pragma once") {
      add(1, "pragma", "the first line of a header is #pragma once");
      return;
    }
    // A small header says it in one line, a larger one in a paragraph.
    const std::size_t wanted = lines_.size() <= kSmallHeaderLines ? 1 : 2;
    for (std::size_t i = 1; i <= wanted; ++i) {
      if (i < lines_.size() && lines_[i].starts_with(i == 1 ? "// " : "//")) continue;
      add(i + 1, "paragraph", "after #pragma once, say what this is, why, and what it keeps");
      return;
    }
  }

  void checkLengths() {
    for (const Function& function : functionsOf(file_.text)) {
      if (function.length <= kFunctionLinesMax) continue;
      add(static_cast<std::size_t>(function.line), "function-length",
          std::to_string(function.length) + " lines of at most 70");
    }
  }

  void checkWords() {
    const bool decides = under(path_, "actors/") || under(path_, "store/");
    const bool unit = under(path_, "tests/unit/") || under(path_, "tests/sim/");
    if (decides) banWords(kNotInActorsAndStore, "banned-word");
    if (decides) banWords(kUnordered, "determinism");
    if (decides || unit) banWords(kNotDeterministic, "determinism");
    if (decides || unit) banWords(kSleeps, "sleep");
  }

  void checkEventReasons() {
    if (!under(path_, "services/") || path_ == kEventReasons) return;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const std::size_t at = lines_[i].find(kEventReasonStart);
      if (at == std::string_view::npos) continue;
      const std::string_view next = lines_[i].substr(at + kEventReasonStart.size(), 1);
      if (next.empty() || next[0] < 'A' || next[0] > 'Z') continue;
      add(i + 1, "event-reason", "name it in " + std::string(kEventReasons));
    }
  }

  void banWords(Words words, const std::string& rule) {
    const auto codeLines = linesOf(code_);
    for (std::size_t i = 0; i < codeLines.size(); ++i) {
      if (codeLines[i].find("#include") != std::string_view::npos) continue;
      for (const auto word : words) {
        // Order that nobody looks at harms nobody, where the line says so.
        const bool promised = lines_[i].find("never iterated") != std::string_view::npos;
        if (promised && contains(kUnordered, word)) continue;
        const bool allowed =
            std::any_of(std::begin(kAllowed), std::end(kAllowed),
                        [&](const Allowed& a) { return a.path == path_ && a.word == word; });
        if (allowed || findWord(codeLines[i], word) == std::string_view::npos) continue;
        add(i + 1, rule, "'" + std::string(word) + "' has no place here");
      }
    }
  }

  const SourceFile& file_;
  const std::string_view path_;
  const std::string code_;
  const std::vector<std::string_view> lines_;
  std::vector<Finding> found_;
};

}  // namespace

std::vector<Finding> checkFile(const SourceFile& file) {
  return Check(file).run();
}

std::vector<Finding> checkRows() {
  std::vector<Finding> found;
  for (const Room* row = std::begin(kRooms); row != std::end(kRooms); ++row) {
    for (const std::string_view other : row->mayInclude) {
      // A folder of rooms stands for each of them.
      const bool below =
          !other.empty() && std::any_of(row + 1, std::end(kRooms),
                                        [&](const Room& r) { return within(r.name, other); });
      if (!below) continue;
      found.push_back(
          {std::string(row->name), 0, "cycle", "names a row below: " + std::string(other)});
    }
  }
  return found;
}

std::vector<Finding> checkFolderCycles(const std::vector<SourceFile>& files) {
  const auto folderOf = [](std::string_view path) {
    return std::string(path.substr(0, path.rfind('/')));
  };
  std::map<std::string, std::set<std::string>> under;  // what a folder stands on, in the end
  for (const SourceFile& file : files) {
    if (!isCpp(file.path) || isFreeToInclude(file.path)) continue;
    const std::string folder = folderOf(file.path);
    for (const Include& include : includesOf(file.text)) {
      if (include.quoted && folderOf(include.target) != folder) {
        under[folder].insert(folderOf(include.target));
      }
    }
  }
  for (const auto& [middle, _] : under) {
    for (auto& [folder, below] : under) {
      if (!below.contains(middle)) continue;
      const std::set<std::string> more = under[middle];
      below.insert(more.begin(), more.end());
    }
  }
  std::vector<Finding> found;
  for (const auto& [folder, below] : under) {
    if (below.contains(folder)) found.push_back({folder, 0, "cycle", "stands on itself"});
  }
  return found;
}

std::vector<Finding> checkRoomSizes(const std::vector<std::string>& paths) {
  std::map<std::string, std::size_t, std::less<>> files;
  for (const std::string& path : paths) {
    if (isCpp(path)) ++files[path.substr(0, path.rfind('/'))];
  }
  std::vector<Finding> found;
  for (const auto& [room, count] : files) {
    if (count <= kRoomFilesMax) continue;
    found.push_back({room, 0, "room-size",
                     std::to_string(count) + " files of at most " + std::to_string(kRoomFilesMax) +
                         ": part it by idea"});
  }
  return found;
}

std::vector<Finding> checkTop(const std::vector<std::string>& names) {
  std::vector<Finding> found;
  for (const std::string& name : names) {
    if (!contains(kTop, name)) found.push_back({name, 0, "top-level", "not a room of the house"});
  }
  return found;
}

}  // namespace qgpu::tidy
