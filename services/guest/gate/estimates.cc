#include "services/guest/gate/estimates.h"

#include "services/guest/gate/gate.h"

namespace qgpu::guest {
namespace {

constexpr std::size_t kEntries = 1024;  // a power of two
constexpr std::size_t kProbes = 8;

struct Entry {
  std::atomic<std::uint64_t> key;
  std::atomic<const void*> kernel;
  std::atomic<std::uint64_t> ns;
};
Entry table[kEntries];

std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

void forget(Entry& entry) {
  entry.kernel.store(nullptr, std::memory_order_relaxed);
  entry.key.store(0, std::memory_order_relaxed);
}

Entry* find(std::uint64_t key) {
  for (std::size_t i = 0; i < kProbes; ++i) {
    Entry& entry = table[(key + i) % kEntries];
    if (entry.key.load(std::memory_order_relaxed) == key) return &entry;
  }
  return nullptr;
}

}  // namespace

std::uint64_t estimateKey(const void* kernel, unsigned dimensions, const std::size_t* global) {
  std::uint64_t items = 1;
  for (unsigned i = 0; global && i < dimensions && i < 3; ++i) items *= global[i];
  std::uint64_t key = mix(reinterpret_cast<std::uintptr_t>(kernel) ^ mix(items));
  return key ? key : 1;
}

std::uint64_t estimateOf(std::uint64_t key) {
  Entry* entry = find(key);
  return entry ? entry->ns.load(std::memory_order_relaxed) : kUnknownEstimate;
}

void learn(std::uint64_t key, const void* kernel, std::uint64_t ns) {
  if (key == 0) return;
  if (Entry* known = find(key)) {
    std::uint64_t old = known->ns.load(std::memory_order_relaxed);
    known->ns.store(old - old / 4 + ns / 4, std::memory_order_relaxed);
    return;
  }
  Entry* place = &table[key % kEntries];
  for (std::size_t i = 0; i < kProbes; ++i) {
    Entry& entry = table[(key + i) % kEntries];
    if (entry.key.load(std::memory_order_relaxed) == 0) {
      place = &entry;
      break;
    }
  }
  place->ns.store(ns, std::memory_order_relaxed);
  place->kernel.store(kernel, std::memory_order_relaxed);
  place->key.store(key, std::memory_order_relaxed);
}

void forgetKernel(const void* kernel) {
  for (Entry& entry : table) {
    if (entry.kernel.load(std::memory_order_relaxed) == kernel) forget(entry);
  }
}

void forgetAllKernels() {
  for (Entry& entry : table) forget(entry);
}

}  // namespace qgpu::guest
