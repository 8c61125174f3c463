#include "tests/sim/guests/guest_plan.h"

#include <algorithm>

namespace qgpu::sim {
namespace {

// Bursts of requests with idle time between them, as a service has them.
void serve(Plan& plan, Dice& dice) {
  plan.burst = static_cast<std::uint32_t>(dice.between(1, 8));
  plan.depth = static_cast<std::uint32_t>(dice.between(1, 4));
  plan.gapMin = millis(1);
  plan.gapMax = dice.magnitude(millis(2), millis(400));
}

// A kernel, then the host's work, then the next.
void interact(Plan& plan, Dice& dice) {
  plan.gapMin = micros(5);
  plan.gapMax = dice.magnitude(micros(50), millis(20));
}

// Many in flight, without rest.
void batch(Plan& plan, Dice& dice) {
  plan.depth = static_cast<std::uint32_t>(dice.between(2, 16));
  plan.burst = dice.percent(50) ? UINT32_MAX : static_cast<std::uint32_t>(dice.between(10, 500));
  plan.gapMax = dice.magnitude(micros(1), millis(5));
}

void drawPattern(Plan& plan, Class taskClass, Dice& dice) {
  const std::uint64_t kind = dice.below(10);
  const bool online = taskClass == Class::Online;
  if (online ? kind < 7 : kind < 1) {
    serve(plan, dice);
  } else if (online ? kind < 9 : kind < 4) {
    interact(plan, dice);
  } else {
    batch(plan, dice);
  }
  if (dice.percent(8)) plan.launches = static_cast<std::uint64_t>(dice.between(1, 40));
  plan.threads = dice.percent(75) ? 1 : static_cast<std::uint32_t>(dice.between(2, 3));
  plan.hostMax = dice.percent(40) ? Nanos(0) : dice.magnitude(micros(1), micros(60));
}

void drawKernels(Plan& plan, const Options& options, Dice& dice) {
  const Nanos a = dice.magnitude(options.kernelMin, options.kernelMax);
  const Nanos b = dice.magnitude(options.kernelMin, options.kernelMax);
  plan.kernelMin = std::min(a, b);
  plan.kernelMax = dice.percent(30) ? plan.kernelMin : std::max(a, b);
  plan.profiling = dice.percent(50);
  plan.waitsForHost = dice.percent(4);
}

void drawVice(Plan& plan, const Options& options, Dice& dice) {
  const auto has = [&](Fault fault) { return options.has(fault) && dice.percent(30); };
  if (has(Fault::Ignorers)) plan.vice = dice.percent(70) ? Vice::Ignores : Vice::Hides;
  if (has(Fault::Deaths)) plan.vice = Vice::Dies;
  if (has(Fault::Liars)) plan.vice = Vice::Lies;
  if (has(Fault::Silence)) plan.vice = Vice::Silent;
  if (has(Fault::Storms)) plan.vice = Vice::Storms;
  plan.viceAt = dice.magnitude(micros(100), seconds(2));
  if (dice.percent(60)) plan.viceFor = dice.magnitude(micros(100), seconds(3));
  plan.hangs = dice.percent(40);
}

}  // namespace

Plan drawPlan(Class taskClass, const Options& options, Dice& dice) {
  Plan plan;
  drawPattern(plan, taskClass, dice);
  drawKernels(plan, options, dice);
  plan.start = dice.magnitude(micros(50), dice.percent(90) ? millis(20) : seconds(1));
  if (dice.percent(40)) plan.life = dice.magnitude(options.lifeMin, options.lifeMax);
  plan.drivers = dice.percent(10) ? 0 : static_cast<std::uint32_t>(dice.between(1, 3));
  plan.racesPercent = dice.percent(40) ? 20 : 1;
  plan.allocations = static_cast<std::uint32_t>(dice.between(0, 3));
  if (dice.percent(60)) plan.memoryEvery = dice.magnitude(millis(1), millis(300));
  plan.deafToTerm = dice.percent(10);
  plan.triesOn = dice.percent(10);
  drawVice(plan, options, dice);
  if (!options.rm) return plan;
  plan.channels = static_cast<std::uint32_t>(dice.between(1, 3));
  if (dice.percent(40)) plan.contextEvery = dice.magnitude(millis(10), seconds(1));
  return plan;
}

}  // namespace qgpu::sim
