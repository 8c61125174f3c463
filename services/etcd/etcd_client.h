#pragma once
// A Kv over a real etcd, by its gRPC API v3. A call goes to one endpoint, and to the next one where
// that does not answer; the caller's thread waits, `callLimit` at most. One client is for one
// thread.

#include <memory>
#include <string>
#include <vector>

#include "services/etcd/etcd_options.h"
#include "store/etcd/kv.h"

namespace qgpu {

class EtcdClient final : public Kv {
 public:
  // Reads the certificates; connects with the first call. Errors name the file.
  static Result<std::unique_ptr<EtcdClient>> open(EtcdOptions options);
  ~EtcdClient() override;

  Result<KvTxnAnswer> txn(const KvTxn& txn) override;
  Result<std::vector<KvPair>> list(const std::string& from, const std::string& end,
                                   std::size_t limit) override;
  Result<std::int64_t> grant(Nanos ttl) override;
  Status keepAlive(std::int64_t lease) override;
  Status revoke(std::int64_t lease) override;

 private:
  struct Channel;
  explicit EtcdClient(EtcdOptions options);

  // Calls one endpoint, or one after the other until one answers or the time is over. `call` gets a
  // channel and a context, and gives a gRPC status.
  template <typename Call>
  Status once(const char* what, Nanos limit, Call&& call);
  template <typename Call>
  Status each(const char* what, Call&& call);
  Status signIn(Channel& channel);

  const EtcdOptions options_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::size_t at_ = 0;  // which one is asked first
  std::string token_;   // of who signed in
};

}  // namespace qgpu
