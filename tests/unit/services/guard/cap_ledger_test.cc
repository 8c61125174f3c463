// The ledger of the cap in the kernel, over maps of this test's own: ten thousand stories, told to
// it and to the library's ledger.

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <vector>

#include "services/guard/guard_abi.h"
#include "services/nvidia_abi/rm_objects.h"

namespace {

// What the kernel's maps and helpers are to a program.
template <typename Key, typename Value>
struct Map {
  struct Less {
    bool operator()(const Key& a, const Key& b) const {
      return __builtin_memcmp(&a, &b, sizeof(Key)) < 0;
    }
  };
  std::map<Key, Value, Less> values;
  std::size_t most = ~std::size_t{0};
};

constexpr int BPF_ANY = 0;

template <typename Key, typename Value>
void* bpf_map_lookup_elem(Map<Key, Value>* map, const void* key) {
  const auto found = map->values.find(*static_cast<const Key*>(key));
  return found == map->values.end() ? nullptr : &found->second;
}

template <typename Key, typename Value>
long bpf_map_update_elem(Map<Key, Value>* map, const void* key, const void* value, int) {
  const Key& name = *static_cast<const Key*>(key);
  if (map->values.size() >= map->most && !map->values.contains(name)) return -7;
  map->values[name] = *static_cast<const Value*>(value);
  return 0;
}

template <typename Key, typename Value>
long bpf_map_delete_elem(Map<Key, Value>* map, const void* key) {
  return map->values.erase(*static_cast<const Key*>(key)) != 0 ? 0 : -2;
}

template <typename Key, typename Value>
long bpf_for_each_map_elem(Map<Key, Value>* map, void* visit, void* context, int) {
  auto* const call = reinterpret_cast<long (*)(void*, const void*, void*, void*)>(visit);
  for (auto at = map->values.begin(); at != map->values.end();) {
    const auto next = std::next(at);
    call(map, &at->first, &at->second, context);
    at = next;
  }
  return 0;
}

Map<qgpu_cap_name, qgpu_cap_object> objects;
Map<std::uint64_t, qgpu_cap_memory> memories;
Map<std::uint64_t, qgpu_cap_account> accounts;
Map<std::uint32_t, std::uint64_t> serials;

}  // namespace

#include "services/guard/cap_ledger.h"

namespace qgpu::testing {
namespace {

constexpr std::uint64_t kTask = 7, kOther = 8;
constexpr std::uint64_t kFile = 0xffff888000001000;  // an address, as the driver's files have

class CapLedger : public ::testing::Test {
 protected:
  void SetUp() override {
    objects = {};
    memories = {};
    accounts.values = {{kTask, {}}, {kOther, {}}};
    serials.values = {{0, 0}};
  }
  static std::uint64_t used(std::uint64_t task = kTask) { return accounts.values.at(task).used; }
  static void makes(std::uint32_t client, std::uint32_t parent, std::uint32_t handle,
                    std::uint64_t bytes = 0, std::uint64_t file = kFile,
                    std::uint64_t task = kTask) {
    const qgpu_cap_made made{{client, handle, 0}, task, file, parent, 0};
    qgpu_cap_count(task, bytes);
    if (bytes != 0) {
      qgpu_cap_makes(&made, bytes);
    } else {
      qgpu_cap_place(&made, 0);
    }
  }
  static void names(std::uint32_t client, std::uint32_t handle, std::uint32_t sourceClient,
                    std::uint32_t source, std::uint64_t task = kTask) {
    const qgpu_cap_name from{sourceClient, source, 0};
    const qgpu_cap_made made{{client, handle, 0}, task, kFile, client, 0};
    const std::uint64_t held = qgpu_cap_hold(&from), toll = qgpu_cap_toll(task, held);
    qgpu_cap_count(task, toll);
    qgpu_cap_names(&made, held, toll);
  }
  static void ends(std::uint32_t client, std::uint32_t handle, std::uint64_t before = ~0ull) {
    const qgpu_cap_name name{client, handle, 0};
    qgpu_cap_ends(&name, before);
  }
};

TEST_F(CapLedger, TakesFromTheQuotaWhatItHas) {
  qgpu_cap_account held{};
  EXPECT_TRUE(qgpu_cap_reserve(&held, 100, 60));
  EXPECT_FALSE(qgpu_cap_reserve(&held, 100, 41));
  EXPECT_FALSE(qgpu_cap_reserve(&held, 100, ~0ull));
  EXPECT_TRUE(qgpu_cap_reserve(&held, 100, 40));
  EXPECT_FALSE(qgpu_cap_reserve(&held, 50, 1)) << "a quota that became smaller";
  EXPECT_EQ(held.used, 100u);
}

TEST_F(CapLedger, AnotherTasksMemoryCountsForBoth) {
  makes(1, 1, 1);
  makes(1, 1, 10, 500);
  makes(2, 2, 2, 0, kFile + 1, kOther);
  names(2, 20, 1, 10, kOther);
  EXPECT_EQ(used(), 500u);
  EXPECT_EQ(used(kOther), 500u);
  ends(1, 1);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(used(kOther), 500u);
  ends(2, 20);
  EXPECT_EQ(used(kOther), 0u);
  EXPECT_TRUE(memories.values.empty());
}

TEST_F(CapLedger, WhatWasMadeSinceACallBeganDoesNotEndWithIt) {
  makes(1, 1, 1);
  makes(1, 1, 10, 500);
  const std::uint64_t began = qgpu_cap_serial();
  makes(1, 1, 10, 300);  // the driver freed the first, and gave its name to another at once
  ends(1, 10, began);
  EXPECT_EQ(used(), 300u);
  makes(1, 1, 11, 200);
  ends(1, 1, began);
  EXPECT_EQ(used(), 500u) << "the client is older and goes, what is new beneath it stays";
  qgpu_cap_closes(kFile, ~0ull);
  EXPECT_EQ(used(), 0u);
  EXPECT_TRUE(objects.values.empty());
}

TEST_F(CapLedger, AFileEndsWhatItHolds) {
  makes(1, 1, 1);
  makes(1, 1, 10, 500);
  const qgpu_cap_name source{1, 10, 0};
  const qgpu_cap_made held{{kFile + 64, 1, 0}, kTask, kFile + 64, 1, 0};
  qgpu_cap_names(&held, qgpu_cap_hold(&source), 0);
  ends(1, 10);
  EXPECT_EQ(used(), 500u);
  qgpu_cap_closes(kFile + 64, ~0ull);
  EXPECT_EQ(used(), 0u);
}

TEST_F(CapLedger, WithoutRoomForNamesWhatIsCountedStays) {
  makes(1, 1, 1);
  objects.most = objects.values.size();
  makes(1, 1, 10, 500);
  EXPECT_EQ(used(), 500u);
  qgpu_cap_closes(kFile, ~0ull);
  EXPECT_EQ(used(), 500u) << "never less than the driver gave";
}

TEST_F(CapLedger, WhatIsHeldOutlivesItsNames) {
  makes(1, 1, 1);
  makes(1, 1, 10, 500);
  const qgpu_cap_name source{1, 10, 0};
  const std::uint64_t held = qgpu_cap_hold(&source);
  ends(1, 1);
  EXPECT_EQ(used(), 500u);
  const qgpu_cap_made made{{2, 20, 0}, kTask, kFile, 2, 0};
  qgpu_cap_names(&made, held, 0);
  EXPECT_EQ(used(), 500u);
  ends(2, 20);
  EXPECT_EQ(used(), 0u);
}

TEST_F(CapLedger, ATaskHasItsPartOfTheNamesAndNoMore) {
  makes(1, 1, 1);
  for (std::uint32_t i = 0; i < QGPU_CAP_OBJECTS_OF_TASK + 10; ++i) makes(1, 1, 100 + i);
  EXPECT_EQ(objects.values.size(), std::size_t{QGPU_CAP_OBJECTS_OF_TASK});
  makes(2, 2, 2, 0, kFile + 1, kOther);
  EXPECT_EQ(objects.values.size(), QGPU_CAP_OBJECTS_OF_TASK + std::size_t{1})
      << "others have theirs";
  ends(1, 1);
  EXPECT_EQ(accounts.values.at(kTask).objects, 0u);
}

TEST_F(CapLedger, MemoryOfAnotherSizeIsCountedAsThat) {
  makes(1, 1, 1);
  const qgpu_cap_made made{{1, 10, 0}, kTask, kFile, 1, 0};
  qgpu_cap_count(kTask, 64);
  const std::uint64_t id = qgpu_cap_makes(&made, 64);
  qgpu_cap_resizes(id, 128);
  EXPECT_EQ(used(), 128u);
  qgpu_cap_resizes(id, 32);
  EXPECT_EQ(used(), 32u);
  ends(1, 10);
  EXPECT_EQ(used(), 0u);
}

struct Stories : CapLedger {
  std::mt19937 random{1};
  std::uint64_t library = 0;

  std::uint32_t pick(std::uint32_t below) {
    return std::uniform_int_distribution<std::uint32_t>(0, below - 1)(random);
  }
  static void onEnd(const rm::Object&, const rm::Memory* freed, void* self) {
    if (freed != nullptr) static_cast<Stories*>(self)->library -= freed->bytes;
  }
  // Names are few, so that they come again; a client's files are its number.
  std::uint32_t client() { return 1 + pick(3); }
  std::uint32_t handle() { return 100 + pick(12); }

  void step(rm::Objects& theirs) {
    const std::uint32_t owner = client(), name = handle(), parent = pick(3) ? handle() : owner;
    rm::Objects::Made made;
    made.client = owner;
    made.parent = parent;
    made.handle = name;
    made.file = owner;
    switch (pick(8)) {
      case 0:
      case 1:
      case 2:
        if (parent == name || isBeneath(theirs, owner, parent, name)) return;
        made.bytes = pick(3) ? 1 + pick(1000) : 0;
        library += made.bytes;
        makes(owner, parent, name, made.bytes, kFile + owner);
        theirs.add(made, onEnd, this);
        return;
      case 3:
      case 4: {
        const std::uint32_t from = client(), source = handle();
        if (theirs.find(from, source) == nullptr) return;
        made.parent = owner;
        namesOfFile(owner, name, from, source);
        theirs.duplicate(made, from, source, onEnd, this);
        return;
      }
      case 5:
        if (pick(10) != 0) return;
        qgpu_cap_closes(kFile + owner, ~0ull);
        while (rm::Object* top = theirs.takeClientOf(owner)) rm::Objects::end(top, onEnd, this);
        return;
      default: {
        const std::uint32_t gone = pick(20) ? name : owner;
        ends(owner, gone);
        if (rm::Object* top = theirs.takeOut(owner, gone)) rm::Objects::end(top, onEnd, this);
        return;
      }
    }
  }
  // The driver makes nothing beneath itself.
  static bool isBeneath(const rm::Objects& theirs, std::uint32_t owner, std::uint32_t what,
                        std::uint32_t above) {
    for (const rm::Object* at = theirs.find(owner, what); at; at = at->parent) {
      if (at->handle == above) return true;
    }
    return false;
  }
  static void namesOfFile(std::uint32_t owner, std::uint32_t name, std::uint32_t from,
                          std::uint32_t source) {
    const qgpu_cap_name of{from, source, 0};
    const qgpu_cap_made made{{owner, name, 0}, kTask, kFile + owner, owner, 0};
    qgpu_cap_names(&made, qgpu_cap_hold(&of), 0);
  }
};

TEST_F(Stories, TenThousandAgreeWithTheLibrarysToTheByte) {
  for (std::uint32_t seed = 1; seed <= 10'000; ++seed) {
    random.seed(seed);
    const auto theirs = std::make_unique<rm::Objects>();
    for (int i = 0; i < 60; ++i) {
      step(*theirs);
      ASSERT_EQ(used(), library) << "seed " << seed << ", step " << i;
    }
    for (std::uint32_t file = 1; file <= 3; ++file) {
      qgpu_cap_closes(kFile + file, ~0ull);
      while (rm::Object* top = theirs->takeClientOf(file)) rm::Objects::end(top, onEnd, this);
    }
    ASSERT_EQ(used(), 0u) << "seed " << seed;
    ASSERT_EQ(library, 0u);
    ASSERT_TRUE(objects.values.empty() && memories.values.empty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace qgpu::testing
