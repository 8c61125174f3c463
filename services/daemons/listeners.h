#pragma once
// The listeners of a daemon, opened before anything on disk is touched or anybody is served, and
// what the admin socket may ask of the daemon itself. NAME is "manager" or "scheduler", whose
// sockets are RUN_DIR/NAME.sock and RUN_DIR/NAME.rpc.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/log.h"
#include "runtime/loop.h"
#include "services/api/admin/admin_server.h"
#include "services/base/net/listen.h"
#include "services/base/run_dir.h"
#include "store/row_copy.h"
#include "store/store_journal.h"

namespace qgpu {

// The listeners that have an address.
struct TcpListeners {
  TcpListener http;
  std::optional<TcpListener> rpc;
  std::optional<TcpListener> metrics;

  // HOST:PORT each; `rpc` and `metrics` may be empty: none.
  struct Addresses {
    std::string http;
    std::string rpc;
    std::string metrics;
  };
  // Reach: Anywhere where peers show certificates, or where somebody said that they need not. The
  // metrics' listener is there to be reached from anywhere.
  static Result<TcpListeners> open(const Addresses& addresses, Reach rpcReach = Reach::Loopback,
                                   Reach httpReach = Reach::Loopback);
};

// The listeners in the run dir, open to all: the kernel says who is asking.
struct UnixListeners {
  UnixListener admin;
  UnixListener rpc;

  static Result<UnixListeners> open(const RunDir& dir, const std::string& name);
};

// What the admin socket asks of the daemon itself.
class Keeping final : public Housekeeping {
 public:
  // Of a daemon that may have no journal yet. `whose`: its rows, but for these and the time.
  Keeping(std::optional<StoreJournal>& journal, Log& log, RowCopy whose)
      : journal_(journal), log_(log), whose_(std::move(whose)) {}

  void snapshot(std::function<void(Status)> done) override;
  void save(std::function<void(Result<std::string>)> done) override;
  Status setLogLevel(const std::string& level) override;
  Result<Invitation> invite(const std::string& node) override {
    return invite_ ? invite_(node) : Housekeeping::invite(node);
  }
  // Who makes tokens, where machines may join by them.
  void setInvite(std::function<Result<Invitation>(const std::string&)> invite) {
    invite_ = std::move(invite);
  }

 private:
  std::optional<StoreJournal>& journal_;
  Log& log_;
  const RowCopy whose_;
  std::function<Result<Invitation>(const std::string&)> invite_;
};

// The journal over `store`, whose completions run on `loop` and whose troubles are logged.
void openJournal(std::optional<StoreJournal>& journal, std::unique_ptr<RowStore> store, Loop& loop,
                 Log& log);

}  // namespace qgpu
