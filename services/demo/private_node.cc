#include "services/demo/private_node.h"

#include <signal.h>

#include "services/demo/workload/clock.h"

namespace qgpu::demo {
namespace {

constexpr std::int64_t kStartNsMax = 30 * kSecond;  // of the manager: it probes OpenCL first
constexpr std::int64_t kStopNsMax = 10 * kSecond;

}  // namespace

PrivateNode::~PrivateNode() {
  client_.reset();
  if (manager_ != nullptr) {
    manager_->signal(SIGTERM);
    manager_->wait(kStopNsMax);
    manager_.reset();
  }
  killDescendants();
}

Status PrivateNode::open() {
  if (Status made = folder_.made(); !made) return made;
  dir_ = folder_.path();
  if (Status status = calibrate(); !status) return status;
  return startManager();
}

Status PrivateNode::startManager() {
  manager_ = std::make_unique<Child>(
      std::vector<std::string>{binDir_ + "/qgpu-manager", "--cards=opencl", "--mixed",
                               "--max-tasks-per-card=8", "--run-dir=" + dir_,
                               "--dbfile=" + dir_ + "/meta.db", "--http=127.0.0.1:0"},
      outputPath("manager"));
  client_ = std::make_unique<NodeClient>(dir_ + "/manager.sock");
  const std::int64_t until = monotonicNs() + kStartNsMax;
  for (;;) {
    const Result<CardCounters> card = client_->firstCard();
    if (card) return ok();
    if (!manager_->running()) {
      return fail(ErrorCode::Unavailable, "qgpu-manager ended at its start: " + managerLog());
    }
    if (monotonicNs() > until || !pauseFor(kSecond / 50)) {
      return fail(ErrorCode::Unavailable, card.error().message + ": " + managerLog());
    }
  }
}

std::string PrivateNode::managerLog() const {
  constexpr std::size_t kShown = 2000;
  if (manager_ == nullptr) return {};
  return lastLines(manager_->output() + manager_->errors(), kShown);
}

}  // namespace qgpu::demo
