// qgpu-scheduler with --webhook, as it runs in a cluster.

#include <signal.h>

#include "tests/unit/services/kubernetes/webhook/webhook_fixture.h"

namespace qgpu::webhook_program_test {
namespace {

using testing::Child;
using testing::kBrokenPod;

struct WebhookProgram : testing::WebhookFixture {
  std::vector<std::string> scheduler(const std::string& kubeconfig) const {
    return {"/usr/bin/env",
            "-u",
            "KUBERNETES_SERVICE_HOST",
            "KUBECONFIG=" + kubeconfig,
            QGPU_SCHEDULER,
            "--http=127.0.0.1:0",
            "--rpc=127.0.0.1:0",
            "--webhook=127.0.0.1:0",
            "--run-dir=" + folder / "run",
            "--dbfile=" + folder / "scheduler.db"};
  }
};

TEST_F(WebhookProgram, ServesTheWebhookThatItPublishes) {
  Child program(scheduler(kubeconfig()));
  const std::string line = "webhook-certificate address=127.0.0.1:";
  ASSERT_TRUE(served([&]() {
    return program.output().find(line) != std::string::npos || !program.alive();
  })) << program.output();
  const std::string output = program.output();
  ASSERT_NE(output.find(line), std::string::npos) << output;
  const std::size_t from = output.find(line) + line.size();
  programPort = output.substr(from, output.find(' ', from) - from);
  const std::string said = post(bundle(), kBrokenPod);
  EXPECT_NE(said.find(R"("allowed":false)"), std::string::npos) << said;
  ::kill(program.pid(), SIGTERM);
  ASSERT_TRUE(served([&]() { return !program.alive(); }));
  EXPECT_EQ(program.status(), 0) << program.output();
}

TEST_F(WebhookProgram, DoesNotStartWhereNothingSaysWhereTheApiServerIs) {
  Child program(scheduler(""));
  ASSERT_TRUE(served([&]() { return !program.alive(); }));
  EXPECT_EQ(program.status(), 2) << program.output();
  EXPECT_NE(program.output().find("KUBECONFIG"), std::string::npos) << program.output();
  EXPECT_FALSE(std::filesystem::exists(folder / "scheduler.db"));
}

}  // namespace
}  // namespace qgpu::webhook_program_test
