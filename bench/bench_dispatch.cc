// Claim: the dispatcher carries messages several times faster than CAF 0.17 on one loop, faster
// from many senders, and wakes another thread about as soon. Prints one JSON line.
#include "bench/bench_dispatch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <sched.h>
#include <string>
#include <thread>

#include "runtime/check.h"
#include "runtime/dispatcher.h"
#include "schema/envelope.actor.h"

namespace qgpu::bench {

namespace {

template <class Self>
class Typed : public Actor {
 public:
  void handle(schema::Envelope::Reader m, Turn& turn) override {
    dispatch(static_cast<Self&>(*this), m, turn);
  }
  void onUnexpected(schema::Envelope::Which, Turn&) { QGPU_CHECK(false, "the bench's own words"); }
};

void mustSend(SendResult result) {
  QGPU_CHECK(result == SendResult::Sent, "the windows fit into the mailbox");
}

// Two loops, or one that both names mean. `a` is the calling thread's.
struct World {
  explicit World(Placement placement) {
    if (placement == Placement::Together) return;
    b = std::make_unique<Loop>();
    onB = std::make_unique<Dispatcher>(system, *b);
  }
  Dispatcher& second() { return onB ? *onB : onA; }
  void run() {
    std::thread thread;
    if (b) {
      useCpu(Cpu::First);
      thread = std::thread([this] {
        useCpu(Cpu::Second);
        b->run();
      });
    }
    a.run();
    if (b) thread.join();
    useCpu(Cpu::Any);
  }
  void stop() {
    a.stop();
    if (b) b->stop();
  }
  ActorSystem system;
  Loop a;
  std::unique_ptr<Loop> b;
  Dispatcher onA{system, a};
  std::unique_ptr<Dispatcher> onB;
};

struct Answerer final : Typed<Answerer> {
  void onBusy(schema::Busy::Reader m, Turn& turn) {
    mustSend(turn.send(turn.sender(), [&](schema::Envelope::Builder e) {
      auto quiet = e.initQuiet();
      quiet.setTask(m.getTask());
      quiet.setSinceNs(m.getSinceNs());
    }));
  }
};

struct Asker final : Typed<Asker> {
  Asker(World& w, ActorId p, std::uint64_t n) : world(w), peer(p), left(n) {}
  void onQuiet(schema::Quiet::Reader m, Turn& turn) {
    if (left == 0) return world.stop();
    --left;
    mustSend(turn.send(peer, [&](schema::Envelope::Builder e) {
      auto busy = e.initBusy();
      busy.setTask(m.getTask());
      busy.setSinceNs(left);
      busy.setInFlight(1);
    }));
  }
  World& world;
  ActorId peer;
  std::uint64_t left;
};

struct Collector final : Typed<Collector> {
  Collector(World& w, int senders, std::uint64_t n) : world(w), counts(senders), messages(n) {}
  void onBusy(schema::Busy::Reader m, Turn& turn) {
    if (++total == messages) return world.stop();
    if (++counts[m.getTask()] % kWindow != 0) return;
    mustSend(turn.send(turn.sender(), [](schema::Envelope::Builder e) { e.initQuiet(); }));
  }
  World& world;
  std::vector<std::uint64_t> counts;
  std::uint64_t messages;
  std::uint64_t total = 0;
};

struct Pusher final : Typed<Pusher> {
  Pusher(ActorId t, std::uint64_t id, std::uint64_t n) : to(t), task(id), left(n) {}
  void onQuiet(schema::Quiet::Reader, Turn& turn) {
    for (std::uint64_t i = 0; i < kWindow && left > 0; ++i) {
      --left;
      mustSend(turn.send(to, [&](schema::Envelope::Builder e) {
        auto busy = e.initBusy();
        busy.setTask(task);
        busy.setSinceNs(left);
        busy.setInFlight(1);
      }));
    }
  }
  ActorId to;
  std::uint64_t task;
  std::uint64_t left;
};

struct Clocked final : Typed<Clocked> {
  Clocked(World& w, int n) : world(w), messages(static_cast<std::size_t>(n)) {}
  void onBusy(schema::Busy::Reader m, Turn&) {
    samples.push_back(nowNs() - static_cast<std::int64_t>(m.getSinceNs()));
    if (samples.size() == messages) world.stop();
  }
  World& world;
  std::size_t messages;
  std::vector<std::int64_t> samples;
};

struct Metronome final : Typed<Metronome> {
  Metronome(ActorId t, int n) : to(t), left(n) {}
  void onTick(schema::Tick::Reader, Turn& turn) {
    turn.sendUrgent(to, [](schema::Envelope::Builder e) {
      auto busy = e.initBusy();
      busy.setTask(1);
      busy.setSinceNs(static_cast<std::uint64_t>(nowNs()));
    });
    if (--left > 0) {
      turn.after(Nanos(kLatencyGapNs), [](schema::Envelope::Builder e) { e.initTick(); });
    }
  }
  ActorId to;
  int left;
};

ActorId kick(Dispatcher& home, Actor& actor) {
  const ActorId id = home.add(actor);
  mustSend(
      Outlet(home, home.reserve()).send(id, [](schema::Envelope::Builder e) { e.initQuiet(); }));
  return id;
}

double perSecond(std::uint64_t messages, std::int64_t sinceNs) {
  return static_cast<double>(messages) * 1e9 / static_cast<double>(nowNs() - sinceNs);
}

}  // namespace

std::int64_t nowNs() {
  return monotonicNow().value;
}

// The CPUs that the process was given, at most two of them in use.
void useCpu(Cpu cpu) {
  static const cpu_set_t all = [] {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return set;
  }();
  cpu_set_t wanted = all;
  int skip = cpu == Cpu::Second ? 1 : 0;
  for (int i = 0; cpu != Cpu::Any && CPU_COUNT(&all) > 1 && i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &all) || skip-- > 0) continue;
    CPU_ZERO(&wanted);
    CPU_SET(i, &wanted);
    break;
  }
  sched_setaffinity(0, sizeof wanted, &wanted);
}

double QgpuBench::pingPong(Placement placement, std::uint64_t roundTrips) {
  World world(placement);
  Answerer answerer;
  Asker asker(world, world.second().add(answerer), roundTrips);
  kick(world.onA, asker);
  const std::int64_t begin = nowNs();
  world.run();
  return perSecond(2 * roundTrips, begin);
}

double QgpuBench::fanIn(int senders, std::uint64_t messages) {
  World world(Placement::Apart);
  Collector collector(world, senders, messages);
  const ActorId to = world.onA.add(collector);
  std::vector<std::unique_ptr<Pusher>> pushers;
  for (int i = 0; i < senders; ++i) {
    pushers.push_back(std::make_unique<Pusher>(to, static_cast<std::uint64_t>(i),
                                               messages / static_cast<std::uint64_t>(senders)));
    kick(*world.onB, *pushers.back());
  }
  const std::int64_t begin = nowNs();
  world.run();
  return perSecond(messages, begin);
}

std::vector<std::int64_t> QgpuBench::oneWay(int messages) {
  World world(Placement::Apart);
  Clocked clocked(world, messages);
  Metronome metronome(world.second().add(clocked), messages);
  const ActorId id = world.onA.add(metronome);
  Outlet(world.onA, id).sendUrgent(id, [](schema::Envelope::Builder e) { e.initTick(); });
  world.run();
  return clocked.samples;
}

namespace {

using Series = std::vector<double>;

double median(Series series) {
  std::sort(series.begin(), series.end());
  return series[series.size() / 2];
}

double microsAt(std::vector<std::int64_t> samples, int percent) {
  std::sort(samples.begin(), samples.end());
  const std::size_t at = samples.size() * static_cast<std::size_t>(percent) / 100;
  return static_cast<double>(samples[std::min(at, samples.size() - 1)]) / 1e3;
}

// One comparison; medians of what each round added.
struct Pair {
  Series qgpu;
  Series caf;
  void print(const char* name, const char* end) const {
    std::printf("\"%s\":{\"qgpu\":%.1f,\"caf\":%.1f,\"ratio\":%.2f}%s", name, median(qgpu),
                median(caf), median(qgpu) / median(caf), end);
  }
};

struct Figures {
  Pair sameLoop, crossLoop, fanIn, pooled, pingPong, p50, p99;

  void round(std::uint64_t scale) {
    sameLoop.qgpu.push_back(QgpuBench::pingPong(Placement::Together, scale * 1'000));
    sameLoop.caf.push_back(CafBench::pingPong(Placement::Together, scale * 300));
    crossLoop.qgpu.push_back(QgpuBench::fanIn(1, scale * 1'000 / kWindow * kWindow));
    crossLoop.caf.push_back(CafBench::fanIn(Placement::Apart, 1, scale * 600 / kWindow * kWindow));
    const std::uint64_t unit = kWindow * kFanInSenders;
    fanIn.qgpu.push_back(QgpuBench::fanIn(kFanInSenders, scale * 1'500 / unit * unit));
    fanIn.caf.push_back(
        CafBench::fanIn(Placement::Apart, kFanInSenders, scale * 800 / unit * unit));
    // The same with CAF's actors on its pool, where they may share a thread.
    pooled.qgpu.push_back(fanIn.qgpu.back());
    pooled.caf.push_back(
        CafBench::fanIn(Placement::Together, kFanInSenders, scale * 800 / unit * unit));
    // Round trips a second: two messages each.
    pingPong.qgpu.push_back(QgpuBench::pingPong(Placement::Apart, scale * 8) / 2);
    pingPong.caf.push_back(CafBench::pingPong(Placement::Apart, scale * 8) / 2);
    const auto ours = QgpuBench::oneWay(static_cast<int>(scale * 2));
    const auto theirs = CafBench::oneWay(static_cast<int>(scale * 2));
    p50.qgpu.push_back(microsAt(ours, 50));
    p50.caf.push_back(microsAt(theirs, 50));
    p99.qgpu.push_back(microsAt(ours, 99));
    p99.caf.push_back(microsAt(theirs, 99));
  }
};

}  // namespace
}  // namespace qgpu::bench

// --quick: a tenth of the messages and one round, to see that it works.
int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  sched_param param{};
  param.sched_priority = 1;
  const bool fifo = sched_setscheduler(0, SCHED_FIFO, &param) == 0;  // inherited by every thread
  const int rounds = quick ? 1 : 5;
  qgpu::bench::Figures figures;
  for (int i = 0; i < rounds; ++i) figures.round(quick ? 100 : 1'000);
  std::printf("{\"bench\":\"dispatch\",\"rounds\":%d,\"cpus\":%u,\"fifo\":%s,", rounds,
              std::thread::hardware_concurrency(), fifo ? "true" : "false");
  figures.sameLoop.print("same_loop_per_s", ",");
  figures.crossLoop.print("cross_loop_per_s", ",");
  figures.fanIn.print("fan_in_per_s", ",");
  figures.pooled.print("fan_in_caf_pooled_per_s", ",");
  figures.pingPong.print("cross_loop_round_trips_per_s", ",");
  figures.p50.print("one_way_p50_us", ",");
  figures.p99.print("one_way_p99_us", "}\n");
  return 0;
}
