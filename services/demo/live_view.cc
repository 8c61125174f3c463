#include "services/demo/live_view.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>

#include "services/base/terminal.h"

namespace qgpu::demo {
namespace {

constexpr std::size_t kBeside = 32;  // name, class and percent around the columns

std::size_t columnsOfTerminal() {
  const std::size_t columns = terminalSize(STDOUT_FILENO).columns;
  return std::clamp<std::size_t>(columns, kBeside + 20, kBeside + 100) - kBeside;
}

TimelineStyle styleOfTerminal() {
  if (!speaksUtf8()) return TimelineStyle::Ascii;
  return takesColours(STDOUT_FILENO) ? TimelineStyle::ColouredBlocks : TimelineStyle::Blocks;
}

}  // namespace

bool LiveView::terminal() {
  return isTerminal(STDOUT_FILENO);
}

LiveView::LiveView(std::vector<TimelineRow> rows, std::int64_t startNs)
    : terminal_(terminal()),
      startNs_(startNs),
      nextLineNs_(startNs + kSecond),
      timeline_(std::move(rows), columnsOfTerminal(), styleOfTerminal()) {}

LiveView::~LiveView() {
  std::fflush(stdout);
}

void LiveView::column(const std::vector<std::int64_t>& permille, std::int64_t nowNs) {
  timeline_.addColumn(permille);
  if (terminal_) {
    if (drawn_) std::printf("\x1b[%zuA", timeline_.rows());
    std::fputs(timeline_.picture().c_str(), stdout);
    drawn_ = true;
  } else if (nowNs >= nextLineNs_) {
    nextLineNs_ += kSecond;
    std::printf("  %5.1f s  %s\n", static_cast<double>(nowNs - startNs_) / 1e9,
                timeline_.line(kSecond / kColumnNs).c_str());
  }
  std::fflush(stdout);
}

}  // namespace qgpu::demo
