#include "tests/e2e/harness.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <signal.h>

namespace qgpu::e2e {
namespace {

constexpr auto kServesWithin = std::chrono::seconds(20);
constexpr auto kAnswerWithin = std::chrono::seconds(40);

// The later of two arguments of one name holds.
std::vector<std::string> behind(std::string first, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::move(first));
  return arguments;
}

}  // namespace

Daemon::Daemon(std::string name, std::vector<std::string> arguments, Environment environment)
    : PrivateDaemon(std::move(name), TempFolder("e2e"), std::move(arguments),
                    std::move(environment)) {
  start();
}

Daemon::~Daemon() {
  if (alive()) stop();
  if (::testing::Test::HasFailure()) {
    fprintf(stderr, "%s said:\n%s\n", name().c_str(), log().c_str());
  }
}

void Daemon::start() {
  launch();
  EXPECT_TRUE(awaitService(kServesWithin)) << "the " << name() << " does not serve: " << log();
}

Json Daemon::ask(const std::string& line) {
  const std::string answer = askSocket(socket(), line, kAnswerWithin);
  Json json = Json::parse(answer, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << "'" << line << "' was answered: " << answer;
  return json;
}

std::string Daemon::get(const std::string& path) const {
  return run({"/usr/bin/curl", "-s", "-w", "%{http_code}", "http://" + logged("http") + path})
      .output;
}

Manager::Manager(std::vector<std::string> arguments, Environment environment)
    : Daemon("manager", std::move(arguments), std::move(environment)) {}

Json Manager::task(const std::string& name) {
  for (const Json& t : tasks()) {
    if (t["name"] == name) return t;
  }
  return nullptr;
}

std::unique_ptr<Child> Manager::runTask(std::vector<std::string> arguments, Environment extra) {
  std::vector<std::string> argv = {binary("qgpuctl"), "--socket", socket(), "run"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return std::make_unique<Child>(argv, extra);
}

void endWork(Child& task) {
  task.signalChild(SIGTERM);
  EXPECT_EQ(task.wait().value_or(-1), 0) << task.output();
}

Scheduler::Scheduler(std::vector<std::string> arguments, Environment environment)
    : Daemon("scheduler", behind("--rpc=127.0.0.1:0", std::move(arguments)),
             std::move(environment)) {}

Json Scheduler::post(const std::string& verb, const Json& body) const {
  static std::atomic<unsigned> posts{0};  // binds are posted beside each other
  const std::string sent = folder() / ("body-" + std::to_string(++posts));
  std::ofstream(sent) << body;
  const Finished answer =
      run({"/usr/bin/curl", "-s", "-H", "Content-Type: application/json", "--data-binary",
           "@" + sent, "http://" + logged("http") + "/scheduler/" + verb});
  std::filesystem::remove(sent);
  return answer.status == 0 ? Json::parse(answer.output, nullptr, false) : Json();
}

std::string Scheduler::metric(const std::string& family) const {
  const std::string http = logged("http");
  const std::size_t colon = http.rfind(':');
  const std::string tcp = "/dev/tcp/" + http.substr(0, colon) + "/" + http.substr(colon + 1);
  return run({"/bin/bash", "-c",
              "exec 3<>" + tcp +
                  " && printf 'GET /metrics HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n' >&3"
                  " && grep -m1 '^" +
                  family + "{' <&3"})
      .output;
}

Json Scheduler::task(std::uint64_t id) {
  const Json answer = ask("tasks " + std::to_string(id));
  return answer["ok"] == true && !answer["tasks"].empty() ? answer["tasks"][0] : Json();
}

std::string Scheduler::stateOf(const std::string& node) {
  const Json answer = ask("nodes");
  for (const Json& one : answer["nodes"]) {
    if (one["name"] == node) return one["state"];
  }
  return "unknown";
}

bool Scheduler::waitFor(const std::string& node, const std::string& state) {
  return eventually([&] { return stateOf(node) == state; }, std::chrono::seconds(30));
}

}  // namespace qgpu::e2e
