#include "services/daemons/logged_events.h"

#include <utility>

#include "services/base/text.h"

namespace qgpu {
namespace {

Peer loggingPeer() {
  Peer peer;
  peer.mayChange = true;  // so that other watchers don't take its place
  return peer;
}

// A task-bound event says "NAME: class, memory, share": what is behind the name has no colon.
std::string nameIn(std::string_view text) {
  return std::string(text.substr(0, text.rfind(": ")));
}

}  // namespace

// The watch first, so that no task is bound unseen before the names are asked for.
kj::Promise<void> LoggedEvents::follow() {
  return Events::open(actor_, loggingPeer(), 0)
      .then([this](Result<kj::Own<Events>> events) -> kj::Promise<void> {
        if (!events) {
          log_.warn("events-not-logged", {{"why", events.error().message}});
          return kj::READY_NOW;
        }
        return learnNames().then(
            [this, events = kj::mv(*events)]() mutable { return tell(kj::mv(events)); });
      });
}

// Of tasks that were bound before, by another manager too.
kj::Promise<void> LoggedEvents::learnNames() {
  return actor_.ask(loggingPeer(), [](schema::Request::Builder request) { request.setTasks(); })
      .then([this](Result<NodeActorClient::Answer> answer) {
        if (!answer || !answer->reply().isTasks()) return;
        for (const auto task : answer->reply().getTasks()) {
          names_[task.getId()] = std::string(view(task.getSpec().getName()));
        }
      });
}

kj::Promise<void> LoggedEvents::tell(kj::Own<Events> events) {
  auto next = events->next();
  return next.then([this, events = kj::mv(events)](
                       kj::Maybe<Events::EventCopy> event) mutable -> kj::Promise<void> {
    KJ_IF_MAYBE (copy, event) {
      write((*copy)->getRoot<schema::Event>().asReader());
      return tell(kj::mv(events));
    }
    log_.warn("events-passed-over", {{"then", "qgpuctl events"}});
    return follow();
  });
}

void LoggedEvents::write(schema::Event::Reader event) {
  const std::string_view kind = view(event.getKind()), card = view(event.getCard());
  const std::string_view text = view(event.getText());
  const std::uint64_t task = event.getTask();
  if (task == 0) {
    if (card.empty()) return log_.info(kind, {{"text", text}});
    return log_.info(kind, {{"card", card}, {"text", text}});
  }
  if (kind == "task-bound") names_[task] = nameIn(text);
  const auto found = names_.find(task);
  const std::string name = found == names_.end() ? "" : found->second;
  if (card.empty()) {
    log_.info(kind, {{"task", task}, {"name", name}, {"text", text}});
  } else {
    log_.info(kind, {{"task", task}, {"name", name}, {"card", card}, {"text", text}});
  }
  if (kind == "task-ended" || kind == "task-lost") names_.erase(task);
}

void LoggedEvents::taskFailed(kj::Exception&& exception) {
  log_.warn("events-not-logged", {{"why", view(exception.getDescription())}});
}

}  // namespace qgpu
