#include "services/kubernetes/extender/binder.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "actors/scheduler/codec.h"
#include "services/api/commands/schema_names.h"
#include "services/base/json.h"
#include "services/kubernetes/pods/pod_names.h"

namespace qgpu {
namespace {

Peer self() {
  Peer peer;
  peer.mayChange = true;
  peer.name = "kube-scheduler";
  return peer;
}

std::string hex(std::uint64_t number) {
  char digits[16];
  return {digits, std::to_chars(digits, digits + sizeof digits, number, 16).ptr};
}

Error errorOf(schema::Failure::Reader failure) {
  return fail(errorFromName(view(failure.getCode())), std::string(view(failure.getMessage())));
}

}  // namespace

// One bind from its begin to its end.
struct Binder::Bind {
  PodRef pod;
  std::string node;
  SeenPod seen;  // as filter was told, until the pod itself was read
  bool isRead = false;
  NodeId nodeId{};
  PodCards plan;                                // of the demands
  std::vector<std::uint64_t> tasks;             // of the demands; 0: none
  std::vector<std::vector<std::string>> cards;  // ids, as they were bound
  bool submitted = false;
  bool annotated = false;  // or nobody knows
};

Binder::Binder(ClusterActorClient& actor, const ClusterView& cluster, const SeenPods& seen,
               PodRules rules, WaitingPods& waiting, PodsUnderWay& underWay, PodGroups& groups,
               kj::Timer& timer, std::uint64_t boot)
    : actor_(actor),
      cluster_(cluster),
      ledger_(cluster.ledger()),
      seen_(seen),
      rules_(std::move(rules)),
      waiting_(waiting),
      underWay_(underWay),
      groups_(groups),
      timer_(timer),
      boot_(boot),
      tasks_(*this) {}

Binder::~Binder() noexcept(false) = default;

kj::Promise<std::string> Binder::bind(ExtenderBindingArgs args) {
  const auto refuse = [this](std::string why) -> kj::Promise<std::string> {
    ++counts_.refused;
    return why;
  };
  const std::string pod = args.podNamespace + "/" + args.podName;
  const auto found = known_.find(args.podUid);
  if (found != known_.end()) {
    Known& known = found->second;
    if (known.node != args.node) {
      return refuse("pod " + pod + " is bound to node " + known.node + ", not " + args.node);
    }
    KJ_IF_MAYBE (result, known.result) return result->addBranch();
    return std::string();
  }
  const SeenPod* seen = seen_.find(args.podUid);
  if (seen == nullptr) {
    return refuse("pod " + pod + " (UID " + args.podUid +
                  ") was not filtered by this scheduler: "
                  "it is bound when kube-scheduler has tried it again");
  }
  if (api_ == nullptr) return refuse("this scheduler knows no Kubernetes API server to bind by");
  if (running_ >= kBindsMax) {
    return refuse(std::to_string(running_) + " binds are under way already: try again");
  }
  return start(args, *seen);
}

kj::Promise<std::string> Binder::start(const ExtenderBindingArgs& args, const SeenPod& seen) {
  auto owned = kj::heap<Bind>();
  Bind& bind = *owned;
  bind.pod = {args.podNamespace, args.podName, args.podUid};
  bind.node = args.node;
  bind.seen = seen;
  ++running_;
  const std::string uid = args.podUid;
  auto result = run(bind)
                    .then([this, uid, &bind](Status how) {
                      if (bind.isRead) groups_.ended(uid, how);
                      ended(uid, how);
                      return how ? std::string() : how.error().message;
                    })
                    .attach(kj::mv(owned))
                    .fork();
  auto mine = result.addBranch();
  tasks_.add(result.addBranch().ignoreResult());
  known_.insert_or_assign(uid, Known{args.node, kj::mv(result), &bind});
  return mine;
}

// Whoever waits for it has a branch of its own.
void Binder::ended(const std::string& uid, const Status& how) {
  --running_;
  if (!how) {
    waiting_.notBound(uid);
    known_.erase(uid);
    return;
  }
  Known& known = known_.at(uid);
  known.result = nullptr;
  known.bind = nullptr;
  bound_.push_back(uid);
  if (bound_.size() <= kRememberedMax) return;
  known_.erase(bound_.front());
  bound_.pop_front();
}

kj::Promise<Status> Binder::run(Bind& bind) {
  return read(bind)
      .then([this, &bind](Status done) -> kj::Promise<Status> {
        if (!done) return kj::mv(done);
        groups_.begins(bind.pod.uid);
        return place(bind, kTriesMax);
      })
      .then([this, &bind](Status done) -> kj::Promise<Status> {
        if (!done) return kj::mv(done);
        return calling([this, &bind]() { return annotate(bind, kVersionsMax); });
      })
      .then([this, &bind](Status done) -> kj::Promise<Status> {
        if (!done) return kj::mv(done);
        return together(bind);
      })
      .then([this, &bind](Status done) -> kj::Promise<Status> {
        if (!done) return kj::mv(done);
        return calling([this, &bind]() { return createBinding(bind, timer_.now() + kRetryFor); });
      })
      .then([this, &bind](Status done) -> kj::Promise<Status> {
        if (!done) return takeBack(bind, done.error());
        ++counts_.bound;
        std::string where;
        for (std::size_t i = 0; i < bind.cards.size(); ++i) {
          if (i > 0) where += "; ";
          where += bind.seen.ask.demands[i].container + " on";
          for (const std::string& card : bind.cards[i]) where += " " + card;
        }
        tell(bind, EventReason::Scheduled, {bind.node, where});
        return ok();
      });
}

// With the others of its group, where it has one and takes room.
kj::Promise<Status> Binder::together(const Bind& bind) {
  if (bind.seen.pod.group.name.empty() || bind.seen.ask.demands.empty()) return ok();
  return groups_.together(bind.seen.pod, [this, &bind]() { return stillPlaced(bind); });
}

// Meanwhile it counts as filter was told, for others who choose; of a group it has a place already.
kj::Promise<Status> Binder::read(Bind& bind) {
  const std::optional<NodeId> node = ledger_.findNode(bind.node);
  std::optional<PodsUnderWay::Place> hint;
  if (node && !bind.seen.ask.demands.empty() && bind.seen.pod.group.name.empty()) {
    hint = underWay_.add(*node, bind.seen.ask, ledger_.changes());
  }
  return mayCall()
      .then([this, &bind]() { return api_->readPod(bind.pod); })
      .then([this, &bind](Result<std::string> json) { return take(bind, json); })
      .attach(kj::defer([this, hint]() {
        doneCalling();
        if (hint) underWay_.remove(*hint);
      }));
}

Status Binder::take(Bind& bind, const Result<std::string>& json) const {
  if (!json) return json.error();
  Result<PodDemands> pod = qgpu::readPod(*json, rules_);
  if (!pod) return pod.error();
  const std::string name = "pod " + bind.pod.nameSpace + "/" + bind.pod.name;
  if (pod->uid != bind.pod.uid) {
    return fail(ErrorCode::NotFound, name + " has the UID " + pod->uid + ", not " + bind.pod.uid);
  }
  if (!pod->namesOurs) {
    return fail(ErrorCode::Denied,
                name +
                    " asks for nothing of qgpu, so kube-scheduler is to bind it itself: name "
                    "qgpu's resources as managedResources in its configuration");
  }
  if (!pod->nodeName.empty()) {
    return fail(ErrorCode::Conflict, name + " is bound already, to node " + pod->nodeName);
  }
  bind.seen = seenPod(std::move(*pod));
  bind.isRead = true;
  return ok();
}

// Other binds, whose requests the scheduler has not taken yet, may be given the same cards by their
// plans: then there is another plan.
kj::Promise<Status> Binder::place(Bind& bind, int tries) {
  if (Status planned = plan(bind); !planned) return planned;
  if (bind.plan.empty()) return submitAll(bind);
  const auto placing = underWay_.add(bind.nodeId, bind.seen.ask, ledger_.changes());
  auto placed = submitAll(bind).attach(kj::defer([this, placing]() { underWay_.remove(placing); }));
  return placed.then([this, &bind, tries](Status done) -> kj::Promise<Status> {
    const bool again =
        !done && done.error().code == ErrorCode::NoRoom && tries > 1 && bind.plan.size() > 1;
    if (!again) return kj::mv(done);
    return deleteTasks(bind).then([this, &bind, tries]() { return place(bind, tries - 1); });
  });
}

std::optional<BindUnderWay> Binder::underWayOf(std::string_view uid) const {
  const auto found = known_.find(uid);
  if (found == known_.end() || found->second.bind == nullptr) return std::nullopt;
  return BindUnderWay{found->second.bind->pod, found->second.bind->annotated};
}

// Which cards, as the ledger has them now.
Status Binder::plan(Bind& bind) {
  if (bind.seen.ask.demands.empty()) return ok();
  const std::optional<NodeId> node = ledger_.findNode(bind.node);
  if (!node) return fail(ErrorCode::NotFound, "node " + bind.node + " has no cards of qgpu");
  PodFit fit(ledger_, bind.seen.ask);
  std::optional<PodCards> cards = fit.cards(*node);
  if (!cards) {
    return fail(ErrorCode::NoRoom,
                "node " + bind.node + " has no room for it any more: " + fit.refusal(*node).text);
  }
  bind.nodeId = *node;
  bind.plan = std::move(*cards);
  return ok();
}

// All at once: the scheduler takes requests in their order. A single task's card is chosen by it,
// which then knows of every bind before this one.
kj::Promise<Status> Binder::submitAll(Bind& bind) {
  const std::size_t count = bind.plan.size();
  bind.submitted = true;
  ++attempts_;
  bind.tasks.assign(count, 0);
  bind.cards.assign(count, {});
  auto answers = kj::heapArrayBuilder<kj::Promise<Status>>(count);
  for (const std::size_t demand : askingOrder(bind.plan)) {
    ClusterSpec spec;
    const LedgerAsk& ask = bind.seen.ask.demands[demand].ask;
    const std::string& container = bind.seen.ask.demands[demand].container;
    spec.task.name = podTaskName(bind.pod.nameSpace, bind.pod.name, container);
    spec.task.taskClass = ask.taskClass;
    spec.task.mem = ask.mem;
    spec.task.share = ask.share;
    spec.task.cards = ask.cards;
    spec.task.requestId = podRequestId(bind.pod.uid, container, hex(boot_) + "-" + hex(attempts_));
    spec.node = bind.node;
    spec.application = bind.seen.ask.application;
    spec.models = bind.seen.ask.models;
    const std::vector<std::size_t>& cards = bind.plan[demand];
    if (cards.size() == 1 && count > 1)
      spec.task.card = ledger_.facts(bind.nodeId).cards[cards.front()].id;
    answers.add(actor_
                    .ask(self(),
                         [&](schema::ClusterRequest::Builder request) {
                           writeClusterSpec(spec, request.initSubmit());
                         })
                    .then([this, &bind, demand](Result<ClusterAnswer> answer) {
                      return takeAnswer(bind, demand, answer);
                    }));
  }
  return kj::joinPromises(answers.finish()).then([](kj::Array<Status> all) -> Status {
    for (Status& one : all) {
      if (!one) return std::move(one);
    }
    return ok();
  });
}

Status Binder::takeAnswer(Bind& bind, std::size_t demand, const Result<ClusterAnswer>& answer) {
  if (!answer) return answer.error();
  const schema::ClusterReply::Reader reply = answer->reply();
  if (reply.isFailed()) return errorOf(reply.getFailed());
  if (!reply.isAssigned()) return fail(ErrorCode::Internal, "the scheduler gave no answer");
  const schema::Assigned::Reader assigned = reply.getAssigned();
  bind.tasks[demand] = assigned.getTask();
  if (assigned.getWaiting()) {
    return fail(ErrorCode::NoRoom, "node " + bind.node + " has no room for it any more");
  }
  for (const auto card : assigned.getCards()) bind.cards[demand].emplace_back(view(card));
  return ok();
}

// Meanwhile an operator, or the scheduler for others, may have taken its room back.
Status Binder::stillPlaced(const Bind& bind) const {
  for (const std::uint64_t id : bind.tasks) {
    const Job* job = cluster_.task(id);
    if (job == nullptr || (job->state != PlaceState::Bound && job->state != PlaceState::Assumed)) {
      return fail(ErrorCode::Conflict,
                  "its room on node " + bind.node +
                      " was taken back before it was bound: it is tried again");
    }
  }
  return ok();
}

kj::Promise<Status> Binder::annotate(Bind& bind, int versions) {
  const PodDemands& pod = bind.seen.pod;
  if (pod.containers.empty()) return ok();
  if (Status placed = stillPlaced(bind); !placed) return placed;
  JsonWriter json;
  json.beginObject();
  for (std::size_t i = 0; i < pod.containers.size(); ++i) {
    json.key(pod.containers[i].name).beginArray();
    for (const std::string& card : bind.cards[bind.seen.demandOf[i]]) json.string(card);
    json.endArray();
  }
  json.endObject();
  bind.annotated = true;
  return api_->annotatePod(bind.pod, {{kAssignedAnnotation, json.take()}}, pod.resourceVersion)
      .then([this, &bind, versions](Status done) -> kj::Promise<Status> {
        bind.annotated = done.ok() || done.error().code == ErrorCode::Unavailable;
        if (done || done.error().code != ErrorCode::Conflict) return kj::mv(done);
        return annotateLater(bind, done.error(), versions);
      });
}

// It has another version since it was filtered, as when it was woken meanwhile. If it asks the
// same, its decision holds.
kj::Promise<Status> Binder::annotateLater(Bind& bind, Error why, int versions) {
  if (versions == 0) return Status(std::move(why));
  return timer_.afterDelay(kVersionEvery)
      .then([this, &bind, why = std::move(why), versions]() mutable -> kj::Promise<Status> {
        const PodDemands* now = waiting_.find(bind.pod.uid);
        if (now == nullptr) return Status(std::move(why));
        PodDemands& before = bind.seen.pod;
        const bool same = now->resourceVersion == before.resourceVersion;
        before.resourceVersion = now->resourceVersion;
        if (same) return annotateLater(bind, std::move(why), versions - 1);
        if (*now != before) return Status(std::move(why));
        return annotate(bind, versions - 1);
      });
}

kj::Promise<Status> Binder::createBinding(Bind& bind, kj::TimePoint until) {
  if (Status placed = stillPlaced(bind); !placed) return placed;
  return api_->bindPod(bind.pod, bind.node)
      .then([this, &bind, until](Status done) -> kj::Promise<Status> {
        const bool unknown = !done && done.error().code == ErrorCode::Unavailable;
        if (!unknown || timer_.now() + kRetryEvery > until) return kj::mv(done);
        return timer_.afterDelay(kRetryEvery).then([this, &bind, until]() {
          return createBinding(bind, until);
        });
      });
}

kj::Promise<Status> Binder::takeBack(Bind& bind, Error why) {
  std::string text = std::string(errorName(why.code)) + ": " + why.message;
  ++(bind.submitted ? counts_.rolledBack : counts_.refused);
  tell(bind, bind.submitted ? EventReason::BindRolledBack : EventReason::Rejected, {text});
  if (bind.annotated && why.code == ErrorCode::Unavailable) {
    // It may be bound: then the pod shows up with what it holds; else the bridge ends the tasks.
    return Status(fail(why.code, text + "; whether the pod is bound is not known yet"));
  }
  kj::Promise<Status> cleared = ok();
  if (bind.annotated) {
    cleared = api_->annotatePod(bind.pod, {{kAssignedAnnotation, std::nullopt}}, "");
  }
  // With its decision still on it the pod may be bound late: its tasks are left to the bridge.
  return cleared
      .then([this, &bind](Status done) -> kj::Promise<void> {
        if (!done && done.error().code != ErrorCode::NotFound) return kj::READY_NOW;
        bind.annotated = false;
        return deleteTasks(bind);
      })
      .then([code = why.code, text = std::move(text)]() { return Status(fail(code, text)); });
}

kj::Promise<void> Binder::deleteTasks(Bind& bind) {
  auto all = kj::heapArrayBuilder<kj::Promise<void>>(bind.tasks.size());
  for (const std::uint64_t task : bind.tasks) {
    if (task == 0) {
      all.add(kj::READY_NOW);
      continue;
    }
    all.add(actor_
                .ask(self(),
                     [task](schema::ClusterRequest::Builder request) { request.setDelete(task); })
                .ignoreResult());
  }
  return kj::joinPromises(all.finish());
}

kj::Promise<Status> Binder::calling(std::function<kj::Promise<Status>()> call) {
  return mayCall().then([this, call = std::move(call)]() {
    return call().attach(kj::defer([this]() { doneCalling(); }));
  });
}

kj::Promise<void> Binder::mayCall() {
  if (calling_ < kWritesMax) {
    ++calling_;
    return kj::READY_NOW;
  }
  auto paf = kj::newPromiseAndFulfiller<void>();
  callers_.push_back(kj::mv(paf.fulfiller));
  return kj::mv(paf.promise);
}

// The place goes to the next that waits.
void Binder::doneCalling() {
  if (callers_.empty()) {
    --calling_;
    return;
  }
  callers_.front()->fulfill();
  callers_.pop_front();
}

void Binder::tell(const Bind& bind, EventReason reason, const std::vector<std::string>& values) {
  if (!bind.isRead || bind.seen.pod.containers.empty()) return;  // no pod of ours
  api_->tellPod(podEvent(bind.pod, reason, values));
}

void Binder::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "a bind handles its own failures");
}

}  // namespace qgpu
