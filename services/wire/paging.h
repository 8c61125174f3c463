#pragma once
// What manager and library say to one another of memory that leaves the card: one word of the gate
// page, and what each process has to say to it. docs/internals/paging.md.

#include <cstdint>

namespace qgpu::paging {

enum class Phase : std::uint32_t {
  In = 0,     // have everything on the card, then go on; what a page of an older manager says
  Drain = 1,  // begin nothing, and say when nothing runs
  Out = 2,    // have so much of your memory off the card
};

struct Word {
  std::uint32_t epoch = 0;  // grows with each change
  Phase phase = Phase::In;
  std::uint32_t permille = 0;  // Out: of what each process has
  bool operator==(const Word&) const = default;
};

constexpr std::uint64_t pack(Word word) {
  return std::uint64_t{word.epoch} << 32 | static_cast<std::uint64_t>(word.phase) << 16 |
         (word.permille & 0xffff);
}
// Nonsense is read as In.
constexpr Word unpack(std::uint64_t word) {
  const auto phase = static_cast<std::uint32_t>(word >> 16 & 0xffff);
  const auto permille = static_cast<std::uint32_t>(word & 0xffff);
  const bool known = phase <= static_cast<std::uint32_t>(Phase::Out) && permille <= 1000;
  return {static_cast<std::uint32_t>(word >> 32), known ? static_cast<Phase>(phase) : Phase::In,
          known ? permille : 0};
}

// To Drain: Idle. To Out: Left. To In: In, or NoRoom where the card had no memory for what was to
// come; what had come left again.
enum class Answer : std::uint32_t { None = 0, Idle = 1, Left = 2, In = 3, NoRoom = 4 };

}  // namespace qgpu::paging
