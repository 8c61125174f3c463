// Inference as engines do it, in PyTorch, alone on the card and beside training: what qgpu makes of
// it, and what the ways to share a card do that are there without it.

#include <algorithm>
#include <cmath>

#include "tests/crash/violation.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/torch/torch_program.h"

namespace qgpu::gpu {
namespace {

using Start = std::function<std::unique_ptr<Child>(bool online, Arguments program)>;

// Online is taken for idle between two requests, so that each one finds training on the card.
constexpr const char* kIdle = "--online-idle=10ms";
constexpr auto kWarm = std::chrono::seconds(90);

Arguments work(Arguments words) {
  words.insert(words.begin(), {"python3", testing::binary("inference_work.py")});
  return words;
}

Arguments serving(const CheckContext& context, Arguments more = {}) {
  Arguments words = work({"serve", "--requests", std::to_string(context.count(40, 3)), "--every-ms",
                          context.quick ? "25" : "200"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Steps a second between two moments.
double rateOf(const Json& trained, double begin, double end) {
  const auto within = [&](const Json& at) { return at >= begin && at <= end; };
  const auto steps = std::ranges::count_if(trained["ends"], within);
  return static_cast<double>(steps) / (end - begin);
}

struct Beside {
  Json served;
  double trained;  // steps a second while requests came
};

Beside serveBesideTraining(CheckContext& context, Scene& scene, const Start& start) {
  const std::string begin = scene.signalFile(), end = scene.signalFile();
  auto training = start(false, work({"train", "--until", end}));
  auto server = start(true, serving(context, {"--from", begin}));
  scene.await(
      "serving", *server, [&] { return said(*server, "serves") == 1; }, kWarm);
  scene.await(
      "training", *training, [&] { return said(*training, "trains") == 1; }, kWarm);
  Scene::give(begin);
  Json served = resultOf(*server, "serving beside training");
  Scene::give(end);
  const Json trained = resultOf(*training, "training");
  const double rate = rateOf(trained, served["begin"], served["end"]);
  return {std::move(served), rate};
}

// NVIDIA's MPS on one card, a daemon of its own that ends with this.
class Mps {
 public:
  explicit Mps(const std::string& card)
      : card_(card), control_(inPlace({"nvidia-cuda-mps-control", "-f"})) {}
  ~Mps() {
    try {
      tell("quit -t 5");
      control_.wait(std::chrono::seconds(10));
    } catch (const std::exception&) {  // it is killed next
    }
  }
  Mps(const Mps&) = delete;
  Mps& operator=(const Mps&) = delete;

  static bool isHere() {
    return testing::run({"sh", "-c", "command -v nvidia-cuda-mps-control"}).status == 0;
  }
  // The program as a client of it. One that does not find it runs all the same, without.
  Arguments inPlace(Arguments program) const {
    program.insert(program.begin(), {"env", "CUDA_VISIBLE_DEVICES=" + card_,
                                     "CUDA_MPS_PIPE_DIRECTORY=" + folder_.path(),
                                     "CUDA_MPS_LOG_DIRECTORY=" + folder_.path()});
    return program;
  }
  // Throws a Violation where no client ever came to it.
  void mustHaveServed() {
    const std::string servers = tell("get_server_list");
    if (servers.find_first_of("123456789") == std::string::npos) {
      throw crash::Violation("it has no server: " + servers + control_.output());
    }
  }

 private:
  std::string tell(const std::string& words) const {
    const auto line = "echo " + words + " | nvidia-cuda-mps-control";
    return testing::run(inPlace({"sh", "-c", line}), {}, std::chrono::seconds(10)).output;
  }
  const std::string card_;
  const testing::TempFolder folder_{"mps"};
  Child control_;
};

void addTimes(Finding& finding, const std::string& how, const Json& served) {
  for (const char* figure : {"ttft_p50_ms", "ttft_max_ms", "tpot_p50_ms", "tpot_p99_ms"}) {
    finding.figures[how + "_" + figure] = served[figure];
  }
}

}  // namespace

void checkInference(CheckContext& context) {
  Finding times{"inference in PyTorch, first token and each further one", ""};
  Finding kept{"training meanwhile, of its rate alone", ""};
  Finding same{"the same tokens, whoever shares the card", "in each of these"};
  Scene scene(context.card, {kIdle});
  std::string why;
  const auto alone = scene.bare(serving(context));
  const Json bare = torchResult(*alone, why);
  if (bare.is_null()) {
    times.verdict = Verdict::kSkipped;
    times.why = why;
    context.record.add(std::move(times));
    return;
  }
  times.figures["version"] = bare["version"];
  addTimes(times, "alone", bare);
  same.figures["alone"] = bare["tokens"];
  same.verdict = Verdict::kMet;
  const int seconds = context.seconds(5);
  const auto training = scene.bare(work({"train", "--seconds", std::to_string(seconds)}));
  const Json steps = resultOf(*training, "training alone");
  const double rate = rateOf(steps, steps["begin"], steps["begin"].get<double>() + seconds);

  const auto asTask = [&](bool online, Arguments program) {
    const Tenant tenant =
        online ? Tenant{"serve", "online", 0, 4} : Tenant{"train", "offline", 50, Tenant::kSeveral};
    return scene.run(tenant, std::move(program));
  };
  const auto bareToo = [&](bool, Arguments program) { return scene.bare(std::move(program)); };
  const auto add = [&](const std::string& how, const Json& served) {
    addTimes(times, how, served);
    same.figures[how] = served["tokens"];
    if (served["tokens"] != bare["tokens"]) same.verdict = Verdict::kMissed;
  };
  const auto addBeside = [&](const std::string& how, const Start& start) {
    const Beside both = serveBesideTraining(context, scene, start);
    add(how, both.served);
    kept.figures[how] = std::round(both.trained / rate * 1'000) / 1'000;
  };
  // What fails is told in its place, and what was found is not lost.
  const auto attempt = [&](const std::string& how, bool ours, const std::function<void()>& run) {
    try {
      run();
    } catch (const std::exception& wrong) {
      times.figures[how] = wrong.what();
      if (!ours) return;
      same.verdict = Verdict::kFailed;
      same.why = wrong.what();
    }
  };
  attempt("qgpu_alone", true, [&] {
    const auto server = asTask(true, serving(context));
    add("qgpu_alone", resultOf(*server, "serving as a task"));
  });
  attempt("qgpu", true, [&] { addBeside("qgpu", asTask); });
  attempt("time_slicing", false, [&] { addBeside("time_slicing", bareToo); });
  attempt("mps", false, [&] {
    if (!Mps::isHere()) throw crash::Violation("nvidia-cuda-mps-control is not here");
    Mps mps(context.card.uuid);
    addBeside("mps",
              [&](bool, Arguments program) { return scene.bare(mps.inPlace(std::move(program))); });
    mps.mustHaveServed();
  });
  context.record.add(std::move(times));
  context.record.add(std::move(kept));
  context.record.add(std::move(same));
}

}  // namespace qgpu::gpu
