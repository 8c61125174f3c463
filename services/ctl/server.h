#pragma once
// A scheduler over RPC, which answers the documents of its admin socket, so that a command is one
// thing wherever it goes. They are written from its messages; no JSON is between.

#include <memory>
#include <string>
#include <vector>

#include "services/ctl/answers/client.h"
#include "services/ctl/options.h"

namespace qgpu::ctl {

class Server final : public Asker {
 public:
  // Connects to the first of `address`, "ADDR[,ADDR...]" as parseDialList() takes them, that
  // answers, over TLS where certificates are given. One server at a time in a thread, because it
  // brings KJ's event loop; it watches and answers over the same connection. InvalidArgument: an
  // address or certificate that is none; Unavailable: nobody answers there.
  static Result<std::unique_ptr<Server>> connect(const std::string& address, const TlsOptions& tls);
  ~Server() override;

  // Of a scheduler that stands by the one that acts is asked, and where none does or it is lost on
  // the way, whoever acts within 10 s; but what would be another thing if it were done twice is not
  // asked again once it was sent.
  Result<Answer> ask(const Ask& ask, Nanos limit) override;
  // Events that nobody takes here are not taken from the scheduler either.
  Result<Answer> nextLine(Nanos limit) override;

 private:
  struct Connection;
  Server(std::vector<std::string> addresses, const TlsOptions& options);

  Status open(const std::string& address);
  Status openAny();
  void leave();
  Result<Answer> askHere(const Ask& ask, Nanos limit);

  const std::vector<std::string> addresses_;
  const TlsOptions options_;
  std::unique_ptr<Connection> connection_;  // keeps KJ out of this header
};

// Whom a command asks; connected later where it is a socket.
Result<std::unique_ptr<Asker>> reach(const Options& options);

}  // namespace qgpu::ctl
