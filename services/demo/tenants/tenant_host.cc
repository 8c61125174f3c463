#include "services/demo/tenants/tenant_host.h"

#include <charconv>
#include <functional>
#include <unistd.h>

#include "services/base/terminal.h"
#include "services/demo/workload/clock.h"

namespace qgpu::demo {
namespace {

constexpr std::int64_t kAskNsMax = 60 * kSecond;     // the first kernel is compiled in it
constexpr std::int64_t kFinishNsMax = 60 * kSecond;  // of a tenant that holds a small share
constexpr const char* kScreenInterval = "0.5";       // seconds

void append(std::vector<std::string>& to, const std::vector<std::string>& words) {
  to.insert(to.end(), words.begin(), words.end());
}

}  // namespace

TenantSpec busyTenant(const std::string& name, int corePercent, const std::string& kernelMs) {
  const std::size_t seed = std::hash<std::string>()(name) % 1'000'000;
  TenantSpec spec;
  spec.name = name;
  spec.corePercent = corePercent;
  spec.work = {"--kernel-ms=" + kernelMs, "--seed=" + std::to_string(seed)};
  return spec;
}

std::string lastLines(const std::string& text, std::size_t bytes) {
  return text.size() <= bytes ? text : text.substr(text.size() - bytes);
}

std::string TenantHost::outputPath(const std::string& name) {
  return dir_ + "/" + std::to_string(++started_) + "-" + name;
}

Result<std::string> TenantHost::askWork(const std::string& option) {
  std::vector<std::string> command = {"env"};
  append(command, bareEnv_);
  append(command, {binDir_ + "/qgpu-work", option});
  Child work(command, outputPath("ask"));
  if (work.wait(kAskNsMax) == 0) return work.output();
  return fail(ErrorCode::Unavailable,
              "qgpu-work " + option + " failed without qgpu: " + work.errors());
}

Status TenantHost::calibrate() {
  const Result<std::string> text = askWork("--calibrate");
  if (!text) return text.error();
  const std::size_t colon = text->find(':');
  if (colon != std::string::npos) {
    std::from_chars(text->data() + colon + 1, text->data() + text->size(), loopsPerMs_);
  }
  if (loopsPerMs_ > 0) return ok();
  return fail(ErrorCode::Corrupt, "qgpu-work --calibrate printed '" + *text + "'");
}

std::vector<std::string> TenantHost::workCommand(const TenantSpec& spec) const {
  std::vector<std::string> command = {binDir_ + "/qgpu-work", "--seconds=0", "--control", "--json",
                                      "--loops-per-ms=" + std::to_string(loopsPerMs_)};
  append(command, spec.work);
  return command;
}

std::unique_ptr<Child> TenantHost::start(const TenantSpec& spec) {
  std::vector<std::string> command = {
      binDir_ + "/qgpuctl",        "--socket", socket(),   "run", "--name", spec.name, "--class",
      className(spec.tenantClass), "--memory", spec.memory};
  if (spec.tenantClass != TenantClass::Online) {
    append(command, {"--core", std::to_string(spec.corePercent)});
  }
  if (!card_.empty()) append(command, {"--card", card_});
  command.emplace_back("--");
  append(command, spec.program.empty() ? workCommand(spec) : spec.program);
  return std::make_unique<Child>(command, outputPath(spec.name));
}

std::unique_ptr<Child> TenantHost::startBare(const TenantSpec& spec) {
  std::vector<std::string> command = {"env"};
  append(command, bareEnv_);
  append(command, workCommand(spec));
  return std::make_unique<Child>(command, outputPath(spec.name));
}

std::unique_ptr<Child> TenantHost::screen(const std::string& title) const {
  // In the background, to set the terminal's modes would stop it.
  if (!isTerminal(STDOUT_FILENO) || tcgetpgrp(STDOUT_FILENO) != getpgrp()) return nullptr;
  return std::make_unique<Child>(std::vector<std::string>{binDir_ + "/qgpuctl", "--socket",
                                                          socket(), "top", "--interval",
                                                          kScreenInterval, "--title", title});
}

Result<WorkReport> finishWork(Child& child, const std::string& name) {
  child.say("end");
  return reportOf(child, name, kFinishNsMax);
}

Result<WorkReport> reportOf(Child& child, const std::string& name, std::int64_t nsMax) {
  constexpr std::int64_t kLookNs = kSecond / 10;
  const std::int64_t until = monotonicNs() + nsMax;
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
