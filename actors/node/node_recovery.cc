#include "actors/node/node_recovery.h"

#include <algorithm>
#include <utility>

namespace qgpu {

void NodeRecovery::load(const std::vector<StoredRow>& rows,
                        const std::vector<std::uint64_t>& living) {
  for (const StoredRow& stored : rows) {
    const schema::Row::Reader row = readRow(stored);
    if (!row.isTask()) continue;
    if (numbers_.restored() && !std::binary_search(living.begin(), living.end(), stored.key.id)) {
      rest_.push_back(stored);
      continue;
    }
    if (!bindings_.load(stored.key.id, row.getTask(), Bindings::Taking::AsItIs)) {
      lost_.push_back(stored.key.id);
    }
  }
}

// What was ending may still be dying while another task has its room already, so it comes last, and
// not at all where it does not fit: its processes are told to go. Where nobody wrote down that it
// was ending, the newer task has the right: it was bound beside all that held then.
void NodeRecovery::takeOver(const std::vector<StoredRow>& survivors) {
  for (const bool ending : {false, true}) {
    for (auto next = survivors.rbegin(); next != survivors.rend(); ++next) {
      const std::uint64_t task = next->key.id;
      const schema::TaskRow::Reader row = readRow(*next).getTask();
      if (row.getEvicting() != ending || bindings_.find(task) != nullptr) continue;
      const bool taken = bindings_.load(task, row, Bindings::Taking::IfItFits);
      (taken ? takenOver_ : notTakenOver_).push_back(task);
      if (!taken && ending) outlived_.insert(task);
    }
  }
}

void NodeRecovery::loadRest() {
  for (const StoredRow& stored : std::exchange(rest_, {})) {
    const std::uint64_t task = stored.key.id;
    const schema::TaskRow::Reader row = readRow(stored).getTask();
    if (!bindings_.load(task, row, Bindings::Taking::IfItFits)) crowdedOut_.push_back(task);
  }
}

// A manager that was killed right after the commit of a task's end left its processes alive.
void NodeRecovery::findOutlived(const std::vector<std::uint64_t>& living) {
  for (const std::uint64_t task : living) {
    const bool lost = std::find(lost_.begin(), lost_.end(), task) != lost_.end();
    if (lost || bindings_.find(task) != nullptr || outlived_.contains(task)) continue;
    if (numbers_.gaveOut(task)) outlived_.insert(task);
  }
}

// After the first commit nothing is left.
void NodeRecovery::persist(const NodeChange&, Turn& turn) {
  for (const auto* gone : {&lost_, &crowdedOut_}) {
    for (const std::uint64_t task : *gone) Bindings::erase(task, turn);
  }
  for (const std::uint64_t task : takenOver_) {
    bindings_.persist(task, *bindings_.find(task), bindings_.placement(task), turn);
  }
}

void NodeRecovery::apply(const NodeChange&, Turn& turn) {
  if (numbers_.started()) return;
  numbers_.start();
  node_.note("node-started", 0, "",
             node_.options().version + ", incarnation " + std::to_string(numbers_.incarnation()));
  tell();
  cards_.tellUnknownDrivers();
  cards_.tellPolicies();
  life_.introduceAll(turn);
}

void NodeRecovery::tell() {
  for (const std::uint64_t task : std::exchange(lost_, {})) {
    const char* why = "its card is not on this node any more";
    node_.note("task-lost", task, "", why);
    node_.tellClosed(node_.peers().attach, task, true, why);
  }
  for (const std::uint64_t task : std::exchange(crowdedOut_, {})) {
    node_.note("task-lost", task, "",
               "nobody lives of it, and its room is another's since the copy was made");
  }
  for (const std::uint64_t task : std::exchange(takenOver_, {})) {
    node_.note("task-taken-over", task, bindings_.cardIds(bindings_.placement(task)),
               "it lives, and the database did not know it");
  }
  for (const std::uint64_t task : std::exchange(notTakenOver_, {})) {
    node_.note("task-not-taken-over", task, "", "it was ending, and its room is another task's");
  }
  for (const std::uint64_t task : std::exchange(outlived_, {})) {
    node_.note("task-outlived", task, "",
               "it had ended, and its processes had not: they are told to go");
    node_.tellClosed(node_.peers().attach, task, true, "it had ended before the manager did");
  }
}

}  // namespace qgpu
