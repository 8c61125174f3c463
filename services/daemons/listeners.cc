#include "services/daemons/listeners.h"

#include <utility>

#include "services/base/base64.h"
#include "services/base/wall_time.h"

namespace qgpu {
namespace {

constexpr mode_t kOpenToAll = 0666;

Error keepsNothing() {
  return fail(ErrorCode::Unavailable, "this daemon keeps nothing yet: try again in a moment");
}

}  // namespace

Result<TcpListeners> TcpListeners::open(const Addresses& addresses, Reach rpcReach,
                                        Reach httpReach) {
  auto http = TcpListener::open(addresses.http, "--http", httpReach);
  if (!http) return http.error();
  TcpListeners opened{std::move(*http), std::nullopt, std::nullopt};
  if (!addresses.rpc.empty()) {
    auto rpc = TcpListener::open(addresses.rpc, "--rpc", rpcReach);
    if (!rpc) return rpc.error();
    opened.rpc.emplace(std::move(*rpc));
  }
  if (!addresses.metrics.empty()) {
    auto metrics = TcpListener::open(addresses.metrics, "--metrics", Reach::Anywhere);
    if (!metrics) return metrics.error();
    opened.metrics.emplace(std::move(*metrics));
  }
  return opened;
}

Result<UnixListeners> UnixListeners::open(const RunDir& dir, const std::string& name) {
  auto admin = UnixListener::open(dir.file(name + ".sock"), kOpenToAll);
  if (!admin) return admin.error();
  auto rpc = UnixListener::open(dir.file(name + ".rpc"), kOpenToAll);
  if (!rpc) return rpc.error();
  return UnixListeners{std::move(*admin), std::move(*rpc)};
}

void Keeping::snapshot(std::function<void(Status)> done) {
  if (journal_) return journal_->snapshot(std::move(done));
  done(keepsNothing());
}

// What the loop is given is ready to be sent. `done` is the loop's alone: the store's thread passes
// it on and keeps no copy that would die there.
void Keeping::save(std::function<void(Result<std::string>)> done) {
  if (!journal_) return done(keepsNothing());
  journal_->read(
      [done = std::move(done), copy = whose_](Result<std::vector<StoredRow>> rows) mutable {
        Result<std::string> file = std::string();
        if (rows) {
          copy.takenUnixMs = unixMsNow();
          copy.rows = std::move(*rows);
          file = toBase64(encodeCopy(copy));
        } else {
          file = rows.error();
        }
        return std::function<void()>(
            [done = std::move(done), file = std::move(file)]() mutable { done(std::move(file)); });
      });
}

Status Keeping::setLogLevel(const std::string& level) {
  const Result<LogLevel> parsed = parseLogLevel(level);
  if (!parsed) return parsed.error();
  log_.setLevel(*parsed);
  return ok();
}

void openJournal(std::optional<StoreJournal>& journal, std::unique_ptr<RowStore> store, Loop& loop,
                 Log& log) {
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
