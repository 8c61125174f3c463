#include "services/web/web_routes.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <fstream>
#include <functional>
#include <kj/encoding.h>
#include <sys/stat.h>

#include "services/api/commands/command_line.h"
#include "services/api/commands/render.h"
#include "services/web/page_files.h"

namespace qgpu {
namespace {

constexpr std::size_t kTokenMin = 16;  // of hexadecimal digits: 64 bits, which nobody guesses
constexpr std::size_t kTokenMax = 256;
constexpr std::size_t kQuestionMax = 8 * 1024;  // bytes of what stands behind a command's name
constexpr std::uint32_t kNobody = 65534;
constexpr const char* kJson = "application/json";
constexpr const char* kPlain = "text/plain; charset=utf-8";

// Scripts, styles and answers come from here or not at all, nothing leaves, nobody frames it.
const std::vector<std::pair<std::string, std::string>>& kept() {
  static const std::vector<std::pair<std::string, std::string>> headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
       "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cache-Control", "no-store"}};
  return headers;
}

HttpPage page(kj::uint status, const char* type, std::string text) {
  return {status, type, std::move(text), kept()};
}

// Without its port: "localhost", "127.0.0.1", "[::1]".
std::string_view nameIn(std::string_view host) {
  const std::size_t from = host.starts_with('[') ? host.find(']') : 0;
  return from == std::string_view::npos ? host : host.substr(0, host.find(':', from));
}

// A name that no DNS server can point here.
bool isLoopback(std::string_view host) {
  const std::string name(nameIn(host));
  in_addr v4{};
  if (::inet_pton(AF_INET, name.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24U) == 127;
  return name == "localhost" || name == "[::1]";
}

// In a time that does not tell how much of it was right.
bool isSecret(std::string_view said, std::string_view secret) {
  if (said.size() != secret.size()) return false;
  unsigned wrongBits = 0;
  for (std::size_t i = 0; i < said.size(); ++i) {
    wrongBits |= static_cast<unsigned>(static_cast<unsigned char>(said[i] ^ secret[i]));
  }
  return wrongBits == 0;
}

// Why a request may not be served, whatever it asks for.
std::optional<HttpPage> refuseStranger(const HttpAsked& asked, const WebAccess& access) {
  if (access.token.empty() && !access.certificates && !isLoopback(asked.host)) {
    return page(403, kPlain,
                quoted(asked.host) +
                    " is no name of this door: it answers to localhost, 127.0.0.1 "
                    "and [::1], and to others with --web-token or --web-tls\n");
  }
  const bool same = asked.origin.empty() || asked.origin == "http://" + asked.host ||
                    asked.origin == "https://" + asked.host;
  if (!same) return page(403, kPlain, "a page of " + quoted(asked.origin) + " may not ask here\n");
  return std::nullopt;
}

// Why an answer of the daemon may not be told.
std::optional<HttpPage> refuseReader(const HttpAsked& asked, const WebAccess& access) {
  if (!asked.fetchSite.empty() && asked.fetchSite != "same-origin" && asked.fetchSite != "none") {
    return page(403, kPlain, "a page of another site may not ask here\n");
  }
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view said = asked.authorization;
  if (access.token.empty() ||
      (said.starts_with(kScheme) && isSecret(said.substr(kScheme.size()), access.token))) {
    return std::nullopt;
  }
  HttpPage refused = page(401, kJson,
                          renderError(fail(ErrorCode::Denied,
                                           "this door asks for the token that "
                                           "--web-token names")) +
                              "\n");
  refused.headers.emplace_back("WWW-Authenticate", "Bearer");
  return refused;
}

// What a URL's query stands for.
Result<std::string> decode(std::string_view query) {
  if (query.size() > kQuestionMax) {
    return wrong("a question has at most " + std::to_string(kQuestionMax) + " bytes");
  }
  const auto text = kj::decodeUriComponent(kj::arrayPtr(query.data(), query.size()));
  if (text.hadErrors) return wrong("behind % stand two hexadecimal digits, as in %20");
  return std::string(text.cStr(), text.size());
}

HttpRoute fileRoute(const PageFile& file, const WebAccess& access) {
  return HttpRoute::query(std::string(file.path),
                          [&file, access](const HttpAsked& asked) -> kj::Promise<HttpPage> {
                            if (auto refused = refuseStranger(asked, access)) return *refused;
                            return page(200, file.type, std::string(file.text));
                          });
}

HttpRoute commandRoute(const CommandRow& row, AdminHandler& handler, const WebAccess& access) {
  const auto answer = [&row, &handler, access](const HttpAsked& asked) -> kj::Promise<HttpPage> {
    if (auto refused = refuseStranger(asked, access)) return *refused;
    if (auto refused = refuseReader(asked, access)) return *refused;
    const Result<std::string> question = decode(asked.query);
    if (!question) return page(400, kJson, renderError(question.error()) + "\n");
    auto reader = kj::heap<Peer>(Peer{kNobody, 0, false, "web"});
    return handler.answer(*reader, std::string(row.name) + " " + *question)
        .then([](AdminAnswer got) { return page(200, kJson, std::move(got.document) + "\n"); })
        .attach(kj::mv(reader));
  };
  return HttpRoute::query("/api/" + std::string(row.name), answer);
}

// A text that nobody else of the machine reads, and that a header can carry.
Result<std::string> readToken(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::InvalidArgument, "--web-token=" + path + ": " + why);
  };
  struct stat info {};
  std::ifstream file(path);
  if (!file || ::stat(path.c_str(), &info) != 0) return refuse("can't be read");
  if ((info.st_mode & S_IRWXO) != 0) {
    return refuse("every user of this machine may read it: chmod o= " + path);
  }
  std::string token;
  std::getline(file, token);
  const bool plain = std::all_of(token.begin(), token.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
  if (!plain || token.size() < kTokenMin || token.size() > kTokenMax) {
    return refuse("its first line is no token: " + std::to_string(kTokenMin) + " to " +
                  std::to_string(kTokenMax) +
                  " letters, digits, '-', '_' and '.'; make one with: openssl rand -hex 16");
  }
  return token;
}

}  // namespace

Result<std::optional<WebOpened>> openWeb(const WebOptions& options) {
  if (options.address.empty()) return std::optional<WebOpened>();
  WebAccess access;
  access.certificates = options.tls;
  if (!options.tokenFile.empty()) {
    Result<std::string> token = readToken(options.tokenFile);
    if (!token) return token.error();
    access.token = std::move(*token);
  }
  const bool asks = access.certificates || !access.token.empty();
  auto listener =
      TcpListener::open(options.address, "--web", asks ? Reach::Anywhere : Reach::Loopback);
  if (!listener) {
    Error error = listener.error();
    if (error.code == ErrorCode::Denied) {
      error.message +=
          "; or give --web-token=FILE, or --web-tls with --tls-cert, --tls-key and "
          "--tls-ca";
    }
    return error;
  }
  return std::optional(WebOpened{std::move(*listener), std::move(access)});
}

std::vector<HttpRoute> webRoutes(AdminHandler& handler, Side side, WebAccess access) {
  std::vector<HttpRoute> routes;
  for (const PageFile& file : pageFiles()) routes.push_back(fileRoute(file, access));
  for (const CommandRow& row : commandRows()) {
    // A watch has no end, and a browser asks `events` again as well.
    if (!row.on(side) || row.right != Right::Read || row.does == Does::Watch) continue;
    routes.push_back(commandRoute(row, handler, access));
  }
  return routes;
}

}  // namespace qgpu
