#include "runtime/loop.h"

#include <cstdio>
#include <cstring>
#include <errno.h>
#include <mutex>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "runtime/check.h"

namespace qgpu {

namespace {

// Timers that fire in one iteration; the rest fire in the next one, after other callbacks.
constexpr int kTimersPerTurn = 256;

template <typename Handle>
uv_handle_t* asHandle(Handle& handle) {
  return reinterpret_cast<uv_handle_t*>(&handle);
}

void require(bool condition, const char* what) {
  if (!condition) fatal(ExitCode::Environment, what);
}

}  // namespace

Nanos monotonicNow() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Nanos(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
}

// --- FdWatch and EdgeSet ---

FdWatch& FdWatch::operator=(FdWatch&& other) noexcept {
  if (this != &other) {
    reset();
    set_ = std::exchange(other.set_, nullptr);
    fd_ = other.fd_;
    id_ = other.id_;
  }
  return *this;
}

void FdWatch::reset() {
  if (EdgeSet* set = std::exchange(set_, nullptr)) set->remove(fd_, id_);
}

EdgeSet::EdgeSet(uv_loop_t& uv) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  require(epoll_ >= 0, "epoll_create1 failed: raise the limit of open files");
  poll_.data = this;
  require(uv_poll_init(&uv, &poll_, epoll_) == 0, "uv_poll_init failed");
  uv_poll_start(&poll_, UV_READABLE,
                [](uv_poll_t* handle, int, int) { static_cast<EdgeSet*>(handle->data)->fire(); });
}

EdgeSet::~EdgeSet() {
  QGPU_CHECK(epoll_ < 0, "the loop closed its EdgeSet");
}

void EdgeSet::close() {
  QGPU_CHECK(watches_.empty(), "whoever watches a descriptor ends before the loop does");
  uv_close(asHandle(poll_), nullptr);
  ::close(std::exchange(epoll_, -1));
}

FdWatch EdgeSet::watchEdge(int fd, std::uint32_t events, Callback callback) {
  return add(fd, events | EPOLLET, std::move(callback));
}

FdWatch EdgeSet::watchLevel(int fd, std::uint32_t events, Callback callback) {
  return add(fd, events, std::move(callback));
}

FdWatch EdgeSet::add(int fd, std::uint32_t events, Callback callback) {
  const std::uint64_t id = ++lastId_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
    char why[128];
    std::snprintf(why, sizeof why, "cannot watch descriptor %d: %s", fd, std::strerror(errno));
    fatal(ExitCode::Environment, why);
  }
  watches_.emplace(id, std::make_unique<Callback>(std::move(callback)));
  return FdWatch(*this, fd, id);
}

void EdgeSet::remove(int fd, std::uint64_t id) {
  epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  const auto found = watches_.find(id);
  if (firing_) dropped_.push_back(std::move(found->second));
  watches_.erase(found);
}

void EdgeSet::fire() {
  epoll_event events[kEventsPerTurn];
  const int n = epoll_wait(epoll_, events, kEventsPerTurn, 0);
  firing_ = true;
  for (int i = 0; i < n; ++i) {
    const std::uint64_t id = events[i].data.u64;  // a copy: the struct is packed
    const auto found = watches_.find(id);
    if (found != watches_.end()) (*found->second)(events[i].events);
  }
  firing_ = false;
  dropped_.clear();
}

// --- Loop ---

Loop::UvLoop::UvLoop() {
  require(uv_loop_init(this) == 0, "uv_loop_init failed: raise the limit of open files");
}

Loop::Loop() : uv_(std::make_unique<UvLoop>()), fds_(*uv_) {
  uv_prepare_init(uv_.get(), &prepare_);
  prepare_.data = this;
  uv_prepare_start(&prepare_, [](uv_prepare_t* h) { static_cast<Loop*>(h->data)->beforeSleep(); });
  uv_idle_init(uv_.get(), &idle_);
  wakeFd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  require(wakeFd_ >= 0, "eventfd failed: raise the limit of open files");
  watchWakes();
  timerFd_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  require(timerFd_ >= 0, "timerfd_create failed: raise the limit of open files");
  timerWatch_ = fds_.watchLevel(timerFd_, EPOLLIN, [this](std::uint32_t) { fireTimers(); });
}

Loop::~Loop() {
  QGPU_CHECK(guests_.empty(), "guests leave before their loop ends");
  timerWatch_.reset();
  ::close(timerFd_);
  uv_close(asHandle(wakePoll_), nullptr);
  ::close(wakeFd_);
  uv_close(asHandle(prepare_), nullptr);
  uv_close(asHandle(idle_), nullptr);
  fds_.close();
  uv_run(uv_.get(), UV_RUN_DEFAULT);
  QGPU_CHECK(uv_loop_close(uv_.get()) == 0, "every handle on this loop was closed");
}

// The eventfd is never read: each write is an edge of its own. uv_poll_start() registers it for its
// level, in the loop's next iteration; after that the loop has no reason to register it again.
void Loop::watchWakes() {
  wakePoll_.data = this;
  require(uv_poll_init(uv_.get(), &wakePoll_, wakeFd_) == 0, "uv_poll_init failed");
  uv_poll_start(&wakePoll_, UV_READABLE,
                [](uv_poll_t* handle, int, int) { static_cast<Loop*>(handle->data)->runPosted(); });
  uv_run(uv_.get(), UV_RUN_NOWAIT);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = wakeFd_;
  require(epoll_ctl(uv_backend_fd(uv_.get()), EPOLL_CTL_MOD, wakeFd_, &event) == 0,
          "the loop's own epoll set does not know the eventfd");
}

void Loop::run() {
  while (!stopping()) uv_run(uv_.get(), UV_RUN_ONCE);
}

void Loop::poll() {
  uv_run(uv_.get(), UV_RUN_NOWAIT);
}

void Loop::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  wake();
}

void Loop::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wakeFd_, &one, sizeof one);
}

void Loop::post(std::function<void()> work) {
  {
    const std::lock_guard lock(postedMutex_);
    posted_.push_back(std::move(work));
  }
  wake();
}

void Loop::runPosted() {
  std::vector<std::function<void()>> posted;
  {
    const std::lock_guard lock(postedMutex_);
    posted.swap(posted_);
  }
  for (auto& work : posted) {
    if (!stopping()) work();
  }
}

void Loop::removeGuest(LoopGuest& guest) {
  std::erase(guests_, &guest);
}

void Loop::beforeSleep() {
  for (std::size_t i = 0; i < guests_.size(); ++i) guests_[i]->turn();
  bool sleep = true;
  for (LoopGuest* guest : guests_) sleep = guest->maySleep() && sleep;
  if (idling_ == !sleep) return;
  idling_ = !sleep;
  if (idling_) {
    uv_idle_start(&idle_, [](uv_idle_t*) {});
  } else {
    uv_idle_stop(&idle_);
  }
}

Loop::TimerKey Loop::at(Nanos at, std::function<void()> work) {
  const TimerKey key = timers_.add(at, std::move(work));
  if (at < armedFor_) armTimerFd();
  return key;
}

void Loop::cancel(TimerKey key) {
  timers_.cancel(key);
}

void Loop::fireTimers() {
  std::uint64_t expirations = 0;
  [[maybe_unused]] const ssize_t n = ::read(timerFd_, &expirations, sizeof expirations);
  armedFor_ = kNever;
  const Nanos due = now();
  for (int i = 0; i < kTimersPerTurn && !stopping(); ++i) {
    const auto timer = timers_.popDue(due);
    if (!timer) break;
    timer->value();
  }
  armTimerFd();
}

// A deadline in the past still needs a positive value: zero would disarm the timer.
void Loop::armTimerFd() {
  const std::optional<Nanos> next = timers_.next();
  if (!next || *next == armedFor_) return;
  armedFor_ = *next;
  const std::int64_t at = std::max<std::int64_t>(next->value, 1);
  itimerspec spec{};
  spec.it_value.tv_sec = at / 1'000'000'000;
  spec.it_value.tv_nsec = at % 1'000'000'000;
  require(timerfd_settime(timerFd_, TFD_TIMER_ABSTIME, &spec, nullptr) == 0,
          "timerfd_settime failed");
}

}  // namespace qgpu
