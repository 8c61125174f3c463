// What the node has and what of it the scheduler was told. The node's events say that something
// changed; what it is now, its reports say. A refresh now and then heals what events were lost.
#include "actors/node/member_actor.h"

#include <algorithm>

#include "runtime/planted.h"

namespace qgpu {
namespace {

using Step = KnownTask::Step;

schema::Reply::Reader readReply(const Words& words) {
  return capnp::readMessageUnchecked<schema::Reply>(words.data());
}

Words copyOf(schema::Reply::Reader reply) {
  Words words(reply.totalSize().wordCount + 1);
  capnp::copyToUnchecked(reply, kj::arrayPtr(words.data(), words.size()));
  return words;
}

}  // namespace

// --- asking ---

std::uint64_t MemberActor::askNode(Pending pending, const Fill& fill) {
  const std::uint64_t corr = ++lastCorr_;
  pending_[corr] = std::move(pending);
  outbox_.put(peers_.node, [corr, fill](schema::Envelope::Builder envelope) {
    auto request = envelope.initRequest();
    request.setCorr(corr);
    request.setMayChange(true);
    fill(request);
  });
  return corr;
}

// All that a hello tells. A bind that the node still works on may yet succeed, so it is waited for.
void MemberActor::gather() {
  if (!gathered_ && placesAtNode_ != 0) QGPU_MARK(HelloAwaitedBind);
  if (gathered_ || placesAtNode_ != 0) return;
  gathered_ = true;
  askNode({}, [](schema::Request::Builder request) { request.setWatch(true); });
  Pending info;
  info.about = About::Info;
  info.attempt = attempt_;
  askNode(info, [](schema::Request::Builder request) { request.setInfo(); });
  askCards(Compare::Use);
  tasksAsked_ = false;   // one that is under way may be older than that bind
  askTasks(Compare::Use);
}

void MemberActor::askCards(Compare compare) {
  Pending pending;
  pending.about = About::Cards;
  pending.attempt = attempt_;
  pending.compare = compare;
  askNode(pending, [](schema::Request::Builder request) { request.setCards(); });
}

void MemberActor::askTasks(Compare compare) {
  if (tasksAsked_) {
    tasksDue_ = true;
    return;
  }
  tasksAsked_ = true;
  Pending pending;
  pending.about = About::Tasks;
  pending.attempt = attempt_;
  pending.compare = compare;
  askNode(pending, [](schema::Request::Builder request) { request.setTasks(); });
}

void MemberActor::armBatch(Turn& turn) {
  if (batchArmed_ || !inSession()) return;
  batchArmed_ = true;
  tick(turn, options_.batch, TickKind::Batch, 0);
}

void MemberActor::askDue(Turn& turn) {
  if (!inSession()) return;
  if (cardsDue_) askCards(Compare::States);
  cardsDue_ = false;
  if (!tasksDue_) return;
  if (tasksAsked_) return armBatch(turn);
  tasksDue_ = false;
  askTasks(Compare::States);
}

// The scheduler takes a mark that it ordered for done. What came of it may be what was told before
// the order: the node could not store it, or somebody here took it back at once. So it is told.
void MemberActor::tellCardsAgain(Turn& turn) {
  statesTold_.clear();
  cardsDue_ = true;
  armBatch(turn);
}

// --- hearing ---

void MemberActor::onEventTold(schema::Event::Reader event, Turn& turn) {
  const std::string kind = text(event.getKind());
  if (kind == "task-ended") {
    noteEnded(event.getTask());
    return sayEnded(turn);
  }
  if (kind == "task-bound") return;   // its order is answered
  if (kind.rfind("task-", 0) == 0) tasksDue_ = true;
  if (kind.rfind("card-", 0) == 0 || kind == "policy-changed") cardsDue_ = true;
  if (cardsDue_ || tasksDue_) armBatch(turn);
}

void MemberActor::onReply(schema::Reply::Reader reply, Turn& turn) {
  if (turn.sender() != peers_.node) return;
  const auto found = pending_.find(reply.getCorr());
  if (found == pending_.end()) return;
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  if (pending.about == About::Order) return onOrderReply(pending, reply, turn);
  if (pending.attempt != attempt_) return;
  switch (pending.about) {
    case About::Info:
      if (!reply.isInfo()) return;
      info_ = copyOf(reply);
      termSeen_ = std::max(termSeen_, reply.getInfo().getClusterTerm());
      return helloIfWhole(turn);
    case About::Cards: return onCards(pending, reply, turn);
    case About::Tasks: return onTasks(pending, reply, turn);
    case About::Term:
      if (state_ != MemberState::Admitting) return;
      if (reply.isFailed()) {
        return dropLink("its term can't be stored: " + readFault(reply.getFailed()).message, turn);
      }
      termSeen_ = sessionTerm_;
      return enterSession(turn);
    default: return;
  }
}

void MemberActor::onCards(const Pending& pending, schema::Reply::Reader reply, Turn& turn) {
  if (!reply.isCards()) return;
  cards_ = copyOf(reply);
  const std::string states = digestOf(reply.getCards(), Compare::States);
  const std::string use = digestOf(reply.getCards(), Compare::Use);
  const bool changed = pending.compare == Compare::Use ? use != useTold_ : states != statesTold_;
  if (!changed && inSession()) return;
  statesTold_ = states;
  useTold_ = use;
  if (!inSession()) return helloIfWhole(turn);
  say([this](schema::FromMember::Builder word) { writeFacts(word.initFacts()); }, turn);
}

// A report is as the node was when it left, so what it lacks is over.
void MemberActor::onTasks(const Pending& pending, schema::Reply::Reader reply, Turn& turn) {
  tasksAsked_ = false;
  if (!reply.isTasks()) return;
  std::map<std::uint64_t, HeldRecord> now;
  std::vector<HeldRecord> changed;
  for (const auto info : reply.getTasks()) {
    HeldRecord record = readHeld(info);
    const auto told = told_.find(record.nodeTask);
    if (told == told_.end() && isAsked(record.spec.clusterTask)) continue;   // soon it is bound
    noteHeld(record);
    const bool news = told == told_.end() || differs(told->second, record, pending.compare);
    if (news) changed.push_back(record);
    const std::uint64_t task = record.nodeTask;
    now.emplace(task, news || state_ == MemberState::Gathering ? std::move(record) : told->second);
  }
  std::vector<std::uint64_t> gone;
  for (const auto& [task, record] : told_) {
    if (!now.contains(task)) gone.push_back(task);
  }
  for (const std::uint64_t task : gone) noteEnded(task);
  told_ = std::move(now);
  tasksKnown_ = true;
  if (!inSession()) return helloIfWhole(turn);
  sayEnded(turn);
  sayTasks(changed, turn);
}

bool MemberActor::isAsked(std::uint64_t task) const {
  const auto known = known_.find(task);
  return known != known_.end() && known->second.step == Step::Asked;
}

void MemberActor::noteHeld(const HeldRecord& record) {
  const std::uint64_t task = record.spec.clusterTask;
  if (task == 0) return;
  const auto found = known_.find(task);
  if (found != known_.end() && found->second.step != Step::Over) return;
  KnownTask& known = known_[task];
  known.step = Step::Held;
  known.epoch = record.spec.clusterEpoch;
  known.nodeTask = record.nodeTask;
  known.cards = record.cards;
}

void MemberActor::noteEnded(std::uint64_t nodeTask) {
  const auto found = told_.find(nodeTask);
  if (found == told_.end()) return;
  Ended over{std::move(found->second), kNever};
  told_.erase(found);
  over.record.ended = true;
  const TaskSpec& spec = over.record.spec;
  if (spec.clusterTask != 0) {
    markOver(spec.clusterTask, spec.clusterEpoch,
             {errorName(ErrorCode::Conflict),
              "cluster task " + std::to_string(spec.clusterTask) + " has ended here"});
    settleForwards(spec.clusterTask);
  }
  ended_.push_back(std::move(over));
  if (ended_.size() > kEndedKept) ended_.pop_front();
}

// Kept until a beat that was said later is seen: then it has arrived.
void MemberActor::sayEnded(Turn& turn) {
  if (!inSession()) return;
  std::vector<HeldRecord> unsaid;
  for (Ended& over : ended_) {
    if (over.saidAt != kNever) continue;
    over.saidAt = turn.now();
    unsaid.push_back(over.record);
  }
  sayTasks(unsaid, turn);
}

void MemberActor::helloIfWhole(Turn& turn) {
  if (state_ != MemberState::Gathering || info_.empty() || cards_.empty() || !tasksKnown_) return;
  sayHello(turn);
}

void MemberActor::writeFacts(schema::NodeFacts::Builder facts) const {
  const auto info = readReply(info_).getInfo();
  facts.setName(info.getName());
  facts.setVersion(info.getVersion());
  facts.setIncarnation(info.getIncarnation());
  facts.setCards(readReply(cards_).getCards());
  facts.setMixed(info.getMixed());
  facts.setMaxTasksPerCard(info.getMaxTasksPerCard());
  facts.setCpuMilli(static_cast<std::uint64_t>(options_.cpuMilli));
  facts.setHostMemBytes(static_cast<std::uint64_t>(options_.hostMem.value));
  facts.setAttachSocket(options_.attachSocket);
  auto list = facts.initEnvironment(static_cast<unsigned>(options_.environment.size()));
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, options_.environment[i]);
}

}  // namespace qgpu
