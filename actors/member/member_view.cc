#include "actors/member/member_view.h"

#include <algorithm>
#include <utility>

#include "runtime/planted.h"

namespace qgpu {
namespace {

schema::Reply::Reader readReply(const Words& words) {
  return capnp::readMessageUnchecked<schema::Reply>(words.data());
}

}  // namespace

// --- asking ---

void MemberView::begin() {
  gathered_ = false;
  info_.clear();
  cards_.clear();
  tasksKnown_ = false;
}

void MemberView::gather(std::size_t bindsAtNode) {
  if (!gathered_ && bindsAtNode != 0) QGPU_MARK(HelloAwaitedBind);
  if (gathered_ || bindsAtNode != 0) return;
  gathered_ = true;
  member_.askNode([](schema::Request::Builder request) { request.setWatch(true); });
  member_.askNode([](schema::Request::Builder request) { request.setInfo(); },
                  session_.ofThisAttempt(
                      [this](schema::Reply::Reader reply, Turn& turn) { onInfo(reply, turn); }));
  askCards(Compare::Use);
  tasksAsked_ = false;  // one that is under way may be older than that bind
  askTasks(Compare::Use);
}

void MemberView::askCards(Compare compare) {
  member_.askNode([](schema::Request::Builder request) { request.setCards(); },
                  session_.ofThisAttempt([this, compare](schema::Reply::Reader reply, Turn& turn) {
                    onCards(reply, compare, turn);
                  }));
}

void MemberView::askTasks(Compare compare) {
  if (tasksAsked_) {
    tasksDue_ = true;
    return;
  }
  tasksAsked_ = true;
  member_.askNode([](schema::Request::Builder request) { request.setTasks(); },
                  session_.ofThisAttempt([this, compare](schema::Reply::Reader reply, Turn& turn) {
                    onTasks(reply, compare, turn);
                  }));
}

void MemberView::armBatch(Turn& turn) {
  if (batchArmed_ || !session_.inSession()) return;
  batchArmed_ = true;
  MemberContext::later(turn, member_.options().batch, MemberTick::Batch, 0);
}

void MemberView::askDue(Turn& turn) {
  if (!session_.inSession()) return;
  if (cardsDue_) askCards(Compare::States);
  cardsDue_ = false;
  if (!tasksDue_) return;
  if (tasksAsked_) return armBatch(turn);
  tasksDue_ = false;
  askTasks(Compare::States);
}

void MemberView::onBatchDue(Turn& turn) {
  batchArmed_ = false;
  askDue(turn);
}

void MemberView::onRefreshDue(Turn& turn) {
  if (!session_.inSession()) return;
  askCards(Compare::Use);
  askTasks(Compare::Use);
  MemberContext::later(turn, member_.options().refreshEvery, MemberTick::Refresh,
                       session_.attempt());
}

void MemberView::tellCardsAgain(Turn& turn) {
  statesTold_.clear();
  cardsDue_ = true;
  armBatch(turn);
}

void MemberView::tasksChanged(Turn& turn) {
  tasksDue_ = true;
  armBatch(turn);
}

// --- hearing ---

void MemberView::onEventTold(schema::Event::Reader event, Turn& turn) {
  const std::string kind = text(event.getKind());
  if (kind == "task-ended") {
    noteEnded(event.getTask());
    return sayEnded(turn);
  }
  if (kind == "task-bound") return;  // its order is answered
  if (kind.rfind("task-", 0) == 0) tasksDue_ = true;
  if (kind.rfind("card-", 0) == 0 || kind == "policy-changed") cardsDue_ = true;
  if (cardsDue_ || tasksDue_) armBatch(turn);
}

void MemberView::onInfo(schema::Reply::Reader reply, Turn& turn) {
  if (!reply.isInfo()) return;
  info_ = flatten(reply);
  session_.noteTerm(reply.getInfo().getClusterTerm());
  helloIfWhole(turn);
}

void MemberView::onCards(schema::Reply::Reader reply, Compare compare, Turn& turn) {
  if (!reply.isCards()) return;
  cards_ = flatten(reply);
  const std::string states = digestOf(reply.getCards(), Compare::States);
  const std::string use = digestOf(reply.getCards(), Compare::Use);
  const bool changed = compare == Compare::Use ? use != useTold_ : states != statesTold_;
  if (!changed && session_.inSession()) return;
  statesTold_ = states;
  useTold_ = use;
  if (!session_.inSession()) return helloIfWhole(turn);
  session_.say([this](schema::FromMember::Builder message) { writeFacts(message.initFacts()); },
               turn);
}

// A report is as the node was when it left, so what it lacks is over.
void MemberView::onTasks(schema::Reply::Reader reply, Compare compare, Turn& turn) {
  tasksAsked_ = false;
  if (!reply.isTasks()) return;
  std::map<std::uint64_t, HeldRecord> now;
  std::vector<HeldRecord> changed;
  for (const auto info : reply.getTasks()) {
    HeldRecord record = readHeld(info);
    const std::uint64_t task = record.nodeTask;
    const HeldRecord* before = told(task);
    if (before == nullptr && known_.isAsked(record.spec.clusterTask)) continue;  // soon bound
    noteHeld(record);
    const bool news = before == nullptr || differs(*before, record, compare);
    if (news) changed.push_back(record);
    const bool takes = news || session_.state() == MemberState::Gathering;
    now.emplace(task, takes ? std::move(record) : *before);
  }
  std::vector<std::uint64_t> gone;
  for (const auto& [task, record] : told_) {
    if (!now.contains(task)) gone.push_back(task);
  }
  for (const std::uint64_t task : gone) noteEnded(task);
  told_ = std::move(now);
  tasksKnown_ = true;
  if (!session_.inSession()) return helloIfWhole(turn);
  sayEnded(turn);
  sayTasks(changed, turn);
}

void MemberView::noteHeld(const HeldRecord& record) {
  const std::uint64_t task = record.spec.clusterTask;
  const KnownTask* known = known_.find(task);
  if (task == 0 || (known != nullptr && known->isHere())) return;
  known_.hold(task, record.spec.clusterEpoch, record.nodeTask, record.cards);
}

void MemberView::noteBound(HeldRecord record) {
  const std::uint64_t task = record.nodeTask;
  told_.try_emplace(task, std::move(record));
}

void MemberView::noteEnded(std::uint64_t nodeTask) {
  const auto found = told_.find(nodeTask);
  if (found == told_.end()) return;
  Ended over{std::move(found->second), kNever};
  told_.erase(found);
  over.record.ended = true;
  const TaskSpec& spec = over.record.spec;
  if (spec.clusterTask != 0) {
    known_.end(spec.clusterTask, spec.clusterEpoch,
               {ErrorCode::Conflict,
                "cluster task " + std::to_string(spec.clusterTask) + " has ended here"});
    forwards_.settle(spec.clusterTask);
  }
  ended_.push_back(std::move(over));
  if (ended_.size() > kEndedKept) ended_.pop_front();
}

const HeldRecord* MemberView::told(std::uint64_t nodeTask) const {
  const auto found = told_.find(nodeTask);
  return found == told_.end() ? nullptr : &found->second;
}

std::string MemberView::nodeName() const {
  return info_.empty() ? std::string() : text(readReply(info_).getInfo().getName());
}

// --- telling ---

void MemberView::onEntered(Turn& turn) {
  sayEnded(turn);
  if (!session_.inSession()) return;
  MemberContext::later(turn, member_.options().refreshEvery, MemberTick::Refresh,
                       session_.attempt());
  cardsDue_ = true;  // whatever changed since they were asked for the hello
  tasksDue_ = true;
  askDue(turn);
}

void MemberView::arrived(Nanos saidBefore) {
  while (!ended_.empty() && ended_.front().saidAt < saidBefore) ended_.pop_front();
}

void MemberView::sayEnded(Turn& turn) {
  if (!session_.inSession()) return;
  std::vector<HeldRecord> unsaid;
  for (Ended& over : ended_) {
    if (over.saidAt != kNever) continue;
    over.saidAt = turn.now();
    unsaid.push_back(over.record);
  }
  sayTasks(unsaid, turn);
}

void MemberView::sayTasks(const std::vector<HeldRecord>& records, Turn& turn) {
  for (std::size_t from = 0; from < records.size(); from += kTasksPerMessage) {
    const std::size_t count = std::min(kTasksPerMessage, records.size() - from);
    session_.say(
        [&](schema::FromMember::Builder message) {
          auto list = message.initTasks(static_cast<unsigned>(count));
          for (unsigned i = 0; i < count; ++i) writeHeld(records[from + i], list[i]);
        },
        turn);
  }
}

void MemberView::helloIfWhole(Turn& turn) {
  if (session_.state() != MemberState::Gathering) return;
  if (info_.empty() || cards_.empty() || !tasksKnown_) return;
  const auto fill = [this](schema::MemberHello::Builder hello) {
    writeFacts(hello.initFacts());
    auto tasks = hello.initTasks(static_cast<unsigned>(told_.size() + ended_.size()));
    unsigned i = 0;
    for (const auto& [task, record] : told_) writeHeld(record, tasks[i++]);
    for (const Ended& over : ended_) writeHeld(over.record, tasks[i++]);
  };
  const auto saidAt = session_.sayHello(fill, turn);
  if (!saidAt) return;
  for (Ended& over : ended_) over.saidAt = *saidAt;
}

void MemberView::writeFacts(schema::NodeFacts::Builder facts) const {
  const MemberOptions& options = member_.options();
  const auto info = readReply(info_).getInfo();
  facts.setName(info.getName());
  facts.setVersion(info.getVersion());
  facts.setIncarnation(info.getIncarnation());
  facts.setCards(readReply(cards_).getCards());
  facts.setMixed(info.getMixed());
  facts.setMaxTasksPerCard(info.getMaxTasksPerCard());
  facts.setLeastTasksPerCard(info.getLeastTasksPerCard());
  facts.setCpuMilli(static_cast<std::uint64_t>(options.cpuMilli));
  facts.setHostMemBytes(static_cast<std::uint64_t>(options.hostMem.value));
  facts.setAttachSocket(options.attachSocket);
  auto list = facts.initEnvironment(static_cast<unsigned>(options.environment.size()));
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, options.environment[i]);
}

}  // namespace qgpu
