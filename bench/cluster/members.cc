#include "bench/cluster/members.h"

#include <vector>

#include "actors/member/member_actor.h"
#include "runtime/check.h"
#include "runtime/dispatcher.h"
#include "runtime/kj/bridge.h"
#include "services/api/commands/node_link.h"
#include "services/api/rpc/scheduler_link.h"

namespace qgpu::bench {
namespace {

MemberOptions memberOptions() {
  MemberOptions options;
  options.attachSocket = "/run/qgpu/attach.sock";
  return options;
}

SchedulerLinkConfig linkConfig(const std::vector<std::string>& addresses, std::uint64_t seed) {
  SchedulerLinkConfig config;
  config.addresses = addresses;
  config.seed = seed;
  config.connectDeadline = seconds(30);  // thousands connect at once
  return config;
}

// One node: its three actors.
struct One {
  One(Dispatcher& d, kj::Network& network, kj::Timer& timer, NodeShape shape, NodeCounts& counts,
      SchedulerLinkConfig config)
      : dispatcher(d),
        nodeId(d.reserve()),
        memberId(d.reserve()),
        linkId(d.reserve()),
        node(std::move(shape), counts),
        member(memberOptions(), MemberPeers{nodeId, linkId}),
        toMember(d, linkId, memberId),
        link(toMember, network, timer, std::move(config)) {
    d.attach(nodeId, node);
    d.attach(memberId, member);
    d.attach(linkId, link);
    link.start();
  }
  ~One() {
    for (const ActorId id : {linkId, memberId, nodeId}) dispatcher.remove(id);
  }
  One(const One&) = delete;
  One& operator=(const One&) = delete;

  Dispatcher& dispatcher;
  ActorId nodeId, memberId, linkId;
  PlainNode node;
  MemberActor member;
  NodeLink toMember;
  SchedulerLink link;
};

}  // namespace

Members::Members(std::size_t count, NodeShape shape, std::vector<std::string> addresses)
    : thread_([this, count, shape = std::move(shape), addresses = std::move(addresses)] {
        run(count, shape, addresses);
      }) {
  QGPU_CHECK(count <= kNodesMax, "so many nodes have not enough actors");
}

Members::~Members() {
  loop_.stop();
  thread_.join();
}

void Members::run(std::size_t count, const NodeShape& shape,
                  const std::vector<std::string>& addresses) {
  ActorSystem system;
  Dispatcher dispatcher{system, loop_};
  KjBridge bridge{loop_};
  std::vector<std::unique_ptr<One>> nodes;
  for (std::size_t i = 1; i <= count; ++i) {
    NodeShape one = shape;
    one.name += "-" + std::to_string(i);
    nodes.push_back(std::make_unique<One>(dispatcher, bridge.io().getNetwork(), bridge.timer(),
                                          std::move(one), counts_, linkConfig(addresses, i)));
  }
  loop_.run();
  system.stop();
}

}  // namespace qgpu::bench
