#include "services/kubernetes/agent/pod_book.h"

namespace qgpu {
namespace {

Status checkContainer(const PodPlan& pod, const ContainerPlan& container) {
  const std::string where = pod.nameSpace + "/" + pod.name + "/" + container.name + ": ";
  if (container.name.empty()) return fail(ErrorCode::InvalidArgument, where + "it has no name");
  if (container.cards.empty()) {
    return fail(ErrorCode::InvalidArgument, where + "no card was chosen for it");
  }
  if (container.cards.size() > 1 && container.share != kWholeCard) {
    return fail(ErrorCode::InvalidArgument, where + "several cards are whole cards");
  }
  if (container.mem.value <= 0 && !container.whole()) {
    return fail(ErrorCode::InvalidArgument, where + "a share of a card needs memory");
  }
  return ok();
}

}  // namespace

Status PodBook::put(PodPlan pod) {
  if (pod.uid.empty() || pod.nameSpace.empty() || pod.name.empty()) {
    return fail(ErrorCode::InvalidArgument, "a pod has a uid, a namespace and a name");
  }
  for (const ContainerPlan& container : pod.containers) {
    if (Status good = checkContainer(pod, container); !good) return good;
  }
  const Name name(pod.nameSpace, pod.name);
  const auto known = uids_.find(name);
  if (known != uids_.end() && known->second != pod.uid) pods_.erase(known->second);
  if (!pods_.contains(pod.uid) && pods_.size() >= kPodsMax) {
    return fail(ErrorCode::Overloaded, std::to_string(pods_.size()) + " pods are known already");
  }
  uids_[name] = pod.uid;
  pods_[pod.uid] = std::move(pod);
  return ok();
}

void PodBook::forget(const std::string& uid) {
  const auto found = pods_.find(uid);
  if (found == pods_.end()) return;
  uids_.erase(Name(found->second.nameSpace, found->second.name));
  pods_.erase(found);
}

Result<const PodPlan*> PodBook::findPod(const std::string& nameSpace,
                                        const std::string& pod) const {
  const auto uid = uids_.find(Name(nameSpace, pod));
  if (uid == uids_.end()) {
    return fail(ErrorCode::NotFound,
                "nobody told this node which card pod " + nameSpace + "/" + pod +
                    " may use: it was not bound by qgpu-scheduler, or the API server has not "
                    "told yet");
  }
  return &pods_.at(uid->second);
}

Result<PodBook::Found> PodBook::find(const std::string& nameSpace, const std::string& pod,
                                     const std::string& container) const {
  const auto found = findPod(nameSpace, pod);
  if (!found) return found.error();
  const PodPlan& plan = **found;
  for (const ContainerPlan& one : plan.containers) {
    if (one.name == container) return Found{&plan, &one};
  }
  return fail(ErrorCode::NotFound, "pod " + nameSpace + "/" + pod +
                                       " has no card for its container '" + container + "'");
}

}  // namespace qgpu
