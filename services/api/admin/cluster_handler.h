#pragma once
// The admin commands of a scheduler.

#include "services/api/commands/cluster_actor_client.h"
#include "services/api/commands/command_handler.h"
#include "services/api/commands/tenant_environment.h"

namespace qgpu {

class ClusterHandler final : public CommandHandler<ClusterApi> {
 public:
  // `actor` and `keeping` outlive the handler. `here`: of programs started on this machine.
  ClusterHandler(ClusterActorClient& actor, Housekeeping& keeping, Variables here = {})
      : CommandHandler(actor, keeping), here_(std::move(here)) {}

 private:
  struct Pages;  // of a list that is under way

  std::string render(schema::ClusterReply::Reader reply) override;
  kj::Promise<AdminAnswer> list(const Peer& peer, Command command) override;
  kj::Promise<AdminAnswer> invite(const Peer& peer, Command command) override;
  kj::Promise<AdminAnswer> nextPage(const Peer& peer, kj::Own<Pages> pages);

  const Variables here_;
};

}  // namespace qgpu
