#pragma once
// Histories of cards as pictures: a row for each task, time from left to right. Pure: histories in,
// text or SVG out.

#include <cstddef>
#include <string>
#include <vector>

#include "services/ctl/trace/card_history.h"

namespace qgpu::ctl {

struct TimelineStyle {
  std::size_t columns = 80;  // at least kTimelineColumnsMin
  bool blocks = false;       // else ASCII
  bool colours = false;
};
inline constexpr std::size_t kTimelineColumnsMin = 60;
inline constexpr std::size_t kTimelineColumnsMax = 200;

std::string timelineText(const std::vector<CardHistory>& cards, const TimelineStyle& style);

// A picture by itself, for light and dark pages.
std::string timelineSvg(const std::vector<CardHistory>& cards);

}  // namespace qgpu::ctl
