#include "services/demo/live_view.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

namespace qgpu::demo {
namespace {

constexpr std::size_t kBeside = 32;  // name, class and percent around the columns

std::size_t columnsOfTerminal() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size.ws_col = 80;
  return std::clamp<std::size_t>(size.ws_col, kBeside + 20, kBeside + 100) - kBeside;
}

// Blocks need UTF-8; a terminal that speaks something else gets ASCII.
TimelineStyle styleOfTerminal() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == 0) continue;
    const bool utf8 = strcasestr(value, "utf-8") != nullptr || strcasestr(value, "utf8") != nullptr;
    if (!utf8) return TimelineStyle::Ascii;
    return std::getenv("NO_COLOR") == nullptr ? TimelineStyle::ColouredBlocks
                                              : TimelineStyle::Blocks;
  }
  return TimelineStyle::Ascii;
}

}  // namespace

bool LiveView::terminal() {
  return isatty(STDOUT_FILENO) != 0;
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
