// The HTTP server alone: bodies and their limits, TLS, and clients that do not end what they begin.
#include "services/base/net/http_server.h"

#include <gtest/gtest.h>
#include <memory>

#include "services/api/commands/schema_names.h"
#include "services/base/net/tls.h"
#include "tests/testing/certificates.h"
#include "tests/unit/services/api/actor_client_fixture.h"

namespace qgpu::http_server_test {
namespace {

using testing::Certificates;
using testing::TempFolder;

struct Http : ::testing::Test {
  Http() {
    limits.bodiesMax = 1000;
    limits.requestDeadline = millis(200);
    routes.push_back(HttpRoute::get("/read", [] { return page("read"); }));
    routes.push_back(HttpRoute::post("/take", 100, [](std::string body) { return page(body); }));
    routes.push_back(HttpRoute::post(
        "/kind", 100, [](std::string body) { return page(body); },
        [](const Error& error) {
          return HttpPage{200, "text/plain", errorName(error.code)};
        }));
    routes.push_back(HttpRoute::post("/large", 5000, [](std::string body) { return page(body); }));
    routes.push_back(HttpRoute::get("/held", [this] {
      auto held = kj::newPromiseAndFulfiller<HttpPage>();
      answers.push_back(kj::mv(held.fulfiller));
      return kj::mv(held.promise);
    }));
  }

  ~Http() noexcept override = default;

  static kj::Promise<HttpPage> page(std::string text) {
    return HttpPage{200, "text/plain", std::move(text)};
  }
  void start(kj::Maybe<kj::TlsContext&> tls = nullptr) {
    auto listener = TcpListener::open("127.0.0.1:0", "--http");
    ASSERT_TRUE(listener.ok());
    server = std::make_unique<HttpServer>(routes, limits, *io.lowLevelProvider,
                                          io.provider->getTimer(), std::move(*listener), tls);
  }
  kj::Own<kj::AsyncIoStream> connect() {
    return io.provider->getNetwork()
        .parseAddress(ptr(server->address()))
        .wait(io.waitScope)
        ->connect()
        .wait(io.waitScope);
  }
  std::string talk(kj::AsyncIoStream& stream, const std::string& bytes) {
    std::string answer;
    stream.write(bytes.data(), bytes.size())
        .then([&] {
          stream.shutdownWrite();
          return stream.readAllText();
        })
        .then([&](kj::String text) { answer = std::string(view(text)); }, [](kj::Exception&&) {})
        .wait(io.waitScope);
    return answer;
  }
  std::string exchange(const std::string& bytes) { return talk(*connect(), bytes); }
  std::string read() { return exchange("GET /read HTTP/1.1\r\nConnection: close\r\n\r\n"); }
  template <typename Done>
  void waitUntil(Done done) {
    while (!done()) io.provider->getTimer().afterDelay(kj::MILLISECONDS).wait(io.waitScope);
  }
  // A connection that has a place, and has said `bytes`.
  kj::Own<kj::AsyncIoStream> placed(const std::string& bytes = "") {
    const std::size_t before = server->connections();
    auto stream = connect();
    stream->write(bytes.data(), bytes.size()).wait(io.waitScope);
    waitUntil([&] { return server->connections() > before; });
    return stream;
  }
  bool isClosed(kj::AsyncIoStream& stream) {
    return stream.readAllText()
        .then([](kj::String text) { return text.size() == 0; },
              [](kj::Exception&&) { return true; })
        .wait(io.waitScope);
  }
  static std::string post(const std::string& path, const std::string& body) {
    return "POST " + path +
           " HTTP/1.1\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
  }

  kj::AsyncIoContext io = kj::setupAsyncIo();
  HttpLimits limits;
  std::vector<HttpRoute> routes;
  std::vector<kj::Own<kj::PromiseFulfiller<HttpPage>>> answers;  // of /held
  std::unique_ptr<HttpServer> server;
};

TEST_F(Http, TakesBodiesWhoseLengthIsToldOrNot) {
  start();
  EXPECT_TRUE(exchange(post("/take", "hello")).ends_with("\r\n\r\nhello"));
  EXPECT_TRUE(exchange(post("/take", "")).starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(exchange("POST /take HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
                       "\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
                  .ends_with("\r\n\r\nabcde"));
  EXPECT_EQ(server->bodyBytes(), 0U);
}

TEST_F(Http, APathWithAWordIsThereForThoseWhoKnowIt) {
  routes.push_back(HttpRoute::postBelow(
      "/below/", [](std::string_view word) { return word == "sesame"; }, 100,
      [](std::string body) { return page(body); }));
  start();
  EXPECT_TRUE(exchange(post("/below/sesame", "hello")).ends_with("\r\n\r\nhello"));
  for (const char* other : {"/below/", "/below", "/below/sesam", "/below/sesame/", "/sesame"}) {
    const std::string said = exchange(post(other, "hello"));
    EXPECT_TRUE(said.starts_with("HTTP/1.1 404")) << said;
    EXPECT_EQ(said.find("sesame"), std::string::npos) << said;
  }
}

TEST_F(Http, C7_ABodyThatIsTooLargeIsRefusedHoweverItComes) {
  start();
  EXPECT_TRUE(exchange(post("/take", std::string(100, 'x'))).starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(exchange(post("/take", std::string(101, 'x'))).starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(exchange("POST /take HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
                       "\r\n65\r\n" +
                       std::string(101, 'x') + "\r\n0\r\n\r\n")
                  .starts_with("HTTP/1.1 413"));
  const std::string kind = exchange(post("/kind", std::string(101, 'x')));
  EXPECT_TRUE(kind.starts_with("HTTP/1.1 200")) << kind;
  EXPECT_TRUE(kind.ends_with("invalid-argument")) << kind;
}

TEST_F(Http, C7_BodiesUnderWayShareOneLimit) {
  start();
  auto slow = connect();
  const std::string begin = post("/large", std::string(950, 'x')).substr(0, 120);
  slow->write(begin.data(), begin.size()).wait(io.waitScope);
  waitUntil([&] { return server->bodyBytes() > 0; });
  EXPECT_TRUE(exchange(post("/kind", std::string(90, 'x'))).ends_with("overloaded"));
  EXPECT_TRUE(exchange(post("/take", std::string(50, 'x'))).starts_with("HTTP/1.1 200"));
  // Its time is over, and its room is free again.
  EXPECT_EQ(std::string(view(slow->readAllText().wait(io.waitScope))), "");
  EXPECT_TRUE(exchange(post("/kind", std::string(90, 'x'))).ends_with("xxx"));
}

TEST_F(Http, C7_WhoHasBeenIdleLongestGivesWayWhereAllPlacesAreTaken) {
  limits.connectionsMax = 3;
  limits.requestDeadline = seconds(600);
  start();
  auto oldest = placed();
  auto begun = placed("GET /re");
  auto last = placed();
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(read().ends_with("read"));
    waitUntil([&] { return server->connections() == 2; });
  }
  EXPECT_TRUE(isClosed(*oldest));
  const std::string rest = "ad HTTP/1.1\r\nConnection: close\r\n\r\n";
  EXPECT_TRUE(talk(*begun, rest).ends_with("read"));
}

TEST_F(Http, C7_WhoWaitsForAnAnswerOfOursKeepsItsPlace) {
  limits.connectionsMax = 2;
  start();
  auto one = placed("GET /held HTTP/1.1\r\nConnection: close\r\n\r\n");
  auto other = placed("GET /held HTTP/1.1\r\nConnection: close\r\n\r\n");
  waitUntil([&] { return answers.size() == 2; });
  EXPECT_EQ(read(), "") << "closed: no place";
  for (auto& answer : answers) answer->fulfill(HttpPage{200, "text/plain", "late"});
  EXPECT_TRUE(talk(*one, "").ends_with("late"));
  EXPECT_TRUE(talk(*other, "").ends_with("late"));
  EXPECT_TRUE(read().ends_with("read"));
}

TEST_F(Http, C7_WhoDoesNotSendItsBodyGivesWayOnceItWasWaitedFor) {
  limits.connectionsMax = 2;
  limits.requestDeadline = seconds(600);
  const std::string begin = post("/take", std::string(90, 'x')).substr(0, 80);
  start();
  auto slow = placed(begin);
  auto other = placed(begin);
  waitUntil([&] { return server->bodyBytes() == 180; });
  EXPECT_EQ(read(), "") << "their time has only begun";
  server.reset();
  limits.patience = Nanos(0);
  start();
  auto slowAgain = placed(begin);
  auto otherAgain = placed(begin);
  waitUntil([&] { return server->bodyBytes() == 180; });
  EXPECT_TRUE(read().ends_with("read"));
  EXPECT_TRUE(isClosed(*slowAgain));
}

TEST_F(Http, MethodsAndPathsAreTold) {
  start();
  EXPECT_TRUE(exchange("GET /read HTTP/1.1\r\nConnection: close\r\n\r\n").ends_with("read"));
  const std::string get = exchange("GET /take HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(get.starts_with("HTTP/1.1 405")) << get;
  EXPECT_NE(get.find("Allow: POST"), std::string::npos) << get;
  const std::string none = exchange(post("/none", ""));
  EXPECT_TRUE(none.starts_with("HTTP/1.1 404")) << none;
  EXPECT_TRUE(none.ends_with("here are /read /take /kind /large /held\n")) << none;
}

TEST_F(Http, SpeaksTlsWhereItHasACertificate) {
  const TempFolder folder;
  Certificates made(folder / "");
  made.makeCa("ca");
  auto context = openTls(made.make("ca", "127.0.0.1"));
  ASSERT_TRUE(context.ok()) << context.error().message;
  start(**context);
  auto stream = (*context)->wrapClient(connect(), "127.0.0.1").wait(io.waitScope);
  EXPECT_TRUE(talk(*stream, post("/take", "sealed")).ends_with("\r\n\r\nsealed"));
  EXPECT_EQ(exchange(post("/take", "plain")).find("HTTP/1.1 200"), std::string::npos);
  server.reset();
}

}  // namespace
}  // namespace qgpu::http_server_test
