// Which wrapper stands before a function, and that no thread misses what it added itself.

#include "services/guest/gate/wrapper_table.h"

#include <gtest/gtest.h>
#include <memory>
#include <thread>

namespace qgpu::guest::wrapper_table_test {
namespace {

void* at(std::uintptr_t number) {
  return reinterpret_cast<void*>(number * 16);
}

TEST(WrapperTable, AnAddressWithoutAWrapperIsItself) {
  const auto table = std::make_unique<WrapperTable>();
  EXPECT_EQ(table->find(at(1)), at(1));
  table->add(at(1), nullptr);
  table->add(nullptr, at(2));
  EXPECT_EQ(table->find(at(1)), at(1));
}

TEST(WrapperTable, AnAddressKeepsItsFirstWrapperAlsoWhereAnotherHasItsPlace) {
  const auto table = std::make_unique<WrapperTable>();
  const std::uintptr_t first = 5, same = 5 + 1024 * 1024 * WrapperTable::kPlaces;
  table->add(at(first), at(100));
  table->add(at(same), at(200));
  table->add(at(first), at(300));
  EXPECT_EQ(table->find(at(first)), at(100));
  EXPECT_EQ(table->find(at(same)), at(200));
}

TEST(WrapperTable, AThreadFindsWhatItAddedWhoeverAddsTheSame) {
  constexpr std::uintptr_t kAddresses = 600, kRounds = 200;
  for (std::uintptr_t round = 0; round < kRounds; ++round) {
    const auto table = std::make_unique<WrapperTable>();
    std::atomic<int> ready{0};
    const auto addAll = [&] {
      ready.fetch_add(1);
      while (ready.load() < 2) {  // a turn of the processor would part the two
      }
      int missed = 0;
      for (std::uintptr_t i = 1; i <= kAddresses; ++i) {
        table->add(at(i), at(10'000 + i));
        missed += table->find(at(i)) != at(10'000 + i);
      }
      EXPECT_EQ(missed, 0);
    };
    std::thread other(addAll);
    addAll();
    other.join();
  }
}

}  // namespace
}  // namespace qgpu::guest::wrapper_table_test
