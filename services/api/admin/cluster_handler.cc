#include "services/admin/cluster_desk.h"

#include "services/admin/cluster_render.h"
#include "services/admin/render.h"

namespace qgpu {

struct ClusterDesk::Pages {
  Command command;
  ClusterListing listing;
};

kj::Promise<AdminAnswer> ClusterDesk::list(const Peer& peer, Command command) {
  return nextPage(peer, kj::heap<Pages>(Pages{std::move(command), {}}));
}

kj::Promise<AdminAnswer> ClusterDesk::nextPage(const Peer& peer, kj::Own<Pages> pages) {
  auto asked = door_.ask(peer, [&](schema::ClusterRequest::Builder request) {
    fillRequest(request, pages->command);
    request.initPage().setAfter(pages->listing.after());
  });
  return asked.then([this, &peer, pages = kj::mv(pages)](
                        Result<ClusterAnswer> got) mutable -> kj::Promise<AdminAnswer> {
    if (!got) return AdminAnswer(renderError(got.error()));
    if (pages->listing.add(got->reply())) return nextPage(peer, kj::mv(pages));
    return AdminAnswer(pages->listing.take());
  });
}

std::string ClusterDesk::render(schema::ClusterReply::Reader reply) {
  return renderClusterReply(reply, here_);
}

}  // namespace qgpu
