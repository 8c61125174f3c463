#include "services/demo/tenants/live_view.h"

#include <cstdio>
#include <signal.h>
#include <utility>

namespace qgpu::demo {
namespace {

constexpr std::size_t kLineColumns = kSecond / LiveView::kColumnNs;
constexpr std::int64_t kScreenEndsNsMax = 5 * kSecond;

}  // namespace

LiveView::LiveView(std::vector<std::string> tasks, std::unique_ptr<Child> screen)
    : screen_(std::move(screen)), timeline_(std::move(tasks), kLineColumns) {}

LiveView::~LiveView() {
  if (screen_ == nullptr) return;
  screen_->signal(SIGTERM);
  screen_->wait(kScreenEndsNsMax);
}

void LiveView::column(const std::vector<std::int64_t>& permille, std::int64_t nowNs) {
  if (startNs_ == 0) {
    startNs_ = nowNs - kColumnNs;
    nextLineNs_ = startNs_ + kSecond;
  }
  timeline_.addColumn(permille);
  if (nowNs < nextLineNs_) return;
  nextLineNs_ += kSecond;
  if (screen_ != nullptr && screen_->running()) return;
  std::printf("  %5.1f s  %s\n", static_cast<double>(nowNs - startNs_) / 1e9,
              timeline_.line().c_str());
  std::fflush(stdout);
}

}  // namespace qgpu::demo
