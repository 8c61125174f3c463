#include "tests/gpu/held.h"

namespace qgpu::gpu {

Words busyOnline(const Stage& stage, int everyMs, const std::string& end) {
  return Scene::work({"probe", "--iterations", stage.spins(0.05), "--every",
                      std::to_string(everyMs), "--count", "1000000000", "--until", end});
}

std::uint64_t made(const Child& child, const std::string& word) {
  const std::string text = "\n" + child.output();
  const std::size_t at = text.rfind("\n" + word + " ");
  const char* number = text.c_str() + at + word.size() + 2;
  return at == std::string::npos ? 0 : std::strtoull(number, nullptr, 10);
}

bool held(Scene& scene, const std::string& name) {
  const Json task = scene.task(name);
  return !task.is_null() && (task["state"] == "suspended" || task["state"] == "ready");
}

double msSince(std::int64_t fromNs) {
  return static_cast<double>(e2e::monotonicNs() - fromNs) / 1e6;
}

Held::Held(Stage& stage, Words flags, const Program& program, int everyMs)
    : scene(stage.card, std::move(flags)), end(scene.signalFile()), rest(scene.signalFile()) {
  offline = scene.run({"batch", "offline", 50, Tenant::kSeveral}, program(end));
  scene.await("offline", *offline, [&] { return made(*offline) > 0; });
  online = scene.run({"serve", "online"}, busyOnline(stage, everyMs, rest));
  scene.await("a hold", *online, [&] { return held(scene, "batch"); });
}

Held::Held(Stage& stage, Words flags)
    : Held(stage, std::move(flags), [&](const std::string& until) {
        return Scene::work(
            {"burn", "--iterations", stage.spins(2), "--tell", "1", "--until", until});
      }) {}

bool Held::standsStill(milliseconds time) const {
  constexpr std::uint64_t kToldLate = 1;
  const std::uint64_t before = made(*offline);
  crash::pause(time);
  return made(*offline) <= before + kToldLate;
}

Json Held::restOnline() {
  Scene::give(rest);
  return resultOf(*online, "the online program");
}

Json Held::endOffline() {
  const std::uint64_t before = made(*offline);
  scene.await("offline to go on", *offline, [&] { return made(*offline) > before + 1; });
  Scene::give(end);
  return resultOf(*offline, "the offline program");
}

}  // namespace qgpu::gpu
