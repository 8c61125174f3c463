#include "services/kubernetes/agent/tenant_socket.h"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace qgpu {

Status openTenantSocket(const std::string& runDir) {
  const std::string folder = runDir + "/tenant";
  const std::string socket = folder + "/attach.sock";
  const std::string fresh = folder + "/attach.new";
  ::unlink(fresh.c_str());
  const bool made = (::mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST) &&
                    ::link((runDir + "/attach.sock").c_str(), fresh.c_str()) == 0 &&
                    ::rename(fresh.c_str(), socket.c_str()) == 0;
  if (made) return ok();
  return fail(ErrorCode::Unavailable, socket + ": " + std::strerror(errno));
}

}  // namespace qgpu
