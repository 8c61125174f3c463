#pragma once
// One machine of a simulated cluster: its loops, its clock, which shows another time than those of
// the others, and its disk. Processes on it come and go.

#include <string>
#include <utility>

#include "store/testing/memory_disk.h"
#include "tests/sim/host.h"

namespace qgpu::sim {

class Site {
 public:
  // `offset`: what its clock shows beyond the time of the world.
  Site(const std::string& called, HostOptions options, Nanos offset, Watch& watch)
      : name(called),
        host(at(options, offset), watch),
        disk("qgpu-sim-" + called),
        offset_(offset) {}

  const std::string name;
  Host host;
  MemoryDisk disk;

  // All of these in the time of the world.
  Nanos now() const { return host.now() - offset_; }
  Nanos local(Nanos time) const { return time + offset_; }
  void after(Nanos delay, std::function<void()> work) {
    host.after(Scope::World, delay, std::move(work));
  }
  void at(Nanos time, std::function<void()> work) {
    host.at(Scope::World, local(time), std::move(work));
  }
  Nanos next() {
    const std::optional<Nanos> event = host.nextEvent();
    return event ? *event - offset_ : kNever;
  }
  void step(Nanos time) { host.step(local(time)); }
  // Nothing happens here before `time`.
  void idleUntil(Nanos time) { host.idleUntil(local(time)); }

 private:
  static HostOptions at(HostOptions options, Nanos offset) {
    options.start = seconds(1) + offset;
    return options;
  }

  const Nanos offset_;
};

}  // namespace qgpu::sim
