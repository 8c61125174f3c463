#include "services/kubernetes/claims/node_claims.h"

#include <string_view>

#include "services/base/text.h"
#include "services/kubernetes/pods/pod_names.h"

namespace qgpu {

NodeClaims::NodeClaims(NodeActorClient& actor, ApiClient& api, Log& log, std::string node,
                       std::function<bool()> mixed)
    : actor_(actor),
      log_(log),
      tasks_(actor, api, node, std::move(mixed)),
      slices_(api, log, node) {}

kj::Promise<void> NodeClaims::round(Peer peer, bool byClaims, SliceFacts facts) {
  return choose(std::move(peer), byClaims).then([this, facts = std::move(facts)]() mutable {
    std::optional<SliceFacts> slice;
    if (way_ == Way::Claims && !facts.cards.empty()) slice = std::move(facts);
    return slices_.publish(std::move(slice));
  });
}

kj::Promise<void> NodeClaims::choose(Peer peer, bool byClaims) {
  const Way wanted = byClaims ? Way::Claims : Way::Devices;
  if (way_ == wanted) return kj::READY_NOW;
  return actor_.ask(peer, [](schema::Request::Builder request) { request.setTasks(); })
      .then([this, wanted](Result<Answer> answer) {
        if (!answer) return;
        const char* others =
            wanted == Way::Claims ? kPodTasksRequestStart : ClaimTasks::kRequestStart;
        std::size_t left = 0;
        for (const auto task : answer->reply().getTasks()) {
          const std::string_view request = view(task.getSpec().getRequestId());
          if (request.starts_with(others)) ++left;
        }
        why_.clear();
        if (left != 0) {
          why_ = std::to_string(left) + " tasks " +
                 (wanted == Way::Claims ? "of pods without claims" : "of claims") +
                 " have not ended; until then the cards are given neither by claims nor without";
        }
        const Way now = left == 0 ? wanted : Way::Neither;
        if (now != way_) {
          log_.info("cards-given", {{"by", now == Way::Claims    ? "claims"
                                           : now == Way::Devices ? "devices"
                                                                 : "neither"},
                                    {"why", why_}});
        }
        way_ = now;
      });
}

}  // namespace qgpu
