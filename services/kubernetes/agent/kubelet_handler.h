#pragma once
// The handler of schema/node.capnp where kubelet's containers become tasks. A container's start is
// looked up in the pod book, compared with what kubelet gave, and bound by the node's actor,
// under a request id of its own: a start that is repeated, by kubelet, by its second resource or
// after a crash of anybody, finds the task that is there.
//
// Starts are made one after the other, so that two for one container can't bind twice.
//
// Kept here: C5 (starts that wait are bounded), C7 (what came is copied and checked first), P6.

#include <deque>
#include <kj/async.h>
#include <kj/refcount.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "schema/node.capnp.h"
#include "services/api/commands/node_actor_client.h"
#include "services/api/rpc/node_service.h"
#include "services/kubernetes/agent/pod_book.h"
#include "services/kubernetes/agent/pod_guard.h"
#include "services/kubernetes/agent/pod_limits.h"
#include "services/kubernetes/claims/claim_tasks.h"
#include "services/kubernetes/pods/pod_names.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

struct KubeletHandlerConfig {
  MemoryUnit unit = MemoryUnit::GiB;
  bool mixed = false;                    // until a label says otherwise
  std::vector<std::string> environment;  // NAME=VALUE of every tenant
};

// Hears what became of containers; on the handler's loop.
class StartListener {
 public:
  // `task` is bound for it from now on.
  virtual void onStarted(const PodPlan& pod, const std::string& container, std::uint64_t task,
                         const std::vector<std::string>& cards) = 0;
  virtual void onRefused(const PodPlan& pod, const std::string& container, const Error& why) = 0;
  // Its parts are tasks from now on, or were already. Told for each pod that begins to use it.
  virtual void onClaimPrepared(const ClaimName& claim, const PreparedClaim& prepared) = 0;
  // Kubelet is told as well, and says so of the pod.
  virtual void onClaimRefused(const ClaimName& claim, const Error& why) = 0;
  // KubeletHandler::counts() changed.
  virtual void onCounted() = 0;

 protected:
  ~StartListener() = default;
};

class KubeletHandler final : public KubeletHandlers, private kj::TaskSet::ErrorHandler {
 public:
  static constexpr std::size_t kStartsMax = 256;  // that wait

  // `actor` and `book` outlive the handler and every connection.
  KubeletHandler(NodeActorClient& actor, PodBook& book, KubeletHandlerConfig config);
  KubeletHandler(const KubeletHandler&) = delete;
  KubeletHandler& operator=(const KubeletHandler&) = delete;
  ~KubeletHandler() noexcept(false) { alive_->here = false; }

  schema::KubeletHandler::Client serve(kj::Own<RpcSession> session) override;

  struct Started {
    std::uint64_t task = 0;  // 0: another resource of the container says which one it is
    std::string token;
    std::vector<std::string> cards;
  };
  struct Asked {
    Peer peer;
    std::string nameSpace;
    std::string pod;
    std::string container;  // empty: an init container, which kubelet does not list
    std::map<std::string, std::uint32_t> devices;  // by resource, without its prefix
    std::string resource;                          // that kubelet asks for; empty: none of them
  };
  kj::Promise<Result<Started>> start(Asked asked);
  // Ends a container's task that has no process.
  kj::Promise<Status> end(Peer peer, std::uint64_t task);
  // Ends the tasks of a pod's containers as far as they have no process. True: none is left.
  kj::Promise<Result<bool>> endPod(Peer peer, PodPlan pod);

  PodBook& book() { return book_; }
  bool mixed() const { return mixed_; }
  void setMixed(bool mixed) { mixed_ = mixed; }
  const std::string& runtime() const { return runtime_; }
  void setRuntime(std::string runtime) { runtime_ = std::move(runtime); }
  // Nothing new is served from now on, because of `why`; empty: again. What is bound, runs on.
  void close(std::string why) { closed_ = std::move(why); }
  const std::string& closed() const { return closed_; }
  // What prepares claims, where an API server is known; and whether the cards are given by claims.
  void setClaims(kj::Maybe<ClaimTasks&> claims) { claims_ = claims; }
  kj::Maybe<ClaimTasks&> claims() { return claims_; }
  // What becomes of a prepared claim: its pods are judged, and the listener hears of it.
  Result<PreparedClaim> settle(const ClaimName& claim, Result<PreparedClaim> prepared);
  // Under it containers start, and claims are prepared, for judged pods alone. None: there is none.
  void setGuard(kj::Maybe<PodGuard&> guard) { guard_ = guard; }
  kj::Maybe<PodGuard&> guard() { return guard_; }
  // The driver is told what a pod may have before its containers start. None: it has no limits.
  void setLimits(kj::Maybe<PodLimits&> limits) { limits_ = limits; }
  kj::Maybe<PodLimits&> limits() { return limits_; }
  // The pods of these uids have these tasks from now on; never fails.
  kj::Promise<void> limit(Peer peer, std::vector<std::string> uids, std::set<std::uint64_t> tasks);
  void giveByClaims(bool given) { byClaims_ = given; }
  bool givenByClaims() const { return byClaims_; }
  // Whether kubelet counts every device of this card, by the last word of a plugin that is there.
  bool counts(const std::string& card) const { return counted_.contains(card); }
  void setCounted(std::set<std::string> cards);
  // Its devices are about to be out of order: only a later word counts.
  void uncount(const std::string& card) { counted_.erase(card); }
  // It hears of the handler until there is another one, or none.
  void setListener(kj::Maybe<StartListener&> listener) { listener_ = listener; }
  const std::vector<std::string>& environment() const { return config_.environment; }

  // Of a connection that ends: a call that was under way may be let go of only with the loop.
  struct Alive : public kj::Refcounted {
    bool here = true;
  };
  kj::Own<Alive> alive() { return kj::addRef(*alive_); }

  // The begin of request ids of a container's tasks; all of ours begin with kRequestStart.
  static std::string requestOf(const std::string& uid, const std::string& container);
  // Of a request id of ours, that begin; else empty.
  static std::string_view requestStartOf(std::string_view requestId);
  static constexpr const char* kRequestStart = kPodTasksRequestStart;

 private:
  struct Waiting {
    Asked asked;
    kj::Own<kj::PromiseFulfiller<Result<Started>>> done;
  };
  struct Bind;

  kj::Promise<void> work();
  kj::Promise<Result<Started>> startNow(Asked asked);
  kj::Promise<Result<Started>> startIn(const Asked& asked, const PodPlan& pod,
                                       const ContainerPlan& room);
  Result<const ContainerPlan*> roomFor(const Asked& asked, const PodPlan& pod) const;
  void tell(const PodPlan& pod, const Bind& bind, const Result<Started>& started);
  Status compare(const Asked& asked, const PodBook::Found& found) const;
  kj::Promise<Result<Started>> bind(kj::Own<Bind> bind);
  kj::Promise<Status> nameCards(Bind& bind);
  Status judge(const PreparedClaim& prepared);
  void taskFailed(kj::Exception&& exception) override;

  NodeActorClient& actor_;
  PodBook& book_;
  const KubeletHandlerConfig config_;
  bool mixed_;
  kj::Maybe<ClaimTasks&> claims_;
  kj::Maybe<PodGuard&> guard_;
  kj::Maybe<PodLimits&> limits_;
  bool byClaims_ = false;
  std::string closed_;
  std::string runtime_;  // of containers, as the API server names it; empty: it has not told
  std::set<std::string> counted_;  // cards
  kj::Maybe<StartListener&> listener_;
  std::deque<Waiting> waiting_;
  bool working_ = false;
  kj::Own<Alive> alive_ = kj::refcounted<Alive>();
  kj::TaskSet tasks_;  // last
};

}  // namespace qgpu
