#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "runtime/config.h"
#include "runtime/fd.h"
#include "services/api/join/join_codec.h"
#include "services/base/net/openssl_freed.h"
#include "services/base/net/x509.h"
#include "services/base/wall_time.h"
#include "services/ctl/join/join.h"

namespace qgpu::ctl {
namespace {

constexpr int kJoinConnectMs = 10'000;
constexpr time_t kAnswerSeconds = 20;  // for each piece
constexpr const char* kNextStep = ": see that the scheduler runs with --join, and its firewall";

using SslContext = std::unique_ptr<SSL_CTX, OpensslFreed<SSL_CTX_free>>;
using SslSession = std::unique_ptr<SSL, OpensslFreed<SSL_free>>;

struct HostPort {
  std::string host;
  std::string port;
};

Result<HostPort> splitServer(const std::string& server) {
  const std::size_t colon = server.rfind(':');
  std::string host = colon == std::string::npos ? "" : server.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto port =
      parseInteger(colon == std::string::npos ? "" : server.substr(colon + 1), 1, 65'535, "a port");
  if (!host.empty() && port) return HostPort{host, std::to_string(*port)};
  return fail(ErrorCode::InvalidArgument,
              "\"" + server + "\" is no address: HOST:PORT, as `qgpuctl token create` says it");
}

// A socket that is connected, and whose reads and writes end.
Result<Fd> connectedTo(const HostPort& to) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found);
      error != 0) {
    return fail(ErrorCode::Unavailable,
                "no machine is called " + to.host + " here (" + ::gai_strerror(error) + ")");
  }
  const std::unique_ptr<addrinfo, OpensslFreed<::freeaddrinfo>> all(found);
  std::string why = "no address";
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Fd fd(::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int error = fd && ::connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    pollfd entry{fd.get(), POLLOUT, 0};
    socklen_t size = sizeof error;
    if (error == EINPROGRESS) {
      error = ETIMEDOUT;
      if (::poll(&entry, 1, kJoinConnectMs) == 1) {
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    const timeval limit{kAnswerSeconds, 0};
    if (error == 0 && ::fcntl(fd.get(), F_SETFL, 0) == 0 &&
        ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
        ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0) {
      return fd;
    }
    why = std::strerror(error);
  }
  return fail(ErrorCode::Unavailable,
              "nobody answers at " + to.host + ":" + to.port + " (" + why + ")" + kNextStep);
}

// What is known of the other side: the CA's fingerprint before, and why it is not believed.
struct Pinned {
  std::string ca;
  Error why{};
};

std::string encodedDigest(const X509* certificate) {
  unsigned char* bytes = nullptr;
  const int size = ::i2d_X509(certificate, &bytes);
  if (size <= 0) return "";
  const std::string digest =
      sha256Hex({reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)});
  ::OPENSSL_free(bytes);
  return digest;
}

// Trusts one CA alone, which the other side has to bring along. Of OpenSSL's form: 1 for good.
int believe(X509_STORE_CTX* chain, void* argument) {
  auto& pinned = *static_cast<Pinned*>(argument);
  STACK_OF(X509)* brought = ::X509_STORE_CTX_get0_untrusted(chain);
  X509* ca = nullptr;
  for (int i = 0; i < sk_X509_num(brought); ++i) {
    X509* one = sk_X509_value(brought, i);
    if (encodedDigest(one) == pinned.ca) ca = one;
  }
  if (ca == nullptr) {
    pinned.why = fail(ErrorCode::Denied,
                      "what answers there is of another CA than the token's: it is another "
                      "cluster's scheduler, its CA was made anew, or somebody stands between; "
                      "the token was not shown");
    return 0;
  }
  STACK_OF(X509)* trusted = sk_X509_new_null();
  sk_X509_push(trusted, ca);
  ::X509_STORE_CTX_set0_trusted_stack(chain, trusted);
  ::X509_STORE_CTX_set_flags(chain, X509_V_FLAG_PARTIAL_CHAIN);
  const int good = ::X509_verify_cert(chain);
  const int error = ::X509_STORE_CTX_get_error(chain);
  ::X509_STORE_CTX_set0_trusted_stack(chain, nullptr);
  sk_X509_free(trusted);
  if (good == 1) return 1;
  const bool early = error == X509_V_ERR_CERT_NOT_YET_VALID;
  if (early || error == X509_V_ERR_CERT_HAS_EXPIRED) {
    pinned.why = fail(ErrorCode::Conflict,
                      std::string("the scheduler's certificate ") +
                          (early ? "does not hold yet" : "has ended") +
                          " by this machine's clock, " + rfc3339(unixMsNow()) +
                          ": if that is wrong, set it (`timedatectl set-ntp true`), else renew "
                          "the certificate there (`qgpuctl certs renew`)");
  } else {
    pinned.why = fail(ErrorCode::Denied, std::string("the scheduler's certificate is not good: ") +
                                             ::X509_verify_cert_error_string(error));
  }
  return 0;
}

std::string shownBy(const SSL* session) {
  X509* peer = ::SSL_get0_peer_certificate(session);
  BIO* buffer = ::BIO_new(::BIO_s_mem());
  std::string text;
  if (peer != nullptr && ::PEM_write_bio_X509(buffer, peer) == 1) {
    char* data = nullptr;
    const long size = ::BIO_get_mem_data(buffer, &data);
    text.assign(data, static_cast<std::size_t>(size));
  }
  ::BIO_free(buffer);
  return text;
}

// Ends with the other side known.
Status shakeHands(SSL* session, const HostPort& to, Pinned& pinned) {
  in6_addr address{};
  const bool numeric = ::inet_pton(AF_INET, to.host.c_str(), &address) == 1 ||
                       ::inet_pton(AF_INET6, to.host.c_str(), &address) == 1;
  if (!numeric) SSL_set_tlsext_host_name(session, to.host.c_str());
  const int done = ::SSL_connect(session);
  const std::string at = to.host + ":" + to.port;
  if (!pinned.why.message.empty()) return pinned.why;
  if (done != 1) {
    return fail(ErrorCode::Unavailable,
                at + " does not speak TLS as a door for joining does" + kNextStep);
  }
  if (isFor(shownBy(session), to.host)) return ok();
  return fail(ErrorCode::Denied, "the certificate at " + at + " is not for the name \"" + to.host +
                                     "\": name the scheduler as its certificate does, or issue "
                                     "one with --san " +
                                     to.host);
}

Result<std::string> converse(SSL* session, const HostPort& to, const std::string& body) {
  const std::string asked =
      std::string("POST ") + kJoinPath + " HTTP/1.1\r\nHost: " + to.host +
      "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\nConnection: close\r\n\r\n" + body;
  if (::SSL_write(session, asked.data(), static_cast<int>(asked.size())) <= 0) {
    return fail(ErrorCode::Unavailable, to.host + " took no question: try again");
  }
  std::string answer;
  char piece[16'384];
  while (answer.size() < kJoinAnswerMax) {
    const std::size_t head = answer.find("\r\n\r\n");
    // One line of JSON is the whole body.
    if (head != std::string::npos && answer.find('\n', head + 4) != std::string::npos) {
      return answer.substr(head + 4);
    }
    const int got = ::SSL_read(session, piece, sizeof piece);
    if (got <= 0) break;
    answer.append(piece, static_cast<std::size_t>(got));
  }
  return fail(ErrorCode::Unavailable,
              to.host +
                  " gave no whole answer: see whether the token is still open there "
                  "(`qgpuctl token list`), and try again");
}

}  // namespace

Result<std::string> askServer(const std::string& server, const std::string& caFingerprint,
                              const std::string& body) {
  const auto to = splitServer(server);
  if (!to) return to.error();
  ::signal(SIGPIPE, SIG_IGN);  // who hangs up is an error of the write
  const auto fd = connectedTo(*to);
  if (!fd) return fd.error();
  Pinned pinned{caFingerprint};
  const SslContext context(::SSL_CTX_new(::TLS_client_method()));
  if (context != nullptr) ::SSL_CTX_set_cert_verify_callback(context.get(), believe, &pinned);
  const SslSession session(context == nullptr ? nullptr : ::SSL_new(context.get()));
  if (session == nullptr) return fail(ErrorCode::Internal, "OpenSSL gave no session");
  ::SSL_set_verify(session.get(), SSL_VERIFY_PEER, nullptr);
  SSL_set_min_proto_version(session.get(), TLS1_2_VERSION);
  ::SSL_set_fd(session.get(), fd->get());
  if (Status known = shakeHands(session.get(), *to, pinned); !known) {
    ::ERR_clear_error();
    return known.error();
  }
  auto answer = converse(session.get(), *to, body);
  ::SSL_shutdown(session.get());
  ::ERR_clear_error();
  return answer;
}

}  // namespace qgpu::ctl
