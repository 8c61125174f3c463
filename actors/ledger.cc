#include "actors/ledger.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::uint32_t kTaskCardsMax = 16;        // of one task: as many as a welcome has room for
constexpr std::size_t kReasonCardsMax = 8;     // cards that a refusal lists one by one

// Sizes that cards are sold in. A driver reports up to an eighth less than these.
constexpr std::array<std::int64_t, 26> kNominal = {1,  2,  3,  4,  6,  8,  10,  11, 12,
                                                   16, 20, 24, 32, 40, 48, 64,  80, 94,
                                                   96, 128, 141, 180, 192, 256, 288, 512};

std::string gib(Bytes mem) {
  if (mem.value % kGiB == 0) return std::to_string(mem.value / kGiB) + " GiB";
  return std::to_string(mem.value / kMiB) + " MiB";
}

std::string percent(Permille share) {
  const std::string whole = std::to_string(share.value / 10);
  return share.value % 10 == 0 ? whole : whole + "." + std::to_string(share.value % 10);
}

bool isWhole(const LedgerAsk& ask) { return ask.cards > 1 || ask.share >= kWholeCard; }

// Whole cards may be asked as a share of N * 1000 alone, or as N cards with a share of 1000 each.
LedgerAsk normal(LedgerAsk ask) {
  if (ask.taskClass != TaskClass::Ordinary || !isWhole(ask)) return ask;
  if (ask.cards <= 1) ask.cards = static_cast<std::uint32_t>(ask.share.value / 1000);
  ask.share = kWholeCard;
  return ask;
}

void mix(std::uint64_t& digest, std::uint64_t value) {
  digest = (digest ^ value) * 0x100000001b3ULL;
  digest ^= digest >> 29;
}

}  // namespace

std::int64_t nominalGib(Bytes mem) {
  const auto sold = std::lower_bound(kNominal.begin(), kNominal.end(), mem.value,
                                     [](std::int64_t n, std::int64_t v) { return n * kGiB < v; });
  if (sold != kNominal.end() && (*sold * kGiB - mem.value) <= *sold * kGiB / 8) return *sold;
  return std::max<std::int64_t>(1, (mem.value + kGiB - 1) / kGiB);
}

Ledger::Ledger(LedgerConfig config, std::vector<LedgerCard> cards, Policy policy)
    : config_(config) {
  for (LedgerCard& card : cards) {
    cards_.push_back(Slot{std::move(card), CardUse{}, policy, CardMark::Ready});
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

Tenancy Ledger::tenancy(std::size_t card) const {
  const CardUse& use = at(card).use;
  if (use.tasks == 0) return Tenancy::Free;
  return use.online + use.offline > 0 ? Tenancy::Hybrid : Tenancy::Ordinary;
}

std::uint32_t Ledger::tasksMax(std::size_t card) const {
  if (config_.maxTasksPerCard != 0) return config_.maxTasksPerCard;
  return static_cast<std::uint32_t>(
      std::max<std::int64_t>(1, nominalGib(at(card).info.mem) / 4));
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
    if (text == card.id || text == std::to_string(card.index)) return i;
    if (i < kReasonCardsMax) known += (i == 0 ? "" : ", ") + card.id;
  }
  return fail(ErrorCode::NotFound, "no card '" + text + "' here; cards: " +
                                       (known.empty() ? "none" : known));
}

Status Ledger::mayChoosePolicy(std::size_t card, Policy policy) const {
  const Slot& slot = at(card);
  if (policy != Policy::FixedShare || slot.use.shareless == 0) return ok();
  return fail(ErrorCode::Conflict,
              "card " + slot.info.id + " holds " + std::to_string(slot.use.shareless) +
                  " task(s) without a share, which would never run under fixed-share: end them "
                  "first, or choose burst-share");
}

// The rules that need no card: what may be asked at all, here.
Status Ledger::check(const LedgerAsk& ask) const {
  const auto invalid = [](std::string text) {
    return Status(fail(ErrorCode::InvalidArgument, std::move(text)));
  };
  const bool online = ask.taskClass == TaskClass::Online;
  const bool offline = ask.taskClass == TaskClass::Offline;
  const bool whole = !online && !offline && isWhole(ask);
  if (ask.share.value < 0 || ask.cards == 0) return invalid("a share or card count below zero");
  if (!whole && (ask.mem.value < kGiB || ask.mem.value % kGiB != 0)) {
    return invalid("memory is " + std::to_string(ask.mem.value) +
                   " bytes: ask for a whole number of GiB, at least 1");
  }
  if (online && ask.share.value != 0) {
    return invalid("an online task asks for memory only: leave the share (" +
                   percent(ask.share) + " percent) out");
  }
  if ((online || offline) && ask.cards != 1) {
    return invalid("online and offline tasks take one card, not " + std::to_string(ask.cards));
  }
  if (offline && ask.share > kWholeCard) {
    return invalid("an offline share is at most 100 percent, not " + percent(ask.share));
  }
  if (!online && ask.share.value % 10 != 0) {
    return invalid("a share is a whole percentage, not " + percent(ask.share));
  }
  if (whole && ask.share != kWholeCard &&
      ask.share.value != std::int64_t{normal(ask).cards} * kWholeCard.value) {
    return invalid("a share is 1 to 99 percent of one card, or N * 100 for N whole cards, not " +
                   percent(ask.share) + " percent of " + std::to_string(ask.cards) + " card(s)");
  }
  if (whole && normal(ask).cards > kTaskCardsMax) {
    return invalid("one task takes at most " + std::to_string(kTaskCardsMax) + " cards, not " +
                   std::to_string(normal(ask).cards));
  }
  if (whole && normal(ask).cards > 1 && !ask.card.empty()) {
    return invalid("a task of several cards can't name one (" + ask.card + ")");
  }
  if ((online || offline) && !config_.mixed) {
    return fail(ErrorCode::Infeasible,
                "online and offline tasks run on mixed nodes only: start the manager with --mixed, "
                "or ask for an ordinary task");
  }
  return ok();
}

Ledger::Verdict Ledger::judgeRoom(const Slot& slot, const LedgerAsk& ask) const {
  const CardUse& use = slot.use;
  const std::size_t position = static_cast<std::size_t>(&slot - cards_.data());
  if (use.tasks >= tasksMax(position)) {
    return {Why::Tasks, std::to_string(use.tasks) + " tasks of at most " +
                            std::to_string(tasksMax(position))};
  }
  const Bytes freeMem = slot.info.mem - use.memBound;
  const Bytes overbooked(QGPU_PLANTED(MemoryOverbooked) ? kGiB : 0);
  if (ask.mem > freeMem + overbooked) {
    return {Why::Mem, gib(freeMem) + " free of " + gib(slot.info.mem)};
  }
  const Permille pool = ask.taskClass == TaskClass::Offline ? use.greedy : use.ordinary;
  if (ask.taskClass != TaskClass::Online && ask.share > kWholeCard - pool) {
    return {Why::Share, percent(kWholeCard - pool) + " percent free"};
  }
  return {};
}

Ledger::Verdict Ledger::judge(const Slot& slot, const LedgerAsk& ask, bool whole) const {
  if (!whole && ask.mem > slot.info.mem) {
    return {Why::Never, "has " + gib(slot.info.mem) + " in all"};
  }
  if (slot.mark != CardMark::Ready) return {Why::Cordoned, "takes no new tasks"};
  if (slot.use.exclusive) return {Why::Busy, "held whole by a task"};
  if (whole) {
    if (slot.use.tasks == 0) return {};
    return {Why::Busy, "holds " + std::to_string(slot.use.tasks) + " task(s)"};
  }
  const Tenancy kind = tenancy(static_cast<std::size_t>(&slot - cards_.data()));
  const Tenancy mine =
      ask.taskClass == TaskClass::Ordinary ? Tenancy::Ordinary : Tenancy::Hybrid;
  if (kind != Tenancy::Free && kind != mine) {
    return {Why::Kind, kind == Tenancy::Hybrid ? "holds online and offline tasks"
                                               : "holds ordinary tasks"};
  }
  if (slot.policy == Policy::FixedShare && ask.share.value == 0 &&
      ask.taskClass != TaskClass::Online) {
    return {Why::Policy, "fixed-share needs a share"};
  }
  return judgeRoom(slot, ask);
}

std::vector<std::size_t> Ledger::wanted(const LedgerAsk& ask, Status& found) const {
  std::vector<std::size_t> among;
  if (!ask.card.empty()) {
    Result<std::size_t> card = findCard(ask.card);
    if (card) among.push_back(*card);
    else found = card.error();
    return among;
  }
  for (std::size_t i = 0; i < cards_.size(); ++i) among.push_back(i);
  return among;
}

Result<Placement> Ledger::place(const LedgerAsk& rawAsk) const {
  if (Status valid = check(rawAsk); !valid) return valid.error();
  const LedgerAsk ask = normal(rawAsk);
  const bool whole = ask.taskClass == TaskClass::Ordinary && isWhole(ask);
  Status found = ok();
  const std::vector<std::size_t> among = wanted(ask, found);
  if (!found) return found.error();

  std::vector<std::size_t> fitting;
  for (const std::size_t i : among) {
    if (judge(cards_[i], ask, whole).why == Why::Fits) fitting.push_back(i);
  }
  if (fitting.size() < ask.cards) return refuse(ask, whole, among);

  Placement placement{ask.taskClass, whole, ask.share, {}, {}};
  if (whole) {
    placement.cards.assign(fitting.begin(), fitting.begin() + ask.cards);
    for (const std::size_t i : placement.cards) placement.mem.push_back(cards_[i].info.mem);
  } else {
    placement.cards = {best(ask, fitting)};
    placement.mem = {ask.mem};
  }
  return placement;
}

// A total order: the position breaks every tie, so there is one best card.
std::size_t Ledger::best(const LedgerAsk& ask, const std::vector<std::size_t>& fitting) const {
  using Rank = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::size_t>;
  const auto rank = [&](std::size_t i) -> Rank {
    const CardUse& use = cards_[i].use;
    const Bytes freeMem = cards_[i].info.mem - use.memBound;
    const std::int64_t memFree = mulDiv(freeMem.value, 1000, cards_[i].info.mem.value);
    if (ask.taskClass == TaskClass::Online) {   // spread, away from offline tasks
      return {use.offline != 0 ? 1 : 0, use.tasks, -memFree, i};
    }
    const bool offline = ask.taskClass == TaskClass::Offline;   // binpack, away from online tasks
    const std::int64_t shareFree = (kWholeCard - (offline ? use.greedy : use.ordinary)).value;
    return {offline && use.online != 0 ? 1 : 0, memFree + shareFree, memFree, i};
  };
  return *std::min_element(fitting.begin(), fitting.end(),
                           [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
}

Error Ledger::refuse(const LedgerAsk& ask, bool whole,
                     const std::vector<std::size_t>& among) const {
  std::string reasons;
  std::array<std::size_t, 9> count{};
  Bytes mostMem{0};
  Permille mostShare{0};
  std::size_t possible = 0;
  for (std::size_t n = 0; n < among.size(); ++n) {
    const Slot& slot = cards_[among[n]];
    const Verdict verdict = judge(slot, ask, whole);
    ++count[static_cast<std::size_t>(verdict.why)];
    possible += verdict.why == Why::Never ? 0 : 1;
    const Permille pool = ask.taskClass == TaskClass::Offline ? slot.use.greedy : slot.use.ordinary;
    if (verdict.why == Why::Mem) mostMem = std::max(mostMem, slot.info.mem - slot.use.memBound);
    if (verdict.why == Why::Share) mostShare = std::max(mostShare, kWholeCard - pool);
    if (n >= kReasonCardsMax || verdict.why == Why::Fits) continue;
    reasons += "; " + slot.info.id + ": " + verdict.text;
  }
  if (among.size() > kReasonCardsMax) {
    reasons += "; and " + std::to_string(among.size() - kReasonCardsMax) + " more";
  }
  const auto seen = [&](Why why) { return count[static_cast<std::size_t>(why)]; };
  const std::string what = whole ? std::to_string(ask.cards) + " whole card(s)" : gib(ask.mem);
  if (possible < ask.cards) {
    return fail(ErrorCode::Infeasible,
                "not even an empty node would do for " + what + reasons + "; ask for less");
  }
  std::string help = "wait until a task ends";
  if (seen(Why::Share) != 0 && mostShare.value >= 10) {
    help += ", or ask for at most " + percent(mostShare) + " percent";
  }
  if (seen(Why::Mem) != 0 && mostMem.value >= kGiB) {
    help += ", or ask for at most " + gib(Bytes(mostMem.value / kGiB * kGiB));
  }
  if (seen(Why::Tasks) != 0) help += ", or raise --max-tasks-per-card";
  if (seen(Why::Policy) != 0) help += ", or ask for a share";
  if (seen(Why::Cordoned) != 0) help += ", or uncordon a card";
  ErrorCode code = ErrorCode::NoRoom;
  if (seen(Why::Cordoned) == possible) code = ErrorCode::Cordoned;
  if (seen(Why::Kind) + seen(Why::Policy) == possible) code = ErrorCode::Conflict;
  return fail(code, "no card has room for " + what + " now" + reasons + "; " + help);
}

bool Ledger::admits(const Placement& placement) const {
  const bool offline = placement.taskClass == TaskClass::Offline;
  const Tenancy mine =
      placement.taskClass == TaskClass::Ordinary ? Tenancy::Ordinary : Tenancy::Hybrid;
  for (std::size_t n = 0; n < placement.cards.size(); ++n) {
    const std::size_t card = placement.cards[n];
    const CardUse& held = use(card);
    const Permille pool = offline ? held.greedy : held.ordinary;
    if (held.exclusive || (placement.exclusive && held.tasks != 0)) return false;
    if (tenancy(card) != Tenancy::Free && tenancy(card) != mine) return false;
    if (held.tasks >= tasksMax(card)) return false;
    if (placement.mem[n] > at(card).info.mem - held.memBound) return false;
    if (placement.share > kWholeCard - pool) return false;
  }
  return true;
}

void Ledger::account(const Placement& placement, std::int64_t sign) {
  const bool online = placement.taskClass == TaskClass::Online;
  const bool offline = placement.taskClass == TaskClass::Offline;
  const auto step = [sign](std::uint32_t& n) {
    n = static_cast<std::uint32_t>(static_cast<std::int64_t>(n) + sign);
  };
  for (std::size_t n = 0; n < placement.cards.size(); ++n) {
    CardUse& use = at(placement.cards[n]).use;
    use.memBound += placement.mem[n] * sign;
    (offline ? use.greedy : use.ordinary) += placement.share * sign;
    step(use.tasks);
    if (online) step(use.online);
    if (offline) step(use.offline);
    if (!online && placement.share.value == 0) step(use.shareless);
    if (placement.exclusive) use.exclusive = sign > 0;
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
  if (QGPU_PLANTED(MemoryNotReturned)) at(found->second.cards[0]).use.memBound += Bytes(kGiB);
  held_.erase(found);
  return true;
}

std::uint64_t Ledger::digest() const {
  std::uint64_t digest = 0xcbf29ce484222325ULL;
  for (const Slot& slot : cards_) {
    for (const char c : slot.info.id) mix(digest, static_cast<std::uint8_t>(c));
    mix(digest, static_cast<std::uint64_t>(slot.info.mem.value));
    mix(digest, static_cast<std::uint64_t>(slot.policy) * 8 +
                    static_cast<std::uint64_t>(slot.mark));
    mix(digest, static_cast<std::uint64_t>(slot.use.memBound.value));
  }
  for (const auto& [task, placement] : held_) {
    mix(digest, static_cast<std::uint64_t>(task));
    mix(digest, static_cast<std::uint64_t>(placement.taskClass));
    mix(digest, static_cast<std::uint64_t>(placement.share.value));
    for (const std::size_t card : placement.cards) mix(digest, card);
  }
  return digest;
}

}  // namespace qgpu
