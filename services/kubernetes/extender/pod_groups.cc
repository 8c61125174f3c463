#include "services/kubernetes/extender/pod_groups.h"

#include <algorithm>
#include <utility>

#include "runtime/loop.h"

namespace qgpu {
namespace {

std::string groupWaits(const std::string& why) {
  return std::string(reasonName(Reason::GroupWaits)) + ": " + why;
}

std::string ofSize(std::size_t count, std::uint32_t size) {
  return std::to_string(count) + " of " + std::to_string(size) + " pods of its group ";
}

}  // namespace

PodGroups::PodGroups(const ClusterLedger& ledger, PodsUnderWay& underWay, kj::Timer& timer,
                     kj::Duration hold)
    : ledger_(ledger), underWay_(underWay), timer_(timer), hold_(hold) {}

PodGroups::~PodGroups() noexcept(false) = default;

// --- who is here ---

PodGroups::Group* PodGroups::find(const std::string& uid) {
  const auto key = keys_.find(uid);
  return key == keys_.end() ? nullptr : &groups_.at(key->second);
}

void PodGroups::Group::set(Member& member, Stage stage) {
  --counts[static_cast<std::size_t>(member.stage)];
  ++counts[static_cast<std::size_t>(stage)];
  member.stage = stage;
}

bool PodGroups::startsTogether(const PodDemands& pod) const {
  if (pod.group.name.empty()) return false;
  const auto group = groups_.find({pod.nameSpace, pod.group.name, pod.group.size});
  return group == groups_.end() || !group->second.hasStarted();
}

PodGroups::Member& PodGroups::enter(const PodDemands& pod) {
  Key key{pod.nameSpace, pod.group.name, pod.group.size};
  const auto known = keys_.find(pod.uid);
  if (known != keys_.end() && known->second != key) gone(pod.uid);
  Group& group = groups_[key];
  keys_.try_emplace(pod.uid, std::move(key));
  const auto [member, isNew] = group.members.try_emplace(pod.uid);
  if (isNew) ++group.counts[static_cast<std::size_t>(Stage::Waits)];
  return member->second;
}

void PodGroups::waits(const SeenPod& seen) {
  if (seen.pod.group.name.empty()) return gone(seen.pod.uid);
  Member& member = enter(seen.pod);
  // What a plan was made by stays while it holds.
  if (member.stage == Stage::Waits) member.ask = seen.ask;
}

void PodGroups::bound(const PodDemands& pod) {
  if (pod.group.name.empty() || pod.containers.empty()) return gone(pod.uid);
  Member& member = enter(pod);
  Group& group = *find(pod.uid);
  const bool starts = !group.hasStarted();
  member.isSeen = true;
  if (member.bind) member.bind->fulfill(ok());
  leave(group, member, Stage::Bound);
  if (starts) passBinds(group);
}

void PodGroups::gone(const std::string& uid) {
  const auto key = keys_.find(uid);
  if (key == keys_.end()) return;
  const auto found = groups_.find(key->second);
  Group& group = found->second;
  Member& member = group.members.at(uid);
  if (member.bind) {
    member.bind->fulfill(Status(fail(ErrorCode::NotFound, "the pod is gone")));
  }
  leave(group, member, Stage::Waits);
  --group.counts[static_cast<std::size_t>(Stage::Waits)];
  group.members.erase(uid);
  if (group.members.empty()) {
    planned_.erase(key->second);
    groups_.erase(found);
  } else if (!group.hasStarted()) {
    group.open = false;
    group.refused.reset();
    if (group.members.size() < std::get<2>(key->second)) {
      dropPlan(group);
      giveUp(group, fail(ErrorCode::Conflict, "a pod of its group is gone: it is tried again"));
    }
  }
  keys_.erase(key);
}

std::size_t PodGroups::waiting() const {
  return static_cast<std::size_t>(
      std::count_if(groups_.begin(), groups_.end(),
                    [](const auto& entry) { return !entry.second.hasStarted(); }));
}

// --- plans ---

void PodGroups::reserve(Group& group, Member& member, NodeId node) {
  group.set(member, Stage::Planned);
  member.node = node;
  member.underWay = underWay_.add(node, member.ask, PodsUnderWay::kNotShown);
}

// Whatever it had is given up.
void PodGroups::leave(Group& group, Member& member, Stage stage) {
  if (member.stage == Stage::Planned || member.stage == Stage::Passed) {
    underWay_.remove(member.underWay);
  }
  member.bind = nullptr;
  member.stillPlaced = nullptr;
  group.set(member, stage);
}

void PodGroups::dropPlan(Group& group) {
  if (group.at(Stage::Planned) == 0) return;
  for (auto& [uid, member] : group.members) {
    if (member.stage == Stage::Planned) leave(group, member, Stage::Waits);
  }
}

void PodGroups::dropOldPlans() {
  for (auto key = planned_.begin(); key != planned_.end();) {
    Group& group = groups_.at(*key);
    if (timer_.now() >= group.plannedAt + hold_) dropPlan(group);
    if (group.at(Stage::Passed) > 0) {
      for (auto& [uid, member] : group.members) {
        if (member.stage == Stage::Passed && timer_.now() >= member.passedAt + hold_) {
          leave(group, member, Stage::Waits);
        }
      }
    }
    key = group.at(Stage::Planned) + group.at(Stage::Passed) == 0 ? planned_.erase(key)
                                                                  : std::next(key);
  }
}

// What the group is short of beside those that passed, `first` first.
std::vector<PodGroups::Members::value_type*> PodGroups::due(const Key& key, Group& group,
                                                            const std::string& first) const {
  std::vector<Members::value_type*> members;
  members.push_back(&*group.members.find(first));
  for (auto& member : group.members) {
    if (group.passed() + members.size() >= std::get<2>(key)) break;
    const bool free = member.second.stage == Stage::Waits && member.second.named;
    if (free && member.first != first) members.push_back(&member);
  }
  return members;
}

// Why none of its pods may pass yet, whatever room there is; empty: they may.
std::string PodGroups::whyNotYet(const Key& key, const Group& group) const {
  const std::uint32_t size = std::get<2>(key);
  if (group.members.size() < size) return ofSize(group.members.size(), size) + "are here";
  if (timer_.now() < group.pausesUntil) {
    const auto left = (group.pausesUntil - timer_.now()) / kj::SECONDS + 1;
    return "its group did not come together, and is tried again in " + std::to_string(left) + " s";
  }
  const auto asked = static_cast<std::size_t>(
      std::count_if(group.members.begin(), group.members.end(),
                    [](const auto& one) { return one.second.named.has_value(); }));
  if (asked < size) return ofSize(asked, size) + "have a node by kube-scheduler's other rules";
  return "";
}

// The nodes of all these answers; one that came since may do.
std::vector<NodeId> PodGroups::nodesOf(const std::vector<const Named*>& asked) const {
  std::vector<bool> may(ledger_.nodes());
  for (const Named* named : asked) {
    for (const NodeId node : named->nodes) may[static_cast<std::size_t>(node)] = true;
    std::fill(may.begin() + static_cast<std::ptrdiff_t>(named->of), may.end(), true);
  }
  std::vector<NodeId> nodes;
  for (std::size_t node = 0; node < may.size(); ++node) {
    if (may[node]) nodes.push_back(static_cast<NodeId>(node));
  }
  return nodes;
}

// What each of them asks, and where it may go. Of many nodes kube-scheduler names some each time,
// so those of all that ask the same are as good, and are put together once. `nodes` keeps them.
std::vector<PodTrial::Member> PodGroups::asksOf(const std::vector<Members::value_type*>& members,
                                                std::deque<std::vector<NodeId>>& nodes) const {
  std::vector<PodTrial::Member> asks(members.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Member& member = members[i]->second;
    asks[i].ask = &member.ask;
    if (asks[i].nodes != nullptr) continue;
    std::vector<const Named*> asked = {&*member.named};
    nodes.emplace_back();
    asks[i].nodes = &nodes.back();
    for (std::size_t other = i + 1; other < members.size() && !member.named->all; ++other) {
      const Member& alike = members[other]->second;
      if (alike.named->all || !asksTheSame(alike.ask, member.ask)) continue;
      asked.push_back(&*alike.named);
      asks[other].nodes = &nodes.back();
    }
    nodes.back() = nodesOf(asked);
  }
  return asks;
}

// Of all that the group is short of, `first` among them; where kube-scheduler is asking about it,
// it may go where that said. The plan before is no more, but who passed by it keeps his place.
bool PodGroups::plan(const Key& key, Group& group, const std::string& first, bool isAsked) {
  dropPlan(group);
  const Moment moment = now();
  if (group.refused == moment) return false;
  const auto members = due(key, group, first);
  if (group.passed() + members.size() < std::get<2>(key)) {
    group.why = "others of its group are giving their rooms back";
    return false;
  }
  PodTrial trial(ledger_);
  for (const auto& [node, pod] : underWay_.pods()) {
    if (!PodsUnderWay::isShown(ledger_, node, pod)) trial.take(node, *pod.ask);
  }
  std::deque<std::vector<NodeId>> nodes;
  std::vector<PodTrial::Member> asks = asksOf(members, nodes);
  if (isAsked) asks.front().nodes = &members.front()->second.named->nodes;
  const PodTrial::Fit fit = trial.together(asks);
  const bool wasOpen = std::exchange(group.open, fit.nodes.size() == members.size());
  group.refused.reset();
  if (!group.open) {
    // Of many nodes some others may do.
    if (!isAsked || members.front()->second.named->all) group.refused = moment;
    group.why = fit.tooManyKinds ? "its group has too many kinds of pods"
                                 : std::to_string(members.size()) +
                                       " pods of its group are to start at once, and " +
                                       std::to_string(fit.fit) + " fit";
    return false;
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    reserve(group, members[i]->second, fit.nodes[i]);
    if (!wasOpen) opened_.push_back(members[i]->first);
  }
  group.plannedAt = timer_.now();
  planned_.insert(key);
  return true;
}

PodGroups::Turn PodGroups::turn(const PodDemands& pod, std::vector<NodeId> named) {
  const auto refuse = [](const std::string& why) { return Turn{std::nullopt, groupWaits(why)}; };
  dropOldPlans();
  const std::uint32_t size = pod.group.size;
  const Key key{pod.nameSpace, pod.group.name, size};
  const auto found = groups_.find(key);
  // A pod that the API server has not told of is not counted, whoever asks about it.
  if (found == groups_.end() || !found->second.members.contains(pod.uid)) {
    const std::size_t here = found == groups_.end() ? 0 : found->second.members.size();
    return refuse(ofSize(here, size) + "are here");
  }
  Group& group = found->second;
  Member& member = group.members.at(pod.uid);
  if (member.stage == Stage::Binds || member.stage == Stage::Arrived ||
      member.stage == Stage::GivesUp) {
    return refuse("it is being bound");
  }
  std::sort(named.begin(), named.end());
  Named asked{std::move(named), false, ledger_.nodes()};
  asked.all = asked.nodes.size() < kAllNamedBelow;
  if (member.named != asked) group.refused.reset();
  member.named = std::move(asked);
  const auto pass = [&]() {
    group.set(member, Stage::Passed);
    member.passedAt = timer_.now();
    return Turn{member.node, ""};
  };
  const auto isNamed = [&](NodeId node) {
    return std::binary_search(member.named->nodes.begin(), member.named->nodes.end(), node);
  };
  const bool hasPlace = member.stage == Stage::Planned || member.stage == Stage::Passed;
  const std::string notYet = whyNotYet(key, group);
  const bool keeps = hasPlace && notYet.empty() && isNamed(member.node);
  if (keeps && underWay_.fit(ledger_, member.node)) return pass();
  if (hasPlace) leave(group, member, Stage::Waits);
  if (!notYet.empty()) return refuse(notYet);
  if (group.passed() >= size) return refuse("the others of its group are being bound");
  if (!plan(key, group, pod.uid, true)) return refuse(group.why);
  return pass();
}

// --- binds ---

// The binder says from here on that it is under way.
void PodGroups::begins(const std::string& uid) {
  Group* group = find(uid);
  if (group == nullptr) return;
  Member& member = group->members.at(uid);
  if (member.stage == Stage::Bound) return;
  if (group->at(Stage::Binds) + group->at(Stage::Arrived) == 0) {
    group->bindsUntil = timer_.now() + hold_;
  }
  leave(*group, member, Stage::Binds);
}

kj::Promise<Status> PodGroups::together(const PodDemands& pod,
                                        std::function<Status()> stillPlaced) {
  Group* group = find(pod.uid);
  const Key key{pod.nameSpace, pod.group.name, pod.group.size};
  if (group == nullptr || keys_.at(pod.uid) != key) {
    return Status(fail(ErrorCode::Conflict, "its group is not known yet: it is tried again"));
  }
  Member& member = group->members.at(pod.uid);
  if (group->hasStarted()) {
    leave(*group, member, Stage::Bound);
    return ok();
  }
  if (member.stage == Stage::GivesUp) return Status(group->gaveUp);
  if (const std::size_t here = group->members.size(); here < pod.group.size) {
    return Status(fail(ErrorCode::Conflict, ofSize(here, pod.group.size) + "are here"));
  }
  if (timer_.now() >= group->bindsUntil) group->bindsUntil = timer_.now() + hold_;
  auto paf = kj::newPromiseAndFulfiller<Status>();
  leave(*group, member, Stage::Arrived);
  member.bind = kj::mv(paf.fulfiller);
  member.stillPlaced = std::move(stillPlaced);
  if (group->at(Stage::Arrived) >= pod.group.size) {
    const Status placed = whetherPlaced(*group);
    placed ? passBinds(*group) : giveUp(*group, placed.error());
  }
  return paf.promise.exclusiveJoin(tooLate(pod.uid));
}

// Whoever lost his room meanwhile stops them all.
Status PodGroups::whetherPlaced(const Group& group) {
  for (const auto& [uid, member] : group.members) {
    if (member.stage != Stage::Arrived) continue;
    if (Status placed = member.stillPlaced(); !placed) return placed;
  }
  return ok();
}

void PodGroups::passBinds(Group& group) {
  group.givenUp = 0;
  group.open = false;  // it has started, and may start again
  for (auto& [uid, member] : group.members) {
    if (member.stage == Stage::Arrived) {
      member.bind->fulfill(ok());
      leave(group, member, Stage::Bound);
    } else if (member.stage != Stage::Bound) {
      opened_.push_back(uid);
    }
  }
}

// They give their rooms back, and end each by itself.
void PodGroups::giveUp(Group& group, const Error& why) {
  group.open = false;
  group.refused.reset();
  if (group.at(Stage::Binds) + group.at(Stage::Arrived) == 0) return;
  group.gaveUp = why;
  for (auto& [uid, member] : group.members) {
    if (member.bind) member.bind->fulfill(Status(why));
    if (member.stage == Stage::Binds || member.stage == Stage::Arrived) {
      leave(group, member, Stage::GivesUp);
    }
  }
  const auto pause = (std::int64_t{1} << std::min(group.givenUp, 16U)) * kj::SECONDS;
  if (group.givenUp++ > 0) group.pausesUntil = timer_.now() + kj::min(pause, kPauseMax);
}

kj::Promise<Status> PodGroups::tooLate(std::string uid) {
  Group* group = find(uid);
  if (group == nullptr || group->members.at(uid).stage != Stage::Arrived) return kj::NEVER_DONE;
  if (timer_.now() < group->bindsUntil) {
    return timer_.atTime(group->bindsUntil).then([this, uid = std::move(uid)]() {
      return tooLate(uid);
    });
  }
  // Who did not come has to be asked about again.
  for (auto& [other, member] : group->members) {
    if (member.stage > Stage::Passed) continue;
    leave(*group, member, Stage::Waits);
    member.named.reset();
    opened_.push_back(other);
  }
  giveUp(*group, fail(ErrorCode::Conflict,
                      ofSize(group->at(Stage::Arrived), std::get<2>(keys_.at(uid))) +
                          "came to be bound within " + std::to_string(hold_ / kj::MILLISECONDS) +
                          " ms: it is tried again"));
  return kj::NEVER_DONE;
}

void PodGroups::ended(const std::string& uid, const Status& how) {
  Group* group = find(uid);
  if (group == nullptr) return;
  Member& member = group->members.at(uid);
  if (member.isSeen) return;  // whatever the binder heard of it
  const bool started = group->hasStarted();
  const bool alone = member.stage == Stage::Bound || member.stage == Stage::GivesUp;
  leave(*group, member, how ? Stage::Bound : Stage::Waits);
  if (how && !started) passBinds(*group);
  if (how || alone || started) return;
  giveUp(*group, fail(ErrorCode::Conflict,
                      "another pod of its group was not bound: " + how.error().message));
}

// --- who is woken ---

bool PodGroups::mayGo(const std::string& uid) const {
  const auto key = keys_.find(uid);
  if (key == keys_.end()) return true;
  const Group& group = groups_.at(key->second);
  const Member& member = group.members.at(uid);
  return group.open || group.hasStarted() || !member.named || member.stage == Stage::Planned;
}

std::vector<std::string> PodGroups::opened() {
  if (timer_.now() >= lookAt_) {
    lookAt_ = timer_.now() + kLook;
    dropOldPlans();
    const Nanos until = monotonicNow() + Nanos(kLookFor / kj::NANOSECONDS);
    auto at = groups_.upper_bound(lookedAt_);
    for (std::size_t i = 0; i < groups_.size() && monotonicNow() < until; ++i, ++at) {
      if (at == groups_.end()) at = groups_.begin();
      auto& [key, group] = *at;
      lookedAt_ = key;
      if (group.open || group.hasStarted() || group.refused == now()) continue;
      if (!whyNotYet(key, group).empty() || group.passed() >= std::get<2>(key)) continue;
      const auto first = std::find_if(group.members.begin(), group.members.end(), [](auto& one) {
        return one.second.stage == Stage::Waits && one.second.named;
      });
      if (first != group.members.end()) plan(key, group, first->first, false);
    }
  }
  return std::exchange(opened_, {});
}

}  // namespace qgpu
