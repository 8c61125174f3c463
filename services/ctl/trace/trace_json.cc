#include "services/ctl/trace/trace_json.h"

#include "services/api/commands/schema_names.h"
#include "services/base/json.h"

namespace qgpu::ctl {
namespace {

// Rounded down, both ends of a span alike: what lies within another one still does.
std::int64_t micro(Nanos at) {
  return at / micros(1);
}

class Writer {
 public:
  std::string write(const std::vector<CardHistory>& cards) {
    std::uint64_t lost = 0;
    json_.beginObject().field("displayTimeUnit", "ms").key("traceEvents").beginArray();
    for (const CardHistory& card : cards) {
      ++process_;
      lost += card.lost;
      writeCard(card);
    }
    json_.endArray().key("otherData").beginObject();
    json_.field("clock", "CLOCK_MONOTONIC").count("lost", lost).endObject().endObject();
    return json_.take();
  }

 private:
  // The members that every event has; the event stays open.
  DocumentWriter& begin(const char* phase, std::string_view name, std::uint64_t thread) {
    json_.beginObject().field("ph", phase).field("name", name);
    return json_.count("pid", process_).count("tid", thread);
  }
  void at(Nanos time) { json_.key("ts").number(micro(time)); }

  void metadata(const char* what, std::uint64_t thread, const std::string& name) {
    begin("M", what, thread).key("args").beginObject().field("name", name);
    json_.endObject().endObject();
  }

  // Threads have numbers of their own: a tool takes 0 for an idle CPU, and one number for one
  // thread of the machine.
  void writeCard(const CardHistory& card) {
    threads_.clear();
    metadata("process_name", 0, card.card);
    newThread(0, "card");
    for (const auto& [id, task] : card.tasks) {
      newThread(id, task.name + " (" + std::to_string(id) + ", " +
                        std::string(className(task.taskClass)) + ")");
    }
    for (const Span& span : card.spans) writeSpan(span);
    for (const Moment& moment : card.moments) writeMoment(moment);
    for (const Preemption& one : card.preemptions) writeFlow(one);
  }

  void newThread(std::uint64_t task, const std::string& name) {
    threads_[task] = ++lastThread_;
    metadata("thread_name", lastThread_, name);
    begin("M", "thread_sort_index", lastThread_).key("args").beginObject();
    json_.count("sort_index", lastThread_).endObject().endObject();
  }

  void writeSpan(const Span& span) {
    begin("X", spanName(span.kind), threads_[span.task]).field("cat", spanName(span.kind));
    at(span.from);
    json_.key("dur").number(micro(span.to) - micro(span.from));
    json_.key("args").beginObject().count("task", span.task).endObject().endObject();
  }

  void writeMoment(const Moment& moment) {
    begin("i", traceKindName(moment.kind), threads_[moment.task]).field("cat", "moment");
    at(moment.at);
    json_.field("s", "t").endObject();
  }

  // From within the work of the online task to within the hold.
  void writeFlow(const Preemption& one) {
    ++lastFlow_;
    const auto write = [&](const char* phase, std::uint64_t task, Nanos time) {
      begin(phase, "preempt", threads_[task]).field("cat", "preempt").count("id", lastFlow_);
      at(time);
    };
    write("s", one.online, one.submit);
    json_.endObject();
    write("f", one.held, one.shut);
    json_.field("bp", "e").endObject();
  }

  JsonWriter json_;
  std::uint64_t process_ = 0;
  std::uint64_t lastThread_ = 0;
  std::uint64_t lastFlow_ = 0;
  std::map<std::uint64_t, std::uint64_t> threads_;  // of this card, by task
};

}  // namespace

const char* spanName(Span::Kind kind) {
  switch (kind) {
    case Span::Kind::Slice:
      return "slice";
    case Span::Kind::Hold:
      return "hold";
    case Span::Kind::Wait:
      return "wait";
    case Span::Kind::Work:
      return "work";
    case Span::Kind::Online:
      break;
  }
  return "online";
}

std::string traceJson(const std::vector<CardHistory>& cards) {
  return Writer().write(cards);
}

}  // namespace qgpu::ctl
