#include "actors/ledger/ledger.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "actors/ledger/card_name.h"
#include "actors/policies.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::size_t kReasonCardsMax = 8;  // cards that a refusal lists one by one

void mix(std::uint64_t& digest, std::uint64_t value) {
  digest = (digest ^ value) * 0x100000001b3ULL;
  digest ^= digest >> 29;
}

}  // namespace

Ledger::Ledger(LedgerConfig config, std::vector<LedgerCard> cards, Policy policy)
    : config_(config) {
  for (LedgerCard& card : cards) {
    CardRoom room;
    room.mem = card.mem;
    room.overcommitted = Bytes(mulDiv(card.mem.value, config.overcommit.value, 1000));
    room.tasksMax = tasksMaxOf(card.mem, config.tasks);
    room.policy = policy;
    cards_.push_back(Slot{std::move(card), room});
  }
}

Ledger::Slot& Ledger::at(std::size_t card) {
  QGPU_CHECK(card < cards_.size(), "positions come from findCard() or place()");
  return cards_[card];
}

const Ledger::Slot& Ledger::at(std::size_t card) const {
  QGPU_CHECK(card < cards_.size(), "positions come from findCard() or place()");
  return cards_[card];
}

const Placement* Ledger::placement(TaskId task) const {
  const auto found = held_.find(task);
  return found == held_.end() ? nullptr : &found->second;
}

std::vector<TaskId> Ledger::tasksOn(std::size_t card) const {
  std::vector<TaskId> tasks;
  for (const auto& [task, placement] : held_) {
    const auto& on = placement.cards;
    if (std::find(on.begin(), on.end(), card) != on.end()) tasks.push_back(task);
  }
  return tasks;
}

Result<std::size_t> Ledger::findCard(const std::string& text) const {
  std::string known;
  for (std::size_t i = 0; i < cards_.size(); ++i) {
    const LedgerCard& card = cards_[i].info;
    if (isCardCalled(text, card.id, card.index)) return i;
    if (i < kReasonCardsMax) known += (i == 0 ? "" : ", ") + card.id;
  }
  return fail(ErrorCode::NotFound,
              "no card '" + text + "' here; cards: " + (known.empty() ? "none" : known));
}

Status Ledger::mayChoosePolicy(std::size_t card, Policy policy) const {
  if (!rulesOf(policy).caps) return ok();
  std::size_t shareless = 0;
  for (const TaskId task : tasksOn(card)) {
    const Placement& held = held_.at(task);
    if (held.taskClass != TaskClass::Online && held.share.value == 0) ++shareless;
  }
  if (shareless == 0) return ok();
  return fail(ErrorCode::Conflict,
              "card " + at(card).info.id + " holds " + std::to_string(shareless) +
                  " task(s) without a share, which this policy would never let run: end "
                  "them first, or choose another one");
}

// The rules that need no card: what may be asked at all, here.
Status Ledger::check(const LedgerAsk& ask) const {
  if (Status valid = checkAsk(ask); !valid) return valid;
  if (isHybrid(ask.taskClass) && !config_.mixed) {
    return fail(ErrorCode::Infeasible,
                "online and offline tasks run on mixed nodes only: start the manager with --mixed, "
                "or ask for an ordinary task");
  }
  return ok();
}

std::vector<std::size_t> Ledger::wanted(const LedgerAsk& ask, Status& found) const {
  std::vector<std::size_t> among;
  if (!ask.card.empty()) {
    Result<std::size_t> card = findCard(ask.card);
    if (card)
      among.push_back(*card);
    else
      found = card.error();
    return among;
  }
  for (std::size_t i = 0; i < cards_.size(); ++i) among.push_back(i);
  return among;
}

Result<Placement> Ledger::place(const LedgerAsk& rawAsk) const {
  if (Status valid = check(rawAsk); !valid) return valid.error();
  const LedgerAsk ask = normalAsk(rawAsk);
  const CardAsk each = cardAsk(ask);
  Status found = ok();
  const std::vector<std::size_t> among = wanted(ask, found);
  if (!found) return found.error();

  std::vector<std::size_t> fitting;
  for (const std::size_t i : among) {
    if (fitOf(cards_[i].room, each) == Reason::Fits) fitting.push_back(i);
  }
  if (fitting.size() < ask.cards) return refuse(ask, among);

  Placement placement{ask.taskClass, each.whole, ask.share, {}, {}, {}};
  if (each.whole) {
    placement.cards = nearOnes(fitting, ask.cards);
    for (const std::size_t i : placement.cards) placement.mem.push_back(cards_[i].info.mem);
  } else {
    placement.cards = {best(each, fitting)};
    placement.mem = {ask.mem};
    placement.pageable = ask.pageable;
  }
  return placement;
}

std::vector<std::size_t> Ledger::nearOnes(const std::vector<std::size_t>& fitting,
                                          std::size_t count) const {
  std::vector<NearCard> cards;
  cards.reserve(fitting.size());
  for (const std::size_t i : fitting) cards.push_back({i, cards_[i].info.place, {}});
  chooseNear(cards, count);
  std::vector<std::size_t> chosen;
  for (std::size_t n = 0; n < count; ++n) chosen.push_back(cards[n].position);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// A total order: the position breaks every tie, so there is one best card.
std::size_t Ledger::best(const CardAsk& ask, const std::vector<std::size_t>& fitting) const {
  using Rank = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::size_t>;
  const auto rank = [&](std::size_t i) -> Rank {
    const CardRoom& room = cards_[i].room;
    const std::int64_t memFree = mulDiv(room.memFree().value, 1000, room.mem.value);
    if (ask.taskClass == TaskClass::Online) {  // spread, away from offline tasks
      return {room.offline != 0 ? 1 : 0, room.tasks, -memFree, i};
    }
    const bool offline = ask.taskClass == TaskClass::Offline;  // binpack, away from online tasks
    const std::int64_t shareFree = poolFree(room, ask.taskClass).value;
    return {offline && room.online != 0 ? 1 : 0, memFree + shareFree, memFree, i};
  };
  return *std::min_element(fitting.begin(), fitting.end(),
                           [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
}

Error Ledger::refuse(const LedgerAsk& ask, const std::vector<std::size_t>& among) const {
  const CardAsk each = cardAsk(ask);
  std::string reasons;
  std::array<std::size_t, kReasons> count{};
  Bytes mostMem{0};
  Permille mostShare{0};
  std::size_t possible = 0;
  for (std::size_t n = 0; n < among.size(); ++n) {
    const Slot& slot = cards_[among[n]];
    const CardRoom& room = slot.room;
    const Reason reason = fitOf(room, each);
    ++count[static_cast<std::size_t>(reason)];
    possible += isHopeless(reason) ? 0 : 1;
    if (reason == Reason::MemShort) mostMem = std::max(mostMem, room.memFree());
    if (reason == Reason::CoreShort || reason == Reason::GreedyShort) {
      mostShare = std::max(mostShare, poolFree(room, each.taskClass));
    }
    if (n >= kReasonCardsMax || reason == Reason::Fits) continue;
    reasons += "; " + slot.info.id + ": " + describe(room, each, reason);
  }
  if (among.size() > kReasonCardsMax) {
    reasons += "; and " + std::to_string(among.size() - kReasonCardsMax) + " more";
  }
  const auto seen = [&](Reason reason) { return count[static_cast<std::size_t>(reason)]; };
  const std::string what =
      each.whole ? std::to_string(ask.cards) + " whole card(s)" : sizeText(ask.mem);
  if (possible < ask.cards) {
    return fail(ErrorCode::Infeasible,
                "not even an empty node would do for " + what + reasons + "; ask for less");
  }
  std::string help = "wait until a task ends";
  if (mostShare.value >= 10) help += ", or ask for at most " + percentText(mostShare) + " percent";
  if (mostMem >= kMemoryStep) {
    help += ", or ask for at most " + sizeText(kMemoryStep * (mostMem / kMemoryStep));
  }
  if (seen(Reason::SlotsFull) != 0) help += ", or raise --max-tasks-per-card";
  if (seen(Reason::ShareNeeded) != 0) help += ", or ask for a share";
  if (seen(Reason::CardCordoned) != 0) help += ", or uncordon a card";
  ErrorCode code = ErrorCode::NoRoom;
  if (seen(Reason::CardCordoned) == possible) code = ErrorCode::Cordoned;
  if (seen(Reason::WrongTenancy) + seen(Reason::ShareNeeded) == possible) {
    code = ErrorCode::Conflict;
  }
  return fail(code, "no card has room for " + what + " now" + reasons + "; " + help);
}

// A card of the same sums, whatever marks and policies say now, decides.
bool Ledger::admits(const Placement& placement) const {
  for (std::size_t n = 0; n < placement.cards.size(); ++n) {
    CardRoom room = use(placement.cards[n]);
    room.mark = CardMark::Ready;
    room.policy = Policy::BestEffort;
    if (placement.mem[n] > room.memLeft()) return false;
    if (fitOf(room, cardAsk(placement, n)) != Reason::Fits) return false;
  }
  return true;
}

void Ledger::account(const Placement& placement, std::int64_t sign) {
  for (std::size_t n = 0; n < placement.cards.size(); ++n) {
    qgpu::account(at(placement.cards[n]).room, cardAsk(placement, n), sign);
  }
}

void Ledger::bind(TaskId task, const Placement& placement) {
  QGPU_CHECK(placement.mem.size() == placement.cards.size(), "one amount for each card");
  const bool isNew = held_.emplace(task, placement).second;
  QGPU_CHECK(isNew, "task ids are given once");
  account(placement, 1);
}

bool Ledger::release(TaskId task) {
  const auto found = held_.find(task);
  if (found == held_.end()) return false;
  account(found->second, -1);
  if (QGPU_PLANTED(MemoryNotReturned)) at(found->second.cards[0]).room.memBound += Bytes(kGiB);
  held_.erase(found);
  return true;
}

std::uint64_t Ledger::digest() const {
  std::uint64_t digest = 0xcbf29ce484222325ULL;
  for (const Slot& slot : cards_) {
    for (const char c : slot.info.id) mix(digest, static_cast<std::uint8_t>(c));
    mix(digest, static_cast<std::uint64_t>(slot.info.mem.value));
    mix(digest, static_cast<std::uint64_t>(slot.room.policy) * 8 +
                    static_cast<std::uint64_t>(slot.room.mark));
    mix(digest, static_cast<std::uint64_t>(slot.room.memBound.value));
  }
  for (const auto& [task, placement] : held_) {
    mix(digest, static_cast<std::uint64_t>(task));
    mix(digest, static_cast<std::uint64_t>(placement.taskClass));
    mix(digest, static_cast<std::uint64_t>(placement.share.value));
    for (const std::size_t card : placement.cards) mix(digest, card);
    if (placement.pageable > Bytes(0)) {
      mix(digest, static_cast<std::uint64_t>(placement.pageable.value));
    }
  }
  return digest;
}

}  // namespace qgpu
