#pragma once
// Who holds what of which card, worked out anew from committed rows by those who judge the node:
// the limits of DESIGN 8 and CONTRACT as sums, written without a look at the product's ledger.
//
// Judged by it: P1, P2, P4 to P8, P10.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "schema/rows.capnp.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

inline std::string textOf(capnp::Text::Reader text) {
  return {text.begin(), text.size()};
}

// What a request asks for, or a row says that it got.
struct Want {
  std::string name;
  Class taskClass = Class::Ordinary;
  std::uint64_t mem = 0;    // bytes of each card
  std::uint32_t share = 0;  // permille
  std::uint32_t cards = 1;
  std::string card;  // id or index; empty: any
  std::uint32_t ownerUid = 0;
  std::uint32_t ownerPid = 0;
  std::string requestId;

  static Want read(schema::TaskSpec::Reader spec);
  // Ordinary, and of whole cards.
  bool whole() const { return taskClass == Class::Ordinary && (cards > 1 || share >= 1000); }
  // How many cards that is.
  std::uint32_t cardCount() const;
  // Empty, or the rule of the contract that it breaks, whatever the node holds.
  std::string flaw() const;
};

struct HeldTask {
  Want want;
  std::string token;
  std::vector<std::uint32_t> cards;  // indices, as the row has them
  bool evicting = false;
};

struct HeldCard {
  std::int64_t total = 0;     // bytes
  std::int64_t mem = 0;       // bound
  std::int64_t ordinary = 0;  // permille
  std::int64_t greedy = 0;    // permille, of offline tasks
  std::int64_t tasks = 0;
  std::int64_t mixedTasks = 0;  // online and offline ones
  std::int64_t wholeTasks = 0;
  std::int64_t tasksMax = 0;
  Policy policy = Policy::BestEffort;
  bool cordoned = false;
  bool draining = false;
};

enum class Room : std::uint8_t { Fits, NotNow, Never, NoCard };

// What keeps a task from a place, and the invariant that says so; no id: nothing.
struct Obstacle {
  const char* id = nullptr;
  std::string why;
};

class LedgerModel {
 public:
  void boot(const Boot& boot);

  const std::vector<HeldCard>& cards() const { return cards_; }
  const std::map<std::uint64_t, HeldTask>& tasks() const { return tasks_; }
  const HeldTask* find(std::uint64_t task) const;

  // Rows as they were committed, without judgement.
  void setTask(std::uint64_t id, schema::TaskRow::Reader row) { setTask(id, read(row)); }
  void setTask(std::uint64_t id, HeldTask held);
  void eraseTask(std::uint64_t id);
  void setCard(schema::CardRow::Reader row);

  // Of a sound want.
  Room room(const Want& want) const;
  // Whether `task` may be put where its row says, with everybody else in place.
  Obstacle obstacle(const HeldTask& task) const;
  // A card with a sum beyond its limit.
  Obstacle overfull() const;
  // Index of a card by id or index as text; -1: none.
  int cardNamed(std::string_view text) const;

  static HeldTask read(schema::TaskRow::Reader row);

 private:
  void account(const HeldTask& task, std::int64_t sign);
  // Why a card has no room for one more of this kind.
  static Obstacle refusal(const HeldCard& card, const Want& want);

  std::vector<HeldCard> cards_;
  std::map<std::uint64_t, HeldTask> tasks_;
  Policy flagPolicy_ = Policy::BestEffort;
  bool mixed_ = true;
};

}  // namespace qgpu::sim
