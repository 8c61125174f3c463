#include "services/kubernetes/agent/kubelet_handler.h"

#include <algorithm>
#include <kj/vector.h>
#include <sys/random.h>

#include "actors/model.h"
#include "runtime/check.h"
#include "runtime/text_hash.h"
#include "services/api/commands/schema_names.h"
#include "services/api/rpc/checked.h"
#include "services/api/rpc/rpc_calls.h"
#include "services/kubernetes/agent/container_room.h"
#include "services/kubernetes/pods/pod_names.h"

namespace qgpu {
namespace {

constexpr std::size_t kDeviceKindsMax = 8;
constexpr std::size_t kContainersMax = 64;

// Another one for each binding: the ids of tasks that ended stay taken.
std::string freshRequest(const std::string& start) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    fatal(ExitCode::Environment, "getrandom() gives nothing");
  }
  return start + textHashHex(std::to_string(random));
}

std::uint32_t countOf(const std::map<std::string, std::uint32_t>& devices, Resource resource) {
  const auto found = devices.find(resourceName(resource));
  return found == devices.end() ? 0 : found->second;
}

ContainerPlan readContainer(schema::ContainerPlan::Reader reader) {
  ContainerPlan plan;
  plan.name = checkedText(reader.getName(), "name");
  if (reader.getCards().size() > kNodeCardsMax) {
    kj::throwFatalException(refusal(ErrorCode::InvalidArgument, "cards: too many"));
  }
  for (const auto card : reader.getCards()) plan.cards.push_back(checkedText(card, "cards"));
  plan.mem = Bytes(bounded(reader.getMemBytes()));
  plan.share = Permille(reader.getSharePermille());
  plan.uses = checkedText(reader.getUses(), "uses");
  plan.init = reader.getInit();
  return plan;
}

PodPlan readPlan(schema::PodPlan::Reader reader) {
  PodPlan plan;
  plan.uid = checkedText(reader.getUid(), "uid");
  plan.nameSpace = checkedText(reader.getNamespace(), "namespace");
  plan.name = checkedText(reader.getName(), "name");
  plan.taskClass = readClass(reader.getClass());
  if (reader.getContainers().size() > kContainersMax) {
    kj::throwFatalException(refusal(ErrorCode::InvalidArgument, "containers: too many"));
  }
  for (const auto container : reader.getContainers()) {
    plan.containers.push_back(readContainer(container));
  }
  return plan;
}

Result<KubeletHandler::Started> startedOf(const Result<Answer>& answer) {
  if (!answer) return answer.error();
  const auto bound = answer->reply().getBound();
  KubeletHandler::Started started{bound.getTask(), std::string(view(bound.getToken())), {}};
  for (const auto card : bound.getCards()) started.cards.emplace_back(view(card));
  return started;
}

// Whether this is a container's task.
bool isPods(schema::TaskInfo::Reader task) {
  return view(task.getSpec().getRequestId()).starts_with(KubeletHandler::kRequestStart);
}

constexpr const char* kNoApiServer = "the manager knows no API server, which claims are read at";
constexpr const char* kNotByClaims =
    "this node's cards are not given by claims now: its label qgpu.io/claims=enable says so, once "
    "the tasks of other pods have ended";

void write(const PreparedPart& part, schema::ClaimPart::Builder out) {
  out.setRequest(ptr(part.request));
  out.setAdmin(part.admin);
  out.setTask(part.task);
  out.setToken(ptr(part.token));
  auto devices = out.initDevices(static_cast<kj::uint>(part.devices.size()));
  for (kj::uint i = 0; i < devices.size(); ++i) {
    devices[i].setDevice(ptr(part.devices[i].device));
    devices[i].setShare(ptr(part.devices[i].share));
  }
  auto cards = out.initCards(static_cast<kj::uint>(part.cards.size()));
  for (kj::uint i = 0; i < cards.size(); ++i) cards.set(i, ptr(part.cards[i]));
}

class KubeletService final : public schema::KubeletHandler::Server, private RpcCalls<NodeApi> {
 public:
  KubeletService(KubeletHandler& handler, NodeActorClient& actor, kj::Own<RpcSession> session)
      : RpcCalls(actor, kj::mv(session)), handler_(handler), alive_(handler.alive()) {}
  // A plugin that is gone counts nothing for kubelet.
  ~KubeletService() noexcept(false) {
    if (told_ && alive_->here) handler_.setCounted({});
  }

  kj::Promise<void> node(NodeContext context) override {
    return call(
        context, [](schema::Request::Builder request) { request.setCards(); },
        [this, context](schema::Reply::Reader reply) mutable {
          auto results = context.getResults();
          const bool given = handler_.closed().empty() || handler_.givenByClaims();
          if (given) results.setCards(reply.getCards());
          results.setClaims(handler_.givenByClaims());
          results.setMixed(handler_.mixed());
          toldRuntime_ = handler_.runtime();
          results.setRuntime(ptr(toldRuntime_));
          const auto& environment = handler_.environment();
          auto list = results.initEnvironment(static_cast<kj::uint>(environment.size()));
          for (kj::uint i = 0; i < list.size(); ++i) list.set(i, ptr(environment[i]));
        });
  }

  kj::Promise<void> assign(AssignContext context) override {
    const Status put = handler_.book().put(readPlan(context.getParams().getPod()));
    if (!put) return toException(put.error());
    return kj::READY_NOW;
  }

  kj::Promise<void> forget(ForgetContext context) override {
    handler_.book().forget(checkedText(context.getParams().getUid(), "uid"));
    return kj::READY_NOW;
  }

  kj::Promise<void> start(StartContext context) override {
    const auto params = context.getParams();
    const auto container = params.getContainer();
    KubeletHandler::Asked asked{session().peer,
                                checkedText(container.getNamespace(), "namespace"),
                                checkedText(container.getPod(), "pod"),
                                checkedText(container.getName(), "container"),
                                {},
                                checkedText(params.getResource(), "resource")};
    if (params.getDevices().size() > kDeviceKindsMax) {
      return refusal(ErrorCode::InvalidArgument, "devices: too many resources");
    }
    for (const auto device : params.getDevices()) {
      asked.devices[checkedText(device.getResource(), "resource")] = device.getCount();
    }
    return handler_.start(std::move(asked))
        .then([context](Result<KubeletHandler::Started> started) mutable {
          if (!started) kj::throwFatalException(toException(started.error()));
          auto results = context.getResults();
          results.setTask(started->task);
          results.setToken(ptr(started->token));
          auto cards = results.initCards(static_cast<kj::uint>(started->cards.size()));
          for (kj::uint i = 0; i < cards.size(); ++i) cards.set(i, ptr(started->cards[i]));
        });
  }

  kj::Promise<void> tasks(TasksContext context) override {
    return call(
        context, [](schema::Request::Builder request) { request.setTasks(); },
        [context](schema::Reply::Reader reply) mutable {
          kj::uint count = 0;
          for (const auto task : reply.getTasks()) count += isPods(task) ? 1 : 0;
          auto out = context.getResults().initTasks(count);
          kj::uint at = 0;
          for (const auto task : reply.getTasks()) {
            if (!isPods(task)) continue;
            auto one = out[at++];
            one.setTask(task.getId());
            one.setName(task.getSpec().getName());
            one.setProcesses(task.getUse().getProcesses());
          }
        });
  }

  kj::Promise<void> counted(CountedContext context) override {
    const auto cards = context.getParams().getCards();
    if (cards.size() > kNodeCardsMax) return refusal(ErrorCode::InvalidArgument, "cards: too many");
    std::set<std::string> all;
    for (const auto card : cards) all.insert(checkedText(card, "cards"));
    told_ = true;
    // What it prepares for containers depends on it: until it knows, none is to come here.
    if (toldRuntime_ != handler_.runtime()) all.clear();
    handler_.setCounted(std::move(all));
    return kj::READY_NOW;
  }

  kj::Promise<void> prepare(PrepareContext context) override {
    const auto claim = context.getParams().getClaim();
    ClaimName name{checkedText(claim.getNamespace(), "namespace"),
                   checkedText(claim.getName(), "name"), checkedText(claim.getUid(), "uid")};
    KJ_IF_MAYBE (claims, handler_.claims()) {
      if (!handler_.givenByClaims()) return refusal(ErrorCode::Unavailable, kNotByClaims);
      return claims->prepare(session().peer, name)
          .then([this, name, context](Result<PreparedClaim> prepared) mutable {
            prepared = handler_.settle(name, std::move(prepared));
            if (!prepared) kj::throwFatalException(toException(prepared.error()));
            const auto& parts = prepared->parts;
            auto out = context.getResults().initParts(static_cast<kj::uint>(parts.size()));
            for (kj::uint i = 0; i < out.size(); ++i) write(parts[i], out[i]);
            return limit(*prepared);
          });
    }
    return refusal(ErrorCode::Unavailable, kNoApiServer);
  }

  kj::Promise<void> unprepare(UnprepareContext context) override {
    std::string uid = checkedText(context.getParams().getUid(), "uid");
    KJ_IF_MAYBE (claims, handler_.claims()) {
      return claims->unprepare(session().peer, std::move(uid)).then([](Status ended) {
        if (!ended) kj::throwFatalException(toException(ended.error()));
      });
    }
    return refusal(ErrorCode::Unavailable, kNoApiServer);
  }

  kj::Promise<void> end(EndContext context) override {
    return handler_.end(session().peer, context.getParams().getTask()).then([](Status ended) {
      if (!ended) kj::throwFatalException(toException(ended.error()));
    });
  }

 private:
  kj::Promise<void> limit(const PreparedClaim& prepared) {
    std::vector<std::string> uids;
    for (const ClaimUsers::Pod& pod : prepared.users.pods) uids.push_back(pod.uid);
    std::set<std::uint64_t> tasks;
    for (const PreparedPart& part : prepared.parts) tasks.insert(part.task);
    return handler_.limit(session().peer, std::move(uids), std::move(tasks));
  }

  KubeletHandler& handler_;
  kj::Own<KubeletHandler::Alive> alive_;
  bool told_ = false;        // what kubelet counts
  std::string toldRuntime_;  // of containers; by us
};

}  // namespace

struct KubeletHandler::Bind {
  Peer peer;
  PodPlan pod;
  std::string container;  // that starts
  bool fresh = false;     // no task of it was there
  std::string name;
  std::string request;  // begin of its request ids
  TaskClass taskClass;
  ContainerPlan plan;
  std::string cards;  // as spec.card wants them
};

KubeletHandler::KubeletHandler(NodeActorClient& actor, PodBook& book, KubeletHandlerConfig config)
    : actor_(actor),
      book_(book),
      config_(std::move(config)),
      mixed_(config_.mixed),
      tasks_(*this) {}

schema::KubeletHandler::Client KubeletHandler::serve(kj::Own<RpcSession> session) {
  return kj::heap<KubeletService>(*this, actor_, kj::mv(session));
}

void KubeletHandler::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "the actor never throws");
}

void KubeletHandler::setCounted(std::set<std::string> cards) {
  if (cards == counted_) return;
  counted_ = std::move(cards);
  KJ_IF_MAYBE (listener, listener_) listener->onCounted();
}

Result<PreparedClaim> KubeletHandler::settle(const ClaimName& claim,
                                             Result<PreparedClaim> prepared) {
  if (prepared) {
    if (Status judged = judge(*prepared); !judged) prepared = judged.error();
  }
  KJ_IF_MAYBE (listener, listener_) {
    if (prepared)
      listener->onClaimPrepared(claim, *prepared);
    else
      listener->onClaimRefused(claim, prepared.error());
  }
  return prepared;
}

// Which of its pods begins, kubelet does not say: one that has no cgroup yet is none. Whose claim
// gives it cards to look at alone is not judged.
Status KubeletHandler::judge(const PreparedClaim& prepared) {
  const auto part = std::find_if(prepared.parts.begin(), prepared.parts.end(),
                                 [](const PreparedPart& one) { return !one.admin; });
  if (part == prepared.parts.end()) return ok();
  KJ_IF_MAYBE (guard, guard_) {
    Status judged = fail(ErrorCode::NotFound, "the claim is reserved for no pod");
    bool some = false;
    for (const ClaimUsers::Pod& pod : prepared.users.pods) {
      judged = guard->judge(pod.uid, part->task);
      some = some || judged;
      if (!judged && judged.error().code != ErrorCode::NotFound) return judged;
    }
    return some ? ok() : judged;
  }
  return ok();
}

std::string KubeletHandler::requestOf(const std::string& uid, const std::string& container) {
  return kRequestStart + textHashHex(uid + "/" + container) + ":";
}

std::string_view KubeletHandler::requestStartOf(std::string_view requestId) {
  const std::size_t end = requestId.rfind(':');
  const bool ours =
      requestId.starts_with(kRequestStart) && end >= std::string(kRequestStart).size();
  return ours ? requestId.substr(0, end + 1) : "";
}

// --- starting ---

kj::Promise<Result<KubeletHandler::Started>> KubeletHandler::start(Asked asked) {
  if (waiting_.size() >= kStartsMax) {
    return Result<Started>(
        fail(ErrorCode::Overloaded, std::to_string(waiting_.size()) + " containers start already"));
  }
  auto paf = kj::newPromiseAndFulfiller<Result<Started>>();
  waiting_.push_back({std::move(asked), kj::mv(paf.fulfiller)});
  if (!working_) {
    working_ = true;
    tasks_.add(work());
  }
  return kj::mv(paf.promise);
}

kj::Promise<void> KubeletHandler::work() {
  Waiting next = std::move(waiting_.front());
  waiting_.pop_front();
  return startNow(std::move(next.asked))
      .then([this, done = kj::mv(next.done)](Result<Started> started) mutable -> kj::Promise<void> {
        done->fulfill(kj::mv(started));
        if (!waiting_.empty()) return work();
        working_ = false;
        return kj::READY_NOW;
      });
}

// What kubelet gave must be what the scheduler decided upon: else two of them speak of different
// pods, and whoever starts would have what nobody counted.
Status KubeletHandler::compare(const Asked& asked, const PodBook::Found& found) const {
  const auto wanted = devicesOf(*found.container, found.pod->taskClass, config_.unit);
  for (const auto& [resource, count] : wanted) {
    const std::uint32_t given = countOf(asked.devices, resource);
    if (given == count) continue;
    return fail(ErrorCode::Conflict, "kubelet gave " + asked.nameSpace + "/" + asked.pod + "/" +
                                         asked.container + " " + std::to_string(given) + " of " +
                                         resourceName(resource) + ", the scheduler decided upon " +
                                         std::to_string(count));
  }
  return ok();
}

kj::Promise<Result<KubeletHandler::Started>> KubeletHandler::startNow(Asked asked) {
  const auto pod = book_.findPod(asked.nameSpace, asked.pod);
  if (!pod) return Result<Started>(pod.error());
  const auto room = roomFor(asked, **pod);
  if (!room && room.error().code == ErrorCode::NotFound) return Result<Started>(room.error());
  if (!room) {
    KJ_IF_MAYBE (listener, listener_) {
      listener->onRefused(**pod, asked.container.empty() ? "(init)" : asked.container,
                          room.error());
    }
    return Result<Started>(room.error());
  }
  if (*room == nullptr) return Result<Started>(Started{});
  return startIn(asked, **pod, **room);
}

// Whose room the container uses that starts; nullptr: this resource does not say.
Result<const ContainerPlan*> KubeletHandler::roomFor(const Asked& asked, const PodPlan& pod) const {
  if (!asked.container.empty()) {
    const auto found = book_.find(asked.nameSpace, asked.pod, asked.container);
    if (!found) return found.error();
    if (Status same = compare(asked, *found); !same) return same.error();
    if (asked.resource.empty()) {
      const std::string& uses = found->container->uses;
      const auto owner =
          book_.find(asked.nameSpace, asked.pod, uses.empty() ? asked.container : uses);
      if (!owner) return owner.error();
      return owner->container;
    }
  }
  const auto resource = resourceFromName(asked.resource);
  if (!resource) {
    return fail(ErrorCode::InvalidArgument, "there is no resource '" + asked.resource + "'");
  }
  return roomOf(pod, asked.container, *resource, countOf(asked.devices, *resource), config_.unit);
}

kj::Promise<Result<KubeletHandler::Started>> KubeletHandler::startIn(const Asked& asked,
                                                                     const PodPlan& pod,
                                                                     const ContainerPlan& plan) {
  auto bind = kj::heap<Bind>(Bind{asked.peer,
                                  pod,
                                  asked.container.empty() ? plan.name : asked.container,
                                  false,
                                  podTaskName(asked.nameSpace, asked.pod, plan.name),
                                  requestOf(pod.uid, plan.name),
                                  pod.taskClass,
                                  plan,
                                  {}});
  return actor_.ask(asked.peer, [](schema::Request::Builder request) { request.setTasks(); })
      .then([this,
             bind = kj::mv(bind)](Result<Answer> tasks) mutable -> kj::Promise<Result<Started>> {
        if (!tasks) return Result<Started>(tasks.error());
        std::string request;
        for (const auto task : tasks->reply().getTasks()) {
          const std::string_view known = view(task.getSpec().getRequestId());
          if (known.starts_with(bind->request)) request = known;
        }
        bind->fresh = request.empty();
        if (bind->fresh && !closed_.empty()) {  // a container of a task that is there starts again
          const Result<Started> refused(fail(ErrorCode::Conflict, closed_));
          tell(bind->pod, *bind, refused);
          return kj::cp(refused);
        }
        bind->request = bind->fresh ? freshRequest(bind->request) : request;
        Bind& named = *bind;
        return nameCards(named).then(
            [this, bind = kj::mv(bind)](Status good) mutable -> kj::Promise<Result<Started>> {
              if (!good) return Result<Started>(good.error());
              return this->bind(kj::mv(bind));
            });
      });
}

void KubeletHandler::tell(const PodPlan& pod, const Bind& bind, const Result<Started>& started) {
  KJ_IF_MAYBE (listener, listener_) {
    if (!started)
      listener->onRefused(pod, bind.container, started.error());
    else if (bind.fresh)
      listener->onStarted(pod, bind.container, started->task, started->cards);
  }
}

// One card by its id; several by their places on this node, which are short enough to be listed.
kj::Promise<Status> KubeletHandler::nameCards(Bind& bind) {
  if (bind.plan.cards.size() == 1) {
    bind.cards = bind.plan.cards.front();
    return Status(Unit{});
  }
  return actor_.ask(bind.peer, [](schema::Request::Builder request) { request.setCards(); })
      .then([&bind](Result<Answer> cards) -> Status {
        if (!cards) return cards.error();
        for (const std::string& id : bind.plan.cards) {
          std::string index;
          for (const auto card : cards->reply().getCards()) {
            const auto info = card.getInfo();
            if (view(info.getId()) == id) index = std::to_string(info.getIndex());
          }
          if (index.empty()) return fail(ErrorCode::NotFound, "no card '" + id + "' here");
          bind.cards += (bind.cards.empty() ? "" : ",") + index;
        }
        return ok();
      });
}

kj::Promise<Result<KubeletHandler::Started>> KubeletHandler::bind(kj::Own<Bind> bind) {
  const Bind& what = *bind;
  auto fill = [&what](schema::Request::Builder request) {
    auto spec = request.initBind();
    spec.setName(ptr(what.name));
    spec.setClass(word(what.taskClass));
    const Bytes mem = std::max(what.plan.mem, gibibytes(1));  // whole cards take all of theirs
    spec.setMemBytes(static_cast<std::uint64_t>(mem.value));
    const bool online = what.taskClass == TaskClass::Online;
    spec.setSharePermille(online ? 0 : static_cast<std::uint32_t>(what.plan.share.value));
    spec.setCards(static_cast<std::uint32_t>(what.plan.cards.size()));
    spec.setCard(ptr(what.cards));
    spec.setOwnerUid(what.peer.uid);
    spec.setRequestId(ptr(what.request));
  };
  auto asked = actor_.ask(what.peer, fill);
  return asked.then([this,
                     bind = kj::mv(bind)](Result<Answer> answer) -> kj::Promise<Result<Started>> {
    Result<Started> started = startedOf(answer);
    KJ_IF_MAYBE (guard, guard_) {
      Status judged = started ? guard->judge(bind->pod.uid, started->task) : ok();
      if (!judged) started = judged.error();
    }
    tell(bind->pod, *bind, started);
    if (!started) return started;
    return limit(bind->peer, {bind->pod.uid}, {started->task}).then([started] { return started; });
  });
}

kj::Promise<void> KubeletHandler::limit(Peer peer, std::vector<std::string> uids,
                                        std::set<std::uint64_t> tasks) {
  if (limits_ == nullptr) return kj::READY_NOW;
  return actor_.ask(peer, [](schema::Request::Builder request) { request.setTasks(); })
      .then([this, uids = std::move(uids),
             tasks = std::move(tasks)](Result<Answer> answer) -> kj::Promise<void> {
        kj::Vector<kj::Promise<void>> told;
        KJ_IF_MAYBE (limits, limits_) {
          if (!answer) return kj::READY_NOW;
          for (const auto task : answer->reply().getTasks()) {
            if (!tasks.contains(task.getId())) continue;
            for (const std::string& uid : uids) told.add(limits->hold(uid, task));
          }
        }
        return kj::joinPromises(told.releaseAsArray());
      });
}

// --- ending ---

kj::Promise<Status> KubeletHandler::end(Peer peer, std::uint64_t task) {
  return actor_.ask(peer, [](schema::Request::Builder request) { request.setTasks(); })
      .then([this, peer, task](Result<Answer> tasks) -> kj::Promise<Status> {
        if (!tasks) return Status(tasks.error());
        for (const auto one : tasks->reply().getTasks()) {
          if (one.getId() != task) continue;
          if (!isPods(one)) return Status(fail(ErrorCode::Denied, "that is no container's task"));
          if (one.getUse().getProcesses() == 0) {
            return actor_.ask(peer, [task](schema::Request::Builder r) { r.setUnbind(task); })
                .then([](Result<Answer> ended) {
                  return ended ? Status(Unit{}) : Status(ended.error());
                });
          }
          return Status(fail(ErrorCode::Conflict, std::to_string(one.getUse().getProcesses()) +
                                                      " of its processes live"));
        }
        return Status(Unit{});  // it has ended
      });
}

kj::Promise<Result<bool>> KubeletHandler::endPod(Peer peer, PodPlan pod) {
  return actor_.ask(peer, [](schema::Request::Builder request) { request.setTasks(); })
      .then([this, peer, pod = std::move(pod)](Result<Answer> tasks) -> kj::Promise<Result<bool>> {
        if (!tasks) return Result<bool>(tasks.error());
        kj::Promise<bool> all = true;
        for (const auto task : tasks->reply().getTasks()) {
          const std::string_view request = view(task.getSpec().getRequestId());
          const bool its = std::any_of(
              pod.containers.begin(), pod.containers.end(), [&](const ContainerPlan& container) {
                return request.starts_with(requestOf(pod.uid, container.name));
              });
          if (!its) continue;
          all = all.then([this, peer, id = task.getId()](bool before) {
            return end(peer, id).then([before](Status ended) { return before && ended.ok(); });
          });
        }
        return all.then([](bool none) { return Result<bool>(none); });
      });
}

}  // namespace qgpu
