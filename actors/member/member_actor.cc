#include "actors/member/member_actor.h"

#include "schema/envelope.actor.h"

namespace qgpu {

void MemberActor::handle(schema::Envelope::Reader message, Turn& turn) {
  dispatch(*this, message, turn);
  orders_.send(turn);
  member_.flush(turn);
}

void MemberActor::onTick(schema::Tick::Reader tick, Turn& turn) {
  const MemberTick kind{tick.getKind()};
  switch (kind) {
    case MemberTick::Forward:
      return forwards_.onTick(turn);
    case MemberTick::Batch:
      return view_.onBatchDue(turn);
    case MemberTick::Refresh:
      if (tick.getValue() == session_.attempt()) view_.onRefreshDue(turn);
      return;
    case MemberTick::EndAgain:
      return orders_.onEndAgainDue();
    case MemberTick::Resend:
      return member_.onResendDue();
    default:
      return session_.onTick(kind, tick.getValue(), turn);
  }
}

void MemberActor::onLinkUp(capnp::Void, Turn& turn) {
  if (turn.sender() != member_.peers().link) return;
  session_.onLinkUp(turn);
  view_.begin();
  view_.gather(orders_.bindsAtNode());
}

void MemberActor::onLinkDown(capnp::Text::Reader why, Turn& turn) {
  if (turn.sender() == member_.peers().link) session_.onLinkDown(text(why));
}

// Whoever forwarded a bind does not wait for the next session.
void MemberActor::onLeft(const std::string& why) {
  orders_.forget();
  forwards_.failAll({ErrorCode::Unavailable, "the connection to the scheduler is over (" + why +
                                                 "); what was asked may still happen"});
}

void MemberActor::onToMember(schema::ToMember::Reader message, Turn& turn) {
  if (turn.sender() != member_.peers().link || !session_.onToMember(message, turn)) return;
  switch (message.which()) {
    case schema::ToMember::BEAT_SEEN:
      return view_.arrived(session_.leaseFrom());
    case schema::ToMember::BIND:
      return orders_.onBind(message.getBind(), turn);
    case schema::ToMember::END:
      return orders_.onEnd(message.getEnd());
    case schema::ToMember::MARK:
      return orders_.onMark(message.getMark(), turn);
    case schema::ToMember::FORWARDED:
      return orders_.onForwarded(message.getForwarded());
    default:
      return;
  }
}

}  // namespace qgpu
