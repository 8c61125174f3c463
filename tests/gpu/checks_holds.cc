// Holds: many of them, of a program that makes channels while it is held, of one that is held for
// long, beneath a manager that does not run meanwhile, and how long they take while others keep the
// driver busy.

#include <condition_variable>
#include <mutex>
#include <signal.h>
#include <thread>

#include "tests/crash/violation.h"
#include "tests/gpu/held.h"
#include "tests/rm_stand_in/rm_state.h"

namespace qgpu::gpu {
namespace {

constexpr const char* kEver = "1000000000";

Arguments verifying(const CheckContext& context, const std::string& launches, Arguments more) {
  const auto rounds = static_cast<std::uint64_t>(static_cast<double>(context.mixPerMs) * kKernelMs);
  Arguments words =
      Scene::work({"verify", "--rounds", std::to_string(rounds), "--launches", launches});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

HeldTenant::Program verifyingTillEnd(const CheckContext& context, const Arguments& more) {
  return [&context, more](const std::string& end) {
    Arguments all = {"--tell", "1", "--until", end};
    all.insert(all.end(), more.begin(), more.end());
    return verifying(context, kEver, all);
  };
}

// The same work of the same program without qgpu.
Json bareAs(CheckContext& context, Scene& scene, const Json& under) {
  auto bare = scene.bare(verifying(context, std::to_string(under["launches"].get<std::uint64_t>()),
                                   {"--late", std::to_string(under["late"].get<int>())}));
  return resultOf(*bare, "a bare program");
}

// --- late channels ---

struct LateRun {
  std::uint64_t late = 0, ran = 0;  // that came during the hold, and worked in it
  bool still = false;               // its other work, meanwhile
  Json online, offline, bare, card, faults;
};

// A real driver may let a context wait for its own channels, and does not tell which are off; the
// stand-in has all of them made, and off, as soon as the machine comes to it.
void awaitHeardOf(HeldTenant& all, std::uint64_t count) {
  const rm_stand_in::State* const driver = rm_stand_in::state();
  all.scene.await(std::to_string(count) + " late contexts, held", *all.offline, [&] {
    const auto process = static_cast<std::int32_t>(made(*all.offline, "process"));
    const bool there = process != 0 && made(*all.offline, "late") >= count;
    return there && (!driver || areOff(*driver, process));
  });
}

LateRun runLate(CheckContext& context, std::uint64_t count) {
  const std::string number = std::to_string(count);
  std::string from, heard;
  HeldTenant all(
      context, {},
      [&](const std::string& end) {
        from = end + "-late";
        heard = end + "-heard";
        return verifyingTillEnd(
            context, {"--late", number, "--late-from", from, "--late-heard", heard})(end);
      },
      5);
  LateRun run;
  run.still = all.standsStill(milliseconds(context.count(3'000, 700)), [&] {
    Scene::give(from);
    if (context.card.standIn()) awaitHeardOf(all, count);
    Scene::give(heard);
  });
  run.late = made(*all.offline, "late");
  run.ran = made(*all.offline, "ran");
  run.card = all.scene.card();
  run.online = all.restOnline();
  run.offline = all.endOffline();
  run.bare = bareAs(context, all.scene, run.offline);
  run.faults = all.scene.faults();
  return run;
}

// --- a crowded driver ---

// What nvidia-smi asks for again and again where somebody lets it.
class Asking {
 public:
  explicit Asking(const TheCard& card) : thread_([this, &card] { ask(card); }) {}
  ~Asking() {
    {
      const std::lock_guard held(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  void ask(const TheCard& card) {
    std::unique_lock held(mutex_);
    while (!changed_.wait_for(held, milliseconds(100), [&] { return ending_; })) card.used();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

struct Crowd {
  const char* says;
  bool memory, contexts, nvml;
};
constexpr Crowd kCrowds[] = {{"nobody else", false, false, false},
                             {"2 MiB taken and given back in a loop", true, false, false},
                             {"contexts made and ended in a loop", false, true, false},
                             {"NVML asked each 100 ms", false, false, true},
                             {"all three", true, true, true}};

void checkCrowd(CheckContext& context, const Crowd& crowd) {
  // Each of online's kernels comes when offline has the card again.
  constexpr int kEveryMs = 25;
  Scene scene(context.card, {"--online-idle=5ms"});
  const std::string end = scene.signalFile();
  auto offline = scene.run({"batch", "offline", 50},
                           Scene::work({"burn", "--iterations", context.spins(kKernelMs), "--batch",
                                        "2", "--until", end}));
  scene.await("offline", *offline, [&] { return said(*offline, "burns") == 1; });
  std::vector<std::unique_ptr<Child>> others;
  for (const char* how : {"memory", "contexts"}) {
    const bool there = how == std::string("memory") ? crowd.memory : crowd.contexts;
    if (!there) continue;
    others.push_back(
        scene.run({how, "offline", 20, 4}, Scene::work({"disturb", "--how", how, "--until", end})));
    scene.await(how, *others.back(), [&] { return said(*others.back(), "disturbs") == 1; });
  }
  std::optional<Asking> asking;
  if (crowd.nvml) asking.emplace(context.card);
  auto online = scene.run(
      {"serve", "online"},
      Scene::work({"probe", "--iterations", context.spins(0.05), "--every",
                   std::to_string(kEveryMs), "--count", std::to_string(context.count(200, 10))}));
  const Json got = resultOf(*online, "the online program");
  const Json card = scene.card();
  Scene::give(end);
  resultOf(*offline, "the offline program");
  Finding finding{std::string("holds beside ") + crowd.says};
  finding.figures = {{"suspend", card["suspend"]},
                     {"holds", card["holds"]},
                     {"overruns", card["overruns"]},
                     {"settle_us", card["settle_us"]},
                     {"start_p50_us", got["start_p50_us"]},
                     {"start_p99_us", got["start_p99_us"]},
                     {"start_p999_us", got["start_p999_us"]},
                     {"start_max_us", got["start_max_us"]}};
  for (const auto& other : others) {
    finding.figures["turns"].push_back(resultOf(*other, "a disturbing program")["turns"]);
  }
  if (card["holds"] == 0) throw crash::Violation("nothing was held: " + card.dump());
  context.record.add(std::move(finding));
}

// --- long holds ---

void checkLongHold(CheckContext& context) {
  HeldTenant all(context, {}, verifyingTillEnd(context, {}));
  const std::int64_t from = testing::monotonicNs();
  const bool still = all.standsStill(std::chrono::seconds(context.seconds(60)));
  const double ms = msSince(from);
  all.restOnline();
  const Json under = all.endOffline();
  const Json bare = bareAs(context, all.scene, under);
  const Json card = all.scene.card(), faults = all.scene.faults();
  Finding finding{"a task that is held for long", "stands still, and its sum is exact; no Xid"};
  finding.figures = {{"suspend", card["suspend"]},
                     {"held_ms", ms},
                     {"stood_still", still},
                     {"sum", under["sum"]},
                     {"sum_bare", bare["sum"]},
                     {"state", card["state"]},
                     {"faults", faults}};
  const bool met = still && under["sum"] == bare["sum"] && faults.empty();
  finding.verdict = met ? Verdict::kMet : Verdict::kMissed;
  context.record.add(std::move(finding));
}

// It is as if dead, and then as if nothing had been: programs put themselves back, and it has to
// take them off again though it never let them go.
void checkManagerStopped(CheckContext& context) {
  constexpr double kGraceMs = 5'000;
  constexpr double kLateMs = 2'000;  // its last beat is some time ago, and guests look now and then
  HeldTenant all(context, {}, verifyingTillEnd(context, {}));
  const std::uint64_t before = made(*all.offline);
  all.scene.daemon().signal(SIGSTOP);
  const std::int64_t from = testing::monotonicNs();
  const bool goesOn = testing::eventually([&] { return made(*all.offline) > before + 4; },
                                          std::chrono::seconds(20));
  const double onMs = msSince(from);
  all.scene.daemon().signal(SIGCONT);
  if (!goesOn) throw crash::Violation("offline stays held by a manager that does not run");
  const std::int64_t again = testing::monotonicNs();
  all.scene.await("a hold by the manager that is back",
                  [&] { return all.standsStill(milliseconds(300)); });
  const double heldMs = msSince(again) - 300;
  all.restOnline();
  const Json under = all.endOffline();
  const Json bare = bareAs(context, all.scene, under);
  const Json faults = all.scene.faults();
  Finding finding{"a manager that stops for longer than the grace while a task is held",
                  "the task goes on after 5 s, is held again when the manager is back, and its sum "
                  "is exact; no Xid"};
  finding.figures = {{"suspend", all.scene.card()["suspend"]},
                     {"goes_on_ms", onMs},
                     {"held_again_ms", heldMs},
                     {"sum", under["sum"]},
                     {"sum_bare", bare["sum"]},
                     {"faults", faults}};
  const bool inTime = context.quick || onMs <= kGraceMs + kLateMs;
  const bool met = inTime && under["sum"] == bare["sum"] && faults.empty();
  finding.verdict = met ? Verdict::kMet : Verdict::kMissed;
  context.record.add(std::move(finding));
}

}  // namespace

void checkSuspends(CheckContext& context) {
  const int wanted = context.count(500, 20);
  // Online leaves some 10 ms between two bursts: each of those is a kernel's time.
  HeldTenant all(context, {"--online-idle=5ms"}, verifyingTillEnd(context, {}), 15);
  const auto holds = [&] { return all.scene.card()["holds"].get<int>(); };
  const int from = holds();
  all.scene.await(
      std::to_string(wanted) + " holds", *all.offline, [&] { return holds() - from >= wanted; },
      std::chrono::seconds(120));
  const Json card = all.scene.card();
  all.restOnline();
  const Json under = all.endOffline();
  const Json bare = bareAs(context, all.scene, under), faults = all.scene.faults();
  Finding finding{"results after many holds", "bit-equal, no Xid"};
  finding.figures = {{"suspend", card["suspend"]},
                     {"holds", card["holds"].get<int>() - from},
                     {"launches", under["launches"]},
                     {"sum", under["sum"]},
                     {"sum_bare", bare["sum"]},
                     {"state", card["state"]},
                     {"seconds", under["seconds"]},
                     {"bare_seconds", bare["seconds"]},
                     {"faults", faults}};
  const bool met = under["sum"] == bare["sum"] && faults.empty();
  finding.verdict = met ? Verdict::kMet : Verdict::kMissed;
  context.record.add(std::move(finding));
}

void checkLate(CheckContext& context) {
  constexpr std::uint64_t kLate = 4;
  constexpr double kWorseMaxUs = 100;
  const LateRun without = runLate(context, 0), with = runLate(context, kLate);
  Finding finding{
      "contexts that a held task makes",
      "its work stands still, online starts as soon (p99 within 0.1 ms), sums are exact, no Xid"};
  finding.figures = {{"suspend", with.card["suspend"]},
                     {"late_contexts", with.late},
                     {"late_ran", with.ran},
                     {"stood_still", with.still},
                     {"start_p99_us", with.online["start_p99_us"]},
                     {"without_start_p99_us", without.online["start_p99_us"]},
                     {"start_max_us", with.online["start_max_us"]},
                     {"settle_us", with.card["settle_us"]},
                     {"sum", with.offline["sum"]},
                     {"sum_bare", with.bare["sum"]},
                     {"late_sum", with.offline["late_sum"]},
                     {"late_sum_bare", with.bare["late_sum"]},
                     {"faults", with.faults}};
  const double worse =
      with.online["start_p99_us"].get<double>() - without.online["start_p99_us"].get<double>();
  const bool exact = with.offline["sum"] == with.bare["sum"] &&
                     with.offline["late_sum"] == with.bare["late_sum"] &&
                     with.offline["late_same"] == true && with.bare["late_same"] == true &&
                     with.offline["late_ran"] == with.offline["late"];
  const bool off = with.card["suspend"] != "rm" || with.ran == 0;
  const bool met = off && with.still && without.still && exact && with.faults.empty() &&
                   (context.quick || worse <= kWorseMaxUs);
  finding.verdict = met ? Verdict::kMet : Verdict::kMissed;
  context.record.add(std::move(finding));
}

void checkInterference(CheckContext& context) {
  for (const Crowd& crowd : kCrowds) checkCrowd(context, crowd);
}

void checkWait(CheckContext& context) {
  checkLongHold(context);
  checkManagerStopped(context);
}

}  // namespace qgpu::gpu
