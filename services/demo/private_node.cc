#include "services/demo/private_node.h"

#include <charconv>
#include <filesystem>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "services/base/terminal.h"
#include "services/demo/workload/clock.h"

namespace qgpu::demo {
namespace {

constexpr std::int64_t kStartNsMax = 30 * kSecond;  // of the manager: it probes OpenCL first
constexpr std::int64_t kStopNsMax = 10 * kSecond;
constexpr std::int64_t kCalibrateNsMax = 60 * kSecond;  // the first kernel is compiled in it
constexpr const char* kScreenInterval = "0.5";          // seconds
constexpr std::int64_t kFinishNsMax = 60 * kSecond;     // of a tenant that holds a small share

std::string lastLines(const std::string& text, std::size_t bytes) {
  return text.size() <= bytes ? text : text.substr(text.size() - bytes);
}

}  // namespace

PrivateNode::PrivateNode(std::string binDir) : binDir_(std::move(binDir)) {}

PrivateNode::~PrivateNode() {
  client_.reset();
  if (manager_ != nullptr) {
    manager_->signal(SIGTERM);
    manager_->wait(kStopNsMax);
    manager_.reset();
  }
  killDescendants();
  std::error_code ignored;
  if (!dir_.empty()) std::filesystem::remove_all(dir_, ignored);
}

Status PrivateNode::open() {
  char path[] = "/tmp/qgpu-demo-XXXXXX";  // short: a socket's path has 107 characters
  if (mkdtemp(path) == nullptr) {
    return fail(ErrorCode::Unavailable,
                "no folder could be made in /tmp: make room or rights there");
  }
  dir_ = path;
  if (Status status = calibrate(); !status) return status;
  return startManager();
}

std::string PrivateNode::outputPath(const std::string& name) {
  return dir_ + "/" + std::to_string(++started_) + "-" + name;
}

Status PrivateNode::calibrate() {
  Child work({binDir_ + "/qgpu-work", "--calibrate"}, outputPath("calibrate"));
  const std::optional<int> status = work.wait(kCalibrateNsMax);
  const std::string text = work.output();
  const std::size_t colon = text.find(':');
  if (status != 0 || colon == std::string::npos) {
    return fail(ErrorCode::Unavailable, "qgpu-work could not measure the device: " + work.errors());
  }
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), loopsPerMs_);
  if (loopsPerMs_ > 0) return ok();
  return fail(ErrorCode::Corrupt, "qgpu-work --calibrate printed '" + text + "'");
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

std::vector<std::string> PrivateNode::workCommand(const TenantSpec& spec) const {
  std::vector<std::string> command = {binDir_ + "/qgpu-work", "--seconds=0", "--control", "--json",
                                      "--loops-per-ms=" + std::to_string(loopsPerMs_)};
  command.insert(command.end(), spec.work.begin(), spec.work.end());
  return command;
}

std::unique_ptr<Child> PrivateNode::start(const TenantSpec& spec) {
  std::vector<std::string> command = {binDir_ + "/qgpuctl",
                                      "--socket",
                                      dir_ + "/manager.sock",
                                      "run",
                                      "--name",
                                      spec.name,
                                      "--class",
                                      className(spec.tenantClass),
                                      "--memory",
                                      "1"};
  if (spec.tenantClass != TenantClass::Online) {
    command.insert(command.end(), {"--core", std::to_string(spec.corePercent)});
  }
  command.emplace_back("--");
  const std::vector<std::string> program = spec.program.empty() ? workCommand(spec) : spec.program;
  command.insert(command.end(), program.begin(), program.end());
  return std::make_unique<Child>(command, outputPath(spec.name));
}

std::unique_ptr<Child> PrivateNode::startBare(const TenantSpec& spec) {
  return std::make_unique<Child>(workCommand(spec), outputPath(spec.name));
}

std::unique_ptr<Child> PrivateNode::screen(const std::string& title) const {
  // In the background, to set the terminal's modes would stop it.
  if (!isTerminal(STDOUT_FILENO) || tcgetpgrp(STDOUT_FILENO) != getpgrp()) return nullptr;
  return std::make_unique<Child>(
      std::vector<std::string>{binDir_ + "/qgpuctl", "--socket", dir_ + "/manager.sock", "top",
                               "--interval", kScreenInterval, "--title", title});
}

Result<WorkReport> finishWork(Child& child, const std::string& name) {
  constexpr std::int64_t kLookNs = kSecond / 10;
  child.say("end");
  const std::int64_t until = monotonicNs() + kFinishNsMax;
  std::optional<int> status;
  while (!status && monotonicNs() < until && !interrupted()) status = child.wait(kLookNs);
  const std::string errors = lastLines(child.errors(), 1000);
  if (!status) {
    return fail(ErrorCode::Unavailable, "tenant " + name + " does not end: " + errors);
  }
  Result<WorkReport> report = parseWorkReport(child.output());
  if (!report) {
    return fail(ErrorCode::Unavailable, "tenant " + name + " ended with " +
                                            std::to_string(*status) + " and no report: " + errors);
  }
  return report;
}

}  // namespace qgpu::demo
