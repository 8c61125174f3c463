#include "services/base/net/dial.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "services/base/text.h"

namespace qgpu {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::size_t kAddressMax = 300;

bool isUnix(const std::string& address) {
  return address.starts_with(kUnix);
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

}  // namespace

Result<std::vector<std::string>> parseDialList(const std::string& list) {
  std::vector<std::string> out;
  std::size_t at = 0;
  while (at <= list.size()) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const std::string address = list.substr(at, comma - at);
    if (!usable(address)) {
      return fail(ErrorCode::InvalidArgument,
                  "\"" + address + "\": write HOST:PORT, as in 10.0.0.1:12346, or unix:PATH");
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
  const std::string host = hostOf(address);
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

kj::Promise<kj::Own<kj::AsyncIoStream>> dial(kj::Network& network, const std::string& address,
                                             kj::Maybe<kj::TlsContext&> tls) {
  const bool local = isUnix(address);
  auto connected = network.parseAddress(ptr(address)).then([](kj::Own<kj::NetworkAddress> found) {
    auto stream = found->connect();
    return stream.attach(kj::mv(found));
  });
  if (local) return kj::mv(connected);
  return connected.then([tls, host = hostOf(address)](kj::Own<kj::AsyncIoStream> stream) mutable
                        -> kj::Promise<kj::Own<kj::AsyncIoStream>> {
    setUp(*stream);
    KJ_IF_MAYBE (context, tls) {
      auto name = kj::heapString(host.data(), host.size());
      auto wrapped = context->wrapClient(kj::mv(stream), name);
      return wrapped.attach(kj::mv(name));
    }
    return kj::mv(stream);
  });
}

}  // namespace qgpu
