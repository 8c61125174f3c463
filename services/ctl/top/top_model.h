#pragma once
// What `qgpuctl top` knows and what a person chose to see of it: counters of two looks become
// rates, keys sort, filter and pick. Pure: answers, times and keys in; top_picture.h draws it.
//
// A node tells its counters as they are. A scheduler has them from its nodes every ten seconds:
// there a rate is that between two reports, and stays until the next is overdue.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/units.h"
#include "schema/types.capnp.h"
#include "services/ctl/answers/client.h"
#include "services/ctl/answers/names.h"
#include "services/ctl/top/keys.h"
#include "services/ctl/trace/card_history.h"

namespace qgpu::ctl {

// Nothing where it takes two looks and there was one.
using Figure = std::optional<std::uint64_t>;

struct TopCard {
  std::string id, name, node, model, state, policy, kind;
  std::string holder;  // the task that has it
  Figure usedPermille, onlinePermille;
  std::uint64_t memBound = 0, memBytes = 0, tasks = 0;
};

struct TopTask {
  std::uint64_t id = 0;
  std::string name, node, cards, cardNames, state, note;
  std::string firstCard;  // its id
  schema::TaskClass taskClass = schema::TaskClass::ORDINARY;
  std::uint64_t wantedPermille = 0;
  Figure gotPermille, heldPermille;
  Figure work;  // launches since the look before
  std::uint64_t memUsed = 0, memBytes = 0, processes = 0;
  Figure refused;  // memory; a scheduler doesn't know
  bool whole = false;
};

// Columns that tasks are sorted by.
enum class TopSort : std::uint8_t { Task, Name, Card, Wanted, Got, Work, Held, Memory, Refused };
inline constexpr std::size_t kTopSorts = 9;

enum class TopMode : std::uint8_t { List, Filter, Explain, Help };

class TopModel {
 public:
  static constexpr std::size_t kFilterMax = 64;  // bytes
  static constexpr std::size_t kSharesMax = 240;

  // --- looks ---

  // The answers to status, cards and tasks, and what the cards' traces tell, at time `at`.
  void take(const Answer& status, const Answer& cards, const Answer& tasks,
            std::vector<CardHistory> histories, Nanos at);
  // There was no answer. What was there before stays, and is old.
  void lose(std::string why) { lost_ = std::move(why); }

  // --- keys ---

  // False: the person wants to leave.
  bool press(const Key& key);

  // --- what is shown ---

  const std::string& lost() const { return lost_; }  // why there are no news; empty: there are
  bool cluster() const { return cluster_; }
  const std::string& title() const { return title_; }               // the node, or the scheduler
  const std::vector<std::string>& facts() const { return facts_; }  // the most important first
  const std::vector<std::string>& troubles() const { return troubles_; }
  const std::vector<TopCard>& cards() const { return cards_; }
  const std::vector<TopTask>& tasks() const { return tasks_; }
  // Those that pass the filter, in the order that was chosen.
  std::vector<const TopTask*> shown() const;
  // By its number; null where it is gone.
  const TopTask* picked() const { return find(picked_); }
  // What its first card did; null where no trace was read.
  const CardHistory* historyOf(const TopTask& task) const;
  // The permille that it got at each look, the newest last; null where nothing is known.
  const std::deque<std::uint64_t>* sharesOf(const TopTask& task) const;

  TopMode mode() const { return mode_; }
  TopSort sort() const { return sort_; }
  bool reversed() const { return reversed_; }
  const std::string& filter() const { return filter_; }

  // The task that is to be explained now; none in other modes.
  std::optional<std::uint64_t> explaining() const;
  void explain(std::string text) { explanation_ = std::move(text); }
  const std::string& explanation() const { return explanation_; }

 private:
  // Counters of a card or a task at the last look, or a scheduler's last report, and what they grew
  // by since the one before.
  struct Meter {
    std::uint64_t used = 0, other = 0, launches = 0;  // other: held, or of online tasks
    Nanos at{0};
    Figure usedPermille{}, otherPermille{}, work{};
  };
  const Meter& measure(Meter& meter, const Meter& is, bool known) const;
  void takeCards(Value root, Value tasks, Nanos at);
  void takeTasks(Value root, Nanos at);
  void takeStatus(Value status);
  const TopTask* find(std::uint64_t id) const;
  bool passes(const TopTask& task) const;
  void movePick(std::ptrdiff_t by);
  bool pressInList(const Key& key);
  void pressInFilter(const Key& key);
  void openExplanation();

  bool cluster_ = false;
  std::string title_;
  std::vector<std::string> facts_, troubles_;
  std::string lost_;
  CardNames names_;
  std::vector<TopCard> cards_;
  std::vector<TopTask> tasks_;
  std::vector<CardHistory> histories_;
  std::map<std::string, Meter> cardMeters_;  // by NODE/ID
  std::map<std::uint64_t, Meter> taskMeters_;
  std::map<std::uint64_t, std::deque<std::uint64_t>> shares_;

  TopMode mode_ = TopMode::List;
  TopSort sort_ = TopSort::Task;
  bool reversed_ = false;
  std::string filter_;
  std::uint64_t picked_ = 0;
  std::size_t pickedAt_ = 0;  // its row, for when it goes
  std::string explanation_;
};

}  // namespace qgpu::ctl
