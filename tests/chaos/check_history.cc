#include "tests/chaos/check_history.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "tests/chaos/linearize.h"

namespace qgpu::chaos {
namespace {

constexpr std::int8_t kAbsent = 0, kLives = 1, kGone = 2;
constexpr Effect kSubmitted = {kLives, kLives, kGone, kNo};  // again: the same task is answered
constexpr Effect kDeleted = {kNo, kGone, kGone, kNo};
constexpr Effect kMayDelete = {kNo, kGone, kNo, kNo};
constexpr Effect kSeenMissing = {kAbsent, kNo, kGone, kNo};
constexpr Effect kSeenLiving = {kNo, kLives, kNo, kNo};
constexpr Effect kSeenEnding = {kNo, kLives, kGone, kNo};
constexpr Effect kSeenEnded = {kNo, kNo, kGone, kNo};

const Effect& effectOf(Phase phase) {
  if (phase == Phase::Lives) return kSeenLiving;
  return phase == Phase::Ending ? kSeenEnding : kSeenEnded;
}

std::string seconds(Time at) {
  return std::to_string(at / 1'000'000) + " ms";
}

// A value that somebody read, and that never falls.
struct Rising {
  Span at;
  std::uint64_t value;
};

// A read whose value is below that of one which was answered before it was asked; the higher value.
std::optional<std::pair<Rising, std::uint64_t>> firstFall(std::vector<Rising> reads) {
  std::vector<Rising> answered = reads;
  const auto by = [](auto member) {
    return [member](const Rising& a, const Rising& b) { return a.at.*member < b.at.*member; };
  };
  std::sort(reads.begin(), reads.end(), by(&Span::invoked));
  std::sort(answered.begin(), answered.end(), by(&Span::completed));
  std::uint64_t highest = 0;
  auto next = answered.begin();
  for (const Rising& read : reads) {
    for (; next != answered.end() && next->at.completed < read.at.invoked; ++next) {
      highest = std::max(highest, next->value);
    }
    if (read.value < highest) return std::pair{read, highest};
  }
  return {};
}

// All that is known of one task.
struct Task {
  Time asked = kOpen;        // first
  Time deleteAsked = kOpen;  // first
  Time deleted = kOpen;      // acknowledged, first
  Time news = 0;             // the last that was asked or said of it, but for that it is not there
  bool missing = false;      // in a list since then: what lists lack later adds nothing
  std::uint64_t number = 0;
  std::vector<Step> steps;
  std::vector<Rising> epochs;
};

class Judge {
 public:
  explicit Judge(const History& history) : history_(history) {}

  Findings run() {
    for (const Submit& one : history_.submits) submit(one);
    for (const Delete& one : history_.deletes) erase(one);
    for (const Get& one : history_.gets) get(one);
    lists();
    for (const auto& [request, task] : tasks_) judgeTask(request, task);
    judgeCordons();
    judgeHeld();
    judgeTerms();
    auto& all = findings_.violations;
    std::stable_sort(all.begin(), all.end(),
                     [](const Violation& a, const Violation& b) { return a.at < b.at; });
    return std::move(findings_);
  }

 private:
  // `known`: the outcome.
  static void step(Task& task, const Span& at, const Effect& effect, bool known = true) {
    task.steps.push_back({{at.invoked, known ? at.completed : kOpen}, effect});
    task.news = std::max(task.news, known ? at.completed : at.invoked);
  }

  void violated(const char* rule, Time at, std::string what) {
    findings_.violations.push_back({rule, at, std::move(what)});
  }

  // --- tasks ---

  void submit(const Submit& one) {
    if (one.outcome == Outcome::Failed) return;
    Task& task = tasks_[one.request];
    task.asked = std::min(task.asked, one.at.invoked);
    const bool known = one.outcome == Outcome::Ok;
    step(task, one.at, kSubmitted, known);
    if (known) isNumber(one.request, task, one.task, one.at.completed);
  }

  void erase(const Delete& one) {
    if (one.outcome == Outcome::Failed) return;
    Task& task = tasks_[one.request];
    if (one.outcome == Outcome::Missing) return step(task, one.at, kSeenMissing);
    task.deleteAsked = std::min(task.deleteAsked, one.at.invoked);
    const bool known = one.outcome == Outcome::Ok;
    if (known) task.deleted = std::min(task.deleted, one.at.completed);
    step(task, one.at, known ? kDeleted : kMayDelete, known);
  }

  void get(const Get& one) {
    Task& task = tasks_[one.request];
    if (one.found) return seen(one.at, one.seen);
    step(task, one.at, kSeenMissing);
  }

  void seen(const Span& at, const Seen& seen) {
    const auto found = tasks_.find(seen.request);
    if (found == tasks_.end() || found->second.asked > at.completed) {
      return violated("request", at.completed,
                      "task " + std::to_string(seen.task) + " of '" + seen.request +
                          "', for which nobody had asked");
    }
    Task& task = found->second;
    isNumber(seen.request, task, seen.task, at.completed);
    step(task, at, effectOf(seen.phase));
    task.epochs.push_back({at, seen.epoch});
    if (!seen.node.empty()) isOn(seen.task, seen.epoch, seen.node, at.completed);
  }

  void isNumber(const std::string& request, Task& task, std::uint64_t number, Time at) {
    if (task.number == 0) task.number = number;
    if (task.number == number) return;
    violated("request", at,
             "'" + request + "' is task " + std::to_string(number) + " and was task " +
                 std::to_string(task.number));
  }

  void isOn(std::uint64_t task, std::uint32_t epoch, const std::string& node, Time at) {
    const auto [place, isNew] = places_.try_emplace({task, epoch}, node);
    if (isNew || place->second == node) return;
    violated("epoch", at,
             "task " + std::to_string(task) + " epoch " + std::to_string(epoch) + " is on " + node +
                 " and was on " + place->second);
  }

  // What a list does not have is a read as well, of each task that may have lived then.
  void lists() {
    std::vector<const List*> all;
    for (const List& list : history_.lists) {
      all.push_back(&list);
      for (const Seen& one : list.tasks) seen(list.at, one);
    }
    std::sort(all.begin(), all.end(),
              [](const List* a, const List* b) { return a->at.invoked < b->at.invoked; });
    std::vector<std::pair<Time, Task*>> asked;
    for (auto& [request, task] : tasks_) asked.emplace_back(task.asked, &task);
    std::sort(asked.begin(), asked.end());
    std::vector<Task*> mayLive;
    auto next = asked.begin();
    for (const List* list : all) {
      std::erase_if(mayLive, [&](const Task* task) {
        return task->missing || task->deleted < list->at.invoked;
      });
      for (; next != asked.end() && next->first < list->at.completed; ++next) {
        mayLive.push_back(next->second);
      }
      lacks(*list, mayLive);
    }
  }

  void lacks(const List& list, const std::vector<Task*>& mayLive) {
    std::set<const Task*> here;
    for (const Seen& one : list.tasks) {
      const auto task = tasks_.find(one.request);
      if (task == tasks_.end() || here.insert(&task->second).second) continue;
      violated("request", list.at.completed, "two tasks of '" + one.request + "' in a list");
    }
    for (Task* task : mayLive) {
      if (here.contains(task)) continue;
      task->steps.push_back({list.at, kSeenMissing});
      task->missing = list.at.invoked > task->news;
    }
  }

  void judgeTask(const std::string& request, const Task& task) {
    const std::string name = "task " + std::to_string(task.number) + " of '" + request + "'";
    if (const auto bad = firstImpossible(task.steps, kAbsent, findings_.work)) {
      const Step& step = task.steps[*bad];
      const Time at = step.at.completed;
      const bool missing = step.effect == kSeenMissing || step.effect == kSeenEnded;
      if (missing && task.deleteAsked > at) {
        violated("lost", at,
                 name + ", asked for at " + seconds(task.asked) +
                     ", is not there, and nobody deleted it");
      } else if (!missing && task.deleted < step.at.invoked) {
        violated("undone", at, name + ", deleted by " + seconds(task.deleted) + ", lives");
      } else {
        violated("order", at, name + ": what was answered fits no order of events");
      }
    }
    if (const auto fall = firstFall(task.epochs)) {
      violated("epoch", fall->first.at.completed,
               name + " has epoch " + std::to_string(fall->first.value) + " and had " +
                   std::to_string(fall->second));
    }
  }

  // --- cordons ---

  void judgeCordons() {
    std::map<std::string, std::vector<Step>> all;
    const auto write = [](bool to) {
      const auto v = static_cast<std::int8_t>(to);
      return Effect{v, v, kNo, kNo};
    };
    const auto read = [](bool is) {
      return is ? Effect{kNo, 1, kNo, kNo} : Effect{0, kNo, kNo, kNo};
    };
    for (const Cordon& one : history_.cordons) {
      if (one.outcome == Outcome::Failed) continue;
      const Time until = one.outcome == Outcome::Ok ? one.at.completed : kOpen;
      all[one.node].push_back({{one.at.invoked, until}, write(one.cordoned)});
    }
    for (const Nodes& one : history_.nodes) {
      for (const auto& [node, is] : one.cordoned) all[node].push_back({one.at, read(is)});
    }
    for (const auto& [node, steps] : all) {
      const auto bad = firstImpossible(steps, 0, findings_.work);
      if (!bad) continue;
      violated("order", steps[*bad].at.completed,
               "the cordon of " + node + ": what was answered fits no order of events");
    }
  }

  // --- nodes ---

  // Of one node's list after the other: what is there first in it began after the one before.
  void judgeHeld() {
    std::vector<const Held*> all;
    for (const Held& one : history_.held) all.push_back(&one);
    std::sort(all.begin(), all.end(),
              [](const Held* a, const Held* b) { return a->at.completed < b->at.completed; });
    struct Last {
      Time invoked = 0;
      std::map<std::uint64_t, std::uint32_t> epochs;  // by task
    };
    std::unordered_map<std::string, Last> last;
    struct Copy {
      std::string node;
      std::uint32_t epoch;
      Time seen;
    };
    std::unordered_map<std::uint64_t, std::vector<Copy>> copies;
    for (const Held* list : all) {
      Last& before = last[list->node];
      Last now{list->at.invoked, {}};
      for (const Held::Task& task : list->tasks) {
        ++findings_.work;
        isOn(task.task, task.epoch, list->node, list->at.completed);
        now.epochs[task.task] = task.epoch;
        const auto had = before.epochs.find(task.task);
        if (had != before.epochs.end() && had->second == task.epoch) continue;
        for (const Copy& copy : copies[task.task]) {
          if (copy.node == list->node || copy.epoch < task.epoch) continue;
          if (copy.seen >= before.invoked) continue;
          violated("twice", list->at.completed,
                   list->node + " begins to hold task " + std::to_string(task.task) + " epoch " +
                       std::to_string(task.epoch) + ", and " + copy.node + " held it at epoch " +
                       std::to_string(copy.epoch));
        }
        copies[task.task].push_back({list->node, task.epoch, list->at.completed});
      }
      before = std::move(now);
    }
  }

  void judgeTerms() {
    std::vector<Rising> reads;
    std::map<std::uint64_t, std::string> who;
    for (const Term& one : history_.terms) {
      reads.push_back({one.at, one.term});
      const auto [first, isNew] = who.try_emplace(one.term, one.who);
      if (isNew || first->second == one.who) continue;
      violated("term", one.at.completed,
               one.who + " and " + first->second + " act in term " + std::to_string(one.term));
    }
    if (const auto fall = firstFall(std::move(reads))) {
      violated("term", fall->first.at.completed,
               "term " + std::to_string(fall->first.value) + " after term " +
                   std::to_string(fall->second));
    }
  }

  const History& history_;
  std::unordered_map<std::string, Task> tasks_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::string> places_;
  Findings findings_;
};

}  // namespace

Findings checkHistory(const History& history) {
  return Judge(history).run();
}

}  // namespace qgpu::chaos
