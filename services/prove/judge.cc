#include "services/prove/judge.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "services/demo/tenants/statistics.h"

namespace qgpu::prove {
namespace {

using demo::percentile;

std::string ms(std::int64_t us) {
  return std::to_string(us / 1'000) + "." + std::to_string(us % 1'000 / 100) + " ms";
}

Promise proven(Promise promise) {
  promise.verdict = Verdict::Proven;
  return promise;
}
Promise weaker(Promise promise, std::string why) {
  promise.verdict = Verdict::Weaker;
  promise.why = std::move(why);
  return promise;
}
Promise notProven(Promise promise, std::string why) {
  promise.why = std::move(why);
  return promise;
}

Promise promiseOf(std::string id, std::string says) {
  Promise promise;
  promise.id = std::move(id);
  promise.says = std::move(says);
  return promise;
}

template <typename T>
Promise couldNotRun(Promise promise, const Result<T>& measured) {
  return notProven(std::move(promise), "it could not be measured: " + measured.error().message);
}

}  // namespace

std::string weakerHeldBy(const std::string& suspend) {
  if (suspend != "gate") return "";
  return "the card is held by gates alone: kernels ran to their end, and none was stopped on the "
         "way";
}

std::string weakerContainedBy(const std::string& isolation) {
  if (isolation != "library") return "";
  return "library: a program that leaves the library out is not contained";
}

Promise judgeQuota(const Result<QuotaFigures>& measured) {
  Promise promise =
      promiseOf("quota", "A task gets its memory quota to the byte, and no byte more");
  if (!measured) return couldNotRun(std::move(promise), measured);
  const auto& [quota, taken, refused, again] = *measured;
  promise.figures = {{"quota_bytes", quota},
                     {"taken_bytes", taken},
                     {"refused_bytes", refused},
                     {"again_bytes", again}};
  if (refused == 0) return notProven(std::move(promise), "nothing was refused");
  if (taken > quota) {
    return notProven(std::move(promise), "the program had " + std::to_string(taken - quota) +
                                             " bytes more than its quota");
  }
  if (again != taken) {
    return notProven(std::move(promise), "given back, " + std::to_string(taken - again) +
                                             " bytes could not be had again");
  }
  if (refused != taken + 1) {
    return notProven(std::move(promise), "the last byte was not asked for");
  }
  if (taken == quota) return proven(std::move(promise));
  return weaker(std::move(promise), "refused " + std::to_string(quota - taken) +
                                        " bytes below the quota: what the driver takes for itself "
                                        "counts as well");
}

Promise judgeShare(std::int64_t wantedPermille, const Result<ShareFigures>& measured) {
  Promise promise = promiseOf("share-" + std::to_string(wantedPermille / 10),
                              "A task with " + percentText(wantedPermille) +
                                  " of the card under fixed-share does that much of the work that "
                                  "its program does alone");
  if (!measured) return couldNotRun(std::move(promise), measured);
  const ShareFigures& m = *measured;
  promise.figures = {{"wanted_permille", m.wantedPermille},
                     {"work_permille", m.workPermille},
                     {"account_permille", m.accountPermille},
                     {"bare_apart_permille", m.bareApartPermille},
                     {"wrong_items", m.wrongItems}};
  if (m.wrongItems != 0) {
    return notProven(std::move(promise), std::to_string(m.wrongItems) + " items were wrong");
  }
  const auto isNear = [&](std::int64_t permille, std::int64_t error) {
    return std::abs(permille - m.wantedPermille) * 1'000 <= error * m.wantedPermille;
  };
  if (isNear(m.workPermille, kShareErrorPermille)) return proven(std::move(promise));
  const std::string why = "it did " + percentText(m.workPermille) + ", more than " +
                          percentText(kShareErrorPermille) + " of its share away";
  const std::string noise = "; without qgpu the program's speed moved by " +
                            percentText(m.bareApartPermille) + " meanwhile";
  const bool below = m.workPermille < m.wantedPermille;
  if (below && isNear(m.workPermille, kShareLostPermille) &&
      isNear(m.accountPermille, kShareErrorPermille)) {
    return weaker(std::move(promise),
                  why + ", though it had the card for " + percentText(m.accountPermille) +
                      " of the time: the rest is lost at changes of tasks, or to other programs" +
                      noise);
  }
  return notProven(std::move(promise), why + noise);
}

Promise judgeLatency(std::int64_t kernelMs, const Result<OnlineFigures>& measured) {
  Promise promise =
      promiseOf("latency-" + std::to_string(kernelMs) + "ms",
                "An online task's kernel begins within 1 ms (p50) and 3 ms (p99), also behind "
                "offline's kernels of " +
                    std::to_string(kernelMs) + " ms");
  if (!measured) return couldNotRun(std::move(promise), measured);
  const std::vector<std::int64_t>& us = measured->startUs;
  const std::int64_t p50 = percentile(us, 500), p99 = percentile(us, 990);
  promise.figures = {{"kernel_ms", kernelMs},
                     {"bursts", static_cast<std::int64_t>(us.size())},
                     {"start_p50_us", p50},
                     {"start_p99_us", p99},
                     {"start_max_us", percentile(us, 1'000)}};
  if (us.size() < kBurstsMin) {
    return notProven(std::move(promise), "only " + std::to_string(us.size()) +
                                             " bursts came, which is no distribution");
  }
  if (p50 <= kStartP50UsMax && p99 <= kStartP99UsMax) return proven(std::move(promise));
  const std::int64_t kernels = kKernelsInFlight * kernelMs * (1'000 + kKernelSlowerPermille);
  if (measured->suspend == "gate" && p99 <= kernels + kStartP99UsMax) {
    return weaker(std::move(promise),
                  "the card is held by gates alone: online waits until offline's kernels that are "
                  "on their way have ended, p99 " +
                      ms(p99));
  }
  return notProven(std::move(promise), "p50 " + ms(p50) + ", p99 " + ms(p99) + ", where " +
                                           ms(kStartP50UsMax) + " and " + ms(kStartP99UsMax) +
                                           " are promised");
}

std::vector<Curve> curvesOf(const std::vector<OnlineFigures>& measured) {
  std::vector<Curve> curves;
  for (const OnlineFigures& one : measured) {
    if (one.startUs.size() < kBurstsMin) continue;
    Curve& curve = curves.emplace_back();
    curve.kernelMs = one.kernelMs;
    for (std::size_t point = 0; point < Curve::kPoints; point++) {
      curve.us.push_back(percentile(one.startUs, static_cast<std::int64_t>(point) * 10));
    }
  }
  return curves;
}

Promise judgeRelease(const Result<ReleaseFigures>& measured) {
  Promise promise = promiseOf("release",
                              "Offline has the card again once online was idle for its "
                              "idle time, within 5 % of that (p99 10 %)");
  if (!measured) return couldNotRun(std::move(promise), measured);
  const ReleaseFigures& m = *measured;
  const std::int64_t p50 = percentile(m.seenUs, 500), p99 = percentile(m.seenUs, 990);
  promise.figures = {{"idle_us", m.idleUs},
                     {"releases", static_cast<std::int64_t>(m.seenUs.size())},
                     {"release_p50_us", p50},
                     {"release_p99_us", p99},
                     {"account_p50_us", m.accountP50Us},
                     {"account_p99_us", m.accountP99Us},
                     {"account_count", m.accountCount}};
  const auto near = [&](std::int64_t us, std::int64_t error = kReleaseErrorPermille) {
    return std::abs(us - m.idleUs) * 1'000 <= error * m.idleUs;
  };
  if (m.seenUs.size() >= kBurstsMin) {
    if (near(p50) && near(p99, kReleaseP99ErrorPermille)) return proven(std::move(promise));
    return notProven(std::move(promise), "p50 " + ms(p50) + ", p99 " + ms(p99) + ", where " +
                                             ms(m.idleUs) + " are promised");
  }
  const bool counted = m.accountCount >= static_cast<std::int64_t>(kBurstsMin);
  if (counted && near(m.accountP50Us) && near(m.accountP99Us)) {
    return weaker(std::move(promise),
                  "by the manager's own account: a program can't see on this "
                  "card when its kernel goes on");
  }
  return notProven(std::move(promise), "only " + std::to_string(m.seenUs.size()) +
                                           " releases were seen, and the manager counted " +
                                           std::to_string(m.accountCount) + " near it");
}

Promise judgeResume(const Result<ResumeFigures>& measured) {
  Promise promise = promiseOf("resume", "A task that was held goes on with every bit as it was");
  if (!measured) return couldNotRun(std::move(promise), measured);
  const ResumeFigures& m = *measured;
  promise.figures = {{"holds", m.holds},
                     {"standstills_seen", m.standstills},
                     {"items_checked", m.itemsChecked},
                     {"wrong_items", m.wrongItems}};
  if (m.wrongItems != 0) {
    return notProven(std::move(promise), std::to_string(m.wrongItems) + " items were wrong");
  }
  if (m.holds == 0 || m.itemsChecked == 0) {
    return notProven(std::move(promise), m.holds == 0 ? "nothing was held" : "no item was checked");
  }
  std::string rung = weakerHeldBy(m.suspend);
  if (rung.empty()) return proven(std::move(promise));
  return weaker(std::move(promise), std::move(rung));
}

Promise judgeKill(KillAt at, const Result<KillFigures>& measured) {
  const bool holds = at == KillAt::Holds;
  Promise promise =
      promiseOf(holds ? "kill-holding" : "kill-held",
                std::string("A program that is killed (SIGKILL) while it ") +
                    (holds ? "has the card" : "is held") + " leaves nothing, and the others go on");
  if (!measured) return couldNotRun(std::move(promise), measured);
  const KillFigures& m = *measured;
  promise.figures = {{"gone_ms", m.goneMs},
                     {"others_loops", m.othersLoops},
                     {"others_wrong_items", m.othersWrong}};
  const bool waited = !holds && (m.state == "suspending" || m.state == "ready");
  if (m.state != (holds ? "running" : "suspended") && !waited) {
    return notProven(std::move(promise), "its task was " + m.state + " when it was killed");
  }
  if (m.goneMs > kGoneMsMax) {
    return notProven(std::move(promise),
                     "its task was there for " + std::to_string(m.goneMs) + " ms more");
  }
  if (m.cardState != "ready") {
    return notProven(std::move(promise), "the card is " + m.cardState + " afterwards");
  }
  if (m.othersWrong != 0) {
    return notProven(std::move(promise),
                     std::to_string(m.othersWrong) + " items of the others were wrong");
  }
  if (m.othersLoops <= 0) return notProven(std::move(promise), "another program stood still");
  if (waited) {
    return weaker(std::move(promise),
                  "its task was " + m.state + ": none of its kernels was stopped on the way");
  }
  return proven(std::move(promise));
}

Promise judgeEscape(const Result<EscapeFigures>& measured) {
  Promise promise = promiseOf("escape", "A program that leaves the library out is contained");
  if (!measured) return couldNotRun(std::move(promise), measured);
  const EscapeFigures& m = *measured;
  promise.figures = {
      {"kernels", m.kernels}, {"beyond_quota_bytes", m.beyondBytes}, {"exit_status", m.exit}};
  const std::string rung = weakerContainedBy(m.isolation);
  const bool guarded = rung.empty();
  if (m.kernels > 0 && guarded) {
    return notProven(std::move(promise), "the manager calls the card " + m.isolation +
                                             ", and the program computed on it all the same");
  }
  if (m.kernels > 0) {
    return weaker(std::move(promise),
                  rung + "; it had the card without turns and more memory than its quota");
  }
  if (guarded) return proven(std::move(promise));
  return notProven(std::move(promise), "the program computed nothing (exit status " +
                                           std::to_string(m.exit) +
                                           "), and nothing is known that would keep it");
}

Promise judgeWays(const Result<WaysFigures>& measured) {
  Promise promise =
      promiseOf("escape-node", "No way leads past the library to the card's device node");
  if (!measured) return couldNotRun(std::move(promise), measured);
  const auto& [isolation, allAlone, allInTask] = *measured;
  if (!std::ranges::equal(allAlone, allInTask, {}, &demo::WayTried::name, &demo::WayTried::name)) {
    return notProven(std::move(promise), "in the task other ways were tried than alone");
  }
  std::int64_t tried = 0, refused = 0;
  std::string in, otherwise;
  for (std::size_t i = 0; i < allAlone.size(); i++) {
    if (allAlone[i].result != demo::kGotIn) continue;  // it leads nowhere by itself
    const auto& [name, inTask] = allInTask[i];
    ++tried;
    if (inTask == EPERM) {
      ++refused;
    } else {
      std::string& to = inTask == demo::kGotIn ? in : otherwise;
      to += (to.empty() ? "" : ", ") + name;
    }
  }
  promise.figures = {{"ways_tried", tried}, {"ways_refused", refused}};
  if (tried == 0) return notProven(std::move(promise), "no way leads there for anybody");
  const std::string rung = weakerContainedBy(isolation);
  if (!in.empty() && !rung.empty()) return weaker(std::move(promise), rung);
  if (!in.empty()) {
    return notProven(std::move(promise), "the manager calls the card " + isolation +
                                             ", and a program got there: " + in);
  }
  if (!otherwise.empty()) {
    return notProven(std::move(promise), "it was not the guard that refused: " + otherwise);
  }
  if (rung.empty()) return proven(std::move(promise));
  return notProven(std::move(promise), "all were refused, and nothing is known that does so");
}

void disturb(Promise& promise, const std::string& by) {
  promise.verdict = Verdict::NotProven;
  promise.why = by + (promise.why.empty() ? "" : "; " + promise.why);
}

}  // namespace qgpu::prove
