#include "services/attach/attach_port.h"

namespace qgpu {
namespace {

GatePortOptions withNode(GatePortOptions options, ActorId node) {
  options.node = node;
  return options;
}

}  // namespace

AttachPort::AttachPort(Dispatcher& dispatcher, ActorId self, AttachPortConfig config)
    : dispatcher_(dispatcher),
      self_(self),
      cards_(std::move(config.cards)),
      outlet_(dispatcher, self),
      around_(dispatcher.loop()),
      port_(around_, outlet_, tasks_, withNode(config.gate, config.node)),
      server_(dispatcher.loop(), outlet_, tasks_, port_, config.node, cards_,
              std::move(config.cardActors), std::move(config.server)) {
  dispatcher_.attach(self_, *this);
}

AttachPort::~AttachPort() {
  dispatcher_.remove(self_);
}

void AttachPort::handle(schema::Envelope::Reader message, Turn& turn) {
  switch (message.which()) {
    case schema::Envelope::GATE_ORDER:
      return port_.order(message.getGateOrder(), turn.sender());
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

void AttachPort::tellUseOf(ActorId actor) {
  for (auto& [id, task] : tasks_) {
    if (task->actor == actor) port_.tellUse(*task);
  }
}

}  // namespace qgpu
