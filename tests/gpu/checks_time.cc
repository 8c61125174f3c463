// Time: what a launch costs, what a program alone keeps, shares, and how long online waits.

#include <algorithm>
#include <cmath>

#include "services/demo/tenants/bare_run.h"
#include "services/demo/tenants/node_client.h"
#include "tests/crash/violation.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/pairs.h"
#include "tests/gpu/ranks.h"

namespace qgpu::gpu {
namespace {

constexpr double kShortKernelMs = 0.5;  // where only rates are looked at

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return rank(values, 500);
}

double rateOf(const Json& burnt) {
  return burnt["kernels"].get<double>() / burnt["seconds"].get<double>();
}

Arguments burning(const CheckContext& context, const std::string& how, double kernelMs,
                  Arguments more) {
  Arguments words = Scene::work({"burn", "--how", how, "--iterations", context.spins(kernelMs)});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// What the manager has counted so far.
demo::TaskSnapshot countedTasks(Scene& scene) {
  auto tasks = demo::NodeClient(scene.daemon().socket()).tasks();
  if (!tasks) throw crash::Violation(tasks.error().message);
  return std::move(*tasks);
}

// Of one program among others: kernels a second, and how much of the time the manager counted that
// it had the card.
struct Together {
  double rate = 0;
  std::int64_t accountPermille = 0;
};

// Of programs that begin together and burn for `seconds`.
std::vector<Together> runTogether(Scene& scene, int seconds, const CheckContext& context,
                                  const std::vector<Tenant>& tenants) {
  const std::string begin = scene.signalFile();
  const Arguments program = burning(context, "plain", kShortKernelMs,
                                    {"--seconds", std::to_string(seconds), "--from", begin});
  std::vector<std::unique_ptr<Child>> children;
  for (const Tenant& tenant : tenants) {
    children.push_back(scene.run(tenant, program));
    scene.await(tenant.name, *children.back(),
                [&] { return said(*children.back(), "burns") == 1; });
  }
  Scene::give(begin);
  const demo::TaskSnapshot first = countedTasks(scene);
  crash::pause(milliseconds(seconds * 500));
  const demo::TaskSnapshot last = countedTasks(scene);
  std::vector<Together> all;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    Together& one = all.emplace_back();
    one.rate = rateOf(resultOf(*children[i], tenants[i].name));
    const demo::TaskCounters* from = first.find(tenants[i].name);
    const demo::TaskCounters* to = last.find(tenants[i].name);
    if (from == nullptr || to == nullptr) continue;  // it was asked too late: nothing is counted
    one.accountPermille = (to->usedNs - from->usedNs) * 1'000 / (last.atNs - first.atNs);
  }
  return all;
}

// As one program, so many at once. A shell lives on without qgpuctl, and they with it.
Arguments several(int count, const Arguments& program) {
  std::string line = "\"$@\"";
  for (int i = 1; i < count; ++i) line += " & \"$@\"";
  Arguments words = {"setpriv", "--pdeathsig", "KILL", "sh", "-c", line + "; wait", "sh"};
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

double bareRate(Scene& scene, int seconds, const CheckContext& context) {
  auto alone =
      scene.bare(burning(context, "plain", kShortKernelMs, {"--seconds", std::to_string(seconds)}));
  return rateOf(resultOf(*alone, "a bare program"));
}

// --- online ---

Arguments probing(const CheckContext& context, int everyMs, int count) {
  return Scene::work({"probe", "--iterations", context.spins(0.05), "--every",
                      std::to_string(everyMs), "--count", std::to_string(count)});
}

Json probe(Scene& scene, const Arguments& program) {
  auto online = scene.run({"serve", "online"}, program);
  return resultOf(*online, "the online program");
}

// Two ways of being online. Apart: each burst finds offline running again, since the pause is
// longer than online's idle time by as much as a kernel of offline's takes, and 300 of them have
// three above their p99. At work: the pause is shorter.
constexpr const char* kIdle = "--online-idle=10ms";
Arguments apart(const CheckContext& context) {
  return probing(context, 20, context.count(300, 8));
}
Arguments atWork(const CheckContext& context) {
  return probing(context, 5, context.count(500, 20));
}

// The same two without anybody beside on the card; at work also beside a program that keeps a
// processor busy, as an offline program does that waits for its held kernels.
struct Alone {
  Json apart, atWork, besideSpinning;
};

std::unique_ptr<Child> burningOffline(Scene& scene, const Arguments& program) {
  auto offline = scene.run({"batch", "offline", 50}, program);
  scene.await("offline", *offline, [&] { return said(*offline, "burns") == 1; });
  return offline;
}

struct Behind {
  const char* how;
  const char* says;
};
constexpr Behind kBehind[] = {{"plain", "kernels of 10 ms"},
                              {"graph", "graphs of four kernels of 10 ms"},
                              {"cooperative", "cooperative kernels of 10 ms"},
                              {"multiply", "a loop of matrix products"}};

void checkBehind(CheckContext& context, const Behind& behind, const Alone& alone) {
  constexpr double kStartMaxUs = 1'000, kStretchUs = 500, kSlowerMax = 1.05;
  Scene scene(context.card, {kIdle});
  const std::string end = scene.signalFile();
  auto offline = burningOffline(scene, burning(context, behind.how, kKernelMs, {"--until", end}));
  const Json bursts = probe(scene, apart(context));
  const Json busy = probe(scene, atWork(context));
  const Json card = scene.card();
  Scene::give(end);
  resultOf(*offline, "the offline program");
  const double added =
      bursts["start_p99_us"].get<double>() - alone.apart["start_p50_us"].get<double>();
  const double slower =
      busy["end_p99_us"].get<double>() / alone.besideSpinning["end_p99_us"].get<double>();
  const bool hard = card["suspend"] == "rm";
  Finding start{std::string("online's start behind ") + behind.says,
                hard ? "p99 below 1 ms, 0.5 ms is the stretch" : ""};
  start.figures = {{"suspend", card["suspend"]},
                   {"bursts", bursts["count"]},
                   {"start_p50_us", bursts["start_p50_us"]},
                   {"start_p99_us", bursts["start_p99_us"]},
                   {"start_max_us", bursts["start_max_us"]},
                   {"added_p99_us", std::round(added * 10) / 10},
                   {"stretch_met", added < kStretchUs},
                   {"settle_us", card["settle_us"]},
                   {"preempt_us", card["preempt_us"]}};
  if (hard) start.verdict = context.timed(added < kStartMaxUs);
  if (!hard) start.why = "under gate the start waits for what is in flight";
  context.record.add(std::move(start));
  Finding ratio{std::string("online at work beside ") + behind.says,
                "p99 at most 1.05 of running alone on the card, a processor being busy"};
  ratio.figures = {{"end_p99_us", busy["end_p99_us"]},
                   {"spinning_end_p99_us", alone.besideSpinning["end_p99_us"]},
                   {"spinning_end_p50_us", alone.besideSpinning["end_p50_us"]},
                   {"alone_end_p99_us", alone.atWork["end_p99_us"]},
                   {"end_p50_us", busy["end_p50_us"]},
                   {"alone_end_p50_us", alone.atWork["end_p50_us"]},
                   {"ratio", slower}};
  ratio.verdict = context.timed(slower <= kSlowerMax);
  context.record.add(std::move(ratio));
}

// --- timeslices ---

// A card that holds by its gate alone.
Arguments slicedBy(const char* timeslices) {
  return {"--suspend=gate", kIdle, std::string("--timeslices=") + timeslices};
}

Json behindTheGate(CheckContext& context, const char* timeslices) {
  Scene scene(context.card, slicedBy(timeslices));
  const std::string end = scene.signalFile();
  auto offline = burningOffline(scene, burning(context, "plain", kKernelMs, {"--until", end}));
  Json online = probe(scene, apart(context));
  Scene::give(end);
  resultOf(*offline, "the offline program");
  return online;
}

// Kernels a second of one of two processes of an offline task that is alone.
double rateBesideItself(CheckContext& context, const char* timeslices) {
  Scene scene(context.card, slicedBy(timeslices));
  const std::string begin = scene.signalFile();
  const std::string seconds = std::to_string(context.seconds(4));
  const Arguments one =
      burning(context, "plain", kShortKernelMs, {"--seconds", seconds, "--from", begin});
  auto both = scene.run({"batch", "offline", 50, Tenant::kSeveral}, several(2, one));
  scene.await("two processes", *both, [&] { return said(*both, "burns") == 2; });
  Scene::give(begin);
  return rateOf(resultOf(*both, "the offline task"));
}

}  // namespace

void checkHook(CheckContext& context) {
  constexpr double kMostNs = 20;
  Scene scene(context.card, {});
  const Arguments program =
      Scene::work({"launch", "--launches", std::to_string(context.count(250'000, 10'000))});
  const Pairs all = Pairs::run(context.count(12, 4), [&](bool under) {
    auto launching = under ? scene.run({"launches"}, program) : scene.bare(program);
    return resultOf(*launching, "launches")["launch_ns"].get<double>();
  });
  std::vector<double> added;
  for (std::size_t i = 0; i < all.bare.size(); ++i) added.push_back(all.under[i] - all.bare[i]);
  Finding finding{"an empty launch", "at most 20 ns more than bare"};
  finding.figures = {{"bare_ns", median(all.bare)}, {"under_ns", median(all.under)}};
  judgePairs(finding, "added_ns", std::move(added), kMostNs);
  if (context.quick) finding.verdict = Verdict::kReported;
  context.record.add(std::move(finding));
}

void checkAlone(CheckContext& context) {
  constexpr double kLeast = 0.98;
  const int seconds = context.seconds(3);
  Scene scene(context.card, {});
  std::vector<double> ratios;
  for (int i = 0; i < context.count(3, 1); ++i) {
    const double bare = bareRate(scene, seconds, context);
    const auto together = runTogether(scene, seconds, context, {{"batch", "offline", 50}});
    ratios.push_back(together[0].rate / bare);
  }
  Finding finding{"offline with online absent", "at least 98 % of its bare rate"};
  finding.figures = {{"ratio", median(ratios)}, {"pairs", ratios.size()}};
  finding.verdict = context.timed(median(ratios) >= kLeast);
  context.record.add(std::move(finding));
}

namespace {

// Each share as `prove` judges it. Nobody looks at what these programs compute.
void judgeShares(CheckContext& context, const std::vector<Tenant>& tenants,
                 const std::vector<Together>& all, const demo::BareRates& bare) {
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    prove::ShareFigures share;
    share.wantedPermille = tenants[i].core * 10;
    share.workPermille = std::llround(all[i].rate / bare.around[0] * 1'000);
    share.accountPermille = all[i].accountPermille;
    share.bareApartPermille = bare.apartPermille;
    Finding finding = context.judged(prove::judgeShare(share.wantedPermille, share));
    finding.figures.erase("wrong_items");
    context.record.add(std::move(finding));
  }
}

}  // namespace

void checkShares(CheckContext& context) {
  constexpr double kAggregateLeast = 0.97, kErrorMax = 0.02;
  const int seconds = context.seconds(8), bareSeconds = context.seconds(5);
  Scene scene(context.card, {"--policy=fixed-share"});
  const std::vector<Tenant> three = {
      {"a", "ordinary", 20}, {"b", "ordinary", 30}, {"c", "ordinary", 50}};
  const double before = bareRate(scene, bareSeconds, context);
  const std::vector<Together> all = runTogether(scene, seconds, context, three);
  const demo::BareRates around = demo::bareRatesOf({before, bareRate(scene, bareSeconds, context)});
  const double bare = around.around[0];
  judgeShares(context, three, all, around);
  Finding shares{"three fixed shares", "each within 2 points, together at least 97 %"};
  double sum = 0, worst = 0;
  for (std::size_t i = 0; i < three.size(); ++i) {
    const double got = all[i].rate / bare;
    sum += got;
    worst = std::max(worst, std::abs(got - three[i].core / 100.0));
    shares.figures["of_" + std::to_string(three[i].core)] = got;
  }
  shares.figures["aggregate"] = sum;
  shares.figures["worst_error"] = worst;
  shares.verdict = context.timed(sum >= kAggregateLeast && worst <= kErrorMax);
  context.record.add(std::move(shares));

  // One task of four processes beside one of one: a share is the task's.
  const std::string begin = scene.signalFile();
  const Arguments one = burning(context, "plain", kShortKernelMs,
                                {"--seconds", std::to_string(seconds), "--from", begin});
  auto many = scene.run({"many", "ordinary", 50, Tenant::kSeveral}, several(4, one));
  scene.await("four processes", *many, [&] { return said(*many, "burns") == 4; });
  auto single = scene.run({"single", "ordinary", 50}, one);
  scene.await("one process", *single, [&] { return said(*single, "burns") == 1; });
  Scene::give(begin);
  const double got = rateOf(resultOf(*single, "single")) / bare;
  resultOf(*many, "many");
  Finding forks{"a task of four processes beside one of one, 50 each", "within 2 points"};
  forks.figures = {{"single", got}};
  forks.verdict = context.timed(std::abs(got - 0.5) <= kErrorMax);
  context.record.add(std::move(forks));
}

// What the net does where nothing else takes a kernel off, and what it costs a task whose own
// processes take turns by it.
void checkTimeslices(CheckContext& context) {
  Finding start{"online's start behind kernels of 10 ms that only a gate holds", ""};
  constexpr double kLeast = 0.97;
  Finding cost{"two processes of an offline task, alone",
               "at least 97 % of what they make with the driver's own slices"};
  for (const char* timeslices : {"on", "off"}) {
    const std::string with = std::string("timeslices_") + timeslices;
    const Json online = behindTheGate(context, timeslices);
    for (const char* figure : {"start_p50_us", "start_p99_us", "start_max_us"}) {
      start.figures[with + "_" + figure] = online[figure];
    }
  }
  context.record.add(std::move(start));
  const double on = rateBesideItself(context, "on"), off = rateBesideItself(context, "off");
  cost.figures = {{"timeslices_on_rate", on}, {"timeslices_off_rate", off}};
  cost.verdict = context.timed(on >= kLeast * off);
  context.record.add(std::move(cost));
}

void checkStarts(CheckContext& context) {
  for (const std::int64_t kernelMs : prove::kKernelsMs) {
    Scene scene(context.card, {kIdle});
    const std::string end = scene.signalFile();
    // Two batches are on their way.
    const std::string batch = std::to_string(prove::kKernelsInFlight / 2);
    auto offline = burningOffline(scene, burning(context, "plain", static_cast<double>(kernelMs),
                                                 {"--batch", batch, "--until", end}));
    Arguments program = probing(context, 20, context.count(100, 12));
    program.insert(program.end(), {"--each", "1"});
    const Json online = probe(scene, program);
    prove::OnlineFigures starts{scene.card()["suspend"], kernelMs, {}};
    Scene::give(end);
    resultOf(*offline, "the offline program");
    for (const Json& us : online["starts_us"])
      starts.startUs.push_back(std::llround(us.get<double>()));
    context.record.add(context.judged(prove::judgeLatency(kernelMs, starts)));
    context.record.addStarts(std::move(starts));
  }
}

void checkLatency(CheckContext& context) {
  Alone alone;
  {
    Scene scene(context.card, {kIdle});
    auto bare = scene.bare(apart(context));
    const Json without = resultOf(*bare, "a bare program");
    alone = {probe(scene, apart(context)), probe(scene, atWork(context)), {}};
    const Child spinning({"sh", "-c", "while :; do :; done"});
    alone.besideSpinning = probe(scene, atWork(context));
    Finding finding{"online alone", ""};
    finding.figures = {{"start_p50_us", alone.apart["start_p50_us"]},
                       {"start_p99_us", alone.apart["start_p99_us"]},
                       {"bare_start_p50_us", without["start_p50_us"]},
                       {"bare_start_p99_us", without["start_p99_us"]}};
    context.record.add(std::move(finding));
  }
  for (const Behind& behind : kBehind) checkBehind(context, behind, alone);
}

}  // namespace qgpu::gpu
