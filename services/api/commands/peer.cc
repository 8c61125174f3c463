#include "services/api/commands/peer.h"

#include <algorithm>
#include <cstdio>
#include <grp.h>
#include <kj/exception.h>
#include <memory>
#include <pwd.h>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include "services/api/commands/schema_names.h"

namespace qgpu {
namespace {

constexpr std::size_t kEntryMax = 64 * 1024;  // longest passwd or group entry that we read
constexpr int kGroupsMax = 1024;

std::optional<gid_t> groupId(const std::string& name) {
  std::vector<char> buffer(kEntryMax);
  group entry{};
  group* found = nullptr;
  if (::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || !found) {
    return std::nullopt;
  }
  return entry.gr_gid;
}

std::vector<gid_t> groupsOf(uid_t uid) {
  std::vector<char> buffer(kEntryMax);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || !found) return {};
  std::vector<gid_t> groups(kGroupsMax);
  int count = kGroupsMax;
  if (::getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) count = kGroupsMax;
  groups.resize(static_cast<std::size_t>(std::max(count, 0)));
  return groups;
}

}  // namespace

bool ChangeRule::mayChange(const PeerIds& peer) {
  if (peer.uid == 0 || peer.uid == self_) return true;
  const Nanos now = now_();
  const std::pair<uid_t, gid_t> ids(peer.uid, peer.gid);
  const auto found = known_.find(ids);
  if (found != known_.end() && now < found->second.until) return found->second.member;
  if (known_.size() >= kRememberedMax) known_.clear();
  const bool member = lookUp_(peer, group_);
  known_[ids] = {member, now + kRemembered};
  return member;
}

bool isMember(const PeerIds& peer, const std::string& group) {
  const std::optional<gid_t> wanted = groupId(group);
  if (!wanted) return false;
  if (peer.gid == *wanted) return true;
  const std::vector<gid_t> groups = groupsOf(peer.uid);
  return std::find(groups.begin(), groups.end(), *wanted) != groups.end();
}

Result<PeerIds> peerIds(kj::AsyncIoStream& stream) {
  ucred credentials{};
  kj::uint length = sizeof credentials;
  const auto failed = kj::runCatchingExceptions(
      [&] { stream.getsockopt(SOL_SOCKET, SO_PEERCRED, &credentials, &length); });
  KJ_IF_MAYBE (exception, failed) {
    return fail(ErrorCode::Unavailable, "the kernel does not tell who is connected: " +
                                            std::string(view(exception->getDescription())));
  }
  return PeerIds{credentials.uid, credentials.gid, credentials.pid};
}

}  // namespace qgpu
