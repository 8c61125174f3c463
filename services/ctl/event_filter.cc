#include "services/ctl/event_filter.h"

#include <algorithm>

#include "services/base/text.h"
#include "services/base/wrong_use.h"
#include "services/ctl/answers/names.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl {
namespace {

// Of an event that begins a task, whose text begins with the task's name.
bool beginsTask(std::string_view kind) {
  return kind == "task-bound" || kind == "task-submitted";
}

}  // namespace

EventFilter::EventFilter(const EventOptions& options, std::int64_t nowUnixMs) : options_(options) {
  if (options.age != kNever) {
    fromUnixMs_ =
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, nowUnixMs - options.age / millis(1)));
  }
  if (const auto number = parseUint(options.task)) tasks_.insert(*number);
  if (!options.card.empty()) cards_.insert(options.card);
}

void EventFilter::learn(Value tasks, Value cards) {
  learned_ = true;
  for (const Value task : listOf(tasks, "tasks")) {
    const std::string name = textOf(task, "name");
    if (name == options_.task) tasks_.insert(numberOf(task, "id"));
    taskSeen_ = taskSeen_ || tasks_.contains(numberOf(task, "id"));
    taskNames_.push_back(name);
  }
  for (const Value card : listOf(cards, "cards")) {
    const std::string id = textOf(card, "id");
    const std::string node = textOf(card, "node");
    const bool whole = options_.card.starts_with(node + "/") &&
                       isCalled(options_.card.substr(node.size() + 1), card);
    if (isCalled(options_.card, card)) cards_.insert(id);
    if (whole) cards_.insert(node + "/" + id);
    cardSeen_ = cardSeen_ || whole || cards_.contains(id) || options_.card == node;
    cardNames_.push_back(id);
    if (!node.empty()) cardNames_.insert(cardNames_.end(), {node, node + "/" + id});
  }
}

std::string EventFilter::unknown() const {
  const auto said = [](const char* what, const std::string& name,
                       const std::vector<std::string>& known) {
    return std::string("no ") + what + " \"" + name + "\" is known lately" +
           didYouMean(name, known);
  };
  if (!learned_) return "";
  if (!options_.task.empty() && !taskSeen_) return said("task", options_.task, taskNames_);
  if (!options_.card.empty() && !cardSeen_) return said("card", options_.card, cardNames_);
  return "";
}

bool EventFilter::shows(Value event) {
  const std::string actor = textOf(event, "actor");
  const auto& kinds = options_.kinds;
  // An audit leaves out what a daemon did by itself.
  if (options_.changes && !actor.starts_with("uid ") && !actor.starts_with("certificate ")) {
    return false;
  }
  // First, as it learns names from what is not shown.
  if (!options_.task.empty() && !isOfTask(event)) return false;
  if (!options_.card.empty() && !isOnCard(textOf(event, "card"))) return false;
  if (!kinds.empty() && std::ranges::count(kinds, textOf(event, "kind")) == 0) return false;
  return numberOf(event, "unix_ms") >= fromUnixMs_;
}

bool EventFilter::isOfTask(Value event) {
  const std::uint64_t task = numberOf(event, "task");
  const bool named =
      beginsTask(textOf(event, "kind")) && textOf(event, "text").starts_with(options_.task + ": ");
  if (named) tasks_.insert(task);
  const bool ofTask = tasks_.contains(task);
  taskSeen_ = taskSeen_ || ofTask;
  return ofTask;
}

// "ID", "ID,ID", "NODE" or "NODE/ID".
bool EventFilter::isOnCard(std::string_view where) {
  while (!where.empty()) {
    const std::size_t comma = std::min(where.find(','), where.size());
    const std::string one(where.substr(0, comma));
    const std::size_t slash = one.find('/');
    const bool wanted = cards_.contains(one) ||
                        (slash != std::string::npos && (cards_.contains(one.substr(0, slash)) ||
                                                        cards_.contains(one.substr(slash + 1))));
    if (wanted) return cardSeen_ = true;
    where.remove_prefix(std::min(comma + 1, where.size()));
  }
  return false;
}

}  // namespace qgpu::ctl
