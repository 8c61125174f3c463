#pragma once
// Rights of the manager that kube_rights_test does not see used, and that the tests which use them
// assert instead, so that each right is seen used by a test.

#include <set>
#include <string>

#include "tests/e2e/kubernetes/served_api.h"

namespace qgpu::e2e {

using Rights = std::set<std::string>;

inline const Rights kRightsForEvents = {
    // pod_events_test: a word that is said again
    "qgpu-manager may patch events",
};
inline const Rights kRightsForClaims = {
    // claims_test: cards that are given by claims
    "qgpu-manager may create resourceslices.resource.k8s.io",
    "qgpu-manager may update resourceslices.resource.k8s.io",
    "qgpu-manager may delete resourceslices.resource.k8s.io",
    "qgpu-manager may get resourceclaims.resource.k8s.io",
};

inline std::string rightText(const std::string& account, const std::string& verb,
                             const std::string& group, const std::string& resource) {
  return account + " may " + verb + " " + resource + (group.empty() ? "" : "." + group);
}

// Of these, what the API server was not asked yet.
inline Rights unused(ServedApi& api, Rights rights) {
  api.with([&](testing::ApiStandIn& server) {
    for (const auto& use : server.uses) {
      rights.erase(rightText(use.account, use.verb, use.group, use.resource));
    }
  });
  return rights;
}

}  // namespace qgpu::e2e
