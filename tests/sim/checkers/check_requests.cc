#include "tests/sim/checkers/check_requests.h"

namespace qgpu::sim {
namespace {

constexpr std::size_t kFinishedKept = 1000;  // the node remembers a few more
constexpr std::uint64_t kSaneBytes = std::uint64_t{1} << 62;
constexpr std::size_t kCardTextMax = 64;

std::string cardList(const std::vector<std::uint32_t>& cards) {
  std::string list;
  for (const std::uint32_t card : cards) {
    list += (list.empty() ? "sim-" : ",sim-") + std::to_string(card);
  }
  return list;
}

}  // namespace

void RequestCheck::boot() {
  open_.clear();
  finished_.clear();
  finishedInOrder_.clear();
  permits_ = 0;
  storageOut_ = false;
  learnTasks();
}

void RequestCheck::learnTasks() {
  for (const auto& [id, task] : model_.tasks()) {
    tokens_.emplace(id, task.token);
    if (!task.want.requestId.empty()) known_.insert({task.want.ownerUid, task.want.requestId});
  }
}

void RequestCheck::forget() {
  tokens_.clear();
}

bool RequestCheck::isQuestion(schema::Request::Which which) {
  return which == schema::Request::INFO || which == schema::Request::CARDS ||
         which == schema::Request::TASKS || which == schema::Request::EVENTS ||
         which == schema::Request::WATCH;
}

void RequestCheck::asked(ActorId client, schema::Request::Reader request) {
  Ask ask;
  ask.which = request.which();
  ask.uid = request.getPeerUid();
  ask.mayChange = request.getMayChange();
  ask.storageOut = storageOut_;
  switch (ask.which) {
    case schema::Request::BIND:
      ask.want = Want::read(request.getBind());
      if (!ask.mayChange) ask.want.ownerUid = ask.uid;
      ask.flaw = ask.want.flaw();
      lookForRoom(ask);
      break;
    case schema::Request::UNBIND:
      ask.task = request.getUnbind();
      break;
    case schema::Request::EVICT:
      ask.task = request.getEvict();
      break;
    case schema::Request::CORDON:
      ask.card = textOf(request.getCordon());
      break;
    case schema::Request::UNCORDON:
      ask.card = textOf(request.getUncordon());
      break;
    case schema::Request::DRAIN:
      ask.card = textOf(request.getDrain());
      break;
    case schema::Request::POLICY: {
      ask.card = textOf(request.getPolicy().getCard());
      const auto value = static_cast<std::uint16_t>(request.getPolicy().getPolicy());
      ask.policy = value < 3 ? static_cast<Policy>(value) : Policy::BestEffort;
      break;
    }
    default:
      break;
  }
  const bool isNew = open_.emplace(std::pair(client, request.getCorr()), std::move(ask)).second;
  if (!isNew) verdict_.violated("C2", "the world asked twice under one correlation id");
}

void RequestCheck::lookForRoom(Ask& ask) {
  if (!ask.flaw.empty() || (ask.fits && ask.hadNoRoom)) return;
  const Room room = model_.room(ask.want);
  ask.fits = ask.fits || room == Room::Fits;
  ask.hadNoRoom = ask.hadNoRoom || room == Room::NotNow;
}

void RequestCheck::modelChanged() {
  for (auto& [key, ask] : open_) {
    if (ask.which == schema::Request::BIND) lookForRoom(ask);
  }
}

void RequestCheck::storageFailed() {
  storageOut_ = true;
  for (auto& [key, ask] : open_) ask.storageFailed = true;
}

// --- answers ---

void RequestCheck::answered(ActorId client, schema::Reply::Reader reply) {
  const auto found = open_.find({client, reply.getCorr()});
  if (found == open_.end()) {
    return verdict_.violated(
        "C2", "a reply to request " + std::to_string(reply.getCorr()) + ", which is not open");
  }
  const Ask ask = std::move(found->second);
  open_.erase(found);
  if (ask.which == schema::Request::BIND) return judgeBind(ask, reply);
  if (!isQuestion(ask.which)) judgeChange(ask, reply);
}

void RequestCheck::judgeBind(const Ask& ask, schema::Reply::Reader reply) {
  if (ask.storageOut && !(reply.isFailed() && reply.getFailed().getCode() == "unavailable")) {
    return verdict_.violated("D4",
                             "a bind that came while nothing could be stored was not "
                             "refused as unavailable");
  }
  if (reply.isBound()) return judgeBound(ask, reply.getBound());
  if (reply.isFailed()) return judgeRefusedBind(ask, textOf(reply.getFailed().getCode()));
  verdict_.violated("C2", "a bind was answered with something else");
}

void RequestCheck::judgeBound(const Ask& ask, schema::Bound::Reader bound) {
  const std::uint64_t id = bound.getTask();
  const std::string who = "task " + std::to_string(id);
  if (!ask.flaw.empty()) return verdict_.violated("C7", who + " was bound with " + ask.flaw);
  const auto token = tokens_.find(id);
  if (token == tokens_.end()) {
    return verdict_.violated("D2", who + " was told as bound, and no row says so");
  }
  if (textOf(bound.getToken()) != token->second) {
    return verdict_.violated("P6", who + " was told with another token than its row has");
  }
  const HeldTask* held = model_.find(id);
  if (held == nullptr) return;  // it has ended since
  std::vector<std::uint32_t> cards;
  std::string told;
  for (const auto card : bound.getCards()) told += (told.empty() ? "" : ",") + textOf(card);
  if (told != cardList(held->cards)) {
    return verdict_.violated(
        "P6", who + " was told on " + told + ", its row says " + cardList(held->cards));
  }
  const Want& is = held->want;
  const bool same =
      is.requestId == ask.want.requestId && is.name == ask.want.name &&
      is.taskClass == ask.want.taskClass && is.ownerUid == ask.want.ownerUid &&
      (is.whole() ? ask.want.whole() : is.mem == ask.want.mem && is.share == ask.want.share);
  if (!same) verdict_.violated("P6", who + " answers a request that is not its own");
}

void RequestCheck::judgeRefusedBind(const Ask& ask, const std::string& code) {
  const std::string who = "a bind of '" + ask.want.name + "' was refused as " + code;
  const bool sound = ask.flaw.empty();
  if (code == "invalid-argument") {
    if (sound && ask.want.mem < kSaneBytes) verdict_.violated("P7", who + ", and is sound");
    return;
  }
  if (code == "overloaded") return;
  if (code == "unavailable") {
    if (ask.storageOut || ask.storageFailed || ask.bound) return;
    // The task that it asked for again has ended before it was introduced.
    if (finished_.contains({ask.want.ownerUid, ask.want.requestId})) return;
    return verdict_.violated("D4", who + " while storage works");
  }
  const RequestKey key(ask.want.ownerUid, ask.want.requestId);
  if (code == "conflict" && known_.contains(key)) return;
  if (!sound) return verdict_.violated("C7", who + ", and has " + ask.flaw);
  const Room now = model_.room(ask.want);
  if (code == "not-found") {
    if (now != Room::NoCard) verdict_.violated("P7", who + ", and its card is there");
  } else if (code == "infeasible") {
    if (now != Room::Never) verdict_.violated("P7", who + ", and an empty node would take it");
  } else if (code == "no-room" || code == "cordoned" || code == "conflict") {
    if (now == Room::Never) return verdict_.violated("P7", who + ", and will never fit");
    if (!ask.hadNoRoom) verdict_.violated("P10", who + ", and there was room all the time");
  } else {
    verdict_.violated("P7", who + ", which no rule gives");
  }
}

void RequestCheck::judgeChange(const Ask& ask, schema::Reply::Reader reply) {
  const bool ends = ask.which == schema::Request::UNBIND || ask.which == schema::Request::EVICT;
  if (reply.isFailed()) {
    const std::string code = textOf(reply.getFailed().getCode());
    if (code == "denied" && ask.mayChange) {
      verdict_.violated("C7", "somebody who may change the node was denied it");
    }
    if (code == "unavailable" && !ask.storageOut && !ask.storageFailed) {
      verdict_.violated("D4", "a change was refused as unavailable while storage works");
    }
    return;
  }
  if (!reply.isDone()) return verdict_.violated("C2", "a change was answered with something else");
  if (ask.storageOut) {
    return verdict_.violated("D4", "a change that came while nothing could be stored was made");
  }
  if (!ask.mayChange && !ends) {
    return verdict_.violated("C7", "a change was made for uid " + std::to_string(ask.uid));
  }
  if (ends) {
    const HeldTask* held = model_.find(ask.task);
    if (held != nullptr && !held->evicting) {
      verdict_.violated("D2", "task " + std::to_string(ask.task) +
                                  " was told as ended, and its row says nothing of it");
    }
  }
  const bool permit = ask.which == schema::Request::SNAPSHOT ||
                      ask.which == schema::Request::SAVE || ask.which == schema::Request::LOG_LEVEL;
  if (!permit) return;
  if (permits_ == 0) return verdict_.violated("C7", "a permit without an audit row");
  --permits_;
}

// --- who asked for a row ---

void RequestCheck::taskBound(std::uint64_t id, const HeldTask& task) {
  tokens_[id] = task.token;
  const std::string who = "task " + std::to_string(id);
  const RequestKey key(task.want.ownerUid, task.want.requestId);
  const bool named = !task.want.requestId.empty();
  bool wanted = false;
  for (auto& [where, ask] : open_) {
    if (ask.which != schema::Request::BIND || !ask.flaw.empty() || ask.storageOut) continue;
    const Want& want = ask.want;
    if (want.ownerUid != key.first || want.requestId != key.second) continue;
    const bool mine =
        want.name == task.want.name && want.taskClass == task.want.taskClass &&
        (task.want.whole() ? want.whole() && want.cardCount() == task.cards.size()
                           : want.mem == task.want.mem && want.share == task.want.share);
    if (!mine || (ask.bound && !named)) continue;
    wanted = ask.bound = true;
    if (!named) break;
  }
  if (!wanted) verdict_.violated("C7", who + " was bound, and nobody asked for it");
  if (!named) return;
  if (finished_.contains(key)) {
    verdict_.violated("P6", who + " was bound for request '" + key.second + "', which had ended");
  }
  for (const auto& [other, held] : model_.tasks()) {
    if (other == id || held.want.requestId != key.second || held.want.ownerUid != key.first) {
      continue;
    }
    verdict_.violated("P6", who + " and task " + std::to_string(other) +
                                " were bound for one request, '" + key.second + "'");
  }
  known_.insert(key);
}

void RequestCheck::taskErased(const HeldTask& task) {
  if (task.want.requestId.empty()) return;
  const RequestKey key(task.want.ownerUid, task.want.requestId);
  if (!finished_.insert(key).second) return;
  finishedInOrder_.push_back(key);
  if (finishedInOrder_.size() <= kFinishedKept) return;
  finished_.erase(finishedInOrder_.front());
  finishedInOrder_.pop_front();
}

bool RequestCheck::endAsked(std::uint64_t id, const HeldTask& task) const {
  for (const auto& [where, ask] : open_) {
    if (ask.which != schema::Request::UNBIND && ask.which != schema::Request::EVICT) continue;
    if (ask.task == id && (ask.mayChange || ask.uid == task.want.ownerUid)) return true;
  }
  return false;
}

bool RequestCheck::names(const Ask& ask, std::uint32_t card) const {
  if (ask.card.size() > kCardTextMax) return false;
  return model_.cardNamed(ask.card) == static_cast<int>(card);
}

bool RequestCheck::policyAsked(std::uint32_t card, Policy policy) const {
  for (const auto& [where, ask] : open_) {
    if (ask.which != schema::Request::POLICY || !ask.mayChange || ask.policy != policy) continue;
    if (ask.card.empty() || ask.card == "all" || names(ask, card)) return true;
  }
  return false;
}

bool RequestCheck::markAsked(std::uint32_t card, schema::Request::Which mark) const {
  for (const auto& [where, ask] : open_) {
    if (ask.which == mark && ask.mayChange && names(ask, card)) return true;
  }
  return false;
}

void RequestCheck::atRest() {
  for (const auto& [where, ask] : open_) {
    return verdict_.violated("C2", std::to_string(open_.size()) +
                                       " requests have no answer; one "
                                       "of kind " +
                                       std::to_string(static_cast<int>(ask.which)));
  }
}

}  // namespace qgpu::sim
