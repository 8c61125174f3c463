#pragma once
// Who uses the node: a client that binds tasks, lets them live for a while, ends them, asks for
// reports, and (where the seed has such people) operates the node and sends nonsense. It outlives
// managers: what one had not answered is asked again of the next, under the same request id.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/actor.h"
#include "tests/sim/host.h"
#include "tests/sim/options.h"

namespace qgpu::sim {

class Client final : public Actor {
 public:
  // A task that the node said is bound; told once for each, also if a repeated request said it.
  struct Bound {
    std::uint64_t task = 0;
    std::string token;
    Class taskClass = Class::Ordinary;
    Bytes quota{0};
    std::uint32_t ownerPid = 0;  // 0: nobody
  };
  using Tell = std::function<void(const Bound&)>;
  using OwnerDies = std::function<void(std::uint32_t pid)>;

  Client(Host& host, const Options& options, Dice dice, Tell bound, OwnerDies ownerDies);

  // A manager serves: its addresses. Asks again what the one before did not answer.
  void connect(ActorId self, ActorId node);
  void disconnect();
  // A new database took over a task that lived. If that had been ended, which the old one knew
  // alone, it is ended again.
  void tookOver(std::uint64_t task, const std::string& requestId);
  // No new tasks, nonsense or changes from now on; what is open is brought to an end.
  void calm() { calm_ = true; }
  // ... and all tasks as well.
  void endAll() { calm_ = true, ending_ = true; }
  // Asks for all reports once, so that who checks views has something to compare.
  void look();
  // Everything that was asked is answered.
  bool satisfied() const { return asked_.empty(); }
  bool hasTasks() const { return !jobs_.empty(); }
  // What it waits for, for a person.
  std::string waitsFor() const;

  void handle(schema::Envelope::Reader message, Turn& turn) override;

 private:
  struct Job {
    std::string requestId;
    Class taskClass = Class::Ordinary;
    std::int64_t mib = 1024;
    std::uint32_t share = 0;
    std::uint32_t cards = 1;
    std::string card;
    std::uint32_t ownerPid = 0;
    std::uint32_t uid = 0;
    std::uint64_t task = 0;  // 0: not known to be bound
    bool asked = false;      // a bind or an end is on its way
    bool uncertain = false;  // a manager ended without an answer: it may be bound
    Nanos endAt = kNever;
  };
  enum class What : std::uint8_t { Bind, End, Other };
  struct Ask {
    What what = What::Other;
    std::uint64_t job = 0;
  };
  using Fill = std::function<void(schema::Request::Builder)>;

  void act();
  void visit(std::uint64_t id, Job& job);
  void newJob();
  void askBind(std::uint64_t id, Job& job);
  void askEnd(std::uint64_t id, Job& job);
  void wander();
  void operate();
  void talkNonsense();
  void ask(Ask what, const Fill& fill, std::uint32_t uid = 0, bool mayChange = true);
  void onBound(Job& job, schema::Bound::Reader bound);
  void onFailed(std::uint64_t id, const Ask& what, const std::string& code);
  std::string someCard();

  Host& host_;
  const Options& options_;
  Dice dice_;
  const Tell bound_;
  const OwnerDies ownerDies_;
  ActorId self_ = ActorId::kNobody;  // nobody: no manager serves
  ActorId node_ = ActorId::kNobody;
  bool calm_ = false;
  bool ending_ = false;
  std::uint64_t lastCorr_ = 0;
  std::uint64_t lastJob_ = 0;
  std::map<std::uint64_t, Job> jobs_;
  std::map<std::uint64_t, Ask> asked_;  // by correlation id
};

}  // namespace qgpu::sim
