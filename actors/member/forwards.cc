#include "actors/member/forwards.h"

#include "runtime/planted.h"

namespace qgpu {

void Forwards::onRequest(schema::Request::Reader request, const std::string& node, Turn& turn) {
  const Asker asker{turn.sender(), request.getCorr()};
  if (asker.client == ActorId::kNobody) return;
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    member_.replyFailed(asker, {code, why});
  };
  if (!request.isBind()) return refuse(ErrorCode::Unsupported, "only binds are forwarded");
  TaskSpec spec = readSpec(request.getBind());
  spec.clusterTask = 0;  // the scheduler's alone to say
  spec.clusterEpoch = 0;
  if (!request.getMayChange()) spec.ownerUid = request.getPeerUid();
  if (const Status valid = checkSpec(spec); !valid) {
    return refuse(valid.error().code, valid.error().message);
  }
  if (!session_.mayBind(turn)) {
    return refuse(ErrorCode::Unavailable,
                  "tasks are placed by the scheduler, and it can't be asked now (" +
                      session_.standing() + "): try again later");
  }
  if (forwards_.size() >= kForwardsMax) {
    return refuse(ErrorCode::Overloaded,
                  std::to_string(forwards_.size()) +
                      " requests wait for the scheduler already: try again later");
  }
  const std::uint64_t corr = ++last_;
  forwards_[corr] = Forward{asker, turn.now() + member_.options().forwardMax, 0};
  onDue(turn);
  session_.say(
      [&](schema::FromMember::Builder message) {
        auto forward = message.initForward();
        forward.setCorr(corr);
        forward.setUid(spec.ownerUid);
        auto wanted = forward.initSpec();
        writeSpec(spec, wanted.initTask());
        wanted.setNode(node);
      },
      turn);
}

bool Forwards::becomes(std::uint64_t forward, std::uint64_t task) {
  const auto found = forwards_.find(forward);
  if (found == forwards_.end()) return false;
  if (known_.find(task) == nullptr) {
    fail(forward, {ErrorCode::Conflict,
                   "it is cluster task " + std::to_string(task) + ", which is not on this node"});
    return false;
  }
  found->second.task = task;
  return true;
}

void Forwards::settle(std::uint64_t task) {
  const KnownTask* known = known_.find(task);
  if (known == nullptr || known->step == KnownTask::Step::Asked) return;
  if (!known->isHere()) return failTask(task, known->why);
  for (auto next = forwards_.begin(); next != forwards_.end();) {
    const auto forward = next++;
    if (forward->second.task != task) continue;
    member_.replyBound(forward->second.asker, known->nodeTask, known->token, known->cards);
    forwards_.erase(forward);
  }
}

void Forwards::fail(std::uint64_t forward, const Fault& why) {
  const auto found = forwards_.find(forward);
  if (found == forwards_.end()) return;
  member_.replyFailed(found->second.asker, why);
  forwards_.erase(found);
}

void Forwards::failTask(std::uint64_t task, const Fault& why) {
  for (auto next = forwards_.begin(); next != forwards_.end();) {
    const auto forward = next++;
    if (forward->second.task == task) fail(forward->first, why);
  }
}

void Forwards::failAll(const Fault& why) {
  while (!forwards_.empty()) {
    QGPU_MARK(ForwardCutOff);
    fail(forwards_.begin()->first, why);
  }
}

void Forwards::onTick(Turn& turn) {
  armed_ = false;
  onDue(turn);
}

void Forwards::onDue(Turn& turn) {
  while (!forwards_.empty() && forwards_.begin()->second.until <= turn.now()) {
    QGPU_MARK(ForwardExpired);
    fail(forwards_.begin()->first,
         {ErrorCode::Unavailable,
          "the scheduler did not answer in time; what was asked may still happen"});
  }
  if (forwards_.empty() || armed_) return;
  armed_ = true;
  MemberContext::later(turn, forwards_.begin()->second.until - turn.now(), MemberTick::Forward, 0);
}

}  // namespace qgpu
