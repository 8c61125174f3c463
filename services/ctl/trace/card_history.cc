#include "services/ctl/trace/card_history.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "services/api/commands/schema_names.h"
#include "services/ctl/answers/views.h"

namespace qgpu::ctl {
namespace {

using Kind = schema::TraceKind;

Nanos timeOf(simdjson::dom::element object, std::string_view key) {
  const std::uint64_t ns = numberOf(object, key);
  return Nanos(static_cast<std::int64_t>(std::min<std::uint64_t>(ns, INT64_MAX)));
}

}  // namespace

// Follows the entries of one card: what of each task is under way.
class HistoryMaker {
 public:
  HistoryMaker(const TraceReader& trace, Nanos from, Nanos to) : trace_(trace) {
    const bool cut = !trace.whole_ && !trace.entries_.empty();
    out_.from = cut ? std::clamp(trace.entries_.front().at, from, to) : from;
    out_.to = to;
    out_.card = trace.card_;
    out_.lost = trace.lost_;
  }

  CardHistory make() {
    for (const TraceReader::Entry& entry : trace_.entries_) follow(entry);
    for (auto& [task, now] : tasks_) endAll(task, now, out_.to);
    end(Span::Kind::Online, 0, online_, out_.to);
    std::stable_sort(out_.spans.begin(), out_.spans.end(),
                     [](const Span& a, const Span& b) { return a.from < b.from; });
    for (const Span& span : out_.spans) name(span.task);
    for (const Moment& moment : out_.moments) name(moment.task);
    for (const Preemption& one : out_.preemptions) name(one.online), name(one.held);
    return std::move(out_);
  }

 private:
  using Since = std::optional<Nanos>;  // nothing: not under way
  struct Now {
    Since slice, hold, wait, work;
  };

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
    Now& now = tasks_[entry.task];
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
        waker_ = entry.task;
        online_ = entry.at;
        return;
      case Kind::RELEASED:
        end(Span::Kind::Online, 0, online_, entry.at);
        return moment(entry);
      case Kind::GATE_SHUT:
        if (waker_ != 0 && entry.since >= out_.from && entry.at <= out_.to) {
          out_.preemptions.push_back({waker_, entry.task, entry.since, entry.at});
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
  std::map<std::uint64_t, Now> tasks_;
  Since online_;
  std::uint64_t waker_ = 0;  // the online task that the others were last held for
};

void TraceReader::add(simdjson::dom::element trace) {
  if (std::string id = textOf(trace, "card"); !id.empty()) card_ = std::move(id);
  now_ = timeOf(trace, "now_ns");
  newest_ = numberOf(trace, "newest");
  const std::uint64_t lost = numberOf(trace, "lost");
  if (std::exchange(asked_, true)) {
    lost_ += lost;
  } else {
    whole_ = lost == 0;
  }
  if (last_ > newest_) last_ = 0;
  for (const simdjson::dom::element entry : listOf(trace, "entries")) {
    last_ = numberOf(entry, "seq");
    const auto kind = traceKindFromName(textOf(entry, "kind"));
    if (!kind) continue;  // of a newer manager
    entries_.push_back(
        {*kind, numberOf(entry, "task"), timeOf(entry, "at_ns"), timeOf(entry, "since_ns")});
  }
  for (const simdjson::dom::element task : listOf(trace, "tasks")) {
    const auto taskClass = classFromName(textOf(task, "class"));
    tasks_[numberOf(task, "id")] = {textOf(task, "name"),
                                    taskClass.value_or(schema::TaskClass::ORDINARY)};
  }
}

CardHistory TraceReader::between(Nanos from, Nanos to) const {
  return HistoryMaker(*this, from, to).make();
}

}  // namespace qgpu::ctl
