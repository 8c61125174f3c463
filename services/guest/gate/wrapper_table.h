#pragma once
// Wrappers by the address of the function that each stands before. Entries are only ever added, by
// any thread and without a lock, since a fork's child could find it held. A thread that added an
// address finds its wrapper from then on, whoever adds the same at the same time.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace qgpu::guest {

class WrapperTable {
 public:
  static constexpr std::size_t kPlaces = 2048;  // more than are ever added: a full table has no end

  // An address keeps its first wrapper. Nothing is added where either is null.
  void add(void* address, void* wrapper) {
    if (!address || !wrapper) return;
    for (std::size_t i = placeOf(address);; i = (i + 1) % kPlaces) {
      void* none = nullptr;
      const bool taken = places_[i].address.compare_exchange_strong(none, address);
      if (!taken && none != address) continue;
      // Whoever took the place may not have come to its wrapper yet.
      none = nullptr;
      places_[i].wrapper.compare_exchange_strong(none, wrapper);
      return;
    }
  }

  // The wrapper, or without one the address itself.
  void* find(void* address) const {
    for (std::size_t i = placeOf(address);; i = (i + 1) % kPlaces) {
      void* there = places_[i].address.load();
      if (!there) return address;
      if (there != address) continue;
      void* wrapper = places_[i].wrapper.load();
      return wrapper ? wrapper : address;
    }
  }

 private:
  struct Place {
    std::atomic<void*> address{nullptr};
    std::atomic<void*> wrapper{nullptr};
  };

  static std::size_t placeOf(const void* address) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address);
    return (bits >> 4 ^ bits >> 14) % kPlaces;
  }

  Place places_[kPlaces];
};

}  // namespace qgpu::guest
