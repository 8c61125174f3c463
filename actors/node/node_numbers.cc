#include "actors/node/node_numbers.h"

#include <algorithm>

#include "runtime/planted.h"

namespace qgpu {
namespace {

// Nothing where the store was never written.
std::optional<schema::NodeRow::Reader> nodeRow(const std::vector<StoredRow>& rows) {
  for (const StoredRow& row : rows) {
    if (readRow(row).isNode()) return readRow(row).getNode();
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint32_t> NodeNumbers::storedIncarnation(const std::vector<StoredRow>& rows) {
  const auto stored = nodeRow(rows);
  if (!stored) return std::nullopt;
  return stored->getIncarnation();
}

bool NodeNumbers::laterThanCopy(const std::vector<StoredRow>& rows, std::uint64_t task) {
  const auto stored = nodeRow(rows);
  return stored && stored->getRestored() && task >= stored->getUnknownFrom();
}

void NodeNumbers::load(const std::vector<StoredRow>& rows) {
  const auto stored = nodeRow(rows);
  if (!stored) return;
  numbered_ = stored->getNextTask();
  wereUnknown_ = {stored->getUnknownFrom(), stored->getUnknownTo()};
  term_ = stored->getClusterTerm();
  restored_ = stored->getRestored();
  node_.feed().atLeast(stored->getNextEvent());
  numberFrom(numbered_);
}

// --- tasks ---

void NodeNumbers::numberFrom(std::uint64_t next) {
  if (!QGPU_PLANTED(TaskIdReused)) nextTask_ = std::max(nextTask_, next);
}

// A task's row and a number above it are committed together, and so is the end of its row.
bool NodeNumbers::gaveOut(std::uint64_t task) {
  if (task < numbered_ && !wereUnknown_.has(task)) return true;
  if (unknown_.to == 0) unknown_.from = task;
  unknown_.to = task + 1;
  return false;
}

// --- the incarnation ---

void NodeNumbers::onIncarnationSeen(std::uint32_t value) {
  if (value < incarnation_) return tellIncarnation();
  if (value != UINT32_MAX) incarnationSeen_ = std::max(incarnationSeen_, value);
}

// The attach server's time of recovery begins with that (HAZARDS 8).
void NodeNumbers::start() {
  started_ = true;
  tellIncarnation();
}

void NodeNumbers::tellIncarnation() {
  node_.tell(node_.peers().attach, [value = incarnation_](schema::Envelope::Builder envelope) {
    envelope.initIncarnationChosen().setValue(value);
  });
}

std::uint32_t NodeNumbers::incarnationToStore() const {
  return std::max(incarnation_, incarnationSeen_ + 1);
}

// --- the term ---

Result<Need> NodeNumbers::check(NodeChange& change) {
  if (change.term > term_) return Need::Commit;
  node_.replyDone(change.asker, "term " + std::to_string(term_) + " is stored");
  return Need::Nothing;
}

void NodeNumbers::apply(const NodeChange& change, Turn&) {
  term_ = change.term;
  node_.replyDone(change.asker, "term " + std::to_string(term_) + " is stored");
}

// --- the row ---

bool NodeNumbers::rowDue() const {
  return !started_ || node_.feed().rowDue() || incarnationSeen_ >= incarnation_;
}

void NodeNumbers::write(const NodeChange& change, Turn& turn) {
  turn.persist({RowKind::Node, 0}, [&](schema::Row::Builder row) {
    auto node = row.initNode();
    node.setIncarnation(change.incarnation);
    node.setNextTask(nextTask_);
    node.setNextEvent(node_.feed().toStore());
    node.setUnknownFrom(unknown_.from);
    node.setUnknownTo(unknown_.to);
    node.setClusterTerm(std::max(term_, change.term));
  });
}

void NodeNumbers::stored(const NodeChange& change) {
  node_.feed().stored();
  if (change.incarnation == incarnation_) return;
  QGPU_MARK(IncarnationRaised);
  node_.note("incarnation-raised", 0, "",
             std::to_string(incarnation_) + " to " + std::to_string(change.incarnation) +
                 ": a guest has met a later one than the store knew");
  incarnation_ = change.incarnation;
  tellIncarnation();
}

}  // namespace qgpu
