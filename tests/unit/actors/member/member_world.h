#pragma once
// A node that is a member of a cluster: the real node, task and member actors; the test plays the
// link to the scheduler, and with it the scheduler.

#include <functional>
#include <string>
#include <vector>

#include "actors/member/member_actor.h"
#include "tests/unit/actors/base/actors_world.h"

namespace qgpu::testing {

class MemberWorld {
 public:
  static constexpr std::uint64_t kLeaseNs = 15'000'000'000;
  static constexpr std::uint64_t kBeatNs = 5'000'000'000;

  explicit MemberWorld(WorldOptions options = {});

  // --- the link ---
  void up();
  void down(const char* why = "closed");
  using Word = std::function<void(schema::ToMember::Builder)>;
  // In the session and term of the last welcome.
  void tell(const Word& fill);
  void tellAs(std::uint64_t session, std::uint64_t term, const Word& fill);
  void welcome(std::uint64_t session, std::uint64_t term);
  // Up, hello, welcome.
  void join(std::uint64_t session = 7, std::uint64_t term = 1);
  // The newest beat is seen.
  void beatSeen();

  // --- what the member said; words of the connection that is up, or was last ---
  std::vector<schema::FromMember::Reader> said() const;
  std::vector<schema::FromMember::Reader> said(schema::FromMember::Which which) const;
  schema::MemberHello::Reader hello() const;
  // Of the newest word about this task; `state` of it: "bound", "ended", ... or "never said".
  std::string heldAs(std::uint64_t clusterTask) const;
  bool dropped() const;  // the member asked for another connection

  // --- orders ---
  static Word bind(std::uint64_t task, std::uint32_t epoch, const TaskSpec& spec,
                   std::vector<std::string> cards = {"sim-0"});
  static Word end(std::uint64_t task, std::uint32_t epoch, std::uint64_t nodeTask = 0);
  // The codes of the refusals said for this task, and how often it was said to be bound.
  std::vector<std::string> refusals(std::uint64_t task) const;
  std::size_t bounds(std::uint64_t task) const;

  // --- a local bind through the client ---
  std::uint64_t forward(const TaskSpec& spec, World::As as = {0, true});
  static Word forwarded(std::uint64_t corr, std::uint64_t task);
  static Word forwardFailed(std::uint64_t corr, const char* code);

  // A second manager on the rows that this one left.
  WorldOptions restarted();
  std::string cluster();  // as the node's status says it

  World world;
  Probe link;
  ActorId linkId{};
  MemberActor member;
  std::uint64_t session = 0;
  std::uint64_t term = 0;

 private:
  std::size_t since_ = 0;  // words of connections before
  std::uint64_t lastCorr_ = 1'000;
};

}  // namespace qgpu::testing
