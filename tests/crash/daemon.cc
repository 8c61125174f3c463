#include "tests/crash/daemon.h"

#include <poll.h>
#include <utility>

#include "tests/crash/folder.h"
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

Daemon::Daemon(std::vector<std::string> arguments, testing::Environment environment)
    : PrivateDaemon("manager", makeFolder(), std::move(arguments), std::move(environment)) {}

void Daemon::awaitService(milliseconds limit) {
  if (PrivateDaemon::awaitService(limit)) return;
  if (alive()) throw Violation("the manager does not serve: " + log());
  throw Violation("the manager ended with status " +
                  std::to_string(wait(milliseconds(0)).value_or(-1)) + ": " + log());
}

Json Daemon::tryAsk(const std::string& line, milliseconds limit) const {
  const std::string answer = testing::askSocket(socket(), line, limit);
  if (answer.empty() || answer.back() != '\n') return nullptr;
  Json json = Json::parse(answer, nullptr, false);
  if (json.is_discarded()) throw Violation("'" + line + "' was answered: " + answer);
  return json;
}

Json Daemon::ask(const std::string& line) const {
  Json json = tryAsk(line);
  if (json.is_null()) throw Violation("'" + line + "' was not answered; manager: " + log());
  if (json["ok"] != true) throw Violation("'" + line + "' was answered: " + json.dump());
  return json;
}

std::vector<Listed> Daemon::list() const {
  std::vector<Listed> found;
  const Json tasks = ask("tasks");
  for (const Json& t : tasks["tasks"]) {
    found.push_back(
        {t["id"], t["name"], t["class"], t["card"], t["mem_bytes"], t["share_permille"]});
  }
  return found;
}

}  // namespace qgpu::crash
