#include "services/prove/checks.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <signal.h>
#include <sstream>
#include <utility>

#include "services/demo/tenants/hybrid_stamps.h"
#include "services/demo/workload/clock.h"

namespace qgpu::prove {
namespace {

using demo::busyTenant;
using demo::Child;
using demo::kSecond;
using demo::monotonicNs;
using demo::pauseFor;
using demo::TenantClass;
using demo::TenantSpec;
using demo::WorkReport;

constexpr std::int64_t kLookNs = 2'000'000;
constexpr std::int64_t kLeaveNsMax = 10 * kSecond;
constexpr std::int64_t kReadyNsMax = 60 * kSecond;  // its kernel is compiled in it
constexpr std::int64_t kEndNsMax = 60 * kSecond;
constexpr std::int64_t kStateNsMax = 10 * kSecond;  // until a task is as a check needs it
constexpr std::int64_t kUsPerNs = 1'000;

std::string ours(const std::string& name) {
  return std::string(CardHost::kOurs) + name;
}

bool isOn(const demo::TaskCounters& task, const std::string& card) {
  std::istringstream names(task.card);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == card) return true;
  }
  return false;
}

TenantSpec offline(const std::string& name, const std::string& kernelMs) {
  TenantSpec spec = busyTenant(ours(name), 40, kernelMs);
  spec.tenantClass = TenantClass::Offline;
  return spec;
}

// Bursts of one kernel of a millisecond, idle between them for these parts of online's idle time.
TenantSpec online(const Bench& bench, double least, double most) {
  const double idleMs = static_cast<double>(bench.onlineIdleNs) / 1e6;
  TenantSpec spec = busyTenant(ours("online"), 0, "1");
  spec.tenantClass = TenantClass::Online;
  spec.work.insert(spec.work.end(), {"--mode=bursts", "--burst-kernels=1",
                                     "--idle-ms=" + std::to_string(idleMs * least) + ".." +
                                         std::to_string(idleMs * most)});
  return spec;
}

// How much memory a context takes beside the program's own: on NVIDIA's cards the driver's calls
// are counted.
std::int64_t quotaMib(const Bench& bench) {
  return bench.host.card().backend == "nvidia" ? 2'048 : 64;
}

Error stopped() {
  return fail(ErrorCode::Unavailable, "it was stopped");
}

}  // namespace

CardHost::CardHost(std::string binDir, std::string socket, std::string outputs,
                   demo::CardCounters card)
    : TenantHost(std::move(binDir)), found_(std::move(card)) {
  socket_ = std::move(socket);
  dir_ = std::move(outputs);
  card_ = found_.id;
  if (found_.backend == "nvidia") bareEnv_ = {"CUDA_VISIBLE_DEVICES=" + found_.id};
  client_ = std::make_unique<demo::NodeClient>(socket_);
}

Result<demo::CardCounters> CardHost::now() {
  const auto cards = client().cards();
  if (!cards) return cards.error();
  for (const demo::CardCounters& card : *cards) {
    if (card.id == found_.id) return card;
  }
  return fail(ErrorCode::NotFound, "card " + found_.id + " is gone");
}

Status CardHost::choosePolicy(const std::string& policy) {
  const Result<std::string> answer = client().ask("policy " + found_.id + " " + policy);
  return answer ? ok() : Status(answer.error());
}

Status CardHost::awaitEmpty() {
  const std::int64_t until = monotonicNs() + kLeaveNsMax;
  for (;;) {
    const Result<demo::TaskSnapshot> tasks = client().tasks();
    if (!tasks) return tasks.error();
    const auto ours = std::ranges::find_if(tasks->tasks, [&](const demo::TaskCounters& task) {
      return isOn(task, found_.id) && task.name.starts_with(kOurs);
    });
    if (ours == tasks->tasks.end()) return ok();
    if (!pauseFor(kLookNs)) return stopped();
    if (monotonicNs() > until) {
      return fail(ErrorCode::Conflict, "task " + ours->name + " of the check before does not end");
    }
  }
}

Result<std::string> CardHost::others() {
  const Result<demo::TaskSnapshot> tasks = client().tasks();
  if (!tasks) return tasks.error();
  std::string names;
  for (const demo::TaskCounters& task : tasks->tasks) {
    if (!isOn(task, found_.id) || task.name.starts_with(kOurs)) continue;
    names += (names.empty() ? "" : ", ") + std::to_string(task.id) + " (" + task.name + ")";
  }
  return names;
}

Status CardHost::awaitReady(const std::vector<Child*>& programs) {
  const std::int64_t until = monotonicNs() + kReadyNsMax;
  for (Child* program : programs) {
    while (program->errors().find("ready") == std::string::npos) {
      if (!program->running() || monotonicNs() > until) {
        return fail(ErrorCode::Unavailable, "a program of the check had no result: " +
                                                demo::lastLines(program->errors(), 1'000));
      }
      if (!pauseFor(kLookNs)) return stopped();
    }
  }
  return ok();
}

// --- memory, and a program without the library ---

Result<QuotaFigures> measureQuota(const Bench& bench) {
  const std::int64_t mib = quotaMib(bench);
  TenantSpec spec = busyTenant(ours("quota"), 10, "1");
  spec.memory = std::to_string(mib) + "MiB";
  spec.work = {"--memory-mib=1", "--fill-mib=" + std::to_string(2 * mib)};
  const auto program = bench.host.start(spec);
  const std::optional<int> status = program->wait(kEndNsMax);
  if (status != 0) {
    return fail(ErrorCode::Unavailable, "the program that takes memory ended with " +
                                            std::to_string(status.value_or(-1)) + ": " +
                                            demo::lastLines(program->errors(), 1'000));
  }
  const Result<demo::MemoryTaken> taken = demo::parseMemoryTaken(program->output());
  if (!taken) return taken.error();
  const auto bytes = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
  return QuotaFigures{mib << 20, bytes(taken->bytes), bytes(taken->refusedBytes),
                      bytes(taken->againBytes)};
}

Result<EscapeFigures> measureEscape(const Bench& bench) {
  constexpr std::int64_t kTaskMib = 16, kTakenMib = 64;
  TenantSpec spec = busyTenant(ours("escape"), 10, "2");
  spec.memory = std::to_string(kTaskMib) + "MiB";
  spec.work = {"--seconds=1", "--memory-mib=" + std::to_string(kTakenMib)};
  spec.program = {"env", "-u", "LD_PRELOAD", "-u", "OPENCL_LAYERS"};
  const std::vector<std::string> work = bench.host.workCommand(spec);
  spec.program.insert(spec.program.end(), work.begin(), work.end());
  const auto program = bench.host.start(spec);
  const std::optional<int> status = program->wait(kEndNsMax);
  if (!status) return fail(ErrorCode::Unavailable, "the program without the library does not end");
  EscapeFigures figures;
  figures.isolation = bench.host.card().isolation;
  figures.exit = *status;
  const Result<WorkReport> report = demo::parseWorkReport(program->output());
  if (report) figures.kernels = static_cast<std::int64_t>(report->kernels);
  if (figures.kernels > 0) figures.beyondBytes = (kTakenMib - kTaskMib) << 20;
  return figures;
}

Result<WaysFigures> measureWays(const Bench& bench, const std::string& node) {
  const std::string option = "--ways-out=" + node;
  const Result<std::string> aloneText = bench.host.askWork(option);
  if (!aloneText) return aloneText.error();
  TenantSpec spec = busyTenant(ours("ways"), 10, "2");
  spec.program = {
      "env", "-u", "LD_PRELOAD", "-u", "OPENCL_LAYERS", bench.host.workCommand(spec).front(),
      option};
  const auto program = bench.host.start(spec);
  if (program->wait(kEndNsMax) != 0) {
    return fail(ErrorCode::Unavailable, "the program that tries the ways out failed: " +
                                            demo::lastLines(program->errors(), 1'000));
  }
  const auto alone = demo::parseWays(*aloneText), inTask = demo::parseWays(program->output());
  if (!alone) return alone.error();
  if (!inTask) return inTask.error();
  return WaysFigures{bench.host.card().isolation, *alone, *inTask};
}

// --- shares ---

Result<std::vector<ShareFigures>> measureShares(const Bench& bench,
                                                const std::vector<std::int64_t>& permille) {
  constexpr const char* kKernelMs = "2";
  std::vector<TenantSpec> specs;
  for (const std::int64_t share : permille) {
    const int core = static_cast<int>(share / 10);
    specs.push_back(busyTenant(ours("share-" + std::to_string(core)), core, kKernelMs));
  }
  demo::BareRun bare(bench.host, busyTenant("bare", 10, kKernelMs));
  demo::TenantGroup tenants(bench.host, "", specs);
  const Result<demo::RoundsPlayed> played =
      demo::playRounds(tenants, bare, bench.quick ? 1 : 3, bench.seconds(8, 3));
  if (!played) return played.error();
  std::vector<ShareFigures> all;
  for (std::size_t i = 0; i < permille.size(); i++) {
    const WorkReport& report = played->reports.at(specs[i].name);
    all.push_back({permille[i], demo::workPermille(report, played->rates.around),
                   demo::shareOver(tenants.used(specs[i].name), played->windows),
                   played->rates.apartPermille, static_cast<std::int64_t>(report.wrong)});
  }
  return all;
}

// --- online over offline ---

Result<OnlineRun> measureOnline(const Bench& bench, std::int64_t kernelMs) {
  const Result<demo::CardCounters> before = bench.host.now();
  if (!before) return before.error();
  TenantSpec batch = offline("offline", std::to_string(kernelMs));
  batch.work.emplace_back("--progress");
  const auto offlineRuns = bench.host.start(batch);
  const auto onlineRuns = bench.host.start(online(bench, 1.1, 2));
  if (Status ready = CardHost::awaitReady({offlineRuns.get(), onlineRuns.get()}); !ready) {
    return ready.error();
  }
  const std::int64_t begin = monotonicNs();
  if (!pauseFor(bench.seconds(20, 3))) return stopped();
  const std::int64_t end = monotonicNs();
  const Result<WorkReport> served = demo::finishWork(*onlineRuns, ours("online"));
  if (!served) return served.error();
  const Result<WorkReport> worked = demo::finishWork(*offlineRuns, ours("offline"));
  if (!worked) return worked.error();
  const Result<demo::CardCounters> after = bench.host.now();
  if (!after) return after.error();

  OnlineRun run;
  run.clock = served->clock;
  run.online = {after->suspend, kernelMs, {}};
  demo::HybridStamps stamps{bench.onlineIdleNs, {{begin, end}}, {}, worked->standstills};
  for (const demo::Burst& burst : served->bursts) {
    if (burst.submitNs < begin || burst.endNs > end) continue;
    stamps.bursts.push_back(burst);
    run.online.startUs.push_back((burst.startNs - burst.submitNs) / kUsPerNs);
  }
  for (const std::int64_t ns : demo::releasesOf(stamps)) run.releasesUs.push_back(ns / kUsPerNs);
  run.resume = {after->suspend, after->holds - before->holds,
                static_cast<std::int64_t>(worked->standstills.size()),
                static_cast<std::int64_t>(worked->itemsChecked),
                static_cast<std::int64_t>(worked->wrong)};
  return run;
}

// --- killed programs ---

namespace {

// Polls the manager until `isSo` of a task (null: there is none), or the limit.
Result<std::string> awaitTask(const Bench& bench, const std::string& name, std::int64_t nsMax,
                              const std::function<bool(const demo::TaskCounters*)>& isSo) {
  const std::int64_t until = monotonicNs() + nsMax;
  for (;;) {
    const Result<demo::TaskSnapshot> tasks = bench.host.client().tasks();
    if (!tasks) return tasks.error();
    const demo::TaskCounters* task = tasks->find(name);
    const std::string state = task == nullptr ? "gone" : task->state;
    if (isSo(task) || monotonicNs() > until) return state;
    if (!pauseFor(kLookNs / 4)) return stopped();
  }
}

// Kills the program of a task, and not `qgpuctl run`, which started it, once it is in this state;
// the figures so far.
Result<KillFigures> killIn(const Bench& bench, Child& victim, const std::string& name,
                           const std::string& state) {
  KillFigures figures;
  const Result<std::string> was =
      awaitTask(bench, name, kStateNsMax,
                [&](const demo::TaskCounters* task) { return task && task->state == state; });
  if (!was) return was.error();
  figures.state = *was;
  const std::vector<pid_t> programs = victim.children();
  if (programs.size() != 1) return fail(ErrorCode::Unavailable, "the program ended by itself");
  const std::int64_t killed = monotonicNs();
  ::kill(programs.front(), SIGKILL);
  const Result<std::string> gone =
      awaitTask(bench, name, kLeaveNsMax, [](const demo::TaskCounters* task) { return !task; });
  if (!gone) return gone.error();
  figures.goneMs = (monotonicNs() - killed) / 1'000'000;
  return figures;
}

}  // namespace

Result<KillFigures> measureKill(const Bench& bench, KillAt at) {
  const bool held = at == KillAt::Held;
  // A kernel that is not over soon, so that it is stopped and not waited for.
  const TenantSpec victim = offline("victim", held ? "100" : "5"), other = offline("other", "5");
  const auto victimRuns = bench.host.start(victim);
  const auto otherRuns = bench.host.start(other);
  std::unique_ptr<Child> onlineRuns;
  if (Status ready = CardHost::awaitReady({victimRuns.get(), otherRuns.get()}); !ready) {
    return ready.error();
  }
  if (held) {  // it never lets the others have the card
    onlineRuns = bench.host.start(online(bench, 0.2, 0.4));
    if (Status ready = CardHost::awaitReady({onlineRuns.get()}); !ready) return ready.error();
  }
  Result<KillFigures> figures =
      killIn(bench, *victimRuns, victim.name, held ? "suspended" : "running");
  if (!figures) return figures;
  const std::int64_t killed = monotonicNs();
  std::int64_t bursts = 1;
  if (held) {
    if (!pauseFor(kSecond / 2)) return stopped();
    const Result<WorkReport> served = demo::finishWork(*onlineRuns, ours("online"));
    if (!served) return served.error();
    bursts = std::ranges::count_if(
        served->bursts, [&](const demo::Burst& burst) { return burst.submitNs > killed; });
    figures->othersWrong += static_cast<std::int64_t>(served->wrong);
    if (!pauseFor(2 * bench.onlineIdleNs)) return stopped();
  }
  otherRuns->say("mark");
  if (!pauseFor(kSecond)) return stopped();
  otherRuns->say("mark");
  const Result<WorkReport> worked = demo::finishWork(*otherRuns, other.name);
  if (!worked) return worked.error();
  figures->othersWrong += static_cast<std::int64_t>(worked->wrong);
  if (worked->marks.size() == 2 && bursts > 0) {
    figures->othersLoops =
        static_cast<std::int64_t>(worked->marks[1].loops - worked->marks[0].loops);
  }
  const Result<demo::CardCounters> card = bench.host.now();
  if (!card) return card.error();
  figures->cardState = card->state;
  return figures;
}

}  // namespace qgpu::prove
