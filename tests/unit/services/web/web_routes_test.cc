// The door for browsers: who is let in, what is asked and answered, and what a page may do.
#include "services/web/web_routes.h"

#include <gtest/gtest.h>
#include <memory>

#include "services/api/admin/node_handler.h"
#include "services/api/commands/schema_names.h"
#include "services/web/page_files.h"
#include "tests/unit/services/api/actor_client_fixture.h"

namespace qgpu::web_routes_test {
namespace {

using testing::ApiFixture;
using testing::TempFolder;

constexpr const char* kHere = "Host: 127.0.0.1:12348\r\n";
constexpr const char* kToken = "0123456789abcdef-secret";

struct NoHousekeeping final : Housekeeping {
  void snapshot(std::function<void(Status)> done) override { done(ok()); }
  Status setLogLevel(const std::string&) override { return ok(); }
};

struct WebRoutes : ApiFixture {
  ~WebRoutes() noexcept override = default;

  void start(WebAccess access = {}, HttpLimits limits = {}) {
    auto listener = TcpListener::open("127.0.0.1:0", "--web");
    ASSERT_TRUE(listener.ok());
    server =
        std::make_unique<HttpServer>(webRoutes(handler, Side::Node, std::move(access)), limits,
                                     *io.lowLevelProvider, bridge.timer(), std::move(*listener));
  }
  std::string exchange(const std::string& bytes) {
    auto stream = io.provider->getNetwork()
                      .parseAddress(ptr(server->address()))
                      .wait(io.waitScope)
                      ->connect()
                      .wait(io.waitScope);
    std::string answer;
    stream->write(bytes.data(), bytes.size())
        .then([&] {
          stream->shutdownWrite();
          return stream->readAllText();
        })
        .then([&](kj::String text) { answer = std::string(view(text)); }, [](kj::Exception&&) {})
        .wait(io.waitScope);
    return answer;
  }
  // What GET answers to these headers, each with its line end.
  std::string get(const std::string& path, const std::string& headers = kHere) {
    return exchange("GET " + path + " HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n");
  }
  static int statusOf(const std::string& answer) {
    return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
  }
  static std::string bodyOf(const std::string& answer) {
    const std::size_t end = answer.find("\r\n\r\n");
    return end == std::string::npos ? "" : answer.substr(end + 4);
  }
  static bool has(const std::string& answer, const std::string& part) {
    return answer.find(part) != std::string::npos;
  }

  NoHousekeeping house;
  NodeHandler handler{actor, house, "here", {}};
  std::unique_ptr<HttpServer> server;
};

TEST_F(WebRoutes, ServesEachFileWithItsTypeAndAPolicyThatLetsNothingElseIn) {
  start();
  for (const PageFile& file : pageFiles()) {
    const std::string answer = get(std::string(file.path));
    EXPECT_EQ(statusOf(answer), 200) << file.path;
    EXPECT_EQ(bodyOf(answer), file.text) << file.path;
    EXPECT_TRUE(has(answer, std::string("Content-Type: ") + file.type)) << answer;
    EXPECT_TRUE(has(answer, "Content-Security-Policy: default-src 'none';")) << answer;
    EXPECT_FALSE(has(answer, "unsafe-inline")) << answer;
    EXPECT_TRUE(has(answer, "X-Content-Type-Options: nosniff")) << answer;
    EXPECT_TRUE(has(answer, "frame-ancestors 'none'")) << answer;
  }
  EXPECT_TRUE(has(get("/"), "<!doctype html>"));
}

TEST_F(WebRoutes, AnswersAsTheAdminSocketDoes) {
  start();
  for (const char* command : {"status", "cards", "tasks", "events", "help"}) {
    const std::string answer = get(std::string("/api/") + command);
    std::string wanted;
    const Peer nobody;
    handler.answer(nobody, command)
        .then([&](AdminAnswer a) { wanted = a.document; })
        .wait(io.waitScope);
    EXPECT_EQ(bodyOf(answer), wanted + "\n") << command;
    EXPECT_TRUE(has(answer, "Content-Type: application/json")) << answer;
    EXPECT_TRUE(has(answer, "Cache-Control: no-store")) << answer;
  }
  EXPECT_TRUE(has(bodyOf(get("/api/trace?sim-0%2017")), "\"card\":\"sim-0\""));
  EXPECT_EQ(node.asked.back().text, "sim-0");
  EXPECT_EQ(node.asked.back().number, 17U);
}

TEST_F(WebRoutes, C7_WhoeverAsksMayOnlyRead) {
  start();
  for (const CommandRow& row : commandRows()) {
    const bool told = row.on(Side::Node) && row.right == Right::Read && row.name != "watch";
    const std::size_t before = node.asked.size();
    EXPECT_EQ(statusOf(get("/api/" + std::string(row.name) + "?0")), told ? 200 : 404) << row.name;
    for (std::size_t i = before; i < node.asked.size(); ++i) {
      EXPECT_FALSE(node.asked[i].mayChange) << row.name;
      EXPECT_EQ(node.asked[i].uid, 65534U) << row.name;
    }
  }
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    const std::string answer = exchange(std::string(method) +
                                        " /api/status HTTP/1.1\r\nConnection: close\r\n"
                                        "Content-Length: 0\r\n" +
                                        kHere + "\r\n");
    EXPECT_EQ(statusOf(answer), 405) << method;
    EXPECT_FALSE(has(answer, "Access-Control")) << answer;
  }
}

TEST_F(WebRoutes, C7_WhatIsNoQuestionIsToldAndNotAsked) {
  start();
  const std::string tooLong(9'000, 'x');
  for (const std::string query : {"%", "%4", "%4g", tooLong.c_str()}) {
    const std::string answer = get("/api/trace?" + query);
    EXPECT_EQ(statusOf(answer), 400) << query;
    EXPECT_TRUE(has(bodyOf(answer), "\"code\":\"invalid-argument\"")) << answer;
  }
  EXPECT_EQ(statusOf(get("/api/trace?" + std::string(200'000, 'x'))), 0) << "closed";
  // A second line is no second command.
  EXPECT_TRUE(has(bodyOf(get("/api/status?%0Aevict%207")), "\"ok\":false"));
  EXPECT_TRUE(has(bodyOf(get("/api/trace?%FF")), "\"ok\":false"));
  EXPECT_TRUE(has(bodyOf(get("/api/trace")), "usage: trace CARD [SINCE]"));
  EXPECT_TRUE(node.asked.empty());
  for (const char* path : {"/api", "/api/", "/../etc/passwd", "/page.js/", "/API/status"}) {
    EXPECT_EQ(statusOf(get(path)), 404) << path;
  }
}

TEST_F(WebRoutes, ANameThatIsNotLoopbacksIsRefusedWhereNothingElseIsAskedFor) {
  start();
  for (const char* host : {"127.0.0.1", "127.0.0.1:9", "127.9.8.7:1", "localhost", "localhost:80",
                           "[::1]", "[::1]:12348"}) {
    EXPECT_EQ(statusOf(get("/api/status", std::string("Host: ") + host + "\r\n")), 200) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:12348", "127.0.0.1.evil.example", "localhost.evil.example",
        "10.0.0.1", "[::2]", "[::1", "[::1].evil", "", "localhost, evil.example"}) {
    for (const char* path : {"/api/status", "/"}) {
      const std::string answer = get(path, std::string("Host: ") + host + "\r\n");
      EXPECT_EQ(statusOf(answer), 403) << host << path;
      EXPECT_FALSE(has(answer, "\"node\"")) << answer;
    }
  }
  EXPECT_EQ(statusOf(get("/api/status", "")), 403) << "no Host at all";
  EXPECT_EQ(statusOf(get("/api/status", "Host: 127.0.0.1\r\nHost: evil.example\r\n")), 403);
}

TEST_F(WebRoutes, APageOfAnotherSiteGetsNothing) {
  start();
  const auto with = [&](const std::string& header, const char* path = "/api/status") {
    return statusOf(get(path, kHere + header + "\r\n"));
  };
  EXPECT_EQ(with("Origin: http://127.0.0.1:12348"), 200);
  EXPECT_EQ(with("Sec-Fetch-Site: same-origin"), 200);
  EXPECT_EQ(with("Sec-Fetch-Site: none"), 200) << "typed by its user";
  for (const char* other : {"http://evil.example", "http://127.0.0.1:3000", "http://127.0.0.1",
                            "null", "https://127.0.0.1:12348.evil.example"}) {
    EXPECT_EQ(with(std::string("Origin: ") + other), 403) << other;
  }
  for (const char* site : {"cross-site", "same-site", "anything"}) {
    EXPECT_EQ(with(std::string("Sec-Fetch-Site: ") + site), 403) << site;
    EXPECT_EQ(with(std::string("Sec-Fetch-Site: ") + site, "/"), 200) << "a link to the page";
  }
  EXPECT_TRUE(node.asked.size() == 3U);
}

TEST_F(WebRoutes, WithATokenItIsAskedForAndAnyNameWillDo) {
  start({kToken, false});
  const auto with = [&](const std::string& said) {
    return get("/api/status", "Host: gpu.example\r\nAuthorization: " + said + "\r\n");
  };
  const std::string refused = get("/api/status", "Host: gpu.example\r\n");
  EXPECT_EQ(statusOf(refused), 401);
  EXPECT_TRUE(has(refused, "WWW-Authenticate: Bearer")) << refused;
  EXPECT_TRUE(has(bodyOf(refused), "\"code\":\"denied\"")) << refused;
  const std::string right = kToken;
  const std::string kWrong[] = {right,
                                "Bearer",
                                "Bearer ",
                                "Bearer x" + right.substr(1),
                                "Bearer " + right + "x",
                                "Bearer " + right.substr(1),
                                "Basic " + right,
                                "bearer " + right};
  for (const std::string& said : kWrong) {
    EXPECT_EQ(statusOf(with(said)), 401) << said;
  }
  EXPECT_TRUE(node.asked.empty());
  EXPECT_EQ(statusOf(with("Bearer " + right)), 200);
  EXPECT_EQ(statusOf(get("/", "Host: gpu.example\r\n")), 200) << "the page, which asks for it";
}

TEST_F(WebRoutes, WithCertificatesAnyNameWillDo) {
  start({"", true});
  EXPECT_EQ(statusOf(get("/api/status", "Host: gpu.example\r\n")), 200);
}

TEST(WebOptions, NoAddressMeansNoDoor) {
  const auto opened = openWeb({});
  ASSERT_TRUE(opened.ok());
  EXPECT_FALSE(opened->has_value());
}

TEST(WebOptions, BeyondLoopbackOnlyWithATokenOrCertificates) {
  const TempFolder folder;
  const auto refused = openWeb({"0.0.0.0:0", "", false});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Denied);
  EXPECT_NE(refused.error().message.find("--web-token=FILE, or --web-tls"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(openWeb({"127.0.0.1:0", "", false}).ok());
  EXPECT_TRUE(openWeb({"0.0.0.0:0", "", true}).ok());
  const auto opened =
      openWeb({"0.0.0.0:0", folder.write("token", std::string(kToken) + "\n", 0640), false});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->access.token, kToken);
}

TEST(WebOptions, ATokenIsASecretThatNobodyGuesses) {
  const TempFolder folder;
  const auto why = [](const std::string& file) {
    const auto opened = openWeb({"127.0.0.1:0", file, false});
    return opened.ok() ? std::string("fine") : opened.error().message;
  };
  const auto tells = [&](const std::string& file, const std::string& part) {
    EXPECT_NE(why(file).find(part), std::string::npos) << file << ": " << why(file);
  };
  tells(folder / "none", "can't be read");
  tells(folder.write("short", "0123456789abcde", 0600), "openssl rand -hex 16");
  tells(folder.write("empty", "", 0600), "no token");
  tells(folder.write("long", std::string(257, 'x'), 0600), "16 to 256");
  tells(folder.write("odd", "0123456789 abcdef", 0600), "no token");
  tells(folder.write("open", kToken, 0644), "chmod o= ");
  EXPECT_EQ(why(folder.write("good", kToken, 0600)), "fine");
}

}  // namespace
}  // namespace qgpu::web_routes_test
