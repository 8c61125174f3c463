#include "services/admin/cluster_desk.h"

#include "services/admin/cluster_render.h"
#include "services/admin/render.h"
#include "services/admin/words.h"

namespace qgpu {

// One that is under way.
struct ClusterDesk::List {
  ClusterCommand command;
  ClusterListing listing;
};

kj::Promise<AdminAnswer> ClusterDesk::pages(const Peer& peer, kj::Own<List> list) {
  auto asked = door_.ask(peer, [&](schema::ClusterRequest::Builder request) {
    fillClusterRequest(request, list->command, peer.uid);
    request.initPage().setAfter(list->listing.after());
  });
  return asked.then([this, &peer, list = kj::mv(list)](
                        Result<ClusterAnswer> got) mutable -> kj::Promise<AdminAnswer> {
    if (!got) return AdminAnswer(renderError(got.error()));
    if (list->listing.add(got->reply())) return pages(peer, kj::mv(list));
    return AdminAnswer(list->listing.take());
  });
}

kj::Promise<AdminAnswer> ClusterDesk::answer(const Peer& peer, std::string line) {
  Result<ClusterCommand> command = parseClusterCommand(line);
  if (!command) return AdminAnswer(renderError(command.error()));
  if (command->verb == ClusterVerb::Help) return AdminAnswer(renderHelp(clusterCommandInfos()));
  if (command->verb == ClusterVerb::Watch) return watchFrom(door_, peer, command->number);
  if (command->changes && !peer.mayChange) return AdminAnswer(refuseChange(peer, "a cluster"));
  if (isList(*command)) return pages(peer, kj::heap<List>(List{std::move(*command), {}}));
  auto asked = door_.ask(peer, [&](schema::ClusterRequest::Builder request) {
    fillClusterRequest(request, *command, peer.uid);
  });
  return asked.then([this, verb = command->verb, level = std::move(command->level)](
                        Result<ClusterAnswer> got) -> kj::Promise<AdminAnswer> {
    if (!got) return AdminAnswer(renderError(got.error()));
    const auto reply = got->reply();
    const std::string done(reply.isDone() ? view(reply.getDone()) : std::string_view());
    if (verb == ClusterVerb::Snapshot) return keepSnapshot(keeping_, done);
    if (verb == ClusterVerb::LogLevel) return keepLogLevel(keeping_, level, done);
    return AdminAnswer(renderClusterReply(reply, here_));
  });
}

}  // namespace qgpu
