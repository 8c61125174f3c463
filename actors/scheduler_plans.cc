// What would happen if: questions that are tried on a copy of the ledger and change nothing.
#include "actors/scheduler_actor.h"

namespace qgpu {

void SchedulerActor::planQuestion(const Asker& asker, schema::ClusterRequest::Reader request) {
  const char* what = request.isPreempt() ? "preemption" : "what-if";
  after([this, asker, what](Turn&) {
    replyFailed(asker, fail(ErrorCode::Unsupported,
                            std::string(what) + " is not answered by this scheduler"));
  });
}

// Empty: none was found.
std::string SchedulerActor::remedyFor(const ClusterAsk&) const { return {}; }

}  // namespace qgpu
