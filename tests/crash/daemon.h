#pragma once
// A real qgpu-manager that is started, killed and started again on the same folder. What it answers
// is JSON; no answer is a fact to be told, since the tests take the manager away while they ask.

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/crash/bindings.h"
#include "tests/testing/eventually.h"
#include "tests/testing/private_daemon.h"

namespace qgpu::crash {

using Json = nlohmann::json;
using std::chrono::milliseconds;

class Daemon : public testing::PrivateDaemon {
 public:
  explicit Daemon(std::vector<std::string> arguments, testing::Environment environment = {});

  void awaitService(milliseconds limit = std::chrono::seconds(20));  // or a Violation
  void start() { launch(), awaitService(); }

  // Null where there was no answer within `limit`.
  Json tryAsk(const std::string& line, milliseconds limit = std::chrono::seconds(10)) const;
  // A Violation where there was none, or it says no.
  Json ask(const std::string& line) const;
  std::vector<Listed> list() const;
};

// The line of the admin socket that binds it.
std::string bindLine(const Wish& wish);

// Throws a Violation where the manager's tasks are not what its clients were promised.
void checkBindings(const Daemon& daemon, const Bindings& bindings);

// Waits; real time is what these tests are about.
void pause(milliseconds time);

}  // namespace qgpu::crash
