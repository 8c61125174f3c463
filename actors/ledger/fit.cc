#include "actors/ledger/fit.h"

#include <algorithm>
#include <array>
#include <utility>

#include "actors/model.h"
#include "actors/policies.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Sizes that cards are sold in. A driver reports up to an eighth less than these.
constexpr std::array<std::int64_t, 26> kNominal = {1,  2,   3,   4,   6,   8,   10,  11, 12,
                                                   16, 20,  24,  32,  40,  48,  64,  80, 94,
                                                   96, 128, 141, 180, 192, 256, 288, 512};

constexpr std::array<const char*, kReasons> kReasonNames = {
    "Fits",         "NoQgpuNode",     "NodeLost",      "NodeCordoned",    "NotMixedNode",
    "CardCordoned", "CardUnhealthy",  "CardTooSmall",  "WrongTenancy",    "HeldWhole",
    "NotWholeFree", "NotEnoughCards", "MemShort",      "CoreShort",       "GreedyShort",
    "SlotsFull",    "ShareNeeded",    "ModelMismatch", "CpuShort",        "HostMemShort",
    "OtherNode",    "InvalidRequest", "StaleState",    "ManagerStarting", "GroupWaits",
    "ReportNeeded"};

Status invalid(std::string text) {
  return fail(ErrorCode::InvalidArgument, std::move(text));
}

// Of online and offline tasks, which take part of one card and nothing else.
Status checkHybrid(const LedgerAsk& ask) {
  if (ask.taskClass == TaskClass::Online && ask.share.value != 0) {
    return invalid("an online task asks for memory only: leave the share (" +
                   percentText(ask.share) + " percent) out");
  }
  if (ask.cards != 1) {
    return invalid("online and offline tasks take one card, not " + std::to_string(ask.cards));
  }
  if (ask.taskClass == TaskClass::Offline && ask.share > kWholeCard) {
    return invalid("an offline share is at most 100 percent, not " + percentText(ask.share));
  }
  if (ask.pageable > ask.mem) {
    return invalid("pageable memory is part of a task's memory: at most " + sizeText(ask.mem) +
                   ", not " + sizeText(ask.pageable));
  }
  return ok();
}

Status checkWhole(const LedgerAsk& ask) {
  const std::uint32_t cards = normalAsk(ask).cards;
  if (ask.share != kWholeCard && ask.share.value != std::int64_t{cards} * kWholeCard.value) {
    return invalid("a share is 1 to 99 percent of one card, or N * 100 for N whole cards, not " +
                   percentText(ask.share) + " percent of " + std::to_string(ask.cards) +
                   " card(s)");
  }
  if (cards > kTaskCardsMax) {
    return invalid("one task takes at most " + std::to_string(kTaskCardsMax) + " cards, not " +
                   std::to_string(cards));
  }
  if (cards > 1 && !ask.card.empty()) {
    return invalid("a task of several cards can't name one (" + ask.card + ")");
  }
  return ok();
}

}  // namespace

const char* reasonName(Reason reason) {
  return kReasonNames[static_cast<std::size_t>(reason)];
}

bool isHopeless(Reason reason) {
  switch (reason) {
    case Reason::NoQgpuNode:
    case Reason::NotMixedNode:
    case Reason::CardTooSmall:
    case Reason::ModelMismatch:
    case Reason::OtherNode:
    case Reason::InvalidRequest:
      return true;
    default:
      return false;
  }
}

std::string sizeText(Bytes mem) {
  const std::string gib = std::to_string(mem.value / kGiB);
  if (mem.value % kGiB == 0) return gib + " GiB";
  if (mem.value > kGiB && mem.value % kGiB == kGiB / 2) return gib + ".5 GiB";
  return std::to_string(mem.value / kMiB) + " MiB";
}

std::string percentText(Permille share) {
  const std::string whole = std::to_string(share.value / 10);
  return share.value % 10 == 0 ? whole : whole + "." + std::to_string(share.value % 10);
}

std::int64_t nominalGib(Bytes mem) {
  const auto sold = std::lower_bound(kNominal.begin(), kNominal.end(), mem.value,
                                     [](std::int64_t n, std::int64_t v) { return n * kGiB < v; });
  if (sold != kNominal.end() && (*sold * kGiB - mem.value) <= *sold * kGiB / 8) return *sold;
  return std::max<std::int64_t>(1, (mem.value + kGiB - 1) / kGiB);
}

std::uint32_t tasksMaxOf(Bytes mem, TaskLimit limit) {
  if (limit.configured != 0) return limit.configured;
  return std::max({1U, limit.least, static_cast<std::uint32_t>(nominalGib(mem) / 4)});
}

bool isWhole(const LedgerAsk& ask) {
  return ask.taskClass == TaskClass::Ordinary && (ask.cards > 1 || ask.share >= kWholeCard);
}

LedgerAsk normalAsk(LedgerAsk ask) {
  if (!isWhole(ask)) return ask;
  if (ask.cards <= 1) ask.cards = static_cast<std::uint32_t>(ask.share.value / 1000);
  ask.share = kWholeCard;
  return ask;
}

CardAsk cardAsk(const LedgerAsk& normal) {
  return {normal.taskClass, normal.mem, normal.share, isWhole(normal), normal.pageable};
}

Status checkAsk(const LedgerAsk& ask) {
  const bool whole = isWhole(ask);
  if (ask.share.value < 0 || ask.cards == 0) return invalid("a share or card count below zero");
  if (!whole && (ask.mem < kMemoryStep || ask.mem.value % kMemoryStep.value != 0)) {
    return invalid("memory is " + std::to_string(ask.mem.value) +
                   " bytes: ask for a whole number of MiB, at least 1");
  }
  if (ask.pageable.value < 0 || ask.pageable.value % kMemoryStep.value != 0) {
    return invalid("pageable memory is a whole number of MiB, not " +
                   std::to_string(ask.pageable.value) + " bytes");
  }
  if (ask.pageable > Bytes(0) && ask.taskClass != TaskClass::Offline) {
    return invalid("only offline tasks are held and lend memory: leave the pageable part (" +
                   sizeText(ask.pageable) + ") out, or ask for an offline task");
  }
  if (isHybrid(ask.taskClass)) {
    if (Status valid = checkHybrid(ask); !valid) return valid;
  }
  if (ask.share.value % 10 != 0) {
    return invalid("a share is a whole percentage, not " + percentText(ask.share));
  }
  return whole ? checkWhole(ask) : ok();
}

Reason fitOf(const CardRoom& card, const CardAsk& ask) {
  if (!ask.whole && ask.mem > card.mem) return Reason::CardTooSmall;
  if (!card.healthy) return Reason::CardUnhealthy;
  if (card.mark == CardMark::Starting) return Reason::ManagerStarting;
  if (card.mark == CardMark::Unproven) return Reason::ReportNeeded;
  if (card.mark != CardMark::Ready) return Reason::CardCordoned;
  if (card.exclusive) return Reason::HeldWhole;
  if (ask.whole) return card.tasks == 0 ? Reason::Fits : Reason::NotWholeFree;
  const Tenancy mine = isHybrid(ask.taskClass) ? Tenancy::Hybrid : Tenancy::Ordinary;
  if (card.tasks != 0 && card.tenancy() != mine) return Reason::WrongTenancy;
  const bool online = ask.taskClass == TaskClass::Online;
  if (rulesOf(card.policy).caps && ask.share.value == 0 && !online) {
    return Reason::ShareNeeded;
  }
  if (card.tasks >= card.tasksMax) return Reason::SlotsFull;
  const Bytes overbooked(QGPU_PLANTED(MemoryOverbooked) ? kGiB : 0);
  if (ask.mem > card.memLeft() + overbooked) return Reason::MemShort;
  if (ask.mem - ask.pageable > card.firmLeft() + overbooked) return Reason::MemShort;
  if (!online && ask.share > poolFree(card, ask.taskClass)) {
    return ask.taskClass == TaskClass::Offline ? Reason::GreedyShort : Reason::CoreShort;
  }
  return Reason::Fits;
}

std::int64_t shortfall(const CardRoom& card, const CardAsk& ask, Reason reason) {
  switch (reason) {
    case Reason::CardTooSmall:
      return (ask.mem - card.mem).value;
    case Reason::MemShort:
      return std::max(ask.mem - card.memLeft(), ask.mem - ask.pageable - card.firmLeft()).value;
    case Reason::CoreShort:
    case Reason::GreedyShort:
      return (ask.share - poolFree(card, ask.taskClass)).value;
    case Reason::SlotsFull:
      return std::int64_t{card.tasks} - card.tasksMax + 1;
    case Reason::NotWholeFree:
    case Reason::HeldWhole:
      return card.tasks;
    default:
      return 0;
  }
}

std::string describe(const CardRoom& card, const CardAsk& ask, Reason reason) {
  switch (reason) {
    case Reason::Fits:
      return "fits";
    case Reason::CardTooSmall:
      return "has " + sizeText(card.mem) + " in all";
    case Reason::CardUnhealthy:
      return "is out of order";
    case Reason::CardCordoned:
      return "takes no new tasks";
    case Reason::ManagerStarting:
      return "its manager is starting: kubelet does not count its devices yet";
    case Reason::ReportNeeded:
      return "has no report that is new enough: `qgpuctl prove` there makes one";
    case Reason::HeldWhole:
      return "held whole by a task";
    case Reason::NotWholeFree:
      return "holds " + std::to_string(card.tasks) + " task(s)";
    case Reason::WrongTenancy:
      return card.tenancy() == Tenancy::Hybrid ? "holds online and offline tasks"
                                               : "holds ordinary tasks";
    case Reason::ShareNeeded:
      return "fixed-share needs a share";
    case Reason::SlotsFull:
      return std::to_string(card.tasks) + " tasks of at most " + std::to_string(card.tasksMax);
    case Reason::MemShort:
      return sizeText(card.memFree()) + " free of " + sizeText(card.mem);
    case Reason::CoreShort:
    case Reason::GreedyShort:
      return percentText(poolFree(card, ask.taskClass)) + " percent free";
    case Reason::ModelMismatch:
      return "is of another model";
    default:
      return reasonName(reason);
  }
}

void account(CardRoom& card, const CardAsk& ask, std::int64_t sign) {
  const auto step = [sign](std::uint32_t& n) {
    n = static_cast<std::uint32_t>(std::int64_t{n} + sign);
  };
  card.memBound += ask.mem * sign;
  card.pageableBound += ask.pageable * sign;
  (ask.taskClass == TaskClass::Offline ? card.greedy : card.ordinary) += ask.share * sign;
  step(card.tasks);
  if (ask.taskClass == TaskClass::Online) step(card.online);
  if (ask.taskClass == TaskClass::Offline) step(card.offline);
  if (ask.whole) card.exclusive = sign > 0;
}

}  // namespace qgpu
