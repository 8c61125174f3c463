#pragma once
// What can be known of a claim before kube-scheduler gives it anything: the same rules as
// readClaim() of claim.h has, in the same words, read off a ResourceClaim, a ResourceClaimTemplate
// or a DeviceClass that stands in a document which was parsed already (resource.k8s.io/v1, v1beta2
// and v1beta1). Parameters of our driver are judged wherever they stand, what a request asks for
// where it names a device class of ours: of others it is not known whose cards they are.
//
// Whatever is written, this costs one walk over it and some for each request, of which it takes as
// many as the API does (C7).

#include <simdjson.h>
#include <string>
#include <vector>

#include "services/kubernetes/claims/claim.h"

namespace qgpu {

// The rules that are broken, a sentence each, no two alike; empty: none. `devices` has `requests`
// and `config`: spec.devices of a claim, or the spec of a DeviceClass, which has no requests.
std::vector<std::string> brokenClaimRules(const simdjson::dom::element& devices);

}  // namespace qgpu
