// Time: what a launch costs, what a program alone keeps, shares, and how long online waits.

#include <algorithm>
#include <cmath>

#include "tests/gpu/checks.h"

namespace qgpu::gpu {
namespace {

constexpr double kKernelMs = 10;        // of offline programs
constexpr double kShortKernelMs = 0.5;  // where only rates are looked at

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double rateOf(const Json& burnt) {
  return burnt["kernels"].get<double>() / burnt["seconds"].get<double>();
}

Words burning(const Stage& stage, const std::string& how, double kernelMs, Words more) {
  Words words = Scene::work({"burn", "--how", how, "--iterations", stage.spins(kernelMs)});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Kernels a second of programs that begin together and burn for `seconds`.
std::vector<double> ratesTogether(Scene& scene, int seconds, const Stage& stage,
                                  const std::vector<Tenant>& tenants) {
  const std::string begin = scene.signalFile();
  const Words program = burning(stage, "plain", kShortKernelMs,
                                {"--seconds", std::to_string(seconds), "--from", begin});
  std::vector<std::unique_ptr<Child>> children;
  for (const Tenant& tenant : tenants) {
    children.push_back(scene.run(tenant, program));
    scene.await(tenant.name, [&] { return said(*children.back(), "burns"); });
  }
  Scene::give(begin);
  std::vector<double> rates;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    rates.push_back(rateOf(resultOf(*children[i], tenants[i].name)));
  }
  return rates;
}

// As one program, so many at once, and how many of them burn by now.
Words several(int count, const Words& program) {
  std::string line = "\"$@\"";
  for (int i = 1; i < count; ++i) line += " & \"$@\"";
  Words words = {"sh", "-c", line + "; wait", "sh"};
  words.insert(words.end(), program.begin(), program.end());
  return words;
}
int burns(const Child& children) {
  const std::string text = children.output();
  int count = 0;
  for (std::size_t at = 0; (at = text.find("burns", at)) != std::string::npos; ++at) ++count;
  return count;
}

double bareRate(Scene& scene, int seconds, const Stage& stage) {
  auto alone =
      scene.bare(burning(stage, "plain", kShortKernelMs, {"--seconds", std::to_string(seconds)}));
  return rateOf(resultOf(*alone, "a bare program"));
}

// --- online ---

Words probing(const Stage& stage, int everyMs, int count) {
  return Scene::work({"probe", "--iterations", stage.spins(0.05), "--every",
                      std::to_string(everyMs), "--count", std::to_string(count)});
}

Json probe(Scene& scene, const Stage& stage, int everyMs, int count) {
  auto online = scene.run({"serve", "online"}, probing(stage, everyMs, count));
  return resultOf(*online, "the online program");
}

struct Behind {
  const char* how;
  const char* says;
};
constexpr Behind kBehind[] = {{"plain", "kernels of 10 ms"},
                              {"graph", "graphs of four kernels of 10 ms"},
                              {"cooperative", "cooperative kernels of 10 ms"},
                              {"multiply", "a loop of matrix products"}};

void checkBehind(Stage& stage, const Behind& behind, const Json& alone) {
  constexpr double kStartMaxUs = 1'000, kStretchUs = 500, kSlowerMax = 1.05;
  Scene scene(stage.card, {"--online-idle=20ms"});
  const std::string end = scene.signalFile();
  auto offline =
      scene.run({"batch", "offline", 50}, burning(stage, behind.how, kKernelMs, {"--until", end}));
  scene.await("offline", [&] { return said(*offline, "burns"); });
  // Each burst finds offline running again: the pause is longer than online's idle time.
  const Json apart = probe(scene, stage, 60, stage.count(100, 8));
  const Json busy = probe(scene, stage, 5, stage.count(500, 20));
  const Json card = scene.card();
  Scene::give(end);
  resultOf(*offline, "the offline program");
  const double added = apart["start_p99_us"].get<double>() - alone["start_p50_us"].get<double>();
  const double slower = busy["end_p99_us"].get<double>() / alone["end_p99_us"].get<double>();
  const bool hard = card["suspend"] == "rm";
  Finding start{std::string("online's start behind ") + behind.says,
                hard ? "p99 below 1 ms, 0.5 ms is the stretch" : ""};
  start.figures = {{"suspend", card["suspend"]},
                   {"start_p50_us", apart["start_p50_us"]},
                   {"start_p99_us", apart["start_p99_us"]},
                   {"start_max_us", apart["start_max_us"]},
                   {"added_p99_us", std::round(added * 10) / 10},
                   {"stretch_met", added < kStretchUs},
                   {"settle_us", card["settle_us"]},
                   {"preempt_us", card["preempt_us"]}};
  if (hard && !stage.quick) {
    start.verdict = added < kStartMaxUs ? Verdict::kMet : Verdict::kMissed;
  }
  if (!hard) start.why = "under gate the start waits for what is in flight";
  stage.record.add(std::move(start));
  Finding ratio{std::string("online at work beside ") + behind.says,
                "p99 at most 1.05 of running alone"};
  ratio.figures = {{"end_p99_us", busy["end_p99_us"]},
                   {"alone_end_p99_us", alone["end_p99_us"]},
                   {"ratio", slower}};
  ratio.verdict = slower <= kSlowerMax ? Verdict::kMet : Verdict::kMissed;
  if (stage.quick) ratio.verdict = Verdict::kReported;
  stage.record.add(std::move(ratio));
}

// --- timeslices ---

// A card that holds by its gate alone.
Words slicedBy(const char* timeslices) {
  return {"--suspend=gate", "--online-idle=20ms", std::string("--timeslices=") + timeslices};
}

Json behindTheGate(Stage& stage, const char* timeslices) {
  Scene scene(stage.card, slicedBy(timeslices));
  const std::string end = scene.signalFile();
  auto offline =
      scene.run({"batch", "offline", 50}, burning(stage, "plain", kKernelMs, {"--until", end}));
  scene.await("offline", [&] { return said(*offline, "burns"); });
  Json online = probe(scene, stage, 60, stage.count(100, 8));
  Scene::give(end);
  resultOf(*offline, "the offline program");
  return online;
}

// Kernels a second of one of two processes of an offline task that is alone.
double rateBesideItself(Stage& stage, const char* timeslices) {
  Scene scene(stage.card, slicedBy(timeslices));
  const std::string begin = scene.signalFile();
  const std::string seconds = std::to_string(stage.seconds(4));
  const Words one =
      burning(stage, "plain", kShortKernelMs, {"--seconds", seconds, "--from", begin});
  auto both = scene.run({"batch", "offline", 50}, several(2, one));
  scene.await("two processes", [&] { return burns(*both) == 2; });
  Scene::give(begin);
  return rateOf(resultOf(*both, "the offline task"));
}

}  // namespace

void checkHook(Stage& stage) {
  constexpr double kMostNs = 20;
  Scene scene(stage.card, {});
  const Words program =
      Scene::work({"launch", "--launches", std::to_string(stage.count(1'000'000, 10'000))});
  std::vector<double> bare, under, added;
  for (int i = 0; i < 5; ++i) {
    auto without = scene.bare(program);
    bare.push_back(resultOf(*without, "bare launches")["launch_ns"].get<double>());
    auto with = scene.run({"launches"}, program);
    under.push_back(resultOf(*with, "launches")["launch_ns"].get<double>());
    added.push_back(under.back() - bare.back());
  }
  Finding finding{"an empty launch", "at most 20 ns more than bare"};
  finding.figures = {
      {"bare_ns", median(bare)}, {"under_ns", median(under)}, {"added_ns", median(added)}};
  finding.verdict = median(added) <= kMostNs ? Verdict::kMet : Verdict::kMissed;
  stage.record.add(std::move(finding));
}

void checkAlone(Stage& stage) {
  constexpr double kLeast = 0.98;
  const int seconds = stage.seconds(4);
  Scene scene(stage.card, {});
  std::vector<double> ratios;
  for (int i = 0; i < stage.count(3, 1); ++i) {
    const double bare = bareRate(scene, seconds, stage);
    ratios.push_back(ratesTogether(scene, seconds, stage, {{"batch", "offline", 50}})[0] / bare);
  }
  Finding finding{"offline with online absent", "at least 98 % of its bare rate"};
  finding.figures = {{"ratio", median(ratios)}, {"pairs", ratios.size()}};
  finding.verdict = median(ratios) >= kLeast ? Verdict::kMet : Verdict::kMissed;
  stage.record.add(std::move(finding));
}

void checkShares(Stage& stage) {
  constexpr double kAggregateLeast = 0.97, kErrorMax = 0.02;
  const int seconds = stage.seconds(10);
  Scene scene(stage.card, {"--policy=fixed-share"});
  const double bare = bareRate(scene, stage.seconds(5), stage);
  const std::vector<Tenant> three = {
      {"a", "ordinary", 20}, {"b", "ordinary", 30}, {"c", "ordinary", 50}};
  const std::vector<double> rates = ratesTogether(scene, seconds, stage, three);
  Finding shares{"three fixed shares", "each within 2 points, together at least 97 %"};
  double sum = 0, worst = 0;
  for (std::size_t i = 0; i < three.size(); ++i) {
    const double got = rates[i] / bare;
    sum += got;
    worst = std::max(worst, std::abs(got - three[i].core / 100.0));
    shares.figures["of_" + std::to_string(three[i].core)] = got;
  }
  shares.figures["aggregate"] = sum;
  shares.figures["worst_error"] = worst;
  const bool met = sum >= kAggregateLeast && worst <= kErrorMax;
  shares.verdict = met ? Verdict::kMet : Verdict::kMissed;
  stage.record.add(std::move(shares));

  // One task of four processes beside one of one: a share is the task's.
  const std::string begin = scene.signalFile();
  const Words one = burning(stage, "plain", kShortKernelMs,
                            {"--seconds", std::to_string(seconds), "--from", begin});
  auto many = scene.run({"many", "ordinary", 50}, several(4, one));
  auto single = scene.run({"single", "ordinary", 50}, one);
  scene.await("five processes", [&] { return burns(*many) == 4 && said(*single, "burns"); });
  Scene::give(begin);
  const double got = rateOf(resultOf(*single, "single")) / bare;
  many->wait();
  Finding forks{"a task of four processes beside one of one, 50 each", "within 2 points"};
  forks.figures = {{"single", got}};
  forks.verdict = std::abs(got - 0.5) <= kErrorMax ? Verdict::kMet : Verdict::kMissed;
  stage.record.add(std::move(forks));
}

// What the net does where nothing else takes a kernel off, and what it costs a task whose own
// processes take turns by it.
void checkTimeslices(Stage& stage) {
  Finding start{"online's start behind kernels of 10 ms that only a gate holds", ""};
  Finding cost{"two processes of an offline task, alone", ""};
  for (const char* timeslices : {"on", "off"}) {
    const std::string with = std::string("timeslices_") + timeslices;
    const Json online = behindTheGate(stage, timeslices);
    for (const char* figure : {"start_p50_us", "start_p99_us", "start_max_us"}) {
      start.figures[with + "_" + figure] = online[figure];
    }
    cost.figures[with + "_rate"] = rateBesideItself(stage, timeslices);
  }
  stage.record.add(std::move(start));
  stage.record.add(std::move(cost));
}

void checkLatency(Stage& stage) {
  Json alone;
  {
    Scene scene(stage.card, {});
    auto bare = scene.bare(probing(stage, 20, stage.count(300, 10)));
    const Json without = resultOf(*bare, "a bare program");
    alone = probe(scene, stage, 20, stage.count(300, 10));
    Finding finding{"online alone", ""};
    finding.figures = {{"start_p50_us", alone["start_p50_us"]},
                       {"start_p99_us", alone["start_p99_us"]},
                       {"bare_start_p50_us", without["start_p50_us"]},
                       {"bare_start_p99_us", without["start_p99_us"]}};
    stage.record.add(std::move(finding));
  }
  for (const Behind& behind : kBehind) checkBehind(stage, behind, alone);
}

}  // namespace qgpu::gpu
