#pragma once
// What this cluster's daemons write about pods, over one ApiClient: the ApiServer of binds.
//
// Events are sent one at a time, at most so many a second. Those that are the same one (pod, reason
// and what it is about, see event_reasons.h) become one Event of the API server whose count grows,
// also while they wait; what does not fit into the queue is counted and dropped, oldest pods' words
// first to stay.
//
// Annotations are written through the subresource status, which takes metadata as well and leaves
// the spec alone: who may write there can't change what a pod runs or where a node stands.
//
// Kept here: C2 (each call has one answer, within the client's deadline), C5 (bounded).

#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <string>

#include "services/kubernetes/client/api_client.h"
#include "services/kubernetes/client/api_server.h"

namespace qgpu {

struct PodWriterLimits {
  std::size_t callsMax = 256;      // that wait at once
  std::size_t eventsMax = 1'024;   // that wait
  std::size_t repeatsMax = 4'096;  // remembered, to be counted when they come again
  Nanos eventEvery = millis(50);   // on average,
  std::uint32_t eventBurst = 50;   // after so many at once
  Nanos retryFirst = millis(500);  // of an event, while the server does not answer
  Nanos retryMost = seconds(30);
};

class PodWriter final : public ApiServer, private kj::TaskSet::ErrorHandler {
 public:
  // `api` outlives the writer. `component` and `host` say in events who speaks.
  PodWriter(ApiClient& api, std::string component, std::string host, PodWriterLimits limits = {});

  kj::Promise<Result<std::string>> readPod(PodRef pod) override;
  kj::Promise<Status> annotatePod(PodRef pod, std::vector<AnnotationChange> changes,
                                  std::string resourceVersion) override;
  kj::Promise<Status> bindPod(PodRef pod, std::string node) override;
  void tellPod(PodEvent event) override;

  // Asks the server to end the pod as a person with `kubectl drain` would: budgets are respected.
  // Gone already, or a later pod of its name, is no failure.
  kj::Promise<Status> evictPod(PodRef pod);

  // What became of a bind of which nobody knows: true where the pod is bound to `node` with its
  // decision, by the newest that the server has. Where it is not bound, the decision is first taken
  // off it, in the version that was read, so that a Binding still on its way brings no cards with
  // it; false then, and where the pod is gone, over, another one or bound elsewhere. A failure:
  // nobody knows yet.
  kj::Promise<Result<bool>> settle(PodRef pod, std::string node);

  // Changes annotations of a node.
  kj::Promise<Status> annotateNode(std::string node, std::vector<AnnotationChange> changes);

  // That were told here, by reason, and calls with which the server took some.
  std::uint64_t eventsOf(EventReason reason) const {
    const auto found = counts_.find(reason);
    return found == counts_.end() ? 0 : found->second;
  }
  std::uint64_t eventsSent() const { return sent_; }
  std::uint64_t eventsDropped() const { return dropped_; }
  std::size_t eventsWaiting() const { return waiting_.size(); }

 private:
  struct Told {  // an event as the server has it
    PodEvent event;
    std::string name;  // empty: not sent yet
    std::uint64_t count = 0;
    std::int64_t firstUnixMs = 0;
    std::int64_t lastUnixMs = 0;
    bool waits = false;
  };

  kj::Promise<Status> write(ApiCall call, PodRef pod, std::string node);
  kj::Promise<Status> lookAgain(PodRef pod, std::string node, Error refused);
  kj::Promise<void> sendEvents();
  kj::Promise<void> sendEvent(const std::string& key);
  kj::Promise<void> pause(Nanos time);
  ApiCall eviction(const PodRef& pod) const;
  ApiCall created(Told& told);
  ApiCall counted(const Told& told) const;
  void forgetOldest();
  void taskFailed(kj::Exception&& exception) override;

  ApiClient& api_;
  const std::string component_;
  const std::string host_;
  const PodWriterLimits limits_;
  Prng names_;
  Backoff backoff_;
  // Servers before 1.22 know the old one alone, and say so.
  static constexpr const char* kEvictionVersion = "policy/v1";
  static constexpr const char* kOldEvictionVersion = "policy/v1beta1";
  std::string evictionVersion_ = kEvictionVersion;
  std::size_t calls_ = 0;
  std::map<std::string, Told> told_;
  std::deque<std::string> order_;    // of told_, oldest first
  std::deque<std::string> waiting_;  // keys of told_
  std::map<EventReason, std::uint64_t> counts_;
  std::uint64_t sent_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint32_t burst_;
  bool sending_ = false;
  kj::TaskSet tasks_;  // last
};

}  // namespace qgpu
