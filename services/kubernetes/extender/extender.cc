#include "services/kubernetes/extender/extender.h"

#include <algorithm>
#include <utility>

#include "runtime/loop.h"
#include "services/base/metrics_text.h"
#include "services/kubernetes/pods/pod_names.h"

namespace qgpu {
namespace {

constexpr std::size_t kWinnersTried = 32;
constexpr const char* kNoNode = R"("NoQgpuNode: the node has no cards of qgpu")";

HttpPage json(std::string text) {
  return HttpPage{200, "application/json", std::move(text)};
}

std::string failedFilter(std::string why) {
  FilterResult result;
  result.error = std::move(why);
  return writeFilterResult(result);
}

template <typename Work>
std::string timed(LatencyRecord& record, Work work) {
  const Nanos begin = monotonicNow();
  std::string said = work();
  record.add(monotonicNow() - begin);
  return said;
}

}  // namespace

Extender::Extender(ClusterActorClient& actor, const ClusterView& cluster, kj::Timer& timer,
                   PodRules rules, std::uint64_t boot, kj::Duration groupHold)
    : cluster_(cluster),
      timer_(timer),
      rules_(std::move(rules)),
      verdicts_(cluster.ledger()),
      groups_(cluster.ledger(), underWay_, timer, groupHold),
      waiting_(cluster.ledger(), verdicts_, groups_, timer, boot),
      binder_(actor, cluster, seen_, rules_, waiting_, underWay_, groups_, timer, boot) {}

void Extender::setApi(ApiServer& api) {
  api_ = &api;
  binder_.setApi(&api);
  waiting_.setApi(api);
}

void Extender::setReady(bool ready) {
  ready_ = ready;
  if (ready && api_ != nullptr) waiting_.start();
}

void Extender::waits(const PodDemands& pod) {
  SeenPod seen = seenPod(pod);
  if (seen.ask.demands.empty() || seen.ask.demands.size() > PodAsk::kDemandsMax) {
    return gone(pod.uid);
  }
  groups_.waits(seen);
  waiting_.waits(std::move(seen));
}

void Extender::bound(const PodDemands& pod) {
  waiting_.waitsNoMore(pod.uid);
  groups_.bound(pod);
}

void Extender::gone(const std::string& uid) {
  waiting_.waitsNoMore(uid);
  groups_.gone(uid);
}

std::vector<HttpRoute> Extender::routes() {
  return {
      HttpRoute::post(
          "/scheduler/filter", kExtenderBodyMax,
          [this](std::string body) -> kj::Promise<HttpPage> {
            return json(filter(std::move(body)));
          },
          [](const Error& error) { return json(failedFilter(error.message)); }),
      HttpRoute::post(
          "/scheduler/priorities", kExtenderBodyMax,
          [this](std::string body) -> kj::Promise<HttpPage> {
            return json(priorities(std::move(body)));
          },
          [](const Error&) { return json(writeHostPriorities({})); }),
      HttpRoute::post(
          "/scheduler/bind", kBindBodyMax,
          [this](std::string body) {
            return bind(std::move(body)).then([](std::string said) {
              return json(std::move(said));
            });
          },
          [](const Error& error) { return json(writeBindingResult(error.message)); }),
      HttpRoute::post(
          "/scheduler/preempt", kExtenderBodyMax,
          [this](std::string body) -> kj::Promise<HttpPage> {
            return json(preempt(std::move(body)));
          },
          [](const Error&) { return json(writePreemptionResult({})); }),
  };
}

std::optional<NodeId> Extender::nodeOf(std::string_view name) {
  const auto known = nodes_.find(name);
  if (known != nodes_.end()) return known->second;
  const std::optional<NodeId> node = cluster_.ledger().findNode(std::string(name));
  if (node) nodes_.emplace(name, *node);
  return node;
}

std::string Extender::filter(std::string body) {
  return timed(latencies_.filter, [&]() { return filterNow(std::move(body)); });
}

std::string Extender::priorities(std::string body) {
  return timed(latencies_.priorities, [&]() { return prioritiesNow(std::move(body)); });
}

std::string Extender::preempt(std::string body) {
  return timed(latencies_.preempt, [&]() { return preemptNow(std::move(body)); });
}

kj::Promise<std::string> Extender::bind(std::string body) {
  const Nanos begin = monotonicNow();
  return bindNow(std::move(body)).then([this, begin](std::string said) {
    latencies_.bind.add(monotonicNow() - begin);
    return said;
  });
}

std::string Extender::filterNow(std::string body) {
  ++counts_.filters;
  const Result<ExtenderArgs> args = reader_.args(body);
  if (!args) {
    ++counts_.malformed;
    return failedFilter(args.error().message);
  }
  if (!ready_) return failedFilter("the nodes of the cluster are not all known yet: try again");
  Result<PodDemands> pod = readPod(args->pod, rules_);
  FilterResult result;
  result.wholeNodes = args->wholeNodes;
  std::string brokenRule;
  if (!pod) {
    brokenRule =
        jsonText(std::string(reasonName(Reason::InvalidRequest)) + ": " + pod.error().message);
    for (const std::string_view name : args->names)
      result.unresolvable.push_back({name, brokenRule});
    tellBroken(podNamed(args->pod), pod.error());
  } else if (pod->asksNothing()) {
    result.fitting = args->wholeNodes ? args->nodes : args->names;
    seen_.add(seenPod(std::move(*pod)), timer_.now());
  } else {
    SeenPod seen = seenPod(std::move(*pod));
    judge(*args, seen, result);
    waiting_.judged(seen.pod.uid, !result.fitting.empty());
    seen_.add(std::move(seen), timer_.now());
  }
  counts_.fitting += result.fitting.size();
  counts_.failing += result.failed.size() + result.unresolvable.size();
  return writeFilterResult(result);
}

// A pod that breaks a rule fits nowhere, whatever happens to any node.
void Extender::tellBroken(const PodDemands& who, const Error& error) {
  if (api_ == nullptr || who.uid.empty()) return;
  const PodRef ref{who.nameSpace, who.name, who.uid};
  api_->tellPod(podEvent(ref, EventReason::Rejected, {error.message}));
}

// Nothing where it goes alone.
std::optional<PodGroups::Turn> Extender::turnOf(const ExtenderArgs& args, const PodDemands& pod) {
  if (!groups_.startsTogether(pod)) return std::nullopt;
  std::vector<NodeId> named;
  for (const std::string_view name : args.names) {
    if (const std::optional<NodeId> node = nodeOf(name)) named.push_back(*node);
  }
  PodGroups::Turn turn = groups_.turn(pod, std::move(named));
  if (turn.node) {
    turn.why = std::string(reasonName(Reason::GroupWaits)) + ": its group has it on node " +
               cluster_.ledger().facts(*turn.node).name;
  }
  turn.why = jsonText(turn.why);
  return turn;
}

// Nobody is to be evicted for a part of a group, so what it hears is as if nothing could help.
void Extender::judge(const ExtenderArgs& args, const SeenPod& seen, FilterResult& result) {
  whys_.clear();
  const std::optional<PodGroups::Turn> turn = turnOf(args, seen.pod);
  PodVerdicts::Pod fit = verdicts_.of(seen.ask);
  for (std::size_t i = 0; i < args.names.size(); ++i) {
    const std::string_view name = args.names[i];
    const std::optional<NodeId> node = nodeOf(name);
    if (!node) {
      result.unresolvable.push_back({name, whyNone(name)});
    } else if (turn ? turn->node == node : fitsAt(fit.rank(*node))) {
      result.fitting.push_back(args.wholeNodes ? args.nodes[i] : name);
    } else if (turn && fitsAt(fit.rank(*node))) {
      result.unresolvable.push_back({name, whys_.emplace_back(turn->why)});
    } else {
      const PodVerdicts::Refusal& refusal = fit.refusal(*node);
      auto& list = refusal.hopeless || turn ? result.unresolvable : result.failed;
      list.push_back({name, refusal.why});
    }
  }
}

std::string_view Extender::whyNone(std::string_view node) {
  const std::string why = whyNot_(std::string(node));
  if (why.empty()) return kNoNode;
  return whys_.emplace_back(jsonText(std::string(reasonName(Reason::NoQgpuNode)) + ": " + why));
}

std::string Extender::prioritiesNow(std::string body) {
  ++counts_.priorities;
  const Result<ExtenderArgs> args = reader_.args(body);
  if (!args) {
    ++counts_.malformed;
    return writeHostPriorities({});
  }
  const Result<PodDemands> pod = readPod(args->pod, rules_);
  if (!pod || pod->asksNothing()) {  // nothing tells these nodes apart
    std::vector<HostPriority> all;
    for (const std::string_view name : args->names) all.push_back({name, 0});
    return writeHostPriorities(all);
  }
  return writeHostPriorities(score(args->names, seenPod(*pod).ask));
}

// The best has 10 and nobody else; the others have 9 to 1 in their order, and 0 where it does not
// fit. kube-scheduler takes one of the highest by chance, so there must not be two.
std::vector<HostPriority> Extender::score(const std::vector<std::string_view>& names,
                                          const PodAsk& ask) {
  PodVerdicts::Pod fit = verdicts_.of(ask);
  struct Place {
    std::uint64_t rank;
    NodeId node;
    std::size_t at;
    bool operator<(const Place& other) const {
      return std::tie(rank, node, at) < std::tie(other.rank, other.node, other.at);
    }
  };
  std::vector<HostPriority> all;
  std::vector<Place> fitting;
  all.reserve(names.size());
  fitting.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    all.push_back({names[i], 0});
    const std::optional<NodeId> node = nodeOf(names[i]);
    const std::uint64_t rank = node ? fit.rank(*node) : kNeverRank;
    if (fitsAt(rank)) fitting.push_back({rank, *node, i});
  }
  std::sort(fitting.begin(), fitting.end());
  // The winner must not be one that binds under way are about to fill.
  for (std::size_t i = 0; i < std::min(fitting.size(), kWinnersTried); ++i) {
    if (!underWay_.fitBeside(cluster_.ledger(), fitting[i].node, ask)) continue;
    std::rotate(fitting.begin(), fitting.begin() + static_cast<std::ptrdiff_t>(i),
                fitting.begin() + static_cast<std::ptrdiff_t>(i + 1));
    break;
  }
  for (std::size_t i = 0; i < fitting.size(); ++i) {
    const auto worse = static_cast<std::int64_t>((i - 1) * 9 / fitting.size());
    all[fitting[i].at].score = i == 0 ? kExtenderScoreMax : kExtenderScoreMax - 1 - worse;
  }
  return all;
}

kj::Promise<std::string> Extender::bindNow(std::string body) {
  ++counts_.binds;
  Result<ExtenderBindingArgs> args = reader_.bindingArgs(body);
  if (!args) {
    ++counts_.malformed;
    return writeBindingResult(args.error().message);
  }
  return binder_.bind(std::move(*args)).then([](std::string why) {
    return writeBindingResult(why);
  });
}

std::string Extender::preemptNow(std::string body) {
  ++counts_.preempts;
  const Result<ExtenderPreemptionArgs> args = reader_.preemptionArgs(body);
  if (!args) {
    ++counts_.malformed;
    return writePreemptionResult({});
  }
  const Result<PodDemands> pod = readPod(args->pod, rules_);
  if (!pod || groups_.startsTogether(*pod)) return writePreemptionResult({});
  if (pod->asksNothing()) return writePreemptionResult(args->victims);
  const MayEvict mayEvict = [&](TaskId id) {
    const Job* job = cluster_.task(static_cast<std::uint64_t>(id));
    if (job == nullptr || job->state != PlaceState::Bound) return false;
    const Spot* spot = cluster_.ledger().spot(id);
    if (spot == nullptr) return false;
    const auto priority =
        priorityOf_(cluster_.ledger().facts(spot->node).name, podUidOf(job->spec.task.requestId));
    return priority && *priority < pod->priority;
  };
  return writePreemptionResult(
      podVictims(cluster_.ledger(), seenPod(*pod).ask, podTasks(), mayEvict, args->victims));
}

std::string Extender::metrics() const {
  MetricsText page;
  const Binder::Counts& binds = binder_.counts();
  page.family("qgpu_extender_requests_total", "counter", "Questions of kube-scheduler.");
  page.sample({{"verb", "filter"}}, countText(counts_.filters));
  page.sample({{"verb", "priorities"}}, countText(counts_.priorities));
  page.sample({{"verb", "bind"}}, countText(counts_.binds));
  page.sample({{"verb", "preempt"}}, countText(counts_.preempts));
  page.family("qgpu_extender_seconds", "summary", "From question to answer, recent.");
  for (const auto& [verb, record] :
       {std::pair("filter", &latencies_.filter), std::pair("priorities", &latencies_.priorities),
        std::pair("bind", &latencies_.bind), std::pair("preempt", &latencies_.preempt)}) {
    const auto quantile = [&recent = *record](std::int64_t permille) {
      return secondsText(static_cast<std::uint64_t>(recent.percentile(Permille(permille)).value));
    };
    page.sample({{"verb", verb}, {"quantile", "0.5"}}, quantile(500));
    page.sample({{"verb", verb}, {"quantile", "0.99"}}, quantile(990));
    page.sampleNamed("qgpu_extender_seconds_count", {{"verb", verb}}, countText(record->count()));
  }
  page.one("qgpu_extender_malformed_total", "counter", "Bodies that were no such JSON.",
           countText(counts_.malformed));
  page.family("qgpu_extender_names_total", "counter", "Nodes that filter was asked about.");
  page.sample({{"result", "fits"}}, countText(counts_.fitting));
  page.sample({{"result", "fails"}}, countText(counts_.failing));
  page.family("qgpu_binds_total", "counter", "Binds of pods that came to an end.");
  page.sample({{"result", "bound"}}, countText(binds.bound));
  page.sample({{"result", "refused"}}, countText(binds.refused));
  page.sample({{"result", "rolled-back"}}, countText(binds.rolledBack));
  page.one("qgpu_binds_under_way", "gauge", "Binds of pods that have not ended yet.",
           countText(binder_.underWay()));
  page.one("qgpu_pods_waiting", "gauge", "Pods that ask for a card and are bound to no node.",
           countText(waiting_.size()));
  page.one("qgpu_pod_groups_waiting", "gauge", "Groups of pods that have not started.",
           countText(groups_.waiting()));
  page.one("qgpu_pods_woken_total", "counter", "Updates of pods that wait, since there is room.",
           countText(waiting_.woken()));
  return page.take();
}

// Of every node: a preemption is rare, and looks at few of them.
PodTasks Extender::podTasks() const {
  PodTasks pods;
  const ClusterLedger& ledger = cluster_.ledger();
  for (std::uint32_t i = 0; i < ledger.nodes(); ++i) {
    for (const TaskId id : ledger.tasksOn(NodeId{i})) {
      const Job* job = cluster_.task(static_cast<std::uint64_t>(id));
      if (job == nullptr) continue;
      const std::string uid(podUidOf(job->spec.task.requestId));
      if (uid.empty()) continue;
      pods.tasksOf[uid].push_back(id);
      pods.podOf.emplace(id, uid);
    }
  }
  return pods;
}

}  // namespace qgpu
