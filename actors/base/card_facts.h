#pragma once
// One card as a backend found it, see schema::CardInfo: what the manager finds at its start, its
// clients show, and schedulers are told. It is one struct so that a fact has one place; who knows
// more of a card (how it is held, how it is annotated) adds that to it.

#include <cstdint>
#include <string>

#include "actors/ledger/near.h"
#include "runtime/units.h"
#include "schema/types.capnp.h"

namespace qgpu {

inline constexpr std::size_t kCardTextMax = 256;  // bytes of a sentence about a card

struct CardFacts {
  std::string id;           // "GPU-<uuid>", "opencl-portable-computing-language-0", "sim-3"
  std::uint32_t index = 0;  // position on its node
  std::string model;
  std::string backend;  // "nvidia", "amd", "opencl" or "sim"
  Bytes mem{0};
  schema::Suspend suspend = schema::Suspend::GATE;
  schema::Isolation isolation = schema::Isolation::LIBRARY;
  std::string platform;       // OpenCL: CL_PLATFORM_NAME
  std::uint32_t device = 0;   // OpenCL: index in the platform's CL_DEVICE_TYPE_ALL list
  std::string suspendWhy;     // why `suspend` is that, for people; empty: nothing to say
  std::string memoryCounted;  // NVIDIA: where its tenants' memory is counted, for people
  schema::Counting counting = schema::Counting::CALLS;
  std::string driver;  // its version, "580.142"; empty: it does not say
  CardPlace place{};   // NVIDIA: beside which others
};

void writeFacts(const CardFacts& facts, schema::CardInfo::Builder builder);
// Texts are cut to their limits; the id is for the caller to check.
CardFacts readCardFacts(schema::CardInfo::Reader info);

}  // namespace qgpu
