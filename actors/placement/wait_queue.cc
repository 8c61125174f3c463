#include "actors/placement/wait_queue.h"

namespace qgpu {
namespace {

std::uint32_t rankOf(TaskClass taskClass) {
  switch (taskClass) {
    case TaskClass::Online:
      return 0;
    case TaskClass::Ordinary:
      return 1;
    case TaskClass::Offline:
      return 2;
  }
  return 2;
}

}  // namespace

WaitQueue::Key WaitQueue::keyOf(const ClusterAsk& ask) {
  return Key{ask.task.taskClass, ask.task.mem.value, ask.task.share.value, ask.task.cards,
             ask.task.card,      ask.node,           ask.models,           ask.cpuMilli,
             ask.hostMem.value,  ask.group};
}

bool WaitQueue::add(std::uint64_t task, const ClusterAsk& ask) {
  if (tasks_.contains(task) || full()) return false;
  const auto [entry, isNew] = shapes_.try_emplace(keyOf(ask));
  Shape& shape = entry->second;
  if (isNew) {
    shape.ask = ask;
    shape.rank = rankOf(ask.task.taskClass);
  }
  Heads& heads = heads_[ask.node];
  if (shape.tasks.empty() || task < *shape.tasks.begin()) {
    if (!shape.tasks.empty()) heads.erase({shape.rank, *shape.tasks.begin()});
    heads.emplace(Place{shape.rank, task}, entry);
  }
  shape.tasks.insert(task);
  tasks_.emplace(task, entry);
  ++countOf(shape);
  return true;
}

bool WaitQueue::remove(std::uint64_t task) {
  const auto found = tasks_.find(task);
  if (found == tasks_.end()) return false;
  const auto entry = found->second;
  tasks_.erase(found);
  Shape& shape = entry->second;
  const auto bucket = heads_.find(shape.ask.node);
  const bool wasOldest = *shape.tasks.begin() == task;
  shape.tasks.erase(task);
  --countOf(shape);
  if (wasOldest) {
    bucket->second.erase({shape.rank, task});
    if (!shape.tasks.empty()) {
      bucket->second.emplace(Place{shape.rank, *shape.tasks.begin()}, entry);
    }
  }
  if (bucket->second.empty()) heads_.erase(bucket);
  if (shape.tasks.empty()) shapes_.erase(entry);
  return true;
}

std::size_t& WaitQueue::countOf(const Shape& shape) {
  return counts_[shape.rank][static_cast<std::size_t>(shape.why.reason)];
}

void WaitQueue::setWhy(const ClusterAsk& ask, Why why) {
  const auto found = shapes_.find(keyOf(ask));
  if (found == shapes_.end()) return;
  Shape& shape = found->second;
  countOf(shape) -= shape.tasks.size();
  shape.why = std::move(why);
  shape.judged = true;
  countOf(shape) += shape.tasks.size();
}

bool WaitQueue::hasWhy(std::uint64_t task) const {
  return tasks_.at(task)->second.judged;
}

const WaitQueue::Why* WaitQueue::why(std::uint64_t task) const {
  const auto found = tasks_.find(task);
  return found == tasks_.end() ? nullptr : &found->second->second.why;
}

const ClusterAsk* WaitQueue::ask(std::uint64_t task) const {
  const auto found = tasks_.find(task);
  return found == tasks_.end() ? nullptr : &found->second->second.ask;
}

const ClusterAsk* WaitQueue::shapeAfter(std::optional<Key>& cursor) const {
  const auto next = cursor ? shapes_.upper_bound(*cursor) : shapes_.begin();
  if (next == shapes_.end()) {
    cursor.reset();
    return nullptr;
  }
  cursor = next->first;
  return &next->second.ask;
}

std::size_t WaitQueue::waitingFor(TaskClass taskClass, Reason reason) const {
  return counts_[rankOf(taskClass)][static_cast<std::size_t>(reason)];
}

const WaitQueue::Heads::value_type* WaitQueue::following(const Heads& heads,
                                                         std::optional<Place> after) {
  const auto next = after ? heads.upper_bound(*after) : heads.begin();
  return next == heads.end() ? nullptr : &*next;
}

std::optional<WaitQueue::Candidate> WaitQueue::next(const std::string& node,
                                                    std::optional<Place> after) const {
  const Heads::value_type* best = nullptr;
  for (const std::string& name : {std::string(), node}) {
    const auto bucket = heads_.find(name);
    if (bucket == heads_.end()) continue;
    const auto* entry = following(bucket->second, after);
    if (entry != nullptr && (best == nullptr || entry->first < best->first)) best = entry;
  }
  if (best == nullptr) return std::nullopt;
  return Candidate{best->first, &best->second->second.ask};
}

std::optional<WaitQueue::Candidate> WaitQueue::behind(const Place& place) const {
  const Shape& shape = tasks_.at(place.task)->second;
  const auto next = shape.tasks.upper_bound(place.task);
  if (next == shape.tasks.end()) return std::nullopt;
  return Candidate{{place.rank, *next}, &shape.ask};
}

}  // namespace qgpu
