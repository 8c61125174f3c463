#include "tests/sim/checkers/ledger_model.h"

#include <algorithm>

namespace qgpu::sim {
namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
constexpr std::uint64_t kGib = std::uint64_t{1} << 30;
constexpr std::int64_t kTasksLeast = 4;  // of a small card
constexpr std::uint32_t kWhole = 1000;
constexpr std::uint32_t kCardsMax = 16;  // of one task
constexpr std::size_t kTextMax = 64;

Class classOf(schema::TaskClass word) {
  const auto value = static_cast<std::uint16_t>(word);
  return value < 3 ? static_cast<Class>(value) : Class::Ordinary;  // of a newer peer
}

bool printable(const std::string& text) {
  return text.size() <= kTextMax &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

Want Want::read(schema::TaskSpec::Reader spec) {
  Want want;
  want.name = textOf(spec.getName());
  want.taskClass = classOf(spec.getClass());
  want.mem = spec.getMemBytes();
  want.share = spec.getSharePermille();
  want.cards = spec.getCards();
  want.card = textOf(spec.getCard());
  want.ownerUid = spec.getOwnerUid();
  want.ownerPid = spec.getOwnerPid();
  want.requestId = textOf(spec.getRequestId());
  return want;
}

std::uint32_t Want::cardCount() const {
  if (!whole()) return 1;
  return cards > 1 ? cards : share / kWhole;
}

std::string Want::flaw() const {
  if (name.empty() || !printable(name)) return "its name";
  if (!printable(card) || !printable(requestId)) return "its card or request id";
  if (cards == 0) return "no cards";
  if (whole()) {
    if (share % kWhole != 0) return "a share of whole cards that is not N * 1000";
    if (cards > 1 && share != kWhole && share != std::uint64_t{cards} * kWhole) {
      return "a share that does not go with its cards";
    }
    if (cardCount() > kCardsMax) return "more cards than one task may hold";
    if (cardCount() > 1 && !card.empty()) return "several cards, and one of them named";
    return "";
  }
  if (mem < kMib || mem % kMib != 0) return "memory that is not a whole number of MiB";
  if (taskClass != Class::Ordinary && cards != 1) return "several cards for a mixed task";
  if (taskClass == Class::Online && share != 0) return "a share for an online task";
  if (share > kWhole || share % 10 != 0) return "a share that is not 0 to 100 whole percent";
  return "";
}

// --- state ---

void LedgerModel::boot(const Boot& boot) {
  cards_.clear();
  tasks_.clear();
  flagPolicy_ = boot.policy;
  mixed_ = boot.mixed;
  for (const CardFact& fact : boot.cards) {
    HeldCard& card = cards_.emplace_back();
    card.total = fact.mem.value;
    card.policy = flagPolicy_;
    // The world's cards have sizes that are sold, so the nominal size is the size.
    const auto gib = fact.mem.value / static_cast<std::int64_t>(kGib);
    card.tasksMax = boot.maxTasksPerCard != 0 ? boot.maxTasksPerCard
                                              : std::max<std::int64_t>(kTasksLeast, gib / 4);
  }
  for (const StoredRow& stored : boot.rows) {
    const auto row = capnp::readMessageUnchecked<schema::Row>(stored.words.data());
    if (row.isTask()) setTask(stored.key.id, row.getTask());
    if (row.isCard()) setCard(row.getCard());
  }
}

const HeldTask* LedgerModel::find(std::uint64_t task) const {
  const auto found = tasks_.find(task);
  return found == tasks_.end() ? nullptr : &found->second;
}

int LedgerModel::cardNamed(std::string_view text) const {
  for (std::size_t i = 0; i < cards_.size(); ++i) {
    const std::string index = std::to_string(i);
    if (text == index || text == "sim-" + index) return static_cast<int>(i);
  }
  return -1;
}

HeldTask LedgerModel::read(schema::TaskRow::Reader row) {
  HeldTask task;
  task.want = Want::read(row.getSpec());
  task.token = textOf(row.getToken());
  task.evicting = row.getEvicting();
  for (const auto card : row.getCards()) {
    const std::string id = textOf(card);
    const bool ours = id.size() > 4 && id.size() < 9 && id.rfind("sim-", 0) == 0;
    task.cards.push_back(ours ? static_cast<std::uint32_t>(std::stoul(id.substr(4))) : UINT32_MAX);
  }
  return task;
}

void LedgerModel::setTask(std::uint64_t id, HeldTask held) {
  eraseTask(id);
  const auto& task = tasks_.emplace(id, std::move(held)).first->second;
  account(task, 1);
}

void LedgerModel::eraseTask(std::uint64_t id) {
  const auto found = tasks_.find(id);
  if (found == tasks_.end()) return;
  account(found->second, -1);
  tasks_.erase(found);
}

void LedgerModel::setCard(schema::CardRow::Reader row) {
  const int index = cardNamed(textOf(row.getId()));
  if (index < 0) return;
  HeldCard& card = cards_[static_cast<std::size_t>(index)];
  card.policy = row.getPolicyChosen() ? static_cast<Policy>(row.getPolicy()) : flagPolicy_;
  card.cordoned = row.getCordoned() || row.getDraining();
  card.draining = row.getDraining();
}

void LedgerModel::account(const HeldTask& task, std::int64_t sign) {
  for (const std::uint32_t index : task.cards) {
    if (index >= cards_.size()) continue;
    HeldCard& card = cards_[index];
    const Want& want = task.want;
    card.mem += sign * (want.whole() ? card.total : static_cast<std::int64_t>(want.mem));
    if (want.taskClass == Class::Ordinary) card.ordinary += sign * std::int64_t{want.share};
    if (want.taskClass == Class::Offline) card.greedy += sign * std::int64_t{want.share};
    card.tasks += sign;
    card.mixedTasks += want.taskClass == Class::Ordinary ? 0 : sign;
    card.wholeTasks += want.whole() ? sign : 0;
  }
}

// --- judgement ---

Obstacle LedgerModel::refusal(const HeldCard& card, const Want& want) {
  if (card.cordoned) return {"P8", "it is cordoned"};
  if (card.wholeTasks != 0) return {"P8", "a task holds it whole"};
  if (want.whole()) {
    if (card.tasks == 0) return {};
    return {"P8", "it is not empty"};
  }
  if (card.tasks >= card.tasksMax) return {"P8", "it has as many tasks as it may"};
  const bool ordinary = want.taskClass == Class::Ordinary;
  if (card.tasks != 0 && (card.mixedTasks == 0) != ordinary) {
    return {"P8", "its tenancy is the other"};
  }
  if (card.mem + static_cast<std::int64_t>(want.mem) > card.total) {
    return {"P1", "its memory is bound"};
  }
  const std::int64_t pool = ordinary ? card.ordinary : card.greedy;
  if (want.taskClass != Class::Online && pool + want.share > kWhole) {
    return {"P2", "its shares are bound"};
  }
  if (card.policy == Policy::FixedShare && want.share == 0 && want.taskClass != Class::Online) {
    return {"P8", "fixed-share needs a share"};
  }
  return {};
}

Room LedgerModel::room(const Want& want) const {
  const int named = want.card.empty() ? -1 : cardNamed(want.card);
  if (!want.card.empty() && named < 0) return Room::NoCard;
  if (want.taskClass != Class::Ordinary && !mixed_) return Room::Never;
  std::uint32_t fits = 0;
  std::uint32_t could = 0;
  for (std::size_t i = 0; i < cards_.size(); ++i) {
    if (named >= 0 && static_cast<std::size_t>(named) != i) continue;
    const bool large = want.whole() || want.mem <= static_cast<std::uint64_t>(cards_[i].total);
    could += large ? 1 : 0;
    fits += large && refusal(cards_[i], want).id == nullptr ? 1 : 0;
  }
  if (fits >= want.cardCount()) return Room::Fits;
  return could >= want.cardCount() ? Room::NotNow : Room::Never;
}

Obstacle LedgerModel::obstacle(const HeldTask& task) const {
  const Want& want = task.want;
  const std::set<std::uint32_t> distinct(task.cards.begin(), task.cards.end());
  if (distinct.size() != task.cards.size()) return {"P5", "a card twice"};
  if (task.cards.size() != want.cardCount()) {
    return {"P5", std::to_string(task.cards.size()) + " cards instead of " +
                      std::to_string(want.cardCount())};
  }
  if (want.taskClass != Class::Ordinary && !mixed_) return {"P8", "this node is not mixed"};
  for (const std::uint32_t index : task.cards) {
    if (index >= cards_.size()) return {"P8", "a card that is not there"};
    const std::string name = "card " + std::to_string(index) + ": ";
    if (!want.card.empty() && cardNamed(want.card) != static_cast<int>(index)) {
      return {"P8", name + "another one was asked for"};
    }
    const Obstacle refused = refusal(cards_[index], want);
    if (refused.id != nullptr) return {refused.id, name + refused.why};
  }
  return {};
}

Obstacle LedgerModel::overfull() const {
  for (std::size_t i = 0; i < cards_.size(); ++i) {
    const HeldCard& card = cards_[i];
    const std::string name = "card " + std::to_string(i) + ": ";
    if (card.mem > card.total) {
      return {"P1",
              name + std::to_string(card.mem) + " bytes bound of " + std::to_string(card.total)};
    }
    if (card.ordinary > kWhole || card.greedy > kWhole) {
      return {"P2", name + std::to_string(card.ordinary) + " and greedy " +
                        std::to_string(card.greedy) + " permille bound"};
    }
    if (card.tasks > card.tasksMax && card.wholeTasks == 0) {
      return {"P8", name + std::to_string(card.tasks) + " tasks"};
    }
    if (card.mixedTasks != 0 && card.mixedTasks != card.tasks) return {"P8", name + "both kinds"};
    if (card.wholeTasks != 0 && card.tasks != 1) return {"P8", name + "held whole, and shared"};
  }
  return {};
}

}  // namespace qgpu::sim
