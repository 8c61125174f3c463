// The extender as a kube-scheduler of another machine reaches it.
#include "services/daemons/extender_server.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <memory>

#include "services/api/commands/schema_names.h"
#include "tests/testing/certificates.h"
#include "tests/unit/services/api/actor_client_fixture.h"

namespace qgpu::extender_server_test {
namespace {

using testing::Certificates;
using testing::TempFolder;

namespace fs = std::filesystem;

struct OuterExtender : ::testing::Test {
  OuterExtender() {
    for (const char* ca : {"ca", "later", "foreign"}) made.makeCa(ca);
    serve("ca");
    auto listener = TcpListener::open("127.0.0.1:0", "--extender", Reach::Anywhere);
    const HttpRoute route = HttpRoute::post("/scheduler/filter", 100, [](std::string body) {
      return kj::Promise<HttpPage>(HttpPage{200, "text/plain", std::move(body)});
    });
    server = std::make_unique<ExtenderServer>(std::vector{route}, HttpLimits{}, certificates,
                                              *io.lowLevelProvider, io.provider->getTimer(),
                                              std::move(*listener), log, millis(2));
  }
  ~OuterExtender() noexcept override = default;

  // The server's three files, signed by `ca`, are ready to be put there.
  void serve(const std::string& ca) {
    fs::create_directories(prepared);
    const TlsFiles files = made.make(ca, "127.0.0.1");
    fs::copy_file(files.cert, prepared + "/tls.crt", fs::copy_options::overwrite_existing);
    fs::copy_file(files.key, prepared + "/tls.key", fs::copy_options::overwrite_existing);
    fs::copy_file(files.ca, prepared + "/ca.crt", fs::copy_options::overwrite_existing);
  }
  void install() {
    fs::remove_all(certificates);
    fs::rename(prepared, certificates);
  }
  // What a client with this certificate is answered; empty: nothing.
  std::string ask(const std::string& ca, const std::string& trusted) {
    TlsFiles files = made.make(ca, "kube-scheduler");
    files.ca = made.path(trusted + ".pem");
    auto context = openTls(files);
    std::string answer;
    const std::string request =
        "POST /scheduler/filter HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nyes";
    auto asked =
        io.provider->getNetwork()
            .parseAddress(ptr(server->address()))
            .then([&](kj::Own<kj::NetworkAddress> to) { return to->connect().attach(kj::mv(to)); })
            .then([&](kj::Own<kj::AsyncIoStream> stream) {
              return (*context)->wrapClient(kj::mv(stream), "127.0.0.1");
            })
            .then([&](kj::Own<kj::AsyncIoStream> stream) {
              auto& ref = *stream;
              return ref.write(request.data(), request.size())
                  .then([&ref] {
                    ref.shutdownWrite();
                    return ref.readAllText();
                  })
                  .attach(kj::mv(stream));
            });
    asked.then([&](kj::String text) { answer = view(text); }, [](kj::Exception&&) {})
        .wait(io.waitScope);
    return answer;
  }
  bool isAnswered(const std::string& ca, const std::string& trusted) {
    const kj::Timer& timer = io.provider->getTimer();
    const kj::TimePoint end = timer.now() + 20 * kj::SECONDS;
    while (timer.now() < end) {
      if (ask(ca, trusted).ends_with("\r\n\r\nyes")) return true;
    }
    return false;
  }

  const TempFolder folder;
  Certificates made{folder / ""};
  const std::string prepared = folder / "prepared";
  const std::string certificates = folder / "extender";
  std::vector<std::string> lines;
  Log log{LogLevel::Info, [this](LogLevel, const auto& line) { lines.push_back(line); }};
  kj::AsyncIoContext io = kj::setupAsyncIo();
  std::unique_ptr<ExtenderServer> server;
};

TEST_F(OuterExtender, AnswersNobodyUntilItsCertificatesAreThere) {
  EXPECT_EQ(ask("ca", "ca"), "");
  EXPECT_FALSE(server->opened());
  install();
  EXPECT_TRUE(isAnswered("ca", "ca"));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[0].find("extender-closed"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("extender-open"), std::string::npos) << lines[1];
}

TEST_F(OuterExtender, AnswersOnlyWhoHasACertificateOfItsCa) {
  install();
  ASSERT_TRUE(isAnswered("ca", "ca"));
  EXPECT_EQ(ask("foreign", "ca"), "");
}

TEST_F(OuterExtender, TakesOtherCertificatesWhileItServes) {
  install();
  ASSERT_TRUE(isAnswered("ca", "ca"));
  serve("later");
  install();
  EXPECT_TRUE(isAnswered("later", "later"));
  EXPECT_EQ(ask("ca", "later"), "");
}

}  // namespace
}  // namespace qgpu::extender_server_test
