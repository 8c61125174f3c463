#include "tests/gpu/scene.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/crash/violation.h"

namespace qgpu::gpu {

using crash::Violation;

std::optional<TheCard> TheCard::find() {
  auto nvml = Nvml::open();
  std::uint32_t count = 0;
  if (!nvml || nvml->count(count) != Nvml::kSuccess || count == 0) return std::nullopt;
  TheCard card(std::move(*nvml));
  if (card.nvml_.byIndex(0, card.device_) != Nvml::kSuccess) return std::nullopt;
  card.uuid = card.nvml_.uuid(card.device_);
  card.model = card.nvml_.name(card.device_);
  card.driver = card.nvml_.driverVersion();
  card.bytes = card.nvml_.bytes(card.device_);
  card.minor = card.nvml_.minor(card.device_);
  return card;
}

Json resultOf(Child& child, const std::string& name, milliseconds limit) {
  const std::optional<int> status = child.wait(limit);
  const std::string text = child.output();
  if (status != 0) {
    throw Violation(name + (status ? " ended with " + std::to_string(*status) : " does not end") +
                    ": " + text);
  }
  const std::size_t from = text.rfind("\n{", text.size()) + 1;
  Json json = Json::parse(text.substr(from, text.find('\n', from) - from), nullptr, false);
  if (!json.is_object()) throw Violation(name + " printed no result: " + text);
  return json;
}

namespace {

bool asks(const Arguments& flags, const std::string& begin) {
  return std::any_of(flags.begin(), flags.end(),
                     [&](const std::string& flag) { return flag.starts_with(begin); });
}

}  // namespace

Scene::Scene(const TheCard& card, Arguments flags)
    : card_(card), daemon_([&] {
        Arguments all = {"--cards=nvidia", "--mixed", "--max-tasks-per-card=8"};
        all.insert(all.end(), flags.begin(), flags.end());
        return all;
      }()) {
  daemon_.launch();
  daemon_.awaitService(std::chrono::seconds(60));  // the driver may have to be woken
  if (!asks(flags, "--suspend=")) mustSuspend();
}

void Scene::mustSuspend() {
  if (card_.suspends.empty()) return;
  const Json found = card();
  if (found["suspend"] == card_.suspends) return;
  throw Violation("the card must suspend by " + card_.suspends + ", and suspends by " +
                  found["suspend"].get<std::string>() + ": " + found.value("suspend_why", ""));
}

Scene::~Scene() {
  if (daemon_.alive()) daemon_.stop();
}

std::unique_ptr<Child> Scene::run(const Tenant& tenant, Arguments program) {
  Arguments words = {testing::binary("qgpuctl"), "--socket", daemon_.socket(), "run"};
  for (const std::string& word :
       Arguments{"--name", tenant.name, "--class", tenant.taskClass, "--card", card_.uuid,
                 "--memory", std::to_string(tenant.memory)}) {
    words.push_back(word);
  }
  if (tenant.taskClass != "online") {
    words.insert(words.end(), {"--core", std::to_string(tenant.core)});
  }
  if (tenant.pageable > 0) {
    words.insert(words.end(), {"--pageable", std::to_string(tenant.pageable)});
  }
  words.emplace_back("--");
  words.insert(words.end(), program.begin(), program.end());
  return std::make_unique<Child>(std::move(words));
}

std::unique_ptr<Child> Scene::bare(Arguments program) const {
  return std::make_unique<Child>(std::move(program),
                                 testing::Environment{{"CUDA_VISIBLE_DEVICES", card_.uuid}});
}

Arguments Scene::work(Arguments words) {
  words.insert(words.begin(), testing::binary("qgpu-gpu-work"));
  return words;
}

Json Scene::card() {
  const crash::Json all = daemon_.ask("cards");
  for (const auto& each : all["cards"]) {
    if (each["id"] == card_.uuid) return each;
  }
  throw Violation("the manager has no card " + card_.uuid + ": " + all.dump());
}

Json Scene::task(const std::string& name) {
  const crash::Json all = daemon_.ask("tasks");
  for (const auto& each : all["tasks"]) {
    if (each["name"] == name) return each;
  }
  return nullptr;
}

std::string Scene::told() {
  return "; tasks: " + daemon_.tryAsk("tasks").dump() + "; manager: " + daemon_.log();
}

void Scene::await(const std::string& what, const std::function<bool()>& probe, milliseconds limit) {
  if (!testing::eventually(probe, limit)) throw Violation("in vain waited for " + what + told());
}

void Scene::await(const std::string& what, Child& program, const std::function<bool()>& probe,
                  milliseconds limit) {
  bool came = false;
  testing::eventually(
      [&] {
        const bool ended = !program.alive();  // before what it said is looked at
        came = probe();
        return came || ended;
      },
      limit);
  if (!came) {
    throw Violation("in vain waited for " + what + "; it said: " + program.output() + told());
  }
}

Json Scene::faults() {
  Json lines = Json::array();
  std::istringstream all(daemon_.log());
  for (std::string line; std::getline(all, line);) {
    for (const char* word : {"Xid", "program-fault", "card-ill"}) {
      if (line.find(word) == std::string::npos) continue;
      lines.push_back(line);
      break;
    }
  }
  return lines;
}

std::string Scene::signalFile() {
  return daemon_.folder() / ("signal-" + std::to_string(++files_));
}

void Scene::give(const std::string& file) {
  std::ofstream made(file);
}

int said(const Child& child, const std::string& line) {
  const std::string text = "\n" + child.output(), whole = "\n" + line + "\n";
  int times = 0;
  for (std::size_t at = 0; (at = text.find(whole, at)) != std::string::npos; ++at) ++times;
  return times;
}

}  // namespace qgpu::gpu
