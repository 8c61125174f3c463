#pragma once
// Fragments: the share of free cards that typical tasks can't use, weighed by how often such a
// task is seen (fragmentation gradient descent, ATC'23). A pure core; integers only. At most 64
// typical tasks, so that what a card can still host is one word and a node costs a few look-ups.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/ledger/fit.h"
#include "runtime/units.h"

namespace qgpu {

struct NodeRoom;

inline constexpr std::size_t kTypicalMax = 64;

// A kind of task that is seen often.
struct TypicalShape {
  CardAsk card;
  std::uint32_t cards = 1;  // 0: no card; all of a node is a fragment to it
  std::int64_t cpuMilli = 0;
  Bytes hostMem{0};
  bool anyModel = true;
  std::vector<std::uint32_t> models;
  std::int64_t weight = 1;
};

using TypicalMask = std::uint64_t;  // bit: position of a typical task

// What the free part of one card is worth.
struct CardFragments {
  TypicalMask hosts = 0;
  std::int64_t free = 0;  // permille
  bool whole = false;     // nobody is on it
};

// The same of a node, kept beside its sums.
struct NodeFragments {
  std::vector<CardFragments> cards;
  std::int64_t amount = 0;  // permille times weight
};

class Fragments {
 public:
  // The heaviest kTypicalMax are kept. None: nothing is a fragment.
  void setTypical(std::vector<TypicalShape> typical);
  std::int64_t weight() const { return weight_; }  // of all typical tasks

  // Looks at the node anew: after each change of its sums or of what is typical.
  void look(NodeRoom& node) const;
  // What the fragments of the node would be if `ask` took these cards and this much else.
  std::int64_t amountWith(const NodeRoom& node, const CardAsk& ask, const std::uint16_t* cards,
                          std::size_t count, std::int64_t cpuMilli, Bytes hostMem) const;
  // 0 (many more fragments) to 100 (many fewer): the logistic curve of the change in cards.
  std::int64_t grade(std::int64_t before, std::int64_t after) const;

 private:
  struct Step {
    std::int64_t amount = 0;
    TypicalMask asksMore = 0;  // those who ask for more than `amount`
  };

  CardFragments lookAt(const CardRoom& card, bool mixed) const;
  TypicalMask hostable(std::int64_t cpuFree, Bytes hostMemFree, std::size_t wholeFree) const;
  static TypicalMask tooMuch(const std::vector<Step>& steps, std::int64_t left);
  std::int64_t weightOf(TypicalMask mask) const;

  std::int64_t weight_ = 0;
  TypicalMask ordinary_ = 0;
  TypicalMask hybrid_ = 0;
  TypicalMask whole_ = 0;
  TypicalMask shareless_ = 0;         // ordinary and offline ones
  std::vector<TypicalMask> byModel_;  // by number; more models than that: anyModel_
  TypicalMask anyModel_ = 0;
  std::array<TypicalMask, 1001> byShare_{};    // those who ask for no more than this permille
  std::array<TypicalMask, 17> byWholeFree_{};  // those who ask for no more cards
  std::vector<Step> byMem_;                    // ascending, as the next two
  std::vector<Step> byCpu_;
  std::vector<Step> byHostMem_;
  std::array<std::array<std::int64_t, 256>, 8> weights_{};  // of each byte of a mask
};

}  // namespace qgpu
