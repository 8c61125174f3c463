#include "tests/chaos/keep_record.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace qgpu::chaos {
namespace {

using Json = nlohmann::json;

constexpr const char* kOutcomes[] = {"ok", "failed", "missing", "unknown"};
constexpr const char* kPhases[] = {"lives", "ending", "ended"};

class Lines {
 public:
  explicit Lines(const std::string& path) : file_(path) {}

  void add(const char* what, const Span& at, Json more) {
    more["what"] = what;
    more["from_ns"] = at.invoked;
    if (at.completed != kOpen) more["to_ns"] = at.completed;
    file_ << more.dump() << "\n";
  }
  template <typename T>
  void change(const char* what, const T& one, Json more) {
    more["outcome"] = kOutcomes[static_cast<std::size_t>(one.outcome)];
    add(what, one.at, std::move(more));
  }

 private:
  std::ofstream file_;
};

Json jsonOf(const Seen& seen) {
  return {{"request", seen.request},
          {"task", seen.task},
          {"epoch", seen.epoch},
          {"phase", kPhases[static_cast<std::size_t>(seen.phase)]},
          {"node", seen.node}};
}

void write(const History& history, Lines& lines) {
  for (const Submit& one : history.submits) {
    lines.change("submit", one, {{"request", one.request}, {"task", one.task}});
  }
  for (const Delete& one : history.deletes) {
    lines.change("delete", one, {{"request", one.request}});
  }
  for (const List& one : history.lists) {
    Json tasks = Json::array();
    for (const Seen& seen : one.tasks) tasks.push_back(jsonOf(seen));
    lines.add("list", one.at, {{"tasks", tasks}});
  }
  for (const Get& one : history.gets) {
    Json more = {{"request", one.request}, {"found", one.found}};
    if (one.found) more["seen"] = jsonOf(one.seen);
    lines.add("get", one.at, more);
  }
  for (const Cordon& one : history.cordons) {
    lines.change("cordon", one, {{"node", one.node}, {"cordoned", one.cordoned}});
  }
  for (const Nodes& one : history.nodes) {
    Json nodes = Json::object();
    for (const auto& [node, is] : one.cordoned) nodes[node] = is;
    lines.add("nodes", one.at, {{"cordoned", nodes}});
  }
  for (const Held& one : history.held) {
    Json tasks = Json::object();
    for (const Held::Task& task : one.tasks) tasks[std::to_string(task.task)] = task.epoch;
    lines.add("held", one.at, {{"node", one.node}, {"epochs", tasks}});
  }
  for (const Term& one : history.terms) {
    lines.add("term", one.at, {{"term", one.term}, {"who", one.who}});
  }
}

}  // namespace

std::string keepRecord(const std::string& folder, std::uint64_t seed, const History& history,
                       const std::vector<Violation>& violations) {
  namespace fs = std::filesystem;
  const std::string kept = fs::temp_directory_path() / ("qgpu-chaos-seed-" + std::to_string(seed) +
                                                        "-" + std::to_string(::getpid()));
  fs::create_directories(kept);
  fs::copy(folder + "/logs", kept, fs::copy_options::recursive);
  Lines lines(kept + "/history.jsonl");
  write(history, lines);
  std::ofstream all(kept + "/violations.txt");
  for (const Violation& one : violations) {
    all << one.at << " ns  " << one.rule << ": " << one.what << "\n";
  }
  return kept;
}

}  // namespace qgpu::chaos
