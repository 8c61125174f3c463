#include "actors/node/node_context.h"

#include "actors/base/codec.h"
#include "actors/base/tick.h"

namespace qgpu {

std::uint64_t NodeContext::unixMs() const {
  return static_cast<std::uint64_t>(options_.unixMsAtZero() + now_ / millis(1));
}

void NodeContext::later(Turn& turn, Nanos delay, NodeTick kind, std::uint64_t value) {
  tickAfter(turn, delay, static_cast<std::uint32_t>(kind), value);
}

void NodeContext::note(EventKind kind, std::uint64_t task, const std::string& card,
                       const std::string& what) {
  EventRecord event{0, unixMs(), kind.name(), task, card, what, "node"};
  if (shell_.inFlight()) return feed_.note(std::move(event));
  feed_.tellNow(std::move(event));
}

void NodeContext::tellClosed(ActorId to, std::uint64_t task, bool kill, const std::string& reason) {
  tell(to, [task, kill, reason](schema::Envelope::Builder envelope) {
    auto closed = envelope.initTaskClosed();
    closed.setTask(task);
    closed.setKill(kill);
    closed.setReason(reason);
  });
}

void NodeContext::reply(const Asker& asker, std::function<void(schema::Reply::Builder)> fill) {
  tellWithin(asker.client, kRepliesPerClient,
             [corr = asker.corr, fill = std::move(fill)](schema::Envelope::Builder envelope) {
               auto answer = envelope.initReply();
               answer.setCorr(corr);
               fill(answer);
             });
}

void NodeContext::replyFailed(const std::optional<Asker>& asker, const Error& error) {
  if (!asker) return;
  reply(*asker,
        [error](schema::Reply::Builder answer) { writeFailure(error, answer.initFailed()); });
}

void NodeContext::replyDone(const std::optional<Asker>& asker, const std::string& said) {
  if (!asker) return;
  reply(*asker, [said](schema::Reply::Builder answer) { answer.setDone(said); });
}

}  // namespace qgpu
