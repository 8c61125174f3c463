#pragma once
// What the child of a fork must do, kept by whoever needs it, from whatever thread: a handler that
// is lost is a child that counts nothing, or gives back what is its parent's. Each is kept once, a
// place is never given up, and adding takes no lock, since the child could find it held.

#include <atomic>

namespace qgpu::guest {

class ForkHandlers {
 public:
  using Handler = void (*)();
  static constexpr int kMost = 8;

  // False: there is no place, which is a bug of whoever added too many.
  [[nodiscard]] bool add(Handler handler) {
    for (auto& place : places_) {
      Handler there = nullptr;
      if (place.compare_exchange_strong(there, handler) || there == handler) return true;
    }
    return false;
  }

  // In the order in which they were added.
  void run() const {
    for (const auto& place : places_) {
      if (Handler handler = place.load()) handler();
    }
  }

 private:
  std::atomic<Handler> places_[kMost] = {};
};

}  // namespace qgpu::guest
