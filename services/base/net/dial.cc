#include "services/base/net/dial.h"

#include <algorithm>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "services/base/net/srv.h"
#include "services/base/text.h"

namespace qgpu {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kSrv = "srv:";
constexpr std::size_t kAddressMax = 300;
constexpr auto kTargetLimit = 1 * kj::SECONDS;  // to connect, where there are others to try

using Stream = kj::Own<kj::AsyncIoStream>;
using MaybeTls = kj::Maybe<kj::TlsContext&>;

bool isUnix(const std::string& address) {
  return address.starts_with(kUnix);
}
bool isSrv(const std::string& address) {
  return address.starts_with(kSrv) && !parseUint(std::string_view(address).substr(kSrv.size()));
}

// HOST of HOST:PORT, without the brackets of IPv6.
std::string hostOf(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

bool usable(const std::string& address) {
  if (address.size() > kAddressMax) return false;
  if (isUnix(address)) return address.size() > kUnix.size();
  if (isSrv(address)) return isSrvName(std::string_view(address).substr(kSrv.size()));
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  const auto port = parseUint(std::string_view(address).substr(colon + 1));
  const std::string host = hostOf(address);
  const bool bracketed = host.size() + 2 == colon;
  return port && *port > 0 && *port <= 65535 &&
         (bracketed || host.find(':') == std::string::npos) &&
         host.find_first_of(" \t*/[]") == std::string::npos;
}

// A vanished host is noticed, and small words are not kept back.
void setUp(kj::AsyncIoStream& stream) {
  const auto set = [&stream](int level, int option, int value) {
    stream.setsockopt(level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

kj::Promise<Stream> connectTo(kj::Network& network, const std::string& address) {
  return network.parseAddress(ptr(address)).then([](kj::Own<kj::NetworkAddress> found) {
    auto stream = found->connect();
    return stream.attach(kj::mv(found));
  });
}

// The stream to HOST:PORT as it is used.
kj::Promise<Stream> prepared(Stream stream, const std::string& address, MaybeTls tls) {
  setUp(*stream);
  KJ_IF_MAYBE (context, tls) {
    auto name = kj::heapString(ptr(hostOf(address)));
    auto wrapped = context->wrapClient(kj::mv(stream), name);
    return wrapped.attach(kj::mv(name));
  }
  return kj::mv(stream);
}

kj::Exception notReached(const std::string& why) {
  return kj::Exception(kj::Exception::Type::DISCONNECTED, __FILE__, __LINE__, kj::str(why.c_str()));
}

// One dialling of srv:NAME, over all its targets.
class Targets {
 public:
  Targets(kj::Network& network, MaybeTls tls, SrvDialing srv)
      : network_(network), tls_(tls), srv_(srv) {}

  kj::Promise<Stream> dial(const std::string& name) {
    return lookUpSrv(name).then(
        [this](Result<std::vector<SrvTarget>> found) -> kj::Promise<Stream> {
          if (!found) return notReached(found.error().message);
          for (const SrvTarget& target : *found) {
            addresses_.push_back(target.host + ":" + std::to_string(target.port));
          }
          const auto first = static_cast<std::ptrdiff_t>(srv_.failures % addresses_.size());
          std::rotate(addresses_.begin(), addresses_.begin() + first, addresses_.end());
          return from(0);
        });
  }

 private:
  kj::Promise<Stream> from(std::size_t at) {
    const bool last = at + 1 == addresses_.size();
    return kj::evalNow([this, at, last]() {
             auto connected = connectTo(network_, addresses_[at]);
             KJ_IF_MAYBE (timer, srv_.timer) {
               if (!last) connected = timer->timeoutAfter(kTargetLimit, kj::mv(connected));
             }
             return connected;
           })
        .then([this, at](Stream stream) { return prepared(kj::mv(stream), addresses_[at], tls_); })
        .catch_([this, at, last](kj::Exception&& e) -> kj::Promise<Stream> {
          why_ += (at == 0 ? "" : "; ") + addresses_[at] + ": " +
                  tlsExplained(std::string(view(e.getDescription())));
          if (last) return notReached(why_);
          return from(at + 1);
        });
  }

  kj::Network& network_;
  MaybeTls tls_;
  SrvDialing srv_;
  std::vector<std::string> addresses_;
  std::string why_;  // none of those so far, each with its reason
};

}  // namespace

Result<std::vector<std::string>> parseDialList(const std::string& list) {
  std::vector<std::string> out;
  std::size_t at = 0;
  while (at <= list.size()) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const std::string address = list.substr(at, comma - at);
    if (!usable(address)) {
      return fail(
          ErrorCode::InvalidArgument,
          "\"" + address + "\": write HOST:PORT, as in 10.0.0.1:12346, unix:PATH or srv:NAME");
    }
    out.push_back(address);
    at = comma + 1;
  }
  if (out.size() <= kDialAddressesMax) return out;
  return fail(ErrorCode::InvalidArgument,
              "at most " + std::to_string(kDialAddressesMax) + " addresses");
}

std::string tlsExplained(std::string text) {
  if (text.find("certificate verify failed") != std::string::npos) {
    return "its certificate is not signed by --tls-ca, or names another host than was asked for";
  }
  constexpr std::string_view kAlert = " alert ";
  const std::size_t alert = text.find(kAlert);
  if (alert == std::string::npos || text.find("SSL") == std::string::npos) return text;
  const std::size_t from = alert + kAlert.size();
  const std::string said = text.substr(from, text.find_first_of(":;\n", from) - from);
  return "it refuses the certificate of --tls-cert, or the lack of one (" + said + ")";
}

bool dialStaysHere(const std::string& address) {
  if (isUnix(address)) return true;
  if (isSrv(address)) return false;
  const std::string host = hostOf(address);
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

kj::Promise<Stream> dial(kj::Network& network, const std::string& address, MaybeTls tls,
                         SrvDialing srv) {
  if (isUnix(address)) return connectTo(network, address);
  if (isSrv(address)) {
    auto targets = kj::heap<Targets>(network, tls, srv);
    auto stream = targets->dial(address.substr(kSrv.size()));
    return stream.attach(kj::mv(targets));
  }
  return connectTo(network, address).then([address, tls](Stream stream) mutable {
    return prepared(kj::mv(stream), address, tls);
  });
}

}  // namespace qgpu
