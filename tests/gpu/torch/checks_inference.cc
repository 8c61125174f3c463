// Inference as engines do it, in PyTorch, alone on the card and beside training: what qgpu makes of
// it, and what the ways to share a card do that are there without it.

#include <cmath>

#include "tests/crash/violation.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/torch/torch_program.h"

namespace qgpu::gpu {
namespace {

using Start = std::function<std::unique_ptr<Child>(bool online, Arguments program)>;

Arguments work(Arguments words) {
  words.insert(words.begin(), {"python3", testing::binary("inference_work.py")});
  return words;
}

Arguments serving(const CheckContext& context) {
  return work({"serve", "--requests", std::to_string(context.count(100, 3)), "--every-ms",
               context.quick ? "5" : "80"});
}

struct Beside {
  Json served, trained;
};

// Training that is warm, then all requests beside it.
Beside serveBesideTraining(CheckContext& context, Scene& scene, const Start& start) {
  const std::string end = scene.signalFile();
  auto training = start(false, work({"train", "--until", end}));
  scene.await(
      "training", *training, [&] { return said(*training, "trains") == 1; },
      std::chrono::seconds(120));
  auto server = start(true, serving(context));
  Json served = resultOf(*server, "serving beside training");
  Scene::give(end);
  return {std::move(served), resultOf(*training, "training")};
}

// NVIDIA's MPS, a server of its own that ends with this.
class Mps {
 public:
  Mps() : control_(inPlace({"nvidia-cuda-mps-control", "-f"})) {}
  ~Mps() { testing::run({"sh", "-c", "echo quit | " + place() + " nvidia-cuda-mps-control"}); }
  Mps(const Mps&) = delete;
  Mps& operator=(const Mps&) = delete;

  static bool isHere() {
    return testing::run({"sh", "-c", "command -v nvidia-cuda-mps-control"}).status == 0;
  }
  // The program as a client of it.
  Arguments inPlace(Arguments program) const {
    program.insert(program.begin(), {"env", "CUDA_MPS_PIPE_DIRECTORY=" + folder_.path(),
                                     "CUDA_MPS_LOG_DIRECTORY=" + folder_.path()});
    return program;
  }

 private:
  std::string place() const {
    return "CUDA_MPS_PIPE_DIRECTORY=" + folder_.path() +
           " CUDA_MPS_LOG_DIRECTORY=" + folder_.path();
  }
  const testing::TempFolder folder_{"mps"};
  Child control_;
};

void addTimes(Finding& finding, const std::string& how, const Json& served) {
  for (const char* figure : {"ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms"}) {
    finding.figures[how + "_" + figure] = served[figure];
  }
}

}  // namespace

void checkInference(CheckContext& context) {
  Finding times{"inference in PyTorch, first token and each further one", ""};
  Finding kept{"training beside it, of its rate alone", ""};
  Finding same{"the same tokens, whoever shares the card", "in each of these"};
  Scene scene(context.card, {});
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
  const auto training =
      scene.bare(work({"train", "--seconds", std::to_string(context.seconds(5))}));
  const double rate = resultOf(*training, "training alone")["steps_per_s"].get<double>();
  same.figures["alone"] = bare["tokens"];

  const auto add = [&](const std::string& how, const Beside& both) {
    addTimes(times, how, both.served);
    kept.figures[how] =
        std::round(both.trained["steps_per_s"].get<double>() / rate * 1'000) / 1'000;
    same.figures[how] = both.served["tokens"];
  };
  const auto asTask = [&](bool online, Arguments program) {
    const Tenant tenant = online ? Tenant{"serve", "online", 0, Tenant::kSeveral}
                                 : Tenant{"train", "offline", 50, Tenant::kSeveral};
    return scene.run(tenant, std::move(program));
  };
  const Json task = resultOf(*asTask(true, serving(context)), "serving as a task");
  addTimes(times, "qgpu_alone", task);
  same.figures["qgpu_alone"] = task["tokens"];
  add("qgpu", serveBesideTraining(context, scene, asTask));
  // The card's own turns.
  add("time_slicing", serveBesideTraining(context, scene, [&](bool, Arguments program) {
        return scene.bare(std::move(program));
      }));
  if (!Mps::isHere()) {
    times.figures["mps"] = "nvidia-cuda-mps-control is not here";
  } else {
    try {
      const Mps mps;
      add("mps", serveBesideTraining(context, scene, [&](bool, Arguments program) {
            return scene.bare(mps.inPlace(std::move(program)));
          }));
    } catch (const crash::Violation& wrong) {  // no promise of ours
      times.figures["mps"] = wrong.what();
    }
  }
  same.verdict = Verdict::kMet;
  for (const auto& [how, tokens] : same.figures.items()) {
    if (tokens != bare["tokens"]) same.verdict = Verdict::kMissed;
  }
  context.record.add(std::move(times));
  context.record.add(std::move(kept));
  context.record.add(std::move(same));
}

}  // namespace qgpu::gpu
