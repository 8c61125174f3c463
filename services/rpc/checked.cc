#include "services/rpc/checked.h"

#include <optional>

#include "services/admin/words.h"
#include "services/base/process.h"

namespace qgpu {
namespace {

[[noreturn]] void refuse(std::string message) {
  kj::throwFatalException(toException(fail(ErrorCode::InvalidArgument, std::move(message))));
  std::abort();
}

std::uint64_t startOf(std::uint32_t pid) {
  const auto start = processStart(pid);
  if (!start) refuse("ownerPid " + std::to_string(pid) + " does not run here");
  return *start;
}

std::vector<std::string> checkedModels(capnp::List<capnp::Text>::Reader models) {
  if (models.size() > kModelsMax) {
    refuse("models: at most " + std::to_string(kModelsMax) + " may be named");
  }
  std::vector<std::string> out;
  for (const auto model : models) out.push_back(checkedText(model, "models"));
  return out;
}

}  // namespace

std::string checkedText(capnp::Text::Reader text, const char* what) {
  if (text.size() > kTextMax) {
    refuse(std::string(what) + " has at most " + std::to_string(kTextMax) + " bytes");
  }
  return std::string(view(text));
}

schema::Score checkedScore(schema::Score score, const char* what) {
  if (score > schema::Score::BEST_FIT) {
    refuse(std::string(what) + ": this daemon does not know it");
  }
  return score;
}

CheckedSpec::CheckedSpec(schema::TaskSpec::Reader spec, const Peer& peer, bool local)
    : name(checkedText(spec.getName(), "name")),
      card(checkedText(spec.getCard(), "card")),
      requestId(checkedText(spec.getRequestId(), "requestId")),
      taskClass(spec.getClass()),
      memBytes(spec.getMemBytes()),
      sharePermille(spec.getSharePermille()),
      cards(spec.getCards()),
      ownerPid(spec.getOwnerPid()),
      ownerStart(spec.getOwnerStart()),
      ownerUid(peer.mayChange ? spec.getOwnerUid() : peer.uid) {
  if (className(taskClass) == "unknown") refuse("class: this daemon does not know it");
  if (ownerPid != 0 && !local) {
    refuse("ownerPid: only a process on the task's own node can own it, and only that node's "
           "unix socket takes one");
  }
  if (ownerPid != 0 && ownerStart == 0) ownerStart = startOf(ownerPid);
}

void CheckedSpec::fill(schema::TaskSpec::Builder out) const {
  out.setName(ptr(name));
  out.setClass(taskClass);
  out.setMemBytes(memBytes);
  out.setSharePermille(sharePermille);
  out.setCards(cards);
  out.setCard(ptr(card));
  out.setOwnerPid(ownerPid);
  out.setOwnerStart(ownerStart);
  out.setOwnerUid(ownerUid);
  out.setRequestId(ptr(requestId));
}

CheckedClusterSpec::CheckedClusterSpec(schema::ClusterSpec::Reader spec, const Peer& peer)
    : task(spec.getTask(), peer, false),
      node(checkedText(spec.getNode(), "node")),
      models(checkedModels(spec.getModels())),
      cpuMilli(spec.getCpuMilli()),
      hostMemBytes(spec.getHostMemBytes()),
      application(checkedText(spec.getApplication(), "application")),
      nodeScore(checkedScore(spec.getNodeScore(), "nodeScore")),
      cardScore(checkedScore(spec.getCardScore(), "cardScore")),
      preempt(spec.getPreempt()) {}

void CheckedClusterSpec::fill(schema::ClusterSpec::Builder out) const {
  task.fill(out.initTask());
  out.setNode(ptr(node));
  auto list = out.initModels(static_cast<kj::uint>(models.size()));
  for (kj::uint i = 0; i < models.size(); ++i) list.set(i, ptr(models[i]));
  out.setCpuMilli(cpuMilli);
  out.setHostMemBytes(hostMemBytes);
  out.setApplication(ptr(application));
  out.setNodeScore(nodeScore);
  out.setCardScore(cardScore);
  out.setPreempt(preempt);
}

void CheckedTarget::fill(schema::Target::Builder out) const {
  out.setNode(ptr(node));
  out.setCard(ptr(card));
}

}  // namespace qgpu
