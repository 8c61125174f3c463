// The traffic of bench_dispatch.h on CAF 0.17: event-based actors, structs of four integers.
#include <algorithm>
#include <caf/all.hpp>
#include <future>
#include <thread>
#include <time.h>

#include "bench/bench_dispatch.h"

struct CafBusy {
  std::uint64_t task;
  std::uint64_t sinceNs;
  std::uint32_t inFlight;
  std::uint32_t waiting;
};
struct CafQuiet {
  std::uint64_t task;
  std::uint64_t sinceNs;
};
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(CafBusy)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(CafQuiet)

namespace qgpu::bench {

namespace {

// A scheduler of its own for each run, with `threads` in its pool. Its own default is one for each
// CPU, and at least four.
struct CafWorld {
  explicit CafWorld(std::size_t threads) {
    config.set("logger.verbosity", caf::atom("quiet"));
    config.set("scheduler.max-threads", threads);
  }
  // A detached actor's thread stays on `cpu`.
  template <typename... Args>
  caf::actor spawn(Placement placement, Cpu cpu, Args&&... args) {
    if (placement == Placement::Together) return system.spawn(std::forward<Args>(args)...);
    useCpu(cpu);
    caf::actor actor = system.spawn<caf::detached>(std::forward<Args>(args)...);
    useCpu(Cpu::Any);
    return actor;
  }
  caf::actor_system_config config;
  caf::actor_system system{config};
  std::promise<void> done;
};

caf::behavior answerer(caf::event_based_actor* self) {
  return {[self](const CafBusy& m) {
    self->send(caf::actor_cast<caf::actor>(self->current_sender()), CafQuiet{m.task, m.sinceNs});
  }};
}

caf::behavior asker(caf::event_based_actor* self, caf::actor peer, std::uint64_t trips,
                    std::promise<void>* done) {
  auto left = std::make_shared<std::uint64_t>(trips);
  return {[=](const CafQuiet& m) {
    if (*left == 0) {
      done->set_value();
      self->quit();
      return;
    }
    --*left;
    self->send(peer, CafBusy{m.task, *left, 1, 0});
  }};
}

caf::behavior collector(caf::event_based_actor* self, int senders, std::uint64_t messages,
                        std::promise<void>* done) {
  auto counts = std::make_shared<std::vector<std::uint64_t>>(senders);
  auto total = std::make_shared<std::uint64_t>(0);
  return {[=](const CafBusy& m) {
    if (++*total == messages) return done->set_value();
    if (++(*counts)[m.task] % kWindow == 0) {
      self->send(caf::actor_cast<caf::actor>(self->current_sender()), CafQuiet{m.task, 0});
    }
  }};
}

caf::behavior pusher(caf::event_based_actor* self, caf::actor to, std::uint64_t task,
                     std::uint64_t messages) {
  auto left = std::make_shared<std::uint64_t>(messages);
  return {[=](const CafQuiet&) {
    for (std::uint64_t i = 0; i<kWindow&& * left> 0; ++i) {
      --*left;
      self->send(to, CafBusy{task, *left, 1, 0});
    }
  }};
}

caf::behavior clocked(caf::event_based_actor*, std::vector<std::int64_t>* samples, int messages,
                      std::promise<void>* done) {
  return {[=](const CafBusy& m) {
    samples->push_back(nowNs() - static_cast<std::int64_t>(m.sinceNs));
    if (samples->size() == static_cast<std::size_t>(messages)) done->set_value();
  }};
}

double perSecond(std::uint64_t messages, std::int64_t sinceNs) {
  return static_cast<double>(messages) * 1e9 / static_cast<double>(nowNs() - sinceNs);
}

}  // namespace

double CafBench::pingPong(Placement placement, std::uint64_t roundTrips) {
  CafWorld world(1);
  const caf::actor b = world.spawn(placement, Cpu::Second, answerer);
  const caf::actor a = world.spawn(placement, Cpu::First, asker, b, roundTrips, &world.done);
  const std::int64_t begin = nowNs();
  caf::anon_send(a, CafQuiet{1, 0});
  world.done.get_future().wait();
  const double rate = perSecond(2 * roundTrips, begin);
  caf::anon_send_exit(b, caf::exit_reason::kill);
  return rate;
}

double CafBench::fanIn(Placement placement, int senders, std::uint64_t messages) {
  CafWorld world(2);
  const caf::actor to =
      world.spawn(placement, Cpu::First, collector, senders, messages, &world.done);
  std::vector<caf::actor> from;
  for (int i = 0; i < senders; ++i) {
    from.push_back(world.spawn(placement, Cpu::Second, pusher, to, static_cast<std::uint64_t>(i),
                               messages / static_cast<std::uint64_t>(senders)));
  }
  const std::int64_t begin = nowNs();
  for (const caf::actor& sender : from) caf::anon_send(sender, CafQuiet{0, 0});
  world.done.get_future().wait();
  const double rate = perSecond(messages, begin);
  for (const caf::actor& sender : from) caf::anon_send_exit(sender, caf::exit_reason::kill);
  caf::anon_send_exit(to, caf::exit_reason::kill);
  return rate;
}

std::vector<std::int64_t> CafBench::oneWay(int messages) {
  CafWorld world(1);
  std::vector<std::int64_t> samples;
  const caf::actor to =
      world.spawn(Placement::Apart, Cpu::Second, clocked, &samples, messages, &world.done);
  useCpu(Cpu::First);
  for (int i = 0; i < messages; ++i) {
    const timespec gap{0, kLatencyGapNs};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &gap, nullptr);
    caf::anon_send(to, CafBusy{1, static_cast<std::uint64_t>(nowNs()), 1, 0});
  }
  world.done.get_future().wait();
  useCpu(Cpu::Any);
  caf::anon_send_exit(to, caf::exit_reason::kill);
  return samples;
}

}  // namespace qgpu::bench
