#pragma once
// The admin commands of a scheduler: what services/admin/cluster_commands.h reads becomes a request
// of its ClusterDoor, and the reply a JSON document.

#include <string>

#include "services/admin/cluster_commands.h"
#include "services/admin/cluster_door.h"
#include "services/admin/desk.h"
#include "services/admin/tenant_environment.h"

namespace qgpu {

class ClusterDesk final : public AdminDesk {
 public:
  // `door` and `keeping` outlive the desk. `here`: of programs started on this machine.
  ClusterDesk(ClusterDoor& door, Housekeeping& keeping, Variables here = {})
      : door_(door), keeping_(keeping), here_(std::move(here)) {}

  kj::Promise<AdminAnswer> answer(const Peer& peer, std::string line) override;

 private:
  struct List;                         // that is asked for page by page
  kj::Promise<AdminAnswer> pages(const Peer& peer, kj::Own<List> list);

  ClusterDoor& door_;
  Housekeeping& keeping_;
  const Variables here_;
};

}  // namespace qgpu
