#include "services/cards/suspend/suspender.h"

#include <utility>

namespace qgpu::suspend {

Suspender::Suspender(std::unique_ptr<Calls> calls, SuspendMethod method,
                     std::function<void(News)> tell, std::function<void()> begin,
                     std::unique_ptr<CardCheck> check)
    : calls_(std::move(calls)),
      holds_(method),
      tell_(std::move(tell)),
      check_(std::move(check)),
      thread_([this, begin = std::move(begin)] {
        if (begin) begin();
        loop_.run();
      }) {}

Suspender::~Suspender() {
  end();
  thread_.join();
}

void Suspender::end() {
  loop_.post([this] { onEnd(); });
}

// --- what comes in ---

template <typename Change>
void Suspender::with(Change change) {
  loop_.post([this, change = std::move(change)] {
    change(holds_);
    advance();
  });
}

void Suspender::hold(std::uint64_t task, std::uint32_t number) {
  with([this, task, number](Holds& holds) { holds.hold(task, number, loop_.now()); });
}

void Suspender::release(std::uint64_t task) {
  with([this, task](Holds& holds) { holds.release(task, loop_.now()); });
}

void Suspender::removed(std::uint64_t task) {
  with([this, task](Holds& holds) { holds.removed(task, loop_.now()); });
}

void Suspender::again(std::uint64_t task) {
  with([task](Holds& holds) { holds.again(task); });
}

void Suspender::made(std::uint64_t task, const Channel& channel, bool touched) {
  with([task, channel, touched](Holds& holds) { holds.made(task, channel, touched); });
}

void Suspender::ended(std::uint64_t task, std::uint32_t client, std::uint32_t name) {
  with([task, client, name](Holds& holds) { holds.ended(task, client, name); });
}

void Suspender::enabled(std::uint64_t task, std::uint32_t client, std::uint32_t name) {
  with([task, client, name](Holds& holds) { holds.enabled(task, client, name); });
}

void Suspender::doubt(std::uint64_t task, std::string why) {
  with([task, why = std::move(why)](Holds& holds) { holds.doubt(task, why); });
}

void Suspender::attached(std::uint32_t process, Fd pidfd) {
  // A copyable way for what is posted.
  auto owned = std::make_shared<Fd>(std::move(pidfd));
  loop_.post([this, process, owned] {
    calls_->process(process, owned->get());
    pidfds_[process] = std::move(*owned);
  });
}

void Suspender::gone(std::uint64_t task, std::uint32_t process) {
  with([this, task, process](Holds& holds) {
    holds.gone(task, process);
    calls_->forget(process);
    pidfds_.erase(process);
  });
}

// --- what is done ---

// One call to the driver, and then what came in meanwhile.
void Suspender::advance() {
  tellAll();
  if (ending_ && holds_.empty()) return loop_.stop();
  if (posted_) return;
  const auto order = holds_.next(loop_.now());
  if (!order) return wakeAt(holds_.retryAt());
  holds_.answered(calls_->carryOut(*order, holds_.method()), loop_.now());
  tellAll();
  posted_ = true;
  loop_.post([this] {
    posted_ = false;
    advance();
  });
}

void Suspender::tellAll() {
  for (News& news : holds_.news(loop_.now())) {
    if (news.what == News::What::kCardDoubted) {
      check();
    } else {
      tell_(std::move(news));
    }
  }
}

void Suspender::check() {
  const auto heed = [this](const Verdict& verdict) {
    with([this, verdict](Holds& holds) { holds.checked(verdict, loop_.now()); });
  };
  if (!check_) return heed({Verdict::Says::kFails, ""});
  check_->start(loop_, heed);
}

void Suspender::wakeAt(Nanos when) {
  loop_.cancel(std::exchange(retry_, 0));
  if (when == kNever) return;
  retry_ = loop_.at(when, [this] {
    retry_ = 0;
    advance();
  });
}

void Suspender::onEnd() {
  if (std::exchange(ending_, true)) return;
  holds_.removeAll(loop_.now());
  loop_.after(kPatience, [this] { loop_.stop(); });
  advance();
}

}  // namespace qgpu::suspend
