#include "services/daemons/listeners.h"

#include <utility>

namespace qgpu {
namespace {

constexpr mode_t kOpenToAll = 0666;

}  // namespace

Result<TcpListeners> TcpListeners::open(const std::string& httpAddress,
                                        const std::string& rpcAddress, Reach rpcReach,
                                        Reach httpReach) {
  auto http = TcpListener::open(httpAddress, "--http", httpReach);
  if (!http) return http.error();
  if (rpcAddress.empty()) return TcpListeners{std::move(*http), std::nullopt};
  auto rpc = TcpListener::open(rpcAddress, "--rpc", rpcReach);
  if (!rpc) return rpc.error();
  return TcpListeners{std::move(*http), std::move(*rpc)};
}

Result<UnixListeners> UnixListeners::open(const RunDir& dir, const std::string& name) {
  auto admin = UnixListener::open(dir.file(name + ".sock"), kOpenToAll);
  if (!admin) return admin.error();
  auto rpc = UnixListener::open(dir.file(name + ".rpc"), kOpenToAll);
  if (!rpc) return rpc.error();
  return UnixListeners{std::move(*admin), std::move(*rpc)};
}

Status Keeping::setLogLevel(const std::string& level) {
  const Result<LogLevel> parsed = parseLogLevel(level);
  if (!parsed) return parsed.error();
  log_.setLevel(*parsed);
  return ok();
}

void openJournal(std::optional<SqliteJournal>& journal, Store store, Loop& loop, Log& log) {
  journal.emplace(
      std::move(store), [&loop](std::function<void()> work) { loop.post(std::move(work)); },
      [&log](Status health) {
        if (health) {
          log.info("storage-works-again");
        } else {
          log.error("storage-failed", {{"why", health.error().message}});
        }
      });
}

}  // namespace qgpu
