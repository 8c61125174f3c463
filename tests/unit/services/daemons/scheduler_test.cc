// qgpu-scheduler as a process: from where it may be reached.

#include <gtest/gtest.h>

#include "tests/e2e/harness.h"
#include "tests/testing/certificates.h"

namespace qgpu::e2e::scheduler_test {
namespace {

// What follows `mark` in a log, up to a blank.
std::string behind(const std::string& log, const std::string& mark) {
  const std::size_t at = log.find(mark);
  if (at == std::string::npos) return "";
  const std::size_t from = at + mark.size();
  return log.substr(from, log.find_first_of(" \n", from) - from);
}

TEST(Scheduler, ServesOtherMachinesByCertificateAndNotWithout) {
  const TempFolder dir;
  const Finished refused =
      run({binary("qgpu-scheduler"), "--http=0.0.0.0:0", "--rpc=127.0.0.1:0",
           "--run-dir=" + dir.path() + "/run", "--dbfile=" + dir.path() + "/scheduler.db"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.output.find("--http-tls"), std::string::npos) << refused.output;

  testing::Certificates made(dir.path());
  made.makeCa("ca");
  const TlsFiles files = made.make("ca", "here");
  Scheduler scheduler({"--http=0.0.0.0:0", "--http-tls", "--metrics=0.0.0.0:0",
                       "--tls-cert=" + files.cert, "--tls-key=" + files.key,
                       "--tls-ca=" + files.ca});
  const std::string secured = behind(scheduler.log(), " http=0.0.0.0:");
  const Finished page = run({"curl", "-sSk", "-m", "10", "--cert", files.cert, "--key", files.key,
                             "https://127.0.0.1:" + secured + "/metrics"});
  EXPECT_NE(page.output.find("qgpu_cluster_info"), std::string::npos) << page.output;
  const std::string open = behind(scheduler.log(), "metrics-open address=0.0.0.0:");
  EXPECT_NE(run({"curl", "-sS", "http://127.0.0.1:" + open + "/metrics"})
                .output.find("qgpu_cluster_info"),
            std::string::npos);
  EXPECT_NE(run({"curl", "-sS", "http://127.0.0.1:" + open + "/readyz"}).output.find("/metrics"),
            std::string::npos)
      << "which pages there are";
  EXPECT_EQ(scheduler.stop(), 0) << scheduler.log();
}

}  // namespace
}  // namespace qgpu::e2e::scheduler_test
