#include "services/api/admin/cluster_handler.h"

#include "services/api/commands/cluster_render.h"
#include "services/api/commands/render.h"

namespace qgpu {

struct ClusterHandler::Pages {
  explicit Pages(Command asked) : command(std::move(asked)) {}

  const Command command;
  JsonWriter json;
  ClusterListing listing{json};
};

kj::Promise<AdminAnswer> ClusterHandler::list(const Peer& peer, Command command) {
  return nextPage(peer, kj::heap<Pages>(std::move(command)));
}

kj::Promise<AdminAnswer> ClusterHandler::nextPage(const Peer& peer, kj::Own<Pages> pages) {
  auto asked = actor_.ask(peer, [&](schema::ClusterRequest::Builder request) {
    fillRequest(request, pages->command);
    request.initPage().setAfter(pages->listing.after());
  });
  return asked.then([this, &peer, pages = kj::mv(pages)](
                        Result<ClusterAnswer> got) mutable -> kj::Promise<AdminAnswer> {
    if (!got) return AdminAnswer(renderError(got.error()));
    const Result<bool> more = pages->listing.add(got->reply());
    if (!more) return AdminAnswer(renderError(more.error()));
    if (*more) return nextPage(peer, kj::mv(pages));
    return AdminAnswer(pages->json.take());
  });
}

kj::Promise<AdminAnswer> ClusterHandler::invite(const Peer& peer, Command command) {
  const Result<Invitation> made = keeping_.invite(command.given.node);
  if (!made) return AdminAnswer(renderError(made.error()));
  command.given.token = made->id;
  command.given.hash = made->hash;
  auto asked = actor_.ask(
      peer, [&](schema::ClusterRequest::Builder request) { fillRequest(request, command); });
  return asked.then([made = *made](Result<ClusterAnswer> got) -> AdminAnswer {
    if (!got) return renderError(got.error());
    return renderInvitation(got->reply(), made.door, made.text);
  });
}

std::string ClusterHandler::render(schema::ClusterReply::Reader reply) {
  return renderClusterReply(reply, here_);
}

}  // namespace qgpu
