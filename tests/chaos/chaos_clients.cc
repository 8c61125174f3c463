#include "tests/chaos/chaos_clients.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "tests/chaos/admin_line.h"
#include "tests/testing/child_process.h"
#include "tests/testing/eventually.h"

namespace qgpu::chaos {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kLimit{5'000};  // for an answer
constexpr std::size_t kWriters = 3;
constexpr std::size_t kTasksOfWriter = 20;  // at a time
constexpr std::size_t kKept = 4;            // of these, to the end
constexpr std::size_t kKnownMax = 64;

Outcome outcomeOf(const Answer& answer) {
  static const std::set<std::string> kRefused = {"stands-by", "invalid-argument", "denied",
                                                 "no-room",   "infeasible",       "cordoned",
                                                 "conflict",  "already-exists"};
  if (!answer.asked) return Outcome::Failed;
  if (answer.ok()) return Outcome::Ok;
  if (answer.code() == "not-found") return Outcome::Missing;
  return kRefused.contains(answer.code()) ? Outcome::Failed : Outcome::Unknown;
}

Phase phaseOf(const std::string& place) {
  if (place == "ending") return Phase::Ending;
  return place == "ended" ? Phase::Ended : Phase::Lives;
}

Seen seenOf(const Json& task) {
  return {task.value("request_id", ""), task.value("id", std::uint64_t{0}),
          task.value("epoch", std::uint32_t{0}), phaseOf(task.value("place", "")),
          task.value("node", "")};
}

List listOf(const Span& at, const Json& answer) {
  List list{at, {}};
  for (const Json& task : answer["tasks"]) list.tasks.push_back(seenOf(task));
  return list;
}

// The answer, and from before it was asked until after it came.
std::pair<Answer, Span> asked(const std::string& socket, const std::string& line) {
  const Time invoked = testing::monotonicNs();
  Answer answer = askAdmin(socket, line, kLimit);
  return {std::move(answer), {invoked, testing::monotonicNs()}};
}

Span spanOf(const Span& at, Outcome outcome) {
  return {at.invoked, outcome == Outcome::Unknown ? kOpen : at.completed};
}

}  // namespace

// Has some tasks, of which it ends one and submits another, one at a time.
class ChaosClients::Writer {
 public:
  Writer(ChaosClients& clients, std::size_t number)
      : clients_(clients), name_("w" + std::to_string(number) + "-") {}

  void turn(std::uint64_t random) {
    if (mine_.size() < kKept || (mine_.size() < kTasksOfWriter && random % 2 == 0)) {
      return submit(name_ + std::to_string(++requests_));
    }
    const std::size_t at = kKept + random / 2 % (mine_.size() - kKept + 1);
    if (at < mine_.size()) erase(at);
  }

 private:
  void submit(const std::string& request) {
    const std::string line = R"(submit {"name":")" + request +
                             R"(","memory_gib":1,"core_percent":1,"request_id":")" + request +
                             R"("})";
    do {
      const auto [answer, at] = asked(clients_.doors_.schedulers[at_], line);
      const Outcome outcome = outcomeOf(answer);
      const std::uint64_t task = answer.ok() ? answer.said.value("task", std::uint64_t{0}) : 0;
      clients_.record(&History::submits, {spanOf(at, outcome), request, outcome, task});
      if (outcome == Outcome::Ok) {
        mine_.emplace_back(request, task);
        const std::lock_guard lock(clients_.known_mutex_);
        clients_.known_.emplace_back(request, task);
        if (clients_.known_.size() > kKnownMax) clients_.known_.erase(clients_.known_.begin());
        return;
      }
    } while (another());
  }

  void erase(std::size_t which) {
    const auto [request, task] = mine_[which];
    mine_.erase(mine_.begin() + static_cast<std::ptrdiff_t>(which));
    do {
      const auto [answer, at] =
          asked(clients_.doors_.schedulers[at_], "delete " + std::to_string(task));
      const Outcome outcome = outcomeOf(answer);
      clients_.record(&History::deletes, {spanOf(at, outcome), request, outcome});
      if (outcome == Outcome::Ok || outcome == Outcome::Missing) return;
    } while (another());
  }

  // The next scheduler is asked, somewhat later.
  bool another() {
    at_ = (at_ + 1) % clients_.doors_.schedulers.size();
    return clients_.wait(milliseconds(20));
  }

  ChaosClients& clients_;
  const std::string name_;
  std::size_t at_ = 0;
  std::uint64_t requests_ = 0;
  std::vector<std::pair<std::string, std::uint64_t>> mine_;
};

ChaosClients::ChaosClients(Doors doors, std::uint64_t seed) : doors_(std::move(doors)) {
  for (std::size_t i = 0; i < kWriters; ++i) {
    writers_.push_back(std::make_unique<Writer>(*this, i));
    start(++seed, Pace(15), [writer = writers_.back().get()](auto r) { writer->turn(r); });
  }
  start(++seed, Pace(150), [this](auto r) { list(r); });
  start(++seed, Pace(50), [this](auto r) { get(r); });
  start(++seed, Pace(100), [this](auto r) { cordonOrLook(r); });
  start(++seed, Pace(60), [this](auto r) { askHeld(r); });
  start(++seed, Pace(100), [this](auto r) { askTerms(r); });
  start(++seed, Pace(500), [this](auto r) { askOutside(r); });
}

ChaosClients::~ChaosClients() {
  ends_ = true;
  wake_.notify_all();
  for (std::thread& one : threads_) one.join();
}

void ChaosClients::start(std::uint64_t seed, Pace pace, std::function<void(std::uint64_t)> turn) {
  threads_.emplace_back([this, seed, pace, turn = std::move(turn)] {
    std::mt19937_64 random(seed);
    while (wait(pace)) {
      ++busy_;  // before it looks, so that resting() is never true too early
      if (!rests_) turn(random());
      --busy_;
    }
  });
}

bool ChaosClients::wait(Pace pace) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, pace, [this] { return ends_.load(); });
}

bool ChaosClients::uncordonAll() {
  for (std::size_t node = 0; node < doors_.nodes.size(); ++node) {
    const auto done = [&](const std::string& socket) { return cordon(node, false, socket); };
    if (std::none_of(doors_.schedulers.begin(), doors_.schedulers.end(), done)) return false;
  }
  return true;
}

// --- what they ask ---

void ChaosClients::list(std::uint64_t random) {
  const auto [answer, at] = asked(doors_.schedulers[random % doors_.schedulers.size()], "tasks");
  if (answer.ok()) record(&History::lists, listOf(at, answer.said));
}

void ChaosClients::get(std::uint64_t random) {
  std::pair<std::string, std::uint64_t> one;
  {
    const std::lock_guard lock(known_mutex_);
    if (known_.empty()) return;
    one = known_[random % known_.size()];
  }
  const std::string& socket = doors_.schedulers[random / kKnownMax % doors_.schedulers.size()];
  const auto [answer, at] = asked(socket, "tasks " + std::to_string(one.second));
  if (outcomeOf(answer) == Outcome::Missing) record(&History::gets, {at, one.first, false, {}});
  if (!answer.ok() || answer.said["tasks"].empty()) return;
  record(&History::gets, {at, one.first, true, seenOf(answer.said["tasks"][0])});
}

bool ChaosClients::cordon(std::size_t node, bool is, const std::string& socket) {
  const std::string& name = doors_.nodes[node];
  const auto [answer, at] = asked(socket, (is ? "cordon " : "uncordon ") + name);
  const Outcome outcome = outcomeOf(answer);
  record(&History::cordons, {spanOf(at, outcome), name, is, outcome});
  return outcome == Outcome::Ok;
}

void ChaosClients::cordonOrLook(std::uint64_t random) {
  const std::string& socket = doors_.schedulers[random % doors_.schedulers.size()];
  random /= doors_.schedulers.size();
  if (random % 3 == 0) {
    cordon(random / 3 % doors_.nodes.size(), random / 64 % 3 == 0, socket);
    return;
  }
  const auto [answer, at] = asked(socket, "nodes");
  if (!answer.ok()) return;
  Nodes seen{at, {}};
  for (const Json& node : answer.said["nodes"]) {
    seen.cordoned.emplace_back(node.value("name", ""), node.value("cordoned", false));
  }
  record(&History::nodes, std::move(seen));
}

void ChaosClients::askTerms(std::uint64_t random) {
  const auto [answer, at] = asked(doors_.schedulers[random % doors_.schedulers.size()], "status");
  if (!answer.ok()) return;
  record(&History::terms, {at, answer.said.value("term", std::uint64_t{0}),
                           "process " + std::to_string(answer.said.value("pid", 0))});
}

void ChaosClients::askHeld(std::uint64_t random) {
  const std::size_t node = random % doors_.managers.size();
  const auto [answer, at] = asked(doors_.managers[node], "tasks");
  if (!answer.ok()) return;
  Held held{at, doors_.nodes[node], {}};
  for (const Json& task : answer.said["tasks"]) {
    held.tasks.push_back({task.value("cluster_task", std::uint64_t{0}),
                          task.value("cluster_epoch", std::uint32_t{0})});
  }
  record(&History::held, std::move(held));
}

// Exit status 0: it was done, or answered. Otherwise nothing is certain.
void ChaosClients::askOutside(std::uint64_t random) {
  const bool reads = random % 2 == 0, is = random / 2 % 3 == 0;
  const std::string& node = doors_.nodes[random / 64 % doors_.nodes.size()];
  const Time invoked = testing::monotonicNs();
  const testing::Finished done =
      testing::run(doors_.ctl(reads ? std::vector<std::string>{"tasks"}
                                    : std::vector<std::string>{is ? "cordon" : "uncordon", node}),
                   {}, milliseconds(20'000));
  const Span at{invoked, testing::monotonicNs()};
  if (!reads) {
    const Outcome outcome = done.status == 0 ? Outcome::Ok : Outcome::Unknown;
    return record(&History::cordons, {spanOf(at, outcome), node, is, outcome});
  }
  const Json answer = Json::parse(done.output, nullptr, false);
  if (done.status == 0 && answer.is_object() && answer.contains("tasks")) {
    record(&History::lists, listOf(at, answer));
  }
}

}  // namespace qgpu::chaos
