#include "services/demo/act_common.h"

#include <algorithm>
#include <cstdio>

#include "services/demo/workload/clock.h"

namespace qgpu::demo {

Status setScene(const ActSetting& setting, const std::string& title, const std::string& policy) {
  constexpr std::int64_t kLeaveNsMax = 10'000'000'000;
  constexpr std::int64_t kLookNs = 50'000'000;
  std::printf("\n%s\n", title.c_str());
  std::fflush(stdout);
  const std::int64_t until = monotonicNs() + kLeaveNsMax;
  for (;;) {
    const Result<TaskSnapshot> tasks = setting.node.client().tasks();
    if (!tasks) return tasks.error();
    if (tasks->tasks.empty()) break;
    if (monotonicNs() > until || !pauseFor(kLookNs)) {
      return fail(ErrorCode::Conflict,
                  "task " + tasks->tasks.front().name + " of the act before is still there");
    }
  }
  const Result<std::string> answer = setting.node.client().ask("policy all " + policy);
  return answer ? ok() : Status(answer.error());
}

TaskFigure figureOf(const TenantGroup& tenants, const TenantSpec& spec,
                    const std::vector<Interval>& windows) {
  TaskFigure figure;
  figure.name = spec.name;
  figure.tenantClass = spec.tenantClass;
  if (tenants.used(spec.name).empty()) return figure;
  figure.accountPermille = shareOver(tenants.used(spec.name), windows);
  figure.gpuMs = usedIn(tenants.gpu(spec.name), windows) / 1'000'000;
  return figure;
}

std::int64_t roundsOf(std::int64_t ns, std::int64_t roundNs) {
  return std::max<std::int64_t>(1, (ns + roundNs / 2) / roundNs);
}

void closeAct(const ActSetting& setting, const Reports& reports, ActResult act) {
  std::uint64_t kernels = 0;
  std::uint64_t wrong = 0;
  for (TaskFigure& task : act.tasks) {
    const auto report = reports.find(task.name);
    if (report == reports.end()) continue;
    kernels += report->second.kernels;
    wrong += report->second.wrong;
    task.checksumOk = report->second.checksumOk();
    if (!task.checksumOk) {
      setting.sheet.failures.push_back(act.act + ": " + task.name + " got " +
                                       std::to_string(report->second.wrong) + " wrong items from " +
                                       std::to_string(report->second.kernels) + " kernels");
    }
  }
  setting.sheet.add(act.act, "wrong items in " + std::to_string(kernels) + " kernels", "0",
                    std::to_string(wrong), wrong == 0);
  setting.sheet.acts.push_back(std::move(act));
}

}  // namespace qgpu::demo
