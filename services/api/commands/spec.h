#pragma once
// SPEC, what a person or program asks for a task: on a node (`run`) and in a cluster (`submit`).
// One row of specFields() is one thing to ask: its key in JSON, its option of qgpuctl, its limits,
// and where it goes in the plain type of the actors, ClusterSpec. Whatever way it was said, it is a
// SaidSpec first, and filled in by one function; the rules that concern more than one value are
// checkClusterSpec()'s and the ledgers'. A field that nobody knows is an error, so that a misspelt
// quota is not lost. Pure (C7).

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/scheduler/codec.h"
#include "runtime/result.h"

namespace qgpu {

// Which daemon answers.
enum class Side : std::uint8_t { Node, Cluster };

// What is asked, and what was left open until all of it is said.
struct AskedTask {
  ClusterSpec spec;
  bool owned = true;  // ends when the peer's process dies; false: "owner":"none"
  std::optional<std::uint64_t> corePercent;
  std::optional<std::uint64_t> cards;
};

// One value as it was said: which member counts, its field's form tells.
struct SaidValue {
  std::string text{};
  std::uint64_t number = 0;  // of a size, MiB
  bool flag = false;
  std::vector<std::string> texts{};
};

struct SpecField {
  enum class Form : std::uint8_t { Text, Choice, Number, Size, Flag, Texts };

  std::string_view key;
  std::string_view option;  // of qgpuctl; empty: it has none
  std::string_view type;    // of the option's value, as help shows it
  std::string_view meaning;
  Form form = Form::Text;
  std::uint64_t least = 0;  // of a number, or of a size in MiB
  std::uint64_t most = 0;
  std::string_view unit{};
  std::vector<std::string> (*choices)() = nullptr;  // of a choice
  void (*fill)(AskedTask& asked, SaidValue&& value) = nullptr;
  std::optional<Side> only{};  // means something there alone
  std::string_view inGib{};    // of a size: the key of its whole GiB, which older daemons know too
};
std::span<const SpecField> specFields();

// "1.5GiB" as MiB, within the bounds of that field.
Result<std::uint64_t> readSize(const SpecField& field, std::string_view text);

// In the order in which it was said; each field at most once.
using SaidSpec = std::vector<std::pair<const SpecField*, SaidValue>>;

// One JSON object of fields that are known on that side, all optional.
Result<SaidSpec> readSpec(std::string_view json, Side side);
// The way back, for the line of an admin socket.
std::string specJson(const SaidSpec& said);

// The task, with defaults for what was not said: one card's 10 percent and 1 GiB, ordinary.
Result<AskedTask> fillSpec(SaidSpec said);

// Of what-if: {"place":SPEC,"count":N} or {"drain":"NODE[/CARD]"}.
struct PlaceOrDrain {
  ClusterSpec place;
  std::uint32_t count = 0;  // 0: a drain
  std::string node;
  std::string card;
};
Result<PlaceOrDrain> parsePlaceOrDrain(std::string_view json);
std::string placeJson(const SaidSpec& said, std::uint32_t count);
std::string drainJson(std::string_view target);

// "NODE" or "NODE/CARD".
Status parseTarget(std::string_view text, std::string& node, std::string& card);

}  // namespace qgpu
