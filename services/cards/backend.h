#pragma once
// A kind of cards, as findCards() knows it: how they are found, and how it is found out what takes
// work off them. Each kind has a folder beside this file; a new one is such a folder, its name here
// and in cards.cc, and what libqgpu.so needs to meet its driver.
//
// Who calls: cards.cc, at the start of a daemon, while that has one thread.

#include <string_view>
#include <vector>

#include "runtime/log.h"
#include "runtime/result.h"
#include "services/cards/cards.h"
#include "services/cards/device_nodes.h"

namespace qgpu {

struct CardBackend {
  std::string_view name;  // of --cards, and of each of its cards
  // At least one card. NotFound: there is none of this kind on this machine.
  Result<CardsFound> (*find)(const CardsOptions& options);
  // Sets suspend, method and suspendWhy of its cards where that takes a trial on them, and what
  // else does (layoutSeen, memoryCounted); others stay as they are. Null: what find() said holds.
  void (*trySuspends)(std::vector<Card>& cards, const SuspendTrial& trial, Log& log) = nullptr;
  // The device nodes of its cards, and those that all of them share (device_nodes.h). Null: none
  // are known.
  std::vector<DeviceNode> (*nodes)(const std::vector<Card>& cards,
                                   const std::string& root) = nullptr;
  bool automatic = false;  // --cards=auto asks for them
};

extern const CardBackend kNvidiaCards;
extern const CardBackend kAmdCards;
extern const CardBackend kOpenclCards;
extern const CardBackend kSimulatedCards;

// Of cards that can't suspend by themselves: freeze where it is asked for, or where the kernels run
// on threads of the tenant that can be frozen, else gate.
schema::Suspend freezeOrGate(SuspendChoice choice, bool canFreeze);

}  // namespace qgpu
