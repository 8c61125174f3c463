#include "tests/chaos/generated_history.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

namespace qgpu::chaos {
namespace {

constexpr std::size_t kClients = 8, kNodesOf = 4, kTasksAtATime = 40;
constexpr Time kMs = 1'000'000;

struct Living {
  std::uint64_t task = 0;
  std::uint32_t epoch = 1;
  std::size_t node = 0;
};

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  History run(std::size_t operations) {
    for (std::size_t i = 0; i < operations; ++i) {
      const std::size_t client = draw(kClients);
      now_ = std::max(now_ + static_cast<Time>(draw(3)) * kMs, busyUntil_[client] + 1);
      late(now_);
      const Span at = span(client);
      one(at);
    }
    late(kOpen);
    return std::move(history_);
  }

 private:
  std::size_t draw(std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_);
  }
  bool oneIn(std::size_t n) { return draw(n) == 0; }
  static std::string nodeName(std::size_t node) { return "n" + std::to_string(node); }

  // Around now_, the moment at which it happens; the client is busy meanwhile.
  Span span(std::size_t client) {
    const Time before =
        std::min<Time>(static_cast<Time>(draw(9)) * kMs, now_ - busyUntil_[client] - 1);
    const Span at{now_ - before, now_ + static_cast<Time>(draw(9)) * kMs};
    busyUntil_[client] = at.completed;
    return at;
  }

  void one(const Span& at) {
    switch (draw(9)) {
      case 0:
      case 1:
        return submit(at);
      case 2:
        return erase(at);
      case 3:
        return list(at);
      case 4:
        return get(at);
      case 5:
        return cordon(at);
      case 6:
        return nodes(at);
      case 7:
        return held(at);
      default:
        return termOrMove(at);
    }
  }

  // A client that is not told asks again; what it asked first may come late.
  void submit(const Span& at) {
    if (living_.size() >= kTasksAtATime) return erase(at);
    const std::string request = "r" + std::to_string(++requests_);
    if (oneIn(6)) {
      history_.submits.push_back({{at.invoked, kOpen}, request, Outcome::Unknown, 0});
      if (oneIn(2))
        create(request);
      else if (oneIn(2))
        later_.emplace(now_ + static_cast<Time>(draw(5'000)) * kMs, request);
      if (oneIn(3)) return;
    }
    create(request);
    const auto mine = living_.find(request);
    if (mine == living_.end()) return;
    history_.submits.push_back({at, request, Outcome::Ok, mine->second.task});
  }
  void create(const std::string& request) {
    if (std::exchange(everCreated_[request], true)) return;
    living_[request] = {++tasks_, 1, draw(kNodesOf)};
  }
  void late(Time until) {
    while (!later_.empty() && later_.begin()->first < until) {
      create(later_.begin()->second);
      later_.erase(later_.begin());
    }
  }

  std::map<std::string, Living>::iterator any() {
    return std::next(living_.begin(), static_cast<std::ptrdiff_t>(draw(living_.size())));
  }
  void erase(const Span& at) {
    if (living_.empty()) return;
    const auto task = any();
    const bool unknown = oneIn(6);
    const Span asked{at.invoked, unknown ? kOpen : at.completed};
    history_.deletes.push_back({asked, task->first, unknown ? Outcome::Unknown : Outcome::Ok});
    if (!unknown || oneIn(2)) living_.erase(task);
  }
  static Seen seenOf(const std::string& request, const Living& task) {
    return {request, task.task, task.epoch, Phase::Lives, nodeName(task.node)};
  }
  void list(const Span& at) {
    List list{at, {}};
    for (const auto& [request, task] : living_) list.tasks.push_back(seenOf(request, task));
    history_.lists.push_back(std::move(list));
  }
  void get(const Span& at) {
    if (living_.empty()) return;
    const auto task = any();
    history_.gets.push_back({at, task->first, true, seenOf(task->first, task->second)});
  }

  void cordon(const Span& at) {
    const std::size_t node = draw(kNodesOf);
    const bool unknown = oneIn(5), to = oneIn(2);
    if (!unknown || oneIn(2)) cordoned_[node] = to;
    history_.cordons.push_back({{at.invoked, unknown ? kOpen : at.completed},
                                nodeName(node),
                                to,
                                unknown ? Outcome::Unknown : Outcome::Ok});
  }
  void nodes(const Span& at) {
    Nodes seen{at, {}};
    for (std::size_t i = 0; i < kNodesOf; ++i) {
      seen.cordoned.emplace_back(nodeName(i), cordoned_[i]);
    }
    history_.nodes.push_back(std::move(seen));
  }
  void held(const Span& at) {
    const std::size_t node = draw(kNodesOf);
    Held seen{at, nodeName(node), {}};
    for (const auto& [request, task] : living_) {
      if (task.node == node) seen.tasks.push_back({task.task, task.epoch});
    }
    history_.held.push_back(std::move(seen));
  }
  void termOrMove(const Span& at) {
    if (oneIn(20)) ++term_;
    history_.terms.push_back({at, term_, "s" + std::to_string(term_ % 3)});
    if (living_.empty()) return;
    const auto task = any();
    ++task->second.epoch;
    task->second.node = draw(kNodesOf);
  }

  std::mt19937_64 random_;
  History history_;
  Time now_ = kMs;
  Time busyUntil_[kClients] = {};
  std::map<std::string, Living> living_;
  std::map<std::string, bool> everCreated_;
  std::multimap<Time, std::string> later_;
  bool cordoned_[kNodesOf] = {};
  std::uint64_t requests_ = 0, tasks_ = 0, term_ = 1;
};

}  // namespace

History generatedHistory(std::uint64_t seed, std::size_t operations) {
  return Generator(seed).run(operations);
}

}  // namespace qgpu::chaos
