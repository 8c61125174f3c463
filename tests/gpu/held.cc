#include "tests/gpu/held.h"

namespace qgpu::gpu {

Arguments busyOnline(const CheckContext& context, int everyMs, const std::string& end) {
  return Scene::work({"probe", "--iterations", context.spins(0.05), "--every",
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
  return static_cast<double>(testing::monotonicNs() - fromNs) / 1e6;
}

namespace {

// A quick run shares its machine with others: an online program that gets no turn for a while is
// not idle, and its hold not over.
Arguments patient(const CheckContext& context, Arguments flags) {
  if (context.quick && flags.empty()) flags.push_back("--online-idle=5s");
  return flags;
}

}  // namespace

HeldTenant::HeldTenant(CheckContext& context, Arguments flags, const Program& program, int everyMs)
    : scene(context.card, patient(context, std::move(flags))),
      end(scene.signalFile()),
      rest(scene.signalFile()) {
  offline = scene.run({"batch", "offline", 50, Tenant::kSeveral}, program(end));
  scene.await("offline", *offline, [&] { return made(*offline) > 0; });
  online = scene.run({"serve", "online"}, busyOnline(context, everyMs, rest));
  scene.await("a hold", *online, [&] { return held(scene, "batch"); });
}

HeldTenant::HeldTenant(CheckContext& context, Arguments flags)
    : HeldTenant(context, std::move(flags), [&](const std::string& until) {
        return Scene::work(
            {"burn", "--iterations", context.spins(2), "--tell", "1", "--until", until});
      }) {}

bool HeldTenant::standsStill(milliseconds time, const std::function<void()>& meanwhile) const {
  constexpr std::uint64_t kToldLate = 1;
  const std::uint64_t before = made(*offline);
  meanwhile();
  crash::pause(time);
  return made(*offline) <= before + kToldLate;
}

Json HeldTenant::restOnline() {
  Scene::give(rest);
  return resultOf(*online, "the online program");
}

Json HeldTenant::endOffline() {
  const std::uint64_t before = made(*offline);
  scene.await("offline to go on", *offline, [&] { return made(*offline) > before + 1; });
  Scene::give(end);
  return resultOf(*offline, "the offline program");
}

}  // namespace qgpu::gpu
