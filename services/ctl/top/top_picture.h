#pragma once
// The screen of `qgpuctl top`. Pure: what is known and a size in, lines out. No line is wider than
// the screen: columns that matter less leave before one is cut.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "services/ctl/top/top_model.h"

namespace qgpu::ctl {

enum class Ink : std::uint8_t { Plain, Bold, Dim, Online, Offline, Ordinary, Trouble };

struct Piece {
  std::string text;
  Ink ink = Ink::Plain;
};

// One line, without its end.
using Line = std::vector<Piece>;
std::string plainText(const Line& line);  // without blanks at its end
std::string colouredText(const Line& line);

struct TopStyle {
  std::size_t columns = 80;  // smaller than kTopColumnsMin is as if it were that
  std::size_t rows = 0;      // 0: as many as there are, and nothing about keys: for a file or pipe
  bool blocks = false;       // else ASCII
  bool wide = false;         // whole ids of cards
  std::string title{};       // a line above all; empty: none
};
inline constexpr std::size_t kTopColumnsMin = 40;

// At most `rows` lines.
std::vector<Line> topPicture(const TopModel& model, const TopStyle& style);

}  // namespace qgpu::ctl
