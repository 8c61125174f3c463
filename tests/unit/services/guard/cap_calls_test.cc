// What the cap in the kernel reads from a call is what the library reads from it.

#include "services/guard/cap_calls.h"

#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "services/nvidia_abi/rm_decode.h"

namespace qgpu::testing {
namespace {

qgpu_cap_forms formsOf(rm::Layout layout) {
  const rm::AllocForms forms = rm::allocForms(layout);
  const auto form = [](const rm::AllocForm& of) { return qgpu_cap_form{of.size, of.statusAt}; };
  return {form(forms.shortForm), form(forms.longForm)};
}

struct Memory {
  alignas(8) std::array<std::uint8_t, 128> bytes{};
};

class CapCalls : public ::testing::TestWithParam<rm::Layout> {
 protected:
  std::uint32_t word() { return static_cast<std::uint32_t>(random_()); }
  template <typename T, std::size_t N>
  T oneOf(const T (&of)[N]) {
    return of[random_() % N];
  }
  void put(std::size_t at, std::uint32_t value) { std::memcpy(call_.data() + at, &value, 4); }
  void put64(std::size_t at, std::uint64_t value) { std::memcpy(call_.data() + at, &value, 8); }

  // A call of this number and size: noise, with what matters set to what may matter.
  void fill(std::uint32_t number) {
    for (std::uint8_t& byte : call_) byte = static_cast<std::uint8_t>(random_());
    for (std::uint8_t& byte : memory_.bytes) byte = static_cast<std::uint8_t>(random_());
    if (number == rm::kEscVidHeapControl) {
      put(8, oneOf({2u, 3u, 5u, 6u, 14u, 7u}));
      if (random_() % 2) put(52, word() & ~0x00080000u);
      for (const std::size_t at : {56u, 64u}) {
        if (random_() % 4) put(at, word() & ~(3u << 25));
      }
      return;
    }
    if (number == rm::kEscControl) {
      put(8, oneOf({0x3d05u, 0x3d06u, 0x3d0bu, 0x3d0cu, 0x20801301u, word()}));
      put(24, oneOf({24u, 20u, 2128u, 652u, word()}));
      return;
    }
    put(12, oneOf({0x0u, 0x1u, 0x41u, 0x40u, 0x40u, 0x80u, 0x2080u, 0x3eu, word() & ~0xf0u}));
    put64(16, random_() % 8 ? reinterpret_cast<std::uintptr_t>(&memory_) : 0);
    if (number != rm::kEscAlloc) return;
    for (const std::size_t at : {24u, 32u}) put(at, oneOf({0u, 72u, 120u, 128u}));
    const std::uint32_t flags = random_() % 4 ? 0 : rm::kFlagVirtual;
    std::memcpy(memory_.bytes.data() + 8, &flags, 4);
  }

  std::mt19937_64 random_{22};
  alignas(8) std::array<std::uint8_t, 2608> call_{};
  Memory memory_;
};

TEST_P(CapCalls, AreReadAsTheLibraryReadsThem) {
  const qgpu_cap_forms forms = formsOf(GetParam());
  for (int i = 0; i < 30'000; ++i) {
    const std::uint32_t number =
        oneOf({0x28u, 0x29u, 0x2au, 0x2bu, 0x2bu, 0x34u, 0x4au, 217u, 0x55u});
    const std::uint32_t size = oneOf({16u, 20u, 28u, 32u, 40u, 48u, 56u, 184u, 2608u});
    fill(number);
    const rm::Call theirs = rm::decode(GetParam(), number, size, call_.data());
    std::array<std::uint8_t, QGPU_CAP_CALL_BYTES> read{};
    std::memcpy(read.data(), call_.data(), std::min<std::size_t>(size, read.size()));
    qgpu_cap_call ours;
    qgpu_cap_decode(&forms, number, size, read.data(), &ours);

    std::uint64_t bytes = ours.bytes;
    if (ours.has_memory) bytes = qgpu_cap_size(memory_.bytes.data());
    const std::string what = "number " + std::to_string(number) + ", size " + std::to_string(size);
    switch (theirs.verb) {
      case rm::Verb::kAlloc:
        ASSERT_EQ(ours.verb, QGPU_CAP_ALLOC) << what;
        if (number != rm::kEscVidHeapControl || (qgpu_cap_word(call_.data(), 52) & 0x4000)) {
          ASSERT_EQ(ours.object, theirs.object) << what;
        } else {
          ASSERT_EQ(ours.object, 0u) << "the driver takes no other name";
        }
        ASSERT_EQ(ours.object_at, theirs.objectAt) << what;
        ASSERT_EQ(ours.is_client != 0, rm::isClient(theirs.objectClass)) << what;
        ASSERT_EQ(bytes, theirs.bytes) << what;
        break;
      case rm::Verb::kFree:
        ASSERT_EQ(ours.verb, QGPU_CAP_FREE) << what;
        ASSERT_EQ(ours.object, theirs.object) << what;
        break;
      case rm::Verb::kDup:
        ASSERT_EQ(ours.verb, QGPU_CAP_DUP) << what;
        ASSERT_EQ(ours.source_client, theirs.sourceClient) << what;
        ASSERT_EQ(ours.source_object, theirs.sourceObject) << what;
        break;
      case rm::Verb::kExport:
      case rm::Verb::kImport: {
        const bool one = theirs.command == rm::kExportOne || theirs.command == rm::kImportOne;
        const std::uint32_t alone =
            theirs.verb == rm::Verb::kExport ? QGPU_CAP_EXPORT : QGPU_CAP_IMPORT;
        ASSERT_EQ(ours.verb, one ? alone : static_cast<std::uint32_t>(QGPU_CAP_CLOSED)) << what;
        continue;
      }
      default:
        // What the library does not follow because it is malformed may be refused here.
        ASSERT_TRUE(ours.verb == QGPU_CAP_OTHER || ours.verb == QGPU_CAP_CLOSED) << what;
        continue;
    }
    ASSERT_EQ(ours.client, theirs.client) << what;
    ASSERT_EQ(ours.status_at, theirs.statusAt) << what;
    if (theirs.verb != rm::Verb::kFree) {
      ASSERT_EQ(ours.parent, theirs.parent) << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EachLayout, CapCalls,
                         ::testing::Values(rm::Layout::kFrom515, rm::Layout::kFrom525,
                                           rm::Layout::kFrom535));

TEST(CapCall, IsNotMadeSmallByWhatAProgramTellsOfItsParameters) {
  const qgpu_cap_forms forms = formsOf(rm::Layout::kFrom535);
  alignas(8) std::uint8_t call[QGPU_CAP_CALL_BYTES] = {};
  const std::uint32_t memory = 0x40, told = 8;
  const std::uint64_t parameters = 0x1000;
  std::memcpy(call + 12, &memory, 4);
  std::memcpy(call + 16, &parameters, 8);
  std::memcpy(call + 24, &told, 4);
  qgpu_cap_call ours;
  qgpu_cap_decode(&forms, 0x2b, 32, call, &ours);
  EXPECT_EQ(ours.verb, QGPU_CAP_ALLOC);
  EXPECT_TRUE(ours.has_memory);
  EXPECT_TRUE(qgpu_cap_unnamed(&ours)) << "and its name is left to the driver";
}

TEST(CapCall, ThatHoldsOthersMemoryIsClosed) {
  const qgpu_cap_forms forms = formsOf(rm::Layout::kFrom535);
  for (const std::uint32_t of : {0xe0u, 0xe1u, 0xf8u, 0xfdu}) {
    alignas(8) std::uint8_t call[QGPU_CAP_CALL_BYTES] = {};
    std::memcpy(call + 12, &of, 4);
    qgpu_cap_call ours;
    qgpu_cap_decode(&forms, 0x2b, 48, call, &ours);
    EXPECT_EQ(ours.verb, QGPU_CAP_CLOSED) << of;
  }
}

TEST(CapSizes, AreWhatTheCardGives) {
  for (const std::uint64_t bytes : {0ull, 1ull, 65'536ull, 65'537ull, 1ull << 40, ~0ull}) {
    EXPECT_EQ(qgpu_cap_given(bytes), rm::bytesGiven(bytes));
  }
}

}  // namespace
}  // namespace qgpu::testing
