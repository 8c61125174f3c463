#include "services/demo/act_common.h"

#include <cstdio>
#include <functional>

#include "services/demo/clock.h"

namespace qgpu::demo {

Status setScene(const ActSetting& setting, const std::string& title, const std::string& policy) {
  constexpr std::int64_t kLeaveNsMax = 10'000'000'000;
  constexpr std::int64_t kLookNs = 50'000'000;
  std::printf("\n%s\n", title.c_str());
  std::fflush(stdout);
  const std::int64_t until = monotonicNs() + kLeaveNsMax;
  for (;;) {
    const Result<TaskSnapshot> tasks = setting.stage.node().tasks();
    if (!tasks) return tasks.error();
    if (tasks->tasks.empty()) break;
    if (monotonicNs() > until || !pauseFor(kLookNs)) {
      return fail(ErrorCode::Conflict,
                  "task " + tasks->tasks.front().name + " of the act before is still there");
    }
  }
  const Result<std::string> answer = setting.stage.node().ask("policy all " + policy);
  return answer ? ok() : Status(answer.error());
}

TenantSpec busyTenant(const std::string& name, int corePercent, const std::string& kernelMs) {
  const std::size_t seed = std::hash<std::string>()(name) % 1'000'000;
  return {name,
          TenantClass::Ordinary,
          corePercent,
          {},
          {"--kernel-ms=" + kernelMs, "--seed=" + std::to_string(seed)}};
}

TaskFigure figureOf(const Cast& cast, const TenantSpec& spec, Interval window) {
  TaskFigure figure;
  figure.name = spec.name;
  figure.tenantClass = spec.tenantClass;
  if (cast.used(spec.name).empty()) return figure;
  figure.gotPermille = shareOver(cast.used(spec.name), window);
  figure.gpuMs =
      (usedAt(cast.gpu(spec.name), window.end) - usedAt(cast.gpu(spec.name), window.begin)) /
      1'000'000;
  return figure;
}

Result<std::map<std::string, WorkReport>> closeAct(const ActSetting& setting, Cast& cast,
                                                   ActResult act) {
  Result<std::map<std::string, WorkReport>> reports = cast.finish();
  if (!reports) return reports;
  std::uint64_t kernels = 0;
  std::uint64_t wrong = 0;
  for (TaskFigure& task : act.tasks) {
    const auto report = reports->find(task.name);
    if (report == reports->end()) continue;
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
  return reports;
}

}  // namespace qgpu::demo
