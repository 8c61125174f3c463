#include "services/ctl/trace/card_history.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "services/api/commands/schema_names.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl {
namespace {

using Kind = schema::TraceKind;

Nanos timeOf(Value object, std::string_view key) {
  const std::uint64_t ns = numberOf(object, key);
  return Nanos(static_cast<std::int64_t>(std::min<std::uint64_t>(ns, INT64_MAX)));
}

}  // namespace

// Follows the entries of one card: what of each task is under way.
class HistoryMaker {
 public:
  HistoryMaker(const TraceReader& trace, Nanos from, Nanos to)
      : trace_(trace), underway_(trace.underway_) {
    out_.from = std::clamp(trace.knownFrom_, from, to);
    out_.to = to;
    out_.refused = trace.refused_;
    out_.card = trace.card_;
    out_.lost = trace.lost_;
  }

  CardHistory make() {
    for (const TraceReader::Entry& entry : trace_.entries_) follow(entry);
    for (auto& [task, now] : underway_.tasks) endAll(task, now, out_.to);
    end(Span::Kind::Online, 0, underway_.online, out_.to);
    std::stable_sort(out_.spans.begin(), out_.spans.end(),
                     [](const Span& a, const Span& b) { return a.from < b.from; });
    for (const Span& span : out_.spans) name(span.task);
    for (const Moment& moment : out_.moments) name(moment.task);
    for (const Preemption& one : out_.preemptions) name(one.online), name(one.held);
    return std::move(out_);
  }

  // What goes on after the first `count` entries.
  TraceReader::Underway after(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) follow(trace_.entries_[i]);
    return std::move(underway_);
  }

 private:
  using Since = TraceReader::Since;
  using Now = TraceReader::Underway::Task;

  void name(std::uint64_t task) {
    const auto known = trace_.tasks_.find(task);
    if (task == 0) return;
    out_.tasks[task] = known == trace_.tasks_.end() ? CardHistory::Task() : known->second;
  }
  bool isOnline(std::uint64_t task) const {
    const auto known = trace_.tasks_.find(task);
    return known != trace_.tasks_.end() && known->second.taskClass == schema::TaskClass::ONLINE;
  }

  // Within the time that is looked at; not at all where it is over before or begins after.
  void end(Span::Kind kind, std::uint64_t task, Since& since, Nanos at) {
    if (!since) return;
    const Nanos from = std::max(*since, out_.from);
    const Nanos to = std::min(at, out_.to);
    since.reset();
    if (from < to) out_.spans.push_back({kind, task, from, to});
  }
  void endAll(std::uint64_t task, Now& now, Nanos at) {
    end(Span::Kind::Slice, task, now.slice, at);
    end(Span::Kind::Hold, task, now.hold, at);
    end(Span::Kind::Wait, task, now.wait, at);
    end(Span::Kind::Work, task, now.work, at);
  }
  void moment(const TraceReader::Entry& entry) {
    if (entry.at < out_.from || entry.at > out_.to) return;
    out_.moments.push_back({entry.kind, entry.task, entry.at});
  }

  void follow(const TraceReader::Entry& entry) {
    Now& now = underway_.tasks[entry.task];
    switch (entry.kind) {
      case Kind::READY:
        now.wait = entry.since > Nanos(0) ? entry.since : entry.at;
        return;
      case Kind::RUNNING:
        if (isOnline(entry.task)) {
          now.work = entry.since > Nanos(0) ? entry.since : entry.at;
          return;
        }
        endAll(entry.task, now, entry.at);
        now.slice = entry.at;
        return;
      case Kind::IDLE:
        return endAll(entry.task, now, entry.at);
      case Kind::SUSPENDING:
        now.hold = entry.at;
        return;
      case Kind::SUSPENDED:
        endAll(entry.task, now, entry.at);
        now.wait = entry.at;
        return;
      case Kind::ONLINE_ACTIVE:
        underway_.waker = entry.task;
        underway_.online = entry.at;
        return;
      case Kind::RELEASED:
        end(Span::Kind::Online, 0, underway_.online, entry.at);
        return moment(entry);
      case Kind::GATE_SHUT:
        if (underway_.waker != 0 && entry.since >= out_.from && entry.at <= out_.to) {
          out_.preemptions.push_back({underway_.waker, entry.task, entry.since, entry.at});
        }
        return;
      case Kind::OVERRUN:
      case Kind::LEFT:
      case Kind::DRAINED:
        endAll(entry.task, now, entry.at);
        return moment(entry);
      default:  // also those of a newer manager
        return moment(entry);
    }
  }

  const TraceReader& trace_;
  CardHistory out_;
  TraceReader::Underway underway_;
};

void TraceReader::add(Value trace) {
  if (std::string id = textOf(trace, "card"); !id.empty()) card_ = std::move(id);
  now_ = timeOf(trace, "now_ns");
  newest_ = numberOf(trace, "newest");
  const std::uint64_t lost = numberOf(trace, "lost");
  const bool first = !std::exchange(asked_, true);
  if (!first) lost_ += lost;
  if (last_ > newest_) last_ = 0;
  for (const Value entry : listOf(trace, "entries")) {
    last_ = numberOf(entry, "seq");
    const auto kind = traceKindFromName(textOf(entry, "kind"));
    if (!kind) continue;  // of a newer manager
    entries_.push_back(
        {*kind, numberOf(entry, "task"), timeOf(entry, "at_ns"), timeOf(entry, "since_ns")});
    if (*kind == Kind::MEMORY_REFUSED) ++refused_[entries_.back().task];
  }
  if (first && lost != 0 && !entries_.empty()) knownFrom_ = entries_.front().at;
  for (const Value task : listOf(trace, "tasks")) {
    const auto taskClass = classFromName(textOf(task, "class"));
    tasks_[numberOf(task, "id")] = {textOf(task, "name"),
                                    taskClass.value_or(schema::TaskClass::ORDINARY)};
  }
}

void TraceReader::forget(Nanos before) {
  const auto kept = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& entry) { return entry.at >= before; });
  const auto count = static_cast<std::size_t>(kept - entries_.begin());
  underway_ = HistoryMaker(*this, before, before).after(count);
  for (auto entry = entries_.begin(); entry != kept; ++entry) {
    if (entry->kind != Kind::LEFT && entry->kind != Kind::DRAINED) continue;
    underway_.tasks.erase(entry->task);
    tasks_.erase(entry->task);
    refused_.erase(entry->task);
  }
  entries_.erase(entries_.begin(), kept);
}

CardHistory TraceReader::between(Nanos from, Nanos to) const {
  return HistoryMaker(*this, from, to).make();
}

}  // namespace qgpu::ctl
