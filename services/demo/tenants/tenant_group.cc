#include "services/demo/tenants/tenant_group.h"

#include <algorithm>

#include "services/demo/workload/clock.h"

namespace qgpu::demo {
namespace {

constexpr std::int64_t kWarmUpNsMax = 90 * kSecond;
constexpr std::int64_t kWarmLaunches = 10;

// Share of the stretch since `fromNs`, as the newest sample tells it.
std::int64_t newestShare(const Series& series, std::int64_t fromNs) {
  if (series.empty()) return 0;
  return std::clamp<std::int64_t>(shareOver(series, {{fromNs, series.back().atNs}}), 0, 1000);
}

}  // namespace

TenantGroup::TenantGroup(TenantHost& node, const std::string& title, std::vector<TenantSpec> specs)
    : node_(node), specs_(std::move(specs)) {
  for (const TenantSpec& spec : specs_) {
    Tenant& tenant = tenants_[spec.name];
    tenant.child = node_.start(spec);
    tenant.mayEnd = !spec.program.empty();
  }
  if (title.empty()) return;
  std::vector<std::string> names;
  for (const TenantSpec& spec : specs_) names.push_back(spec.name);
  view_.emplace(std::move(names), node_.screen(title));
}

Status TenantGroup::checkAlive() {
  if (interrupted()) return fail(ErrorCode::Unavailable, "interrupted");
  if (!node_.managerRuns()) {
    return fail(ErrorCode::Unavailable, "qgpu-manager ended: " + node_.managerLog());
  }
  for (auto& [name, tenant] : tenants_) {
    if (tenant.ended || tenant.child->running()) continue;
    if (!tenant.mayEnd) {
      return fail(ErrorCode::Unavailable, "tenant " + name + " ended early with " +
                                              std::to_string(tenant.child->wait(0).value_or(-1)) +
                                              ": " + tenant.child->errors());
    }
    tenant.ended = true;
  }
  return ok();
}

Status TenantGroup::warmUp() {
  const std::int64_t until = monotonicNs() + kWarmUpNsMax;
  for (;;) {
    if (Status status = checkAlive(); !status) return status;
    const Result<TaskSnapshot> now = node_.client().tasks();
    if (!now) return now.error();
    std::string cold;
    for (const TenantSpec& spec : specs_) {
      if (!spec.program.empty()) continue;
      const TaskCounters* task = now->find(spec.name);
      if (task == nullptr || task->launches < kWarmLaunches) cold = spec.name;
    }
    if (cold.empty()) return pauseFor(kSecond) ? ok() : checkAlive();
    if (monotonicNs() > until) {
      return fail(ErrorCode::Unavailable,
                  "tenant " + cold + " launched nothing in time: " + child(cold).errors());
    }
    pauseFor(kSampleNs);
  }
}

Status TenantGroup::sample() {
  const Result<TaskSnapshot> now = node_.client().tasks();
  if (!now) return now.error();
  lastNs_ = now->atNs;
  for (auto& [name, tenant] : tenants_) {
    const TaskCounters* task = now->find(name);
    if (task != nullptr) {
      tenant.used.push_back({now->atNs, task->usedNs});
      tenant.gpu.push_back({now->atNs, task->gpuNs});
    } else if (!tenant.used.empty()) {  // gone: it uses no more
      tenant.used.push_back({now->atNs, tenant.used.back().usedNs});
      tenant.gpu.push_back({now->atNs, tenant.gpu.back().usedNs});
    }
  }
  return ok();
}

void TenantGroup::draw() {
  if (drawnNs_ == 0) drawnNs_ = lastNs_;
  if (!view_ || lastNs_ - drawnNs_ < LiveView::kColumnNs) return;
  std::vector<std::int64_t> shares;
  for (const TenantSpec& spec : specs_) {
    const Tenant& tenant = tenants_.at(spec.name);
    std::int64_t share = newestShare(tenant.used, drawnNs_);
    if (spec.tenantClass == TenantClass::Online) {  // it needs no slices: its kernels show
      share = std::max(share, newestShare(tenant.gpu, drawnNs_));
    }
    shares.push_back(share);
  }
  view_->column(shares, lastNs_);
  drawnNs_ = lastNs_;
}

Status TenantGroup::watch(std::int64_t ns, std::int64_t everyNs) {
  if (Status status = sample(); !status) return status;
  draw();
  const std::int64_t until = lastNs_ + ns;
  for (std::int64_t next = lastNs_ + everyNs; lastNs_ < until; next += everyNs) {
    pauseFor(std::min(next, until) - monotonicNs());
    if (Status status = checkAlive(); !status) return status;
    if (Status status = sample(); !status) return status;
    draw();
  }
  return ok();
}

void TenantGroup::say(const std::string& word) {
  for (const TenantSpec& spec : specs_) {
    if (spec.program.empty()) child(spec.name).say(word);
  }
}

Result<int> TenantGroup::watchUntilEnd(const std::string& name, std::int64_t nsMax) {
  const std::int64_t until = monotonicNs() + nsMax;
  Child& awaited = child(name);
  while (awaited.running()) {
    if (monotonicNs() > until) {
      return fail(ErrorCode::Unavailable,
                  name + " did not end within " + std::to_string(nsMax / kSecond) + " s");
    }
    if (Status status = watch(kSampleNs); !status) return status.error();
  }
  view_.reset();
  return awaited.wait(0).value_or(-1);
}

Result<std::map<std::string, WorkReport>> TenantGroup::finish() {
  view_.reset();
  std::map<std::string, WorkReport> reports;
  say("end");  // to all at once: they share the card
  for (const TenantSpec& spec : specs_) {
    if (!spec.program.empty()) continue;
    Result<WorkReport> report = finishWork(child(spec.name), spec.name);
    if (!report) return report.error();
    reports.emplace(spec.name, std::move(*report));
  }
  return reports;
}

}  // namespace qgpu::demo
