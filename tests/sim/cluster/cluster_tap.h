#pragma once
// What happens on one machine of a cluster, passed on to those who judge it: its mail and its
// storage as on a single node, everything that concerns others to ClusterCheck. Schedulers have one
// storage between them, which only the one that acts may change. With a trace it writes for a
// person what each process is told.

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "tests/sim/checkers/check_mail.h"
#include "tests/sim/checkers/check_storage.h"
#include "tests/sim/cluster/check_cluster.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

class Tap final : public Watch {
 public:
  struct Addresses {
    ActorId actor{};   // the node or the scheduler
    ActorId link{};    // its end of the network
    ActorId member{};  // on a node
  };
  using NodeOf = std::function<std::optional<std::size_t>(std::uint32_t link)>;

  enum class Of : std::uint8_t { Node, Scheduler };
  // Of the node or the scheduler of that number. `storage` is its own, or all schedulers';
  // `offset`: what its clock shows beyond the world's.
  Tap(Verdict& verdict, ClusterCheck& check, StorageCheck& storage, Of of, std::size_t number,
      Nanos offset, NodeOf nodeOf);

  void boot(const Boot& boot, Addresses addresses, Nanos now);
  // Another scheduler acts from now on.
  void followed() { followed_ = std::max(followed_, storage_.lastFound()); }
  void trace(bool on) { trace_ = on; }
  void stall(Nanos until) {  // on its machine's clock
    if (stores()) storage_.onStall(until);
  }

  void onPhase(Phase phase, Nanos now) override;
  void onEnd(Ending ending, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;
  void onRefused(ActorId from, ActorId to, Nanos now) override;
  void onTurn(const Carried& message, Nanos now) override;
  void onAppended(std::uint64_t batch, ActorId self, const std::vector<StoredRow>& rows,
                  Nanos now) override;
  void onAnswered(std::uint64_t batch, const Status& status, Nanos now) override;

 private:
  void sentOnNode(const Carried& message, Nanos now);
  void sentAtScheduler(const Carried& message, Nanos now);
  std::string who(ActorId id) const;
  void line(Nanos now, const std::string& text) const;

  bool isNode() const { return of_ == Of::Node; }
  // Nobody followed it.
  bool stores() const { return isNode() || check_.acts(number_); }

  Verdict& verdict_;
  ClusterCheck& check_;
  StorageCheck& storage_;
  const Of of_;
  const std::size_t number_;
  const Nanos offset_;
  const NodeOf nodeOf_;
  MailCheck mail_;
  std::uint64_t followed_ = 0;  // the last one that its follower found
  Addresses at_;
  bool trace_ = false;
};

}  // namespace qgpu::sim
