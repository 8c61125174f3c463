// Certificates whose files change while a daemon runs.
#include "services/base/net/live_tls.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <kj/async-io.h>

#include "tests/testing/certificates.h"
#include "tests/unit/services/api/actor_client_fixture.h"

namespace qgpu::live_tls_test {
namespace {

using testing::Certificates;
using testing::TempFolder;

namespace fs = std::filesystem;

struct LiveFiles : ::testing::Test {
  LiveFiles() {
    made.makeCa("ca");
    made.make("ca", "first");
    made.make("ca", "second");
    put("first.pem", "first.key");
  }
  ~LiveFiles() noexcept override = default;

  // In place of those in use.
  void put(const std::string& cert, const std::string& key) {
    fs::copy_file(made.path(cert), files.cert, fs::copy_options::overwrite_existing);
    fs::copy_file(made.path(key), files.key, fs::copy_options::overwrite_existing);
  }
  void follow(LiveTls& tls) {
    tls.follow(io.provider->getTimer(),
               {[this](kj::TlsContext& now) { contexts.push_back(&now); },
                [this](const std::string& why) { refusals.push_back(why); }},
               millis(1));
  }
  template <typename Done>
  [[nodiscard]] bool served(Done done) {
    kj::Timer& timer = io.provider->getTimer();
    const kj::TimePoint end = timer.now() + 20 * kj::SECONDS;
    while (!done() && timer.now() < end) timer.afterDelay(kj::MILLISECONDS).wait(io.waitScope);
    return done();
  }

  const TempFolder folder;
  Certificates made{folder / ""};
  const TlsFiles files{folder / "use.pem", folder / "use.key", made.path("ca.pem")};
  kj::AsyncIoContext io = kj::setupAsyncIo();
  std::vector<kj::TlsContext*> contexts;
  std::vector<std::string> refusals;
};

TEST_F(LiveFiles, LaterFilesAreUsed) {
  LiveTls tls(files);
  ASSERT_TRUE(tls.read().ok());
  kj::TlsContext* const first = &tls.now();
  follow(tls);
  put("second.pem", "second.key");
  ASSERT_TRUE(served([&] { return !contexts.empty() && tls.trouble().empty(); }));
  EXPECT_NE(&tls.now(), first);
  EXPECT_EQ(&tls.now(), contexts.back());
}

TEST_F(LiveFiles, BrokenOnesLeaveWhatWasAndAreToldOnce) {
  LiveTls tls(files);
  ASSERT_TRUE(tls.read().ok());
  kj::TlsContext* const first = &tls.now();
  follow(tls);
  put("second.pem", "first.key");
  ASSERT_TRUE(served([&] { return !refusals.empty(); }));
  EXPECT_NE(refusals[0].find("does not belong to"), std::string::npos) << refusals[0];
  EXPECT_NE(tls.metrics().find("qgpu_tls_files_refused 1\n"), std::string::npos);
  fs::resize_file(files.cert, 10);
  ASSERT_TRUE(served([&] { return refusals.size() == 2; }));
  EXPECT_NE(refusals[1].find("it is no certificate"), std::string::npos) << refusals[1];
  EXPECT_EQ(&tls.now(), first);
  put("first.pem", "first.key");
  ASSERT_TRUE(served([&] { return tls.trouble().empty(); }));
  EXPECT_EQ(&tls.now(), first) << "they are those in use";
  EXPECT_TRUE(contexts.empty());
  EXPECT_NE(tls.metrics().find("qgpu_tls_files_refused 0\n"), std::string::npos);
}

TEST_F(LiveFiles, WhoHasNoneYetAgreesWithNobodyAndSaysWhy) {
  fs::remove(files.key);
  LiveTls tls(files);
  EXPECT_EQ(tls.read().error().code, ErrorCode::InvalidArgument);
  EXPECT_FALSE(tls.opened());
  EXPECT_NE(tls.trouble().find("use.key"), std::string::npos) << tls.trouble();
}

}  // namespace
}  // namespace qgpu::live_tls_test
