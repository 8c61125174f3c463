// The forest of objects against a model of plain sets, over random programs; and the cases that a
// driver makes: trees, clients, files, names that come again, memory with several names.

#include "services/nvidia_abi/rm_objects.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace qgpu::rm::rm_objects_test {
namespace {

using Name = std::pair<Handle, Handle>;

struct Ended {
  std::uint64_t bytes = 0;
  std::vector<Name> names;
};
void note(const Object& object, const Memory* freed, void* context) {
  auto& ended = *static_cast<Ended*>(context);
  ended.names.emplace_back(object.client, object.handle);
  if (freed) ended.bytes += freed->bytes;
}

struct Forest {
  Ended ended;
  Objects& objects = *new Objects;  // too large for a stack

  ~Forest() {
    for (std::uint32_t file = 0; file < 8; ++file) close(file);
    std::size_t left = 0;
    objects.each([](const Object&, void* n) { ++*static_cast<std::size_t*>(n); }, &left);
    EXPECT_EQ(left, 0u) << "every object is beneath a client, and every client has a file";
    delete &objects;
  }
  Object* add(Handle client, Handle parent, Handle handle, std::uint64_t bytes = 0,
              std::uint32_t objectClass = kLocalMemory, std::uint32_t file = 0) {
    return objects.add({client, parent, handle, objectClass, 0, file, bytes, 1}, note, &ended);
  }
  Object* client(Handle handle, std::uint32_t file = 0) {
    return add(handle, 0, handle, 0, kRootClient, file);
  }
  Object* dup(Handle client, Handle parent, Handle handle, Name source) {
    return objects.duplicate({client, parent, handle, 0, 0, 0, 0, 1}, source.first, source.second,
                             note, &ended);
  }
  void free(Handle client, Handle handle) {
    if (Object* top = objects.takeOut(client, handle)) Objects::end(top, note, &ended);
  }
  void close(std::uint32_t file) {
    while (Object* top = objects.takeClientOf(file)) Objects::end(top, note, &ended);
  }
};

TEST(RmObjects, TheEndOfAParentEndsAllBeneathItChildFirst) {
  Forest f;
  f.client(1);
  f.add(1, 1, 10, 0, kDevice);
  f.add(1, 10, 20, 100);
  f.add(1, 10, 21, 200);
  f.add(1, 20, 30, 400);
  f.add(1, 1, 11, 800);
  f.free(1, 10);
  EXPECT_EQ(f.ended.bytes, 700u);
  EXPECT_EQ(f.ended.names.back(), Name(1, 10));
  EXPECT_LT(std::find(f.ended.names.begin(), f.ended.names.end(), Name(1, 30)),
            std::find(f.ended.names.begin(), f.ended.names.end(), Name(1, 20)));
  EXPECT_TRUE(f.objects.find(1, 11));
  f.free(1, 1);
  EXPECT_EQ(f.ended.bytes, 1500u);
}

TEST(RmObjects, AClosedFileEndsItsClientsAndNoOthers) {
  Forest f;
  f.client(1, 3);
  f.client(2, 3);
  f.client(4, 5);
  f.add(1, 1, 10, 100);
  f.add(2, 2, 10, 200);
  f.add(4, 4, 10, 400);
  f.close(3);
  EXPECT_EQ(f.ended.bytes, 300u);
  EXPECT_TRUE(f.objects.find(4, 10));
}

TEST(RmObjects, MemoryIsFreeWhenItsLastNameIs) {
  Forest f;
  f.client(1);
  f.client(2);
  f.add(1, 1, 10, 100);
  f.dup(2, 2, 20, {1, 10});
  f.dup(2, 2, 21, {2, 20});
  f.free(1, 10);
  f.free(2, 20);
  EXPECT_EQ(f.ended.bytes, 0u);
  f.free(2, 2);
  EXPECT_EQ(f.ended.bytes, 100u);
}

TEST(RmObjects, WhatComesFromAnotherProcessHasNoMemoryHere) {
  Forest f;
  f.client(1);
  const Object* imported = f.dup(1, 1, 10, {0xc1d00077, 5});
  ASSERT_TRUE(imported);
  EXPECT_FALSE(imported->memory);
  f.free(1, 10);
  EXPECT_EQ(f.ended.bytes, 0u);
}

TEST(RmObjects, ANameThatComesAgainEndsWhatHadIt) {
  Forest f;
  f.client(1);
  f.add(1, 1, 10, 100);
  f.add(1, 10, 11, 200);
  f.add(1, 11, 10, 400);  // beneath what ends with it: then beneath the client
  EXPECT_EQ(f.ended.bytes, 300u);
  EXPECT_EQ(f.objects.find(1, 10)->parent, f.objects.find(1, 1));
  EXPECT_FALSE(f.objects.find(1, 11));
}

TEST(RmObjects, ADuplicateMayTakeTheNameOfWhatItCopies) {
  Forest f;
  f.client(1);
  f.add(1, 1, 10, 100);
  const Object* again = f.dup(1, 1, 10, {1, 10});
  ASSERT_TRUE(again);
  EXPECT_EQ(f.ended.bytes, 0u);
  EXPECT_EQ(again->memory->bytes, 100u);
  EXPECT_EQ(again->memory->references, 1u);
}

TEST(RmObjects, AnUnknownClientIsMadeUpWithItsFile) {
  Forest f;
  f.add(7, 99, 10, 100, kLocalMemory, 4);
  f.close(4);
  EXPECT_EQ(f.ended.bytes, 100u);
}

TEST(RmObjects, WhatTheDriverRefusedToFreeIsBackWithItsTree) {
  Forest f;
  f.client(1);
  f.add(1, 1, 10);
  f.add(1, 10, 11, 100);
  Object* top = f.objects.takeOut(1, 10);
  EXPECT_FALSE(f.objects.find(1, 11));
  f.objects.putBack(top, note, &f.ended);
  EXPECT_EQ(f.ended.bytes, 0u);
  EXPECT_EQ(f.objects.find(1, 11)->parent, f.objects.find(1, 10));
  EXPECT_EQ(f.objects.find(1, 10)->parent, f.objects.find(1, 1));
}

TEST(RmObjects, WhatIsBackEndsWhatTookItsNameMeanwhile) {
  Forest f;
  f.client(1);
  f.add(1, 1, 10, 100);
  Object* top = f.objects.takeOut(1, 10);
  f.add(1, 1, 10, 200);
  f.objects.putBack(top, note, &f.ended);
  EXPECT_EQ(f.ended.bytes, 200u);
  EXPECT_EQ(f.objects.find(1, 10)->memory->bytes, 100u);
}

TEST(RmObjects, WhatIsBackIsNeverBeneathItsOwnTree) {
  Forest f;
  f.client(1);
  f.add(1, 11, 10, 100);  // its parent is not known, and comes to be beneath it
  f.add(1, 10, 11, 200);
  f.objects.putBack(f.objects.takeOut(1, 10), note, &f.ended);
  EXPECT_EQ(f.objects.find(1, 10)->parent, f.objects.find(1, 1));
  f.free(1, 1);
  EXPECT_EQ(f.ended.bytes, 300u);
}

TEST(RmObjects, AnObjectKnowsItsCard) {
  Forest f;
  f.client(1);
  f.objects.add({1, 1, 10, kDevice, 3, 0, 0, 1}, note, &f.ended);
  f.add(1, 10, 11, 0, kChannelGroup);
  EXPECT_EQ(Objects::deviceOf(*f.add(1, 11, 12, 0, 0xc86f)), 3u);
  EXPECT_EQ(Objects::deviceOf(*f.add(1, 1, 13)), ~0u);
}

TEST(RmObjects, ADeepTreeNeedsNoDeepStack) {
  Forest f;
  f.client(1);
  for (Handle i = 2; i < 60'000; ++i) f.add(1, i - 1, i, 1);
  f.free(1, 2);
  EXPECT_EQ(f.ended.bytes, 59'998u);
}

// Plain sets: objects by name with the parent's name, memory by number.
class Model {
 public:
  struct Entry {
    Name parent;
    int memory = -1;
    std::uint32_t file = 0;
  };

  void add(Handle client, Handle parent, Handle handle, std::uint64_t bytes, std::uint32_t file) {
    const int memory = bytes ? newMemory(bytes) : -1;
    place(client, parent, handle, file, memory);
  }
  void dup(Handle client, Handle parent, Handle handle, Name source) {
    const auto found = objects.find(source);
    place(client, parent, handle, 0, found == objects.end() ? -1 : found->second.memory);
  }
  void free(Name name) {
    if (!objects.count(name)) return;
    objects.erase(name);
    for (bool again = true; again;) {  // whatever lost its parent
      again = false;
      for (auto each = objects.begin(); each != objects.end(); ++each) {
        if (each->first.first == each->first.second || objects.count(each->second.parent)) continue;
        objects.erase(each);
        again = true;
        break;
      }
    }
  }
  void close(std::uint32_t file) {
    for (bool again = true; again;) {
      again = false;
      for (const auto& [name, entry] : objects) {
        if (name.first != name.second || entry.file != file) continue;
        free(Name(name));
        again = true;
        break;
      }
    }
  }
  std::uint64_t held() const {
    std::set<int> named;
    for (const auto& each : objects) named.insert(each.second.memory);
    std::uint64_t sum = 0;
    for (const int memory : named) sum += memory < 0 ? 0 : sizes[static_cast<std::size_t>(memory)];
    return sum;
  }

  std::map<Name, Entry> objects;
  std::vector<std::uint64_t> sizes;

 private:
  int newMemory(std::uint64_t bytes) {
    sizes.push_back(bytes);
    return static_cast<int>(sizes.size() - 1);
  }
  void place(Handle client, Handle parent, Handle handle, std::uint32_t file, int memory) {
    free({client, handle});
    if (client != handle && !objects.count({client, client})) {
      objects[{client, client}] = {{}, -1, file};
    }
    const Name wanted =
        objects.count({client, parent}) ? Name(client, parent) : Name(client, client);
    objects[{client, handle}] = {wanted, memory, file};
  }
};

class RandomPrograms : public ::testing::TestWithParam<unsigned> {};

TEST_P(RandomPrograms, HoldWhatPlainSetsHold) {
  std::mt19937 random(GetParam());
  const auto below = [&](unsigned n) { return static_cast<Handle>(random() % n); };
  Forest f;
  Model model;
  std::uint64_t charged = 0;
  for (int step = 0; step < 1500; ++step) {
    const Handle client = 1 + below(3), handle = 1 + below(24), parent = 1 + below(24);
    const std::uint32_t file = below(3);
    switch (below(8)) {
      case 0:
      case 1:
      case 2: {
        const std::uint64_t bytes = below(3) ? 1u + below(1000) : 0u;
        charged += bytes;
        f.add(client, parent, handle, bytes, kLocalMemory, file);
        model.add(client, parent, handle, bytes, file);
        break;
      }
      case 3:
      case 4: {
        const Name source(1 + below(3), 1 + below(24));
        f.dup(client, parent, handle, source);
        model.dup(client, parent, handle, source);
        break;
      }
      case 5:
        if (Object* top = f.objects.takeOut(client, handle)) {
          f.objects.putBack(top, note, &f.ended);
        }
        break;
      case 6:
        f.free(client, handle);
        model.free({client, handle});
        break;
      default:
        if (below(10)) break;
        f.close(file);
        model.close(file);
    }
    ASSERT_EQ(charged - f.ended.bytes, model.held()) << "step " << step;
    if (step % 100 == 0) {
      std::set<Name> ours, theirs;
      f.objects.each(
          [](const Object& each, void* all) {
            static_cast<std::set<Name>*>(all)->emplace(each.client, each.handle);
          },
          &ours);
      for (const auto& each : model.objects) theirs.insert(each.first);
      ASSERT_EQ(ours, theirs) << "step " << step;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(RmObjects, RandomPrograms, ::testing::Range(1u, 41u));

}  // namespace
}  // namespace qgpu::rm::rm_objects_test
