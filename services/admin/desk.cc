#include "services/admin/desk.h"

#include "services/admin/cluster_door.h"
#include "services/admin/node_door.h"
#include "services/admin/render.h"

namespace qgpu {

kj::Promise<AdminAnswer> keepSnapshot(Housekeeping& keeping, std::string done) {
  return snapshotOf(keeping).then([done = std::move(done)](const Status& status) -> AdminAnswer {
    return status ? renderDone(done) : renderError(status.error());
  });
}

AdminAnswer keepLogLevel(Housekeeping& keeping, const std::string& level, std::string_view done) {
  const Status status = keeping.setLogLevel(level);
  return status ? renderDone(done) : renderError(status.error());
}

std::string refuseChange(const Peer& peer, std::string_view what) {
  return renderError(fail(ErrorCode::Denied, "uid " + std::to_string(peer.uid) +
                                                 " may read only: root, the daemon's own user "
                                                 "and group qgpu may change " +
                                                 std::string(what)));
}

template <typename Words>
kj::Promise<AdminAnswer> watchFrom(Door<Words>& door, const Peer& peer, std::uint64_t since) {
  return Feed<Words>::open(door, peer, since)
      .then([](Result<kj::Own<Feed<Words>>> feed) -> AdminAnswer {
        if (!feed) return renderError(feed.error());
        kj::Own<Feed<Words>> events = kj::mv(feed.value());
        return {renderWatching(), [events = kj::mv(events)]() mutable { return events->next(); }};
      });
}

template kj::Promise<AdminAnswer> watchFrom(Door<NodeWords>&, const Peer&, std::uint64_t);
template kj::Promise<AdminAnswer> watchFrom(Door<ClusterWords>&, const Peer&, std::uint64_t);

}  // namespace qgpu
