#include "services/kubernetes/extender/pod_groups.h"

#include <algorithm>
#include <utility>

namespace qgpu {
namespace {

std::string groupWaits(const std::string& why) {
  return std::string(reasonName(Reason::GroupWaits)) + ": " + why;
}

std::string ofSize(std::size_t count, std::uint32_t size) {
  return std::to_string(count) + " of " + std::to_string(size) + " pods of its group ";
}

bool asksAlike(const PodAsk& one, const PodAsk& other) {
  return one.models == other.models &&
         std::equal(one.demands.begin(), one.demands.end(), other.demands.begin(),
                    other.demands.end(),
                    [](const auto& a, const auto& b) { return a.ask == b.ask; });
}

}  // namespace

PodGroups::PodGroups(const ClusterLedger& ledger, PodsUnderWay& underWay, kj::Timer& timer)
    : ledger_(ledger), underWay_(underWay), timer_(timer) {}

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

bool PodGroups::hasStarted(const Key& key, const Group& group) const {
  return group.at(Stage::Bound) >= std::get<2>(key);
}

bool PodGroups::startsTogether(const PodDemands& pod) const {
  if (pod.group.name.empty()) return false;
  const auto group = groups_.find({pod.nameSpace, pod.group.name, pod.group.size});
  return group == groups_.end() || !hasStarted(group->first, group->second);
}

PodGroups::Member& PodGroups::enter(const PodDemands& pod) {
  Key key{pod.nameSpace, pod.group.name, pod.group.size};
  const auto known = keys_.find(pod.uid);
  if (known != keys_.end() && known->second != key) gone(pod.uid);
  Group& group = groups_[key];
  keys_.emplace(pod.uid, std::move(key));
  const auto [member, isNew] = group.members.try_emplace(pod.uid);
  if (isNew) {
    ++group.counts[static_cast<std::size_t>(Stage::Waits)];
    group.open = false;
    group.refused.reset();
  }
  return member->second;
}

void PodGroups::waits(const PodDemands& pod, const PodAsk& ask) {
  if (pod.group.name.empty()) return gone(pod.uid);
  Member& member = enter(pod);
  // What a plan was made by stays while it holds.
  if (member.stage == Stage::Waits) member.ask = ask;
}

void PodGroups::bound(const PodDemands& pod) {
  if (pod.group.name.empty()) return gone(pod.uid);
  Member& member = enter(pod);
  Group& group = *find(pod.uid);
  if (member.stage == Stage::Planned) underWay_.remove(member.underWay);
  group.set(member, Stage::Bound);
  if (member.bind) member.bind->fulfill(ok());
  member.bind = nullptr;
}

void PodGroups::gone(const std::string& uid) {
  const auto key = keys_.find(uid);
  if (key == keys_.end()) return;
  const auto found = groups_.find(key->second);
  Group& group = found->second;
  Member& member = group.members.at(uid);
  if (member.stage == Stage::Planned) dropPlan(group);
  if (member.stage == Stage::Binds || member.stage == Stage::Arrived) {
    refuseBinds(group, fail(ErrorCode::Conflict, "a pod of its group is gone: it is tried again"));
  }
  --group.counts[static_cast<std::size_t>(member.stage)];
  group.members.erase(uid);
  group.open = false;
  group.refused.reset();
  if (group.members.empty()) {
    planned_.erase(key->second);
    groups_.erase(found);
  }
  keys_.erase(key);
}

std::size_t PodGroups::waiting() const {
  return static_cast<std::size_t>(
      std::count_if(groups_.begin(), groups_.end(),
                    [this](const auto& entry) { return !hasStarted(entry.first, entry.second); }));
}

// --- plans ---

// What the group is short of, `first` first.
std::vector<std::pair<const std::string, PodGroups::Member>*> PodGroups::due(
    const Key& key, Group& group, const std::string& first) const {
  std::vector<std::pair<const std::string, Member>*> members;
  members.push_back(&*group.members.find(first));
  for (auto& member : group.members) {
    if (group.arrived() + group.at(Stage::Binds) + members.size() >= std::get<2>(key)) break;
    if (member.second.stage == Stage::Waits && member.first != first) members.push_back(&member);
  }
  return members;
}

// Of all that the group is short of, `first` among them, which may go to the nodes `named`; the
// plan before is no more.
bool PodGroups::plan(const Key& key, Group& group, const std::string& first,
                     const std::vector<NodeId>* named) {
  dropPlan(group);
  const Moment moment = now();
  if (group.refused == moment) return false;
  PodTrial trial(ledger_);
  for (const auto& [node, ask] : underWay_.pods()) trial.take(node, *ask);
  const auto members = due(key, group, first);
  // Where the others may go is known of those that ask the same, or were named nodes of their own.
  const Member& like = members.front()->second;
  std::vector<std::optional<std::vector<NodeId>>> nodes;
  std::vector<PodTrial::Member> asks;
  for (const auto* entry : members) {
    const Member& member = entry->second;
    nodes.push_back(nodesOf(asksAlike(member.ask, like.ask) ? like.named : member.named));
    asks.push_back({&member.ask, nullptr});
  }
  for (std::size_t i = 0; i < asks.size(); ++i) {
    if (nodes[i]) asks[i].nodes = &*nodes[i];
  }
  if (named != nullptr) asks.front().nodes = named;
  const PodTrial::Fit fit = trial.together(asks);
  group.open = fit.fit == members.size();
  group.refused.reset();
  if (!group.open) {
    group.refused = moment;
    group.why = std::to_string(members.size()) + " pods of its group are to start at once, and " +
                std::to_string(fit.fit) + " fit";
    return false;
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    Member& member = members[i]->second;
    group.set(member, Stage::Planned);
    member.node = fit.nodes[i];
    member.underWay = underWay_.add(member.node, member.ask);
  }
  group.lastStep = timer_.now();
  planned_.insert(key);
  return true;
}

std::optional<std::vector<NodeId>> PodGroups::nodesOf(const std::optional<Named>& named) const {
  if (!named) return std::nullopt;
  std::vector<NodeId> nodes = named->nodes;
  for (std::size_t node = named->of; node < ledger_.nodes(); ++node) {
    nodes.push_back(static_cast<NodeId>(node));
  }
  return nodes;
}

void PodGroups::dropPlan(Group& group) {
  for (auto& [uid, member] : group.members) {
    if (member.stage != Stage::Planned) continue;
    group.set(member, Stage::Waits);
    underWay_.remove(member.underWay);
  }
}

void PodGroups::dropOldPlans() {
  for (auto key = planned_.begin(); key != planned_.end();) {
    Group& group = groups_.at(*key);
    if (timer_.now() < group.lastStep + kHold) {
      ++key;
      continue;
    }
    dropPlan(group);
    key = planned_.erase(key);
  }
}

PodGroups::Turn PodGroups::turn(const PodDemands& pod, std::vector<NodeId> named) {
  dropOldPlans();
  const std::uint32_t size = pod.group.size;
  Key key{pod.nameSpace, pod.group.name, size};
  const auto found = groups_.find(key);
  const std::size_t here = found == groups_.end() ? 0 : found->second.members.size();
  // A pod that the API server has not told of is not counted, whoever asks about it.
  if (here < size || !found->second.members.contains(pod.uid)) {
    return {false, std::nullopt, groupWaits(ofSize(here, size) + "are here")};
  }
  Group& group = found->second;
  if (hasStarted(key, group)) return {true, std::nullopt, ""};
  Member& member = group.members.at(pod.uid);
  if (member.stage != Stage::Waits && member.stage != Stage::Planned) {
    return {false, std::nullopt, groupWaits("it is being bound")};
  }
  std::sort(named.begin(), named.end());
  const auto isNamed = [&](NodeId node) {
    return std::binary_search(named.begin(), named.end(), node);
  };
  if (member.stage == Stage::Planned && isNamed(member.node) &&
      underWay_.fit(ledger_, member.node)) {
    group.lastStep = timer_.now();
    return {false, member.node, ""};
  }
  std::optional<Named> known;
  if (named.size() < kAllNamedBelow) known = {named, ledger_.nodes()};
  if (!known || member.named != known) group.refused.reset();
  member.named = std::move(known);
  if (plan(key, group, pod.uid, &named)) return {false, member.node, ""};
  return {false, std::nullopt, groupWaits(group.why)};
}

// --- binds ---

// The binder says from here on that it is under way.
void PodGroups::begins(const std::string& uid) {
  Group* group = find(uid);
  if (group == nullptr) return;
  Member& member = group->members.at(uid);
  if (member.stage == Stage::Planned) underWay_.remove(member.underWay);
  if (member.stage != Stage::Bound) group->set(member, Stage::Binds);
  group->lastStep = timer_.now();
}

kj::Promise<Status> PodGroups::together(const PodDemands& pod) {
  Group* group = find(pod.uid);
  const Key key{pod.nameSpace, pod.group.name, pod.group.size};
  if (group == nullptr || keys_.at(pod.uid) != key) {
    return Status(fail(ErrorCode::Conflict, "its group is not known yet: it is tried again"));
  }
  if (const std::size_t here = group->members.size(); here < pod.group.size) {
    return Status(fail(ErrorCode::Conflict, ofSize(here, pod.group.size) + "are here"));
  }
  Member& member = group->members.at(pod.uid);
  if (member.stage == Stage::Planned) underWay_.remove(member.underWay);
  group->set(member, Stage::Arrived);
  group->lastStep = timer_.now();
  if (group->arrived() >= pod.group.size) {
    passBinds(*group);
    return ok();
  }
  auto paf = kj::newPromiseAndFulfiller<Status>();
  member.bind = kj::mv(paf.fulfiller);
  return paf.promise.exclusiveJoin(tooLate(pod.uid));
}

void PodGroups::passBinds(Group& group) {
  for (auto& [uid, member] : group.members) {
    if (member.stage != Stage::Arrived) continue;
    group.set(member, Stage::Bound);
    if (member.bind) member.bind->fulfill(ok());
    member.bind = nullptr;
  }
}

// They give their rooms back, and end each by itself.
void PodGroups::refuseBinds(Group& group, const Error& why) {
  for (auto& [uid, member] : group.members) {
    if (member.bind) member.bind->fulfill(Status(why));
    member.bind = nullptr;
  }
}

kj::Promise<Status> PodGroups::tooLate(std::string uid) {
  Group* group = find(uid);
  if (group == nullptr) return kj::NEVER_DONE;  // and refused
  const kj::TimePoint until = group->lastStep + kHold;
  if (timer_.now() < until) {
    return timer_.atTime(until).then([this, uid = std::move(uid)]() { return tooLate(uid); });
  }
  const std::uint32_t size = std::get<2>(keys_.at(uid));
  const Error why =
      fail(ErrorCode::Conflict, ofSize(group->arrived(), size) +
                                    "have their rooms, and no other came for " +
                                    std::to_string(kHold / kj::SECONDS) + " s: it is tried again");
  refuseBinds(*group, why);
  return kj::NEVER_DONE;
}

void PodGroups::ended(const std::string& uid, const Status& how) {
  Group* group = find(uid);
  if (group == nullptr) return;
  Member& member = group->members.at(uid);
  const bool wentOn = member.stage == Stage::Bound;
  if (member.stage == Stage::Planned) underWay_.remove(member.underWay);
  group->set(member, how ? Stage::Bound : Stage::Waits);
  if (how) return;
  member.bind = nullptr;
  group->open = false;
  group->refused.reset();
  if (wentOn) return;
  refuseBinds(*group, fail(ErrorCode::Conflict,
                           "another pod of its group was not bound: " + how.error().message));
}

// --- who is woken ---

bool PodGroups::mayGo(const std::string& uid) const {
  const auto key = keys_.find(uid);
  if (key == keys_.end()) return true;
  const Group& group = groups_.at(key->second);
  return group.open || hasStarted(key->second, group);
}

std::vector<std::string> PodGroups::opened() {
  std::vector<std::string> pods;
  if (timer_.now() < lookAt_) return pods;
  lookAt_ = timer_.now() + kLook;
  dropOldPlans();
  std::size_t looks = std::min(groups_.size(), kLooksMax);
  auto at = groups_.upper_bound(lookedAt_);
  for (std::size_t passed = 0; passed < groups_.size() && looks > 0; ++passed, ++at) {
    if (at == groups_.end()) at = groups_.begin();
    auto& [key, group] = *at;
    lookedAt_ = key;
    const auto first =
        std::find_if(group.members.begin(), group.members.end(),
                     [](const auto& one) { return one.second.stage == Stage::Waits; });
    if (group.open || group.members.size() < std::get<2>(key) || first == group.members.end() ||
        hasStarted(key, group) || group.refused == now()) {
      continue;
    }
    --looks;
    if (!plan(key, group, first->first, nullptr)) continue;
    for (const auto& [uid, member] : group.members) {
      if (member.stage == Stage::Planned) pods.push_back(uid);
    }
  }
  return pods;
}

}  // namespace qgpu
