#pragma once
// The admin commands of a scheduler.

#include "services/admin/cluster_door.h"
#include "services/admin/desk.h"
#include "services/admin/tenant_environment.h"

namespace qgpu {

class ClusterDesk final : public CommandDesk<ClusterWords> {
 public:
  // `door` and `keeping` outlive the desk. `here`: of programs started on this machine.
  ClusterDesk(ClusterDoor& door, Housekeeping& keeping, Variables here = {})
      : CommandDesk(door, keeping), here_(std::move(here)) {}

 private:
  struct Pages;  // of a list that is under way

  std::string render(schema::ClusterReply::Reader reply) override;
  kj::Promise<AdminAnswer> list(const Peer& peer, Command command) override;
  kj::Promise<AdminAnswer> nextPage(const Peer& peer, kj::Own<Pages> pages);

  const Variables here_;
};

}  // namespace qgpu
