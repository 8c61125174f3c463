#include "tests/e2e/harness.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace qgpu::e2e {

Manager::Manager(std::vector<std::string> arguments, Environment environment)
    : arguments_(std::move(arguments)), environment_(std::move(environment)) {
  start();
}

Manager::~Manager() {
  if (alive()) stop();
  if (::testing::Test::HasFailure()) fprintf(stderr, "manager said:\n%s\n", log().c_str());
}

void Manager::start() {
  std::vector<std::string> argv = {binary("qgpu-manager"), "--run-dir=" + runDir(),
                                   "--dbfile=" + database(), "--http=127.0.0.1:0"};
  argv.insert(argv.end(), arguments_.begin(), arguments_.end());
  child_ = std::make_unique<Child>(argv, environment_);
  const bool serves = eventually([this] {
    return !askSocket(socket(), "status", std::chrono::milliseconds(500)).empty() ||
           !child_->alive();
  });
  EXPECT_TRUE(serves && child_->alive()) << "the manager does not serve: " << log();
}

void Manager::kill() {
  child_->signal(SIGKILL);
  child_->wait();
}

int Manager::stop() {
  child_->signal(SIGTERM);
  return child_->wait(std::chrono::seconds(10)).value_or(-1);
}

Json Manager::ask(const std::string& line) {
  const std::string answer = askSocket(socket(), line);
  Json json = Json::parse(answer, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << "'" << line << "' was answered: " << answer;
  return json;
}

Json Manager::task(const std::string& name) {
  for (const Json& t : tasks()) {
    if (t["name"] == name) return t;
  }
  return nullptr;
}

std::unique_ptr<Child> Manager::runTask(std::vector<std::string> arguments, Environment extra) {
  std::vector<std::string> argv = {binary("qgpuctl"), "--socket", socket(), "run"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return std::make_unique<Child>(std::move(argv), extra);
}

}  // namespace qgpu::e2e
