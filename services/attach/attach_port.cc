#include "services/attach/attach_port.h"

#include <algorithm>
#include <signal.h>

#include "actors/base/event_kinds.h"

namespace qgpu {
namespace {

GatePortOptions withNode(GatePortOptions options, ActorId node) {
  options.node = node;
  return options;
}

AttachListenerOptions listenerOptions(AttachListenerOptions options,
                                      const AttachServerOptions& server) {
  options.path = server.runDir + "/attach.sock";
  options.incarnation = server.incarnation;
  options.helloWithin = server.helloWithin;
  return options;
}

}  // namespace

AttachPort::AttachPort(Dispatcher& dispatcher, ActorId self, AttachPortConfig config)
    : dispatcher_(dispatcher),
      self_(self),
      node_(config.node),
      lost_(config.suspend.lost),
      cards_(std::move(config.cards)),
      outlet_(dispatcher, self),
      suspenders_(dispatcher.loop(), cards_, std::move(config.suspend),
                  [this](std::uint32_t card, const suspend::News& news) { onNews(card, news); }),
      around_(dispatcher.loop(), suspenders_),
      port_(around_, outlet_, tasks_, withNode(config.gate, config.node)),
      listenerLoop_(config.listenerLoop != nullptr ? *config.listenerLoop : dispatcher.loop()),
      server_(dispatcher.loop(), outlet_, tasks_, port_, suspenders_, config.node, cards_,
              std::move(config.cardActors), config.server, book_,
              [this](const std::string& token) { tellClient(token); }),
      listener_(listenerLoop_, book_, listenerOptions(config.listener, config.server),
                [this](Arrival arrival) { server_.arrive(std::move(arrival)); }),
      guard_(config.server.guard),
      guardNews_(cards_),
      strict_(config.unheld.strict),
      watch_(std::move(config.unheld), config.server.runDir, book_,
             [this](const UnheldFinder::Accused& accused, const std::string& what) {
               dispatcher_.loop().post([this, here = std::weak_ptr(here_), accused, what] {
                 if (!here.expired()) accuse(accused, what);
               });
             }) {
  dispatcher_.attach(self_, *this);
}

Status AttachPort::listen() {
  for (const Card& card : cards_) {
    if (card.method && card.suspend == schema::Suspend::GATE) tellSuspendLost(card);
  }
  // The listener first: who finds it taken has touched nothing.
  if (Status open = listener_.listen(); !open) return open;
  if (Status begun = server_.begin(); !begun) return begun;
  watch_.start();
  if (guard_ != nullptr) {
    guardWatch_ =
        dispatcher_.loop().fds().watchLevel(guard_->news(), EPOLLIN, [this](std::uint32_t) {
          guard_->takeNews([this](const GuardRefusal& refusal) { onRefused(refusal); });
        });
  }
  return ok();
}

void AttachPort::tellClient(const std::string& token) {
  listenerLoop_.post([this, here = std::weak_ptr(here_), token] {
    if (here.expired()) return;
    if (token.empty()) return listener_.bookComplete();
    listener_.tokenCame(token);
  });
}

AttachPort::~AttachPort() {
  dispatcher_.remove(self_);
}

void AttachPort::handle(schema::Envelope::Reader message, Turn& turn) {
  switch (message.which()) {
    case schema::Envelope::GATE_ORDER:
      return port_.order(message.getGateOrder(), turn.sender());
    case schema::Envelope::PAGING_ORDER:
      return port_.pagingOrder(message.getPagingOrder(), turn.sender());
    case schema::Envelope::TASK_KNOWN:
      return server_.known(message.getTaskKnown());
    case schema::Envelope::TASK_CLOSED:
      return server_.closed(message.getTaskClosed());
    case schema::Envelope::INCARNATION_CHOSEN:
      return server_.incarnationChosen(message.getIncarnationChosen());
    case schema::Envelope::REPORT_ASKED:
      return tellUseOf(turn.sender());
    default:
      return;  // meant for others; nothing here depends on it
  }
}

void AttachPort::onNews(std::uint32_t card, const suspend::News& news) {
  if (news.what == suspend::News::What::kCardLost) {
    cards_.at(card).suspend = schema::Suspend::GATE;
    cards_.at(card).suspendWhy = news.why;
    return tellSuspendLost(cards_.at(card));
  }
  const auto found = tasks_.find(news.task);
  if (found == tasks_.end()) return;
  if (news.what == suspend::News::What::kStopped) {
    return port_.stopped(*found->second, news.hold, news.at);
  }
  port_.doubted(*found->second, news.why);
}

void AttachPort::tellSuspendLost(const Card& card) {
  if (lost_) lost_(card);
  outlet_.sendUrgent(node_, [&](schema::Envelope::Builder message) {
    auto lost = message.initSuspendLost();
    lost.setCard(card.index);
    lost.setWhy(card.suspendWhy);
  });
}

// The list that the watch reads misses whom a full run dir had no room for, so the table has the
// last word. Who does not die at once is ended again after each scan, and told of once.
void AttachPort::accuse(const UnheldFinder::Accused& accused, const std::string& what) {
  const ProcessKey& process = accused.user.process;
  const auto found = tasks_.find(accused.user.task);
  if (found == tasks_.end()) return;
  const auto& attached = found->second->processes;
  if (std::any_of(attached.begin(), attached.end(), [&](const auto& its) {
        return its.second->entry.pid == process.pid && its.second->entry.start == process.start;
      })) {
    return;
  }
  bool ended = false;
  if (strict_) {
    const Result<Fd> pidfd = openProcess(process.pid, process.start);
    ended = pidfd && *pidfd && signalProcess(*pidfd, SIGKILL);
  }
  if (!accused.first) return;
  unheld_.told.fetch_add(1, std::memory_order_relaxed);
  if (ended) unheld_.ended.fetch_add(1, std::memory_order_relaxed);
  outlet_.sendUrgent(node_, [&](schema::Envelope::Builder message) {
    auto event = message.initEventTold();
    event.setKind(kTaskUnheld.name());
    event.setTask(accused.user.task);
    event.setText(ended ? "ended by --strict: " + what : what);
  });
}

// What a process got by a call that it altered may be another's too: all of its task that are known
// here are ended.
void AttachPort::onRefused(const GuardRefusal& refusal) {
  if (refusal.way == GuardRefusal::Way::Altered) server_.signalAll(refusal.task, SIGKILL);
  const std::string text = guardNews_.textOf(refusal, dispatcher_.loop().now());
  if (text.empty()) return;
  outlet_.sendUrgent(node_, [&](schema::Envelope::Builder message) {
    auto event = message.initEventTold();
    event.setKind(kGuardRefused.name());
    event.setTask(refusal.task);
    event.setText(text);
  });
}

void AttachPort::tellUseOf(ActorId actor) {
  for (auto& [id, task] : tasks_) {
    if (task->actor == actor) port_.tellUse(*task);
  }
}

}  // namespace qgpu
