#include "actors/node/bindings.h"

#include <algorithm>

#include "runtime/planted.h"

namespace qgpu {
namespace {

// Whether the node itself remembers the request id; the scheduler does for what it places.
bool isLocalRequest(const TaskSpec& spec) {
  return !spec.requestId.empty() && spec.clusterTask == 0;
}

// Whole cards take all of each card, whatever was asked.
void settleSpec(TaskSpec& spec, const Placement& placement) {
  spec.share = placement.share;
  spec.cards = static_cast<std::uint32_t>(placement.cards.size());
  if (placement.exclusive) {
    spec.mem = *std::min_element(placement.mem.begin(), placement.mem.end());
  }
}

bool sameAsk(const TaskSpec& bound, const TaskSpec& asked) {
  if (bound.name != asked.name || bound.taskClass != asked.taskClass) return false;
  const bool whole = bound.taskClass == TaskClass::Ordinary && bound.share >= kWholeCard;
  if (whole) return asked.share >= kWholeCard;
  return bound.mem == asked.mem && bound.share == asked.share && bound.pageable == asked.pageable;
}

std::string describe(const TaskSpec& spec) {
  std::string said = spec.name + ": " + className(spec.taskClass) + ", " + sizeText(spec.mem);
  if (spec.pageable > Bytes(0)) said += ", " + sizeText(spec.pageable) + " of it pageable";
  if (spec.taskClass != TaskClass::Online) {
    said += ", " + std::to_string(spec.share.value) + " permille";
  }
  return said;
}

}  // namespace

Bindings::Bindings(NodeContext& node, Ledger& ledger, NodeNumbers& numbers, TokenSource& tokens)
    : node_(node),
      ledger_(ledger),
      numbers_(numbers),
      tokens_(tokens),
      mixed_(node.options().mixed) {
  for (std::size_t slot = node_.peers().tasks.size(); slot > 0; --slot) {
    freeSlots_.push_back(static_cast<std::uint32_t>(slot - 1));
  }
}

Binding* Bindings::find(std::uint64_t task) {
  const auto found = bindings_.find(task);
  return found == bindings_.end() ? nullptr : &found->second;
}

std::string Bindings::cardIds(const Placement& placement) const {
  std::string ids;
  for (const std::size_t card : placement.cards) {
    ids += (ids.empty() ? "" : ",") + ledger_.card(card).id;
  }
  return ids;
}

// --- checks of a bind ---

Result<Need> Bindings::check(NodeChange& bind) {
  TaskSpec& spec = bind.spec;
  if (Status valid = checkSpec(spec); !valid) return valid.error();
  if (!bind.who.mayChange) spec.ownerUid = bind.who.uid;
  if (spec.clusterTask != 0) {
    const Result<Need> need = checkOrdered(bind);
    if (!need || *need == Need::Nothing) return need;
  }
  if (isLocalRequest(spec)) {
    const auto known = requests_.find({spec.ownerUid, spec.requestId});
    if (known != requests_.end() && !QGPU_PLANTED(RequestForgotten)) {
      QGPU_MARK(RequestRepeated);
      return checkRepeated(bind, known->second);
    }
  }
  if (freeSlots_.empty()) {
    return fail(ErrorCode::Overloaded, std::to_string(node_.peers().tasks.size()) +
                                           " tasks are bound, and this node has no room for more");
  }
  if (node_.options().labelled && !mixed_ && isHybrid(spec.taskClass)) {
    return fail(ErrorCode::Infeasible,
                "online and offline tasks run on mixed nodes only: label the node "
                "mixed-qgpu-enable=enable, or ask for an ordinary task");
  }
  Result<Placement> placement = placementOf(bind);
  if (!placement) return placement.error();
  bind.placement = std::move(placement).value();
  settleSpec(spec, bind.placement);
  bind.task = numbers_.takeTask();
  bind.token = tokens_.next();
  bind.tells("task-bound", bind.task, cardIds(bind.placement), describe(spec));
  return Need::Commit;
}

Result<Need> Bindings::checkRepeated(const NodeChange& bind, std::uint64_t task) {
  const std::string request = "request '" + bind.spec.requestId + "'";
  Binding* binding = find(task);
  if (binding == nullptr) {
    return fail(ErrorCode::Conflict, request + " was task " + std::to_string(task) +
                                         ", which has ended: use a new request id");
  }
  if (!sameAsk(binding->spec, bind.spec)) {
    return fail(ErrorCode::Conflict, request + " is task " + std::to_string(task) +
                                         " and asked for something else: use a new request id");
  }
  return answer(*bind.asker, task, *binding);
}

Result<Need> Bindings::checkOrdered(const NodeChange& bind) {
  const std::uint64_t wanted = bind.spec.clusterTask;
  const std::string name = "cluster task " + std::to_string(wanted);
  for (auto& [task, binding] : bindings_) {
    if (binding.spec.clusterTask != wanted) continue;
    if (binding.spec.clusterEpoch == bind.spec.clusterEpoch) {
      return answer(*bind.asker, task, binding);
    }
    return fail(ErrorCode::Conflict, name + " is here with epoch " +
                                         std::to_string(binding.spec.clusterEpoch) + ", not " +
                                         std::to_string(bind.spec.clusterEpoch));
  }
  const auto over = overAt_.find(wanted);
  if (over == overAt_.end() || over->second < bind.spec.clusterEpoch) return Need::Commit;
  return fail(ErrorCode::Conflict,
              name + " has ended here with epoch " + std::to_string(over->second));
}

Need Bindings::answer(const Asker& asker, std::uint64_t task, Binding& binding) {
  if (binding.stage == Stage::Live || binding.late) {
    replyBound(asker, task, binding);
  } else {
    binding.waiting.push_back(asker);
  }
  return Need::Nothing;
}

// Where the scheduler chose cards, these and no others. Several are whole cards.
Result<Placement> Bindings::placementOf(const NodeChange& bind) const {
  LedgerAsk ask = askOf(bind.spec);
  if (bind.wanted.size() <= 1) {
    if (!bind.wanted.empty()) ask.card = bind.wanted.front();
    return ledger_.place(ask);
  }
  Result<Placement> asked = ledger_.place(ask);
  if (!asked) return asked.error();
  if (asked->cards.size() != bind.wanted.size()) {
    return fail(ErrorCode::InvalidArgument, std::to_string(bind.wanted.size()) +
                                                " cards were chosen for a task of " +
                                                std::to_string(asked->cards.size()));
  }
  ask.cards = 1;
  ask.share = kWholeCard;
  std::map<std::size_t, Bytes> chosen;
  for (const std::string& card : bind.wanted) {
    ask.card = card;
    Result<Placement> one = ledger_.place(ask);
    if (!one) return one.error();
    chosen[one->cards.front()] = one->mem.front();
  }
  if (chosen.size() != bind.wanted.size()) {
    return fail(ErrorCode::InvalidArgument, "a card was chosen twice");
  }
  asked->cards.clear();
  asked->mem.clear();
  for (const auto& [card, mem] : chosen) {
    asked->cards.push_back(card);
    asked->mem.push_back(mem);
  }
  return asked;
}

// --- begin and end ---

Binding Bindings::newBinding(const NodeChange& bind) {
  Binding binding;
  binding.spec = bind.spec;
  binding.token = bind.token;
  binding.boundUnixMs = bind.event.unixMs;
  return binding;
}

void Bindings::persist(const NodeChange& bind, Turn& turn) const {
  persist(bind.task, newBinding(bind), bind.placement, turn);
}

Binding& Bindings::apply(const NodeChange& bind) {
  Binding& binding = add(bind.task, newBinding(bind), bind.placement);
  binding.waiting.push_back(*bind.asker);
  return binding;
}

Binding& Bindings::add(std::uint64_t task, Binding binding, const Placement& placement) {
  binding.slot = freeSlots_.back();
  freeSlots_.pop_back();
  if (isLocalRequest(binding.spec)) {
    requests_[{binding.spec.ownerUid, binding.spec.requestId}] = task;
  }
  ledger_.bind(TaskId{task}, placement);
  return bindings_.emplace(task, std::move(binding)).first->second;
}

void Bindings::answerWaiting(std::uint64_t task, Binding& binding) {
  for (const Asker& asker : binding.waiting) replyBound(asker, task, binding);
  binding.waiting.clear();
}

void Bindings::replyBound(const Asker& asker, std::uint64_t task, const Binding& binding) {
  std::vector<std::string> ids;
  for (const std::size_t card : placement(task).cards) ids.push_back(ledger_.card(card).id);
  node_.reply(asker, [this, task, ids, token = binding.token](schema::Reply::Builder answer) {
    auto bound = answer.initBound();
    bound.setTask(task);
    bound.setToken(token);
    bound.setAttachSocket(node_.options().attachSocket);
    auto list = bound.initCards(static_cast<unsigned>(ids.size()));
    for (unsigned i = 0; i < list.size(); ++i) list.set(i, ids[i]);
  });
}

void Bindings::release(std::uint64_t task) {
  const auto entry = bindings_.find(task);
  QGPU_CHECK(entry != bindings_.end(), "a binding is released once");
  const TaskSpec& spec = entry->second.spec;
  if (spec.clusterTask != 0) {
    const bool known = overAt_.contains(spec.clusterTask);
    overAt_[spec.clusterTask] = spec.clusterEpoch;
    if (!known) over_.push_back(spec.clusterTask);
    if (over_.size() > kFinishedKept) {
      overAt_.erase(over_.front());
      over_.pop_front();
    }
  }
  if (isLocalRequest(spec)) {
    finished_.push_back({spec.ownerUid, spec.requestId});
    if (finished_.size() > kFinishedKept) {
      requests_.erase(finished_.front());
      finished_.pop_front();
    }
  }
  freeSlots_.push_back(entry->second.slot);
  ledger_.release(TaskId{task});
  bindings_.erase(entry);
}

// --- rows ---

bool Bindings::load(std::uint64_t task, schema::TaskRow::Reader row, Taking taking) {
  numbers_.numberFrom(task + 1);
  Placement placement;
  Binding binding;
  binding.spec = readSpec(row.getSpec());
  placement.taskClass = binding.spec.taskClass;
  placement.share = binding.spec.share;
  placement.pageable = binding.spec.pageable;
  placement.exclusive = placement.taskClass == TaskClass::Ordinary && placement.share >= kWholeCard;
  for (const auto cardId : row.getCards()) {
    const Result<std::size_t> card = ledger_.findCard(text(cardId));
    if (!card) continue;
    placement.cards.push_back(*card);
    placement.mem.push_back(placement.exclusive ? ledger_.card(*card).mem : binding.spec.mem);
  }
  if (placement.cards.empty() || placement.cards.size() != row.getCards().size() ||
      freeSlots_.empty()) {
    return false;
  }
  if (taking == Taking::IfItFits && !ledger_.admits(placement)) return false;
  binding.token = text(row.getToken());
  binding.boundUnixMs = row.getBoundUnixMs();
  binding.evicting = row.getEvicting();
  if (binding.evicting) binding.endReason = "evicted";
  add(task, std::move(binding), placement);
  return true;
}

void Bindings::persist(std::uint64_t task, const Binding& binding, const Placement& placement,
                       Turn& turn) const {
  turn.persist({RowKind::Task, task}, [&](schema::Row::Builder row) {
    writeRow(task, binding, placement, row.initTask());
  });
}

void Bindings::erase(std::uint64_t task, Turn& turn) {
  turn.persist({RowKind::Task, task}, [](schema::Row::Builder row) { row.setErased(); });
}

void Bindings::writeRow(std::uint64_t task, const Binding& binding, const Placement& placement,
                        schema::TaskRow::Builder row) const {
  row.setId(task);
  writeSpec(binding.spec, row.initSpec());
  row.setToken(binding.token);
  auto cards = row.initCards(static_cast<unsigned>(placement.cards.size()));
  for (unsigned i = 0; i < cards.size(); ++i) cards.set(i, ledger_.card(placement.cards[i]).id);
  row.setBoundUnixMs(binding.boundUnixMs);
  row.setEvicting(binding.evicting);
}

}  // namespace qgpu
