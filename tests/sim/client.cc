#include "tests/sim/client.h"

#include <algorithm>

namespace qgpu::sim {
namespace {

constexpr Nanos kActMin = micros(200);
constexpr Nanos kActMax = millis(40);
constexpr std::uint32_t kFirstPid = 100'000;  // of owners; processes of tenants are others
constexpr std::size_t kAskedMax = 64;

// Says nothing of what is bound.
bool busyNow(const std::string& code) {
  return code == "overloaded" || code == "unavailable";
}

bool mayFitLater(const std::string& code) {
  return code == "no-room" || code == "cordoned" || code == "conflict";
}

}  // namespace

Client::Client(Host& host, const Options& options, Dice dice, Tell bound, OwnerDies ownerDies)
    : host_(host),
      options_(options),
      dice_(dice),
      bound_(std::move(bound)),
      ownerDies_(std::move(ownerDies)) {
  host_.after(Scope::World, kActMin, [this] { act(); });
}

void Client::connect(ActorId self, ActorId node) {
  self_ = self;
  node_ = node;
}

void Client::disconnect() {
  self_ = ActorId::kNobody;
  asked_.clear();
  for (auto& [id, job] : jobs_) {
    job.uncertain = job.uncertain || job.asked;
    job.asked = false;
  }
}

void Client::tookOver(std::uint64_t task, const std::string& requestId) {
  for (const auto& [id, job] : jobs_) {
    if (job.task == task || job.requestId == requestId) return;
  }
  Job& job = jobs_[++lastJob_];
  job.requestId = requestId;
  job.task = task;
  job.endAt = host_.now();
}

std::string Client::waitsFor() const {
  std::string text =
      std::to_string(asked_.size()) + " answers, " + std::to_string(jobs_.size()) + " tasks";
  for (const auto& [id, job] : jobs_) {
    text +=
        "; " + job.requestId + " task " + std::to_string(job.task) + (job.asked ? " asked" : "");
  }
  return text;
}

void Client::look() {
  ask({}, [](auto request) { request.setCards(); });
  ask({}, [](auto request) { request.setTasks(); });
  ask({}, [](auto request) { request.setInfo(); });
}

// --- what it does ---

void Client::act() {
  host_.after(Scope::World, dice_.magnitude(kActMin, kActMax), [this] { act(); });
  if (self_ == ActorId::kNobody || asked_.size() >= kAskedMax) return;
  for (auto& [id, job] : jobs_) visit(id, job);
  if (calm_) return;
  if (jobs_.size() < options_.tasks && dice_.percent(50)) newJob();
  wander();
}

void Client::visit(std::uint64_t id, Job& job) {
  if (job.asked) return;
  if (job.task == 0) {
    if (!ending_ || dice_.percent(50)) askBind(id, job);
    return;
  }
  if (!ending_ && (job.endAt > host_.now() || calm_)) return;
  if (job.ownerPid != 0 && dice_.percent(70)) {
    ownerDies_(job.ownerPid);
    job.ownerPid = 0;
    job.endAt = host_.now() + seconds(2);  // then it asks, whatever became of it
    return;
  }
  askEnd(id, job);
}

void Client::newJob() {
  const std::uint64_t id = ++lastJob_;
  Job& job = jobs_[id];
  job.requestId = "job-" + std::to_string(id);
  const std::uint64_t kind = dice_.below(100);
  job.taskClass = kind < options_.onlinePercent                             ? Class::Online
                  : kind < options_.onlinePercent + options_.offlinePercent ? Class::Offline
                                                                            : Class::Ordinary;
  job.mib = 1024 * dice_.between(1, std::max<std::int64_t>(1, options_.cardGib / 3));
  if (dice_.percent(50)) job.mib -= dice_.between(1, 1000);
  if (job.taskClass != Class::Online) {
    job.share = static_cast<std::uint32_t>(dice_.percent(15) ? 0 : 10 * dice_.between(1, 60));
  }
  if (job.taskClass == Class::Ordinary && dice_.percent(options_.wholePercent)) {
    job.share = 1000;
    job.cards = static_cast<std::uint32_t>(dice_.between(1, options_.cards));
  }
  if (dice_.percent(20)) job.card = someCard();
  if (options_.has(Fault::Owners) && dice_.percent(50)) {
    job.ownerPid = kFirstPid + static_cast<std::uint32_t>(id);
  }
  job.uid = static_cast<std::uint32_t>(dice_.below(3));
  askBind(id, job);
}

void Client::askBind(std::uint64_t id, Job& job) {
  job.asked = true;
  ask(
      {What::Bind, id},
      [job](schema::Request::Builder request) {
        auto spec = request.initBind();
        spec.setName(job.requestId);
        spec.setClass(static_cast<schema::TaskClass>(job.taskClass));
        spec.setMemBytes(static_cast<std::uint64_t>(mebibytes(job.mib).value));
        spec.setSharePermille(job.share);
        spec.setCards(job.cards);
        spec.setCard(job.card);
        spec.setOwnerPid(job.ownerPid);
        spec.setOwnerStart(job.ownerPid);
        spec.setOwnerUid(job.uid);
        spec.setRequestId(job.requestId);
      },
      job.uid, job.uid == 0);
}

void Client::askEnd(std::uint64_t id, Job& job) {
  job.asked = true;
  const std::uint64_t task = job.task;
  const bool evict = options_.has(Fault::Operators) && dice_.percent(20);
  ask({What::End, id}, [task, evict](schema::Request::Builder request) {
    if (evict) {
      request.setEvict(task);
    } else {
      request.setUnbind(task);
    }
  });
}

// Questions, and what the seed allows besides.
void Client::wander() {
  if (dice_.percent(3)) ask({}, [](auto request) { request.setInfo(); });
  if (dice_.percent(6)) ask({}, [](auto request) { request.setCards(); });
  if (dice_.percent(6)) ask({}, [](auto request) { request.setTasks(); });
  if (dice_.percent(3)) ask({}, [](auto request) { request.setEvents(0); });
  if (dice_.percent(1)) {
    const bool on = dice_.percent(60);
    ask({}, [on](auto request) { request.setWatch(on); });
  }
  if (options_.has(Fault::Policies) && dice_.percent(4)) {
    const std::string card = dice_.percent(30) ? "all" : someCard();
    const auto policy = static_cast<schema::Policy>(dice_.below(3));
    ask({}, [&](auto request) {
      request.initPolicy().setCard(card);
      request.getPolicy().setPolicy(policy);
    });
  }
  if (options_.has(Fault::Operators) && dice_.percent(3)) operate();
  if (options_.has(Fault::Nonsense) && dice_.percent(10)) talkNonsense();
}

void Client::operate() {
  const std::string card = someCard();
  switch (dice_.below(5)) {
    case 0:
      return ask({}, [&](auto request) { request.setCordon(card); });
    case 1:
      return ask({}, [&](auto request) { request.setDrain(card); });
    case 2:
      return ask({}, [](auto request) { request.setLogLevel("debug"); });
    default:
      return ask({}, [&](auto request) { request.setUncordon(card); });
  }
}

void Client::talkNonsense() {
  const bool mayChange = dice_.percent(50);
  const std::uint64_t word = dice_.percent(50) ? dice_.word() : dice_.below(40);
  const Fill fill = [&](schema::Request::Builder request) {
    switch (word % 7) {
      case 0:
        return request.setUnbind(word);
      case 1:
        return request.setEvict(word);
      case 2:
        return request.setCordon("no such card");
      case 3:
        return request.setEvents(word);
      case 4:
        return request.setLogLevel(std::string(300, 'x'));
      case 5:
        return request.initPolicy().setCard("");
      default:
        break;
    }
    auto spec = request.initBind();
    spec.setName(std::string(word % 200, 'n'));
    spec.setClass(static_cast<schema::TaskClass>(word % 5));
    spec.setMemBytes(word);
    spec.setSharePermille(static_cast<std::uint32_t>(word >> 7));
    spec.setCards(static_cast<std::uint32_t>(word >> 17));
    spec.setCard(word % 3 == 0 ? "sim-77" : "");
    spec.setOwnerUid(1);
  };
  ask({}, fill, 1, mayChange);
}

std::string Client::someCard() {
  const std::uint64_t index = dice_.below(options_.cards);
  return (dice_.percent(50) ? "sim-" : "") + std::to_string(index);
}

void Client::ask(Ask what, const Fill& fill, std::uint32_t uid, bool mayChange) {
  const std::uint64_t corr = ++lastCorr_;
  const SendResult sent = host_.send(self_, node_, [&](schema::Envelope::Builder envelope) {
    auto request = envelope.initRequest();
    request.setCorr(corr);
    request.setPeerUid(uid);
    request.setPeerPid(uid + 1);
    request.setMayChange(mayChange);
    fill(request);
  });
  if (sent == SendResult::Sent) {
    asked_[corr] = what;
  } else if (const auto job = jobs_.find(what.job); job != jobs_.end()) {
    job->second.asked = false;
  }
}

// --- what it hears ---

void Client::handle(schema::Envelope::Reader message, Turn&) {
  if (!message.isReply()) return;
  const auto reply = message.getReply();
  const auto asked = asked_.find(reply.getCorr());
  if (asked == asked_.end()) return;
  const Ask what = asked->second;
  asked_.erase(asked);
  const auto job = jobs_.find(what.job);
  if (job == jobs_.end()) return;
  job->second.asked = false;
  if (reply.isBound()) return onBound(job->second, reply.getBound());
  if (reply.isFailed()) return onFailed(job->first, what, reply.getFailed().getCode());
  if (what.what == What::End) jobs_.erase(job);
}

void Client::onBound(Job& job, schema::Bound::Reader bound) {
  const bool isNew = job.task != bound.getTask();
  job.task = bound.getTask();
  job.endAt = host_.now() + dice_.magnitude(options_.lifeMin, options_.lifeMax);
  if (!isNew) return;
  bound_({job.task, bound.getToken(), job.taskClass, mebibytes(job.mib), job.ownerPid});
}

void Client::onFailed(std::uint64_t id, const Ask& what, const std::string& code) {
  // A bind that may come through is asked again, but not for ever; what may be bound or has to end
  // until it is known.
  const bool must = what.what == What::End || jobs_.at(id).uncertain;
  if (must && busyNow(code)) return;
  const bool may = busyNow(code) || mayFitLater(code);
  if (what.what == What::Bind && may && !calm_ && dice_.percent(70)) return;
  jobs_.erase(id);
}

}  // namespace qgpu::sim
