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

// One cell: the more of its time a task had the card, the darker.
const char* shadeOf(std::int64_t permille, bool blocks);
// A task's row without what stands around it.
std::string timelineCells(const CardHistory& card, std::uint64_t task, std::size_t cells,
                          bool blocks);
const char* colourOf(schema::TaskClass taskClass);
inline constexpr const char* kColourEnd = "\x1b[0m";
// What the cells mean.
std::string timelineLegend(bool blocks);

std::string timelineText(const std::vector<CardHistory>& cards, const TimelineStyle& style);

// A picture by itself, for light and dark pages.
std::string timelineSvg(const std::vector<CardHistory>& cards);

}  // namespace qgpu::ctl
