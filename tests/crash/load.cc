#include "tests/crash/load.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "bench/load_manager.h"
#include "bench/load_scene.h"
#include "tests/crash/churn.h"
#include "tests/crash/violation.h"

namespace qgpu::crash {
namespace {

constexpr std::size_t kSamplesMin = 24;  // of a run, however short it is
constexpr double kSampleSecondsMax = 10;
constexpr std::size_t kRequesters = 2;

// What counts as growth. Tables that are bounded fill during the warm-up, the first fifth.
constexpr double kRssFactor = 1.05;
constexpr double kRssSlackKib = 1'024;
constexpr double kDescriptorSlack = 16;  // connections under way
constexpr double kPreemptFactor = 3;     // neighbours on a busy machine
constexpr double kPreemptSlackUs = 2'000;

struct Sample {
  double seconds = 0;
  double rssKib = 0;
  double descriptors = 0;
  double cpuPercent = 0;
  double launchesPerS = 0;
  double preemptP50Us = 0;
  double preemptP99Us = 0;
  double settleP99Us = 0;  // of the worst card, as the manager has it
  std::size_t preemptions = 0;

  Json json() const {
    return {{"seconds", seconds},
            {"rss_kib", rssKib},
            {"descriptors", descriptors},
            {"cpu_percent", cpuPercent},
            {"launches_per_s", launchesPerS},
            {"preempt_p50_us", preemptP50Us},
            {"preempt_p99_us", preemptP99Us},
            {"settle_p99_us", settleP99Us},
            {"preemptions", preemptions}};
  }
};

// Of what is left after the warm-up: the middle value of the first and of the last third.
struct Thirds {
  double first = 0;
  double last = 0;
};

Thirds thirdsOf(const std::vector<Sample>& samples, double Sample::*figure) {
  const std::size_t warm = samples.size() / 5;
  const std::size_t third = (samples.size() - warm) / 3;
  const auto median = [&](std::size_t from) {
    std::vector<double> values;
    for (std::size_t i = from; i < from + third; i++) values.push_back(samples[i].*figure);
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  return {median(warm), median(samples.size() - third)};
}

double percentile(std::vector<Nanos>& sorted, std::size_t permille) {
  if (sorted.empty()) return 0;
  const std::size_t at = std::min(sorted.size() - 1, sorted.size() * permille / 1000);
  return static_cast<double>(sorted[at].value) / 1e3;
}

class Watch {
 public:
  explicit Watch(const LoadOptions& options)
      : options_(options),
        each_(std::min(kSampleSecondsMax, options.minutes * 60 / kSamplesMin)),
        daemon_({"--cards=sim:" + std::to_string(options.cards + 1) + "x64", "--mixed",
                 "--max-tasks-per-card=32", "--log-level=error"}),
        client_(daemon_.socket()) {
    if (!options_.samples.empty()) file_.open(options_.samples, std::ios::app);
  }

  std::string run() {
    daemon_.start();
    auto scene = bench::Scene::open(client_, {500, 0, options_.cards, options_.perCard});
    if (!scene) throw Violation("the scene does not start: " + scene.error().message);
    scene_ = std::move(*scene);
    const std::string last = "sim-" + std::to_string(options_.cards);  // the clients' own card
    Churn churn(daemon_, bindings_, {kRequesters, last, options_.seed, "c"});
    from_ = testing::monotonicNs();
    while (elapsed() < options_.minutes * 60) {
      sample();
      churn.check();
    }
    churn.stop();
    churn.check();
    const std::string verdict = judge();
    if (const std::string said = daemon_.log(); !said.empty()) {
      throw Violation("the manager complained: " + said);
    }
    scene_.reset();
    return verdict;
  }

 private:
  double elapsed() const { return static_cast<double>(testing::monotonicNs() - from_) / 1e9; }

  std::size_t descriptors() const {
    std::error_code ignored;
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(daemon_.pid()) + "/fd",
                                                  ignored);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  double settleP99Us() const {
    double worst = 0;
    const Json cards = daemon_.ask("cards")["cards"];
    for (const Json& card : cards) worst = std::max(worst, card["settle_us"]["p99"].get<double>());
    return worst;
  }

  void sample() {
    std::vector<Nanos> preemptions;
    const double from = elapsed();
    const std::uint64_t launches = scene_->launches();
    const Nanos cpu = bench::cpuTimeOf(daemon_.pid());
    while (elapsed() - from < each_) {
      scene_->lookForPreemptions(preemptions);
      pause(milliseconds(1));
    }
    if (!daemon_.alive()) throw Violation("the manager has ended: " + daemon_.log());
    if (scene_->alive() != scene_->tenants()) throw Violation("a tenant has ended");
    std::sort(preemptions.begin(), preemptions.end());
    Sample now;
    const double lasted = elapsed() - from;
    now.seconds = elapsed();
    now.rssKib = static_cast<double>(bench::residentKib(daemon_.pid()));
    now.descriptors = static_cast<double>(descriptors());
    now.cpuPercent =
        static_cast<double>((bench::cpuTimeOf(daemon_.pid()) - cpu).value) / lasted / 1e7;
    now.launchesPerS = static_cast<double>(scene_->launches() - launches) / lasted;
    now.preemptP50Us = percentile(preemptions, 500);
    now.preemptP99Us = percentile(preemptions, 990);
    now.settleP99Us = settleP99Us();
    now.preemptions = preemptions.size();
    if (now.launchesPerS == 0) throw Violation("nobody launches anything");
    preemptions_ += now.preemptions;
    samples_.push_back(now);
    if (file_.is_open()) file_ << now.json().dump() << std::endl;
  }

  std::string judge() {
    const Thirds rss = thirdsOf(samples_, &Sample::rssKib);
    const Thirds fds = thirdsOf(samples_, &Sample::descriptors);
    const Thirds preempt = thirdsOf(samples_, &Sample::preemptP99Us);
    const Thirds settle = thirdsOf(samples_, &Sample::settleP99Us);
    const auto line = [](const Thirds& t) { return Json{{"first", t.first}, {"last", t.last}}; };
    const Json verdict = {{"part", "load"},
                          {"seconds", elapsed()},
                          {"tenants", scene_->tenants()},
                          {"samples", samples_.size()},
                          {"launches_per_s", thirdsOf(samples_, &Sample::launchesPerS).last},
                          {"acknowledged", bindings_.acknowledged()},
                          {"preemptions", preemptions_},
                          {"rss_kib", line(rss)},
                          {"descriptors", line(fds)},
                          {"preempt_p99_us", line(preempt)},
                          {"settle_p99_us", line(settle)},
                          {"cpu_percent", thirdsOf(samples_, &Sample::cpuPercent).last}};
    const std::string said = "; " + verdict.dump();
    if (preemptions_ == 0) throw Violation("no online task preempted anybody" + said);
    if (rss.last > rss.first * kRssFactor + kRssSlackKib) {
      throw Violation("the manager's memory grows" + said);
    }
    if (fds.last > fds.first + kDescriptorSlack) throw Violation("descriptors leak" + said);
    if (preempt.last > std::max(preempt.first * kPreemptFactor, preempt.first + kPreemptSlackUs)) {
      throw Violation("preemption gets slower" + said);
    }
    return verdict.dump();
  }

  const LoadOptions options_;
  const double each_;  // seconds of a sample
  Bindings bindings_;
  Daemon daemon_;
  ctl::Client client_;
  std::unique_ptr<bench::Scene> scene_;
  std::ofstream file_;
  std::vector<Sample> samples_;
  std::size_t preemptions_ = 0;
  std::int64_t from_ = 0;
};

}  // namespace

std::string runLoad(const LoadOptions& options) {
  return Watch(options).run();
}

}  // namespace qgpu::crash
