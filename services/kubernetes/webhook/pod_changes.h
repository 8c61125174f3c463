#pragma once
// Pods that the API server is about to create, changed as their namespace wants it by a label:
//
//   qgpu.io/claims=enable          they ask by claims instead of resources (pod_claims.h); the
//                                  template of the claim is there before the answer is given
//   qgpu.io/scheduler-name=NAME    those that ask for a resource of ours go to that scheduler
//
// The API server asks for pods of such namespaces alone; a template is made only where the
// namespace says so itself, whoever asked. What breaks a rule is refused by the first with all of
// its reasons, and left to whoever judges it by the second. Nothing is made for a question that is
// a dry run.
//
// Kept here: C5 (calls are the API client's, which bounds them), C7.

#include <kj/async.h>
#include <string>
#include <string_view>

#include "services/kubernetes/client/api_client.h"
#include "services/kubernetes/webhook/review.h"

namespace qgpu {

struct PodRules;

class PodChanges {
 public:
  // Both outlive it, and it all of its promises.
  PodChanges(const PodRules& rules, ApiClient& api) : rules_(rules), api_(api) {}

  // InvalidArgument: as ReviewQuestion::read(). What the API server refuses is an answer.
  kj::Promise<Result<Review>> byClaims(std::string_view body);
  kj::Promise<Result<Review>> byScheduler(std::string_view body);

 private:
  // The namespace of the pod; the message of a failure names it.
  kj::Promise<ApiAnswer> readNamespace(const ReviewQuestion& question);

  const PodRules& rules_;
  ApiClient& api_;
};

}  // namespace qgpu
