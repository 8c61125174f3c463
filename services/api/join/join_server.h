#pragma once
// A scheduler's server for machines that have no certificate yet (--join): HTTP over TLS on an
// address of its own, where a client shows a token instead. It signs for who shows a good one:
// always for the node that the token was made for, with the role of a node, whatever the request
// says beside its key. What a token is worth the scheduler actor decides and stores, and uses it up
// before anything is signed (actors/join/join_tokens.h).
//
// Who has no token gets one and the same answer and costs little: connections, bodies, time and
// questions under way are bounded (C5, C7), and there is no other page.

#include <cstdint>
#include <kj/async.h>
#include <memory>
#include <string>

#include "services/api/commands/cluster_actor_client.h"
#include "services/api/commands/housekeeping.h"
#include "services/api/join/join_codec.h"
#include "services/base/net/http_server.h"
#include "services/base/net/live_tls.h"
#include "services/base/net/x509.h"

namespace qgpu {

class JoinServer {
 public:
  static constexpr std::size_t kAtOnceMax = 8;  // questions to the actor
  static constexpr std::int64_t kDays = 365;    // a certificate is good for so long

  struct Files {
    TlsFiles tls;       // of the scheduler
    std::string caKey;  // of the CA among them that signs
  };
  // InvalidArgument names what is missing, unreadable or does not belong together.
  static Result<std::unique_ptr<JoinServer>> open(const Files& files);

  // `actor` and `timer` outlive this. `rpcPort`: where those who joined find the scheduler.
  void serve(ClusterActorClient& actor, kj::LowLevelAsyncIoProvider& io, kj::Timer& timer,
             TcpListener listener, std::uint16_t rpcPort);

  // A new token for that node; nothing knows its secret but the answer. InvalidArgument: no
  // certificate could have this name.
  Result<Invitation> invite(const std::string& node) const;

  const std::string& address() const { return http_->address(); }

 private:
  JoinServer(TlsFiles files, std::string caKey)
      : tls_(std::move(files), TlsPeers::Any), caKey_(std::move(caKey)) {}

  kj::Promise<HttpPage> take(std::string body);
  Result<KeyPair> authority() const;
  HttpPage sign(const JoinAsk& ask, const CertificateRequest& request) const;

  LiveTls tls_;
  const std::string caKey_;
  ClusterActorClient* actor_ = nullptr;
  std::uint16_t rpcPort_ = 0;
  std::size_t underWay_ = 0;
  std::unique_ptr<HttpServer> http_;  // last
};

}  // namespace qgpu
