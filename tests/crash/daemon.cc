#include "tests/crash/daemon.h"

#include <poll.h>
#include <signal.h>

#include "tests/crash/violation.h"

namespace qgpu::crash {

void pause(milliseconds time) {
  if (time.count() > 0) ::poll(nullptr, 0, static_cast<int>(time.count()));
}

void checkBindings(const Daemon& daemon, const Bindings& bindings) {
  const Bindings::Entries before = bindings.entries();
  const std::vector<Listed> list = daemon.list();
  const auto wrong = Bindings::compare(before, bindings.entries(), list);
  if (wrong) throw Violation(*wrong);
}

std::string bindLine(const Wish& wish) {
  Json spec = {{"name", wish.name},       {"request_id", wish.name},
               {"class", wish.taskClass}, {"memory_gib", wish.memoryGib},
               {"owner", "none"},         {"core_percent", wish.corePercent}};
  if (!wish.card.empty()) spec["card"] = wish.card;
  return "run " + spec.dump();
}

void Daemon::launch() {
  std::vector<std::string> argv = {e2e::binary("qgpu-manager"), "--run-dir=" + plan_.runDir,
                                   "--dbfile=" + plan_.database, "--http=127.0.0.1:0"};
  argv.insert(argv.end(), plan_.arguments.begin(), plan_.arguments.end());
  child_ = std::make_unique<e2e::Child>(std::move(argv), plan_.environment);
}

void Daemon::awaitService(milliseconds limit) {
  const std::int64_t end = e2e::monotonicNs() + limit.count() * 1'000'000;
  while (tryAsk("status", std::chrono::seconds(2)).is_null()) {
    if (!alive()) {
      throw Violation("the manager ended with status " +
                      std::to_string(child_->wait().value_or(-1)) + ": " + said());
    }
    if (e2e::monotonicNs() > end) throw Violation("the manager does not serve: " + said());
    pause(milliseconds(1));
  }
}

void Daemon::kill() {
  child_->signal(SIGKILL);
  child_->wait();
}

int Daemon::stop() {
  child_->signal(SIGTERM);
  return child_->wait(std::chrono::seconds(10)).value_or(-1);
}

Json Daemon::tryAsk(const std::string& line, milliseconds limit) const {
  const std::string answer = e2e::askSocket(socket(), line, limit);
  if (answer.empty() || answer.back() != '\n') return nullptr;
  Json json = Json::parse(answer, nullptr, false);
  if (json.is_discarded()) throw Violation("'" + line + "' was answered: " + answer);
  return json;
}

Json Daemon::ask(const std::string& line) const {
  Json json = tryAsk(line);
  if (json.is_null()) throw Violation("'" + line + "' was not answered; manager: " + said());
  if (json["ok"] != true) throw Violation("'" + line + "' was answered: " + json.dump());
  return json;
}

std::vector<Listed> Daemon::list() const {
  std::vector<Listed> found;
  const Json tasks = ask("tasks");
  for (const Json& t : tasks["tasks"]) {
    found.push_back({t["id"], t["name"], t["class"], t["card"], t["mem_bytes"],
                     t["share_permille"]});
  }
  return found;
}

}  // namespace qgpu::crash
