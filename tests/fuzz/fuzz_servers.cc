#include "tests/fuzz/fuzz_servers.h"

#include <unistd.h>

#include "tests/fuzz/target.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::fuzz {
namespace {

constexpr std::size_t kNameMax = 256;  // of what a client hands on

bool changes(schema::Request::Which which) {
  switch (which) {
    case schema::Request::POLICY:
    case schema::Request::CORDON:
    case schema::Request::UNCORDON:
    case schema::Request::DRAIN:
    case schema::Request::EVICT:
    case schema::Request::SNAPSHOT:
    case schema::Request::SAVE:
    case schema::Request::REPORT:
    case schema::Request::LOG_LEVEL:
      return true;
    default:
      return false;
  }
}

}  // namespace

Servers::Servers()
    : wait_(loop_), timer(kj::origin<kj::TimePoint>()), io(timer), sink(node), actor(sink, timer) {
  sink.actor = &actor;
}

void Servers::run() {
  wait_.poll();
}

void Servers::advance(Nanos by) {
  timer.advanceTo(timer.now() + by.value * kj::NANOSECONDS);
  run();
}

UnixListener Servers::listener() {
  const testing::TempFolder folder("fuzz");
  Result<UnixListener> made = UnixListener::open(folder / "actor.sock", 0600);
  require(made.ok(), "a socket in it");
  return std::move(*made);
}

ucred Servers::peer(bool mayChange) {
  return ucred{::getpid(), mayChange ? kDaemon : kStranger, 65534};
}

void Servers::checkAsked(bool mayChange) const {
  for (const testing::Asked& asked : node.asked) {
    // A client without watchers tells the node so by itself.
    if (asked.which == schema::Request::WATCH && asked.number == 0) continue;
    require(asked.uid == (mayChange ? kDaemon : kStranger) && asked.mayChange == mayChange,
            "C7: a request is in the name of its peer");
    require(mayChange || !changes(asked.which), "C7: a stranger changes nothing");
    require(asked.text.size() <= kNameMax, "C7: texts are bounded");
    if (asked.which != schema::Request::BIND) continue;
    require(mayChange || asked.ownerUid == kStranger, "C7: a task belongs to who asks for it");
    require(asked.ownerPid == 0 || asked.ownerStart != 0, "an owner is known by its start");
  }
}

void Servers::checkIdle() {
  run();
  require(actor.outstanding() == 0, "C2: no call outlives its connection");
  require(actor.watchers() == 0, "no watcher outlives its connection");
  node.asked.clear();
}

}  // namespace qgpu::fuzz
