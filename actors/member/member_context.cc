#include "actors/member/member_context.h"

#include <utility>

#include "actors/base/tick.h"

namespace qgpu {

void MemberContext::later(Turn& turn, Nanos delay, MemberTick kind, std::uint64_t value) {
  tickAfter(turn, delay, static_cast<std::uint32_t>(kind), value);
}

void MemberContext::askNode(Ask ask, Heard heard) {
  const std::uint64_t corr = ++lastCorr_;
  asked_[corr] = std::move(heard);
  outbox_.put(peers_.node, [corr, ask = std::move(ask)](schema::Envelope::Builder envelope) {
    auto request = envelope.initRequest();
    request.setCorr(corr);
    request.setMayChange(true);
    ask(request);
  });
}

void MemberContext::onReply(schema::Reply::Reader reply, Turn& turn) {
  if (turn.sender() != peers_.node) return;
  const auto asked = asked_.extract(reply.getCorr());
  if (!asked.empty() && asked.mapped()) asked.mapped()(reply, turn);
}

void MemberContext::replyFailed(const Asker& asker, const Fault& why) {
  outbox_.putWithin(asker.client, kRepliesPerClient,
                    [corr = asker.corr, why](schema::Envelope::Builder envelope) {
                      auto reply = envelope.initReply();
                      reply.setCorr(corr);
                      why.write(reply.initFailed());
                    });
}

void MemberContext::replyBound(const Asker& asker, std::uint64_t nodeTask, const std::string& token,
                               const std::vector<std::string>& cards) {
  outbox_.putWithin(asker.client, kRepliesPerClient, [=, this](schema::Envelope::Builder envelope) {
    auto reply = envelope.initReply();
    reply.setCorr(asker.corr);
    auto bound = reply.initBound();
    bound.setTask(nodeTask);
    bound.setToken(token);
    bound.setAttachSocket(options_.attachSocket);
    auto list = bound.initCards(static_cast<unsigned>(cards.size()));
    for (unsigned i = 0; i < list.size(); ++i) list.set(i, cards[i]);
  });
}

void MemberContext::flush(Turn& turn) {
  outbox_.flush(turn);
  if (outbox_.empty() || resendArmed_) return;
  resendArmed_ = true;
  later(turn, kResend, MemberTick::Resend, 0);
}

}  // namespace qgpu
