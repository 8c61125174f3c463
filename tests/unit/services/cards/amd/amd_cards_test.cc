// AMD's cards as the kernel tells of them: a folder of files as its compute driver has them.

#include <gtest/gtest.h>
#include <string>

#include "services/cards/amd/topology.h"
#include "services/cards/cards.h"
#include "tests/testing/temp_folder.h"

namespace qgpu {
namespace {

using testing::TempFolder;

// A machine's topology.
class Kfd {
 public:
  std::string path() const { return folder_.path(); }

  void cpu(int node) const {
    folder_.write(std::to_string(node) + "/gpu_id", "0\n");
    folder_.write(std::to_string(node) + "/properties", "cpu_cores_count 64\nsimd_count 0\n");
    bank(node, 0, 0, 270'000'000'000);
  }
  void card(int node, const std::string& properties) const {
    folder_.write(std::to_string(node) + "/gpu_id", "51114\n");
    folder_.write(std::to_string(node) + "/properties",
                  "cpu_cores_count 0\nsimd_count 440\n" + properties + "\nnum_xcc 1\n");
  }
  void bank(int node, int number, int heap, unsigned long long bytes) const {
    folder_.write(std::to_string(node) + "/mem_banks/" + std::to_string(number) + "/properties",
                  "heap_type " + std::to_string(heap) + "\nsize_in_bytes " + std::to_string(bytes) +
                      "\nflags 0\nwidth 4096\nmem_clk_max 1600\n");
  }

 private:
  const TempFolder folder_{"kfd"};
};

// Two cards of 64 GiB beside two CPUs, as a node of MI250 has them.
void fillNode(const Kfd& kfd) {
  kfd.cpu(0);
  kfd.cpu(1);
  kfd.card(2,
           "gfx_target_version 90010\nvendor_id 4098\nlocation_id 33536\ndomain 0\n"
           "drm_render_minor 128\nunique_id 1311768467463790320");
  kfd.bank(2, 0, 1, 68'702'699'520);
  kfd.card(10,
           "gfx_target_version 90010\nvendor_id 4098\nlocation_id 34048\ndomain 1\n"
           "drm_render_minor 129\nunique_id 18446744073709551615");
  kfd.bank(10, 0, 2, 60'000'000'000);
  kfd.bank(10, 1, 1, 8'702'699'520);
  kfd.bank(10, 2, 4, 65'536);  // what each multiprocessor has by itself
}

Result<CardsFound> findAmd(const Kfd& kfd) {
  CardsOptions options;
  options.backend = "amd";
  options.kfdNodes = kfd.path();
  return findCards(options);
}

TEST(AmdCards, AreFoundInTheOrderOfTheKernelsNodes) {
  const Kfd kfd;
  fillNode(kfd);
  const auto devices = amdDevices(kfd.path());
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].uuid, "GPU-123456789abcdef0");
  EXPECT_EQ(devices[0].name, "gfx90a");
  EXPECT_EQ(devices[0].mem, Bytes(68'702'699'520));
  EXPECT_EQ(devices[0].bus, "0000:83:00.0");
  EXPECT_EQ(devices[1].uuid, "GPU-ffffffffffffffff");
  EXPECT_EQ(devices[1].mem, Bytes(68'702'699'520)) << "what the CPU sees of it, and what not";
  EXPECT_EQ(devices[1].bus, "0001:85:00.0");
  EXPECT_EQ(devices[1].index, 1u) << "the tenth node comes after the second";
}

TEST(AmdCards, ANameIsWhatCompilersCallIt) {
  EXPECT_EQ(gfxName(90'010), "gfx90a");
  EXPECT_EQ(gfxName(90'402), "gfx942");
  EXPECT_EQ(gfxName(100'300), "gfx1030");
  EXPECT_EQ(gfxName(110'001), "gfx1101");
  EXPECT_EQ(gfxName(90'006), "gfx906");
}

TEST(AmdCards, ACardIsHeldByItsGateAndSaysWhy) {
  const Kfd kfd;
  fillNode(kfd);
  const auto found = findAmd(kfd);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->cards.size(), 2u);
  const Card& card = found->cards[1];
  EXPECT_EQ(card.id, "GPU-ffffffffffffffff");
  EXPECT_EQ(card.index, 1u);
  EXPECT_EQ(card.model, "gfx90a");
  EXPECT_EQ(card.backend, "amd");
  EXPECT_EQ(card.platform, "AMD Accelerated Parallel Processing");
  EXPECT_EQ(card.suspend, schema::Suspend::GATE);
  EXPECT_NE(card.suspendWhy, "");
  EXPECT_FALSE(found->health.has_value());
}

TEST(AmdCards, OneWithoutAnIdOrMemoryOfItsOwnIsLeftAloneAndTold) {
  const Kfd kfd;
  fillNode(kfd);
  kfd.card(11, "gfx_target_version 80003\nlocation_id 256\ndomain 0");
  kfd.bank(11, 0, 1, 8'589'934'592);
  kfd.card(12, "gfx_target_version 90012\nlocation_id 1024\ndomain 0\nunique_id 7");
  const auto found = findAmd(kfd);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->cards.size(), 2u);
  ASSERT_EQ(found->leftAlone.size(), 2u);
  EXPECT_NE(found->leftAlone[0].find("0000:01:00.0 (gfx803) has no unique id"), std::string::npos)
      << found->leftAlone[0];
  EXPECT_NE(found->leftAlone[1].find("has no memory"), std::string::npos);
}

TEST(AmdCards, AreRefusedClearlyWhereThereIsNone) {
  const Kfd kfd;
  EXPECT_EQ(findAmd(kfd).error().code, ErrorCode::NotFound);
  kfd.cpu(0);
  const auto found = findAmd(kfd);
  EXPECT_EQ(found.error().code, ErrorCode::NotFound);
  EXPECT_NE(found.error().message.find("/dev/kfd"), std::string::npos);
  kfd.card(1, "gfx_target_version 80003");
  EXPECT_EQ(findAmd(kfd).error().code, ErrorCode::Unavailable);
}

// What the kernel would never write gives no card, and harms nobody.
TEST(AmdCards, FilesOfAnotherKindGiveNothing) {
  const Kfd kfd;
  fillNode(kfd);
  const TempFolder junk("junk");
  EXPECT_TRUE(amdDevices(junk.path()).empty());
  EXPECT_TRUE(amdDevices(junk.path() + "/nowhere").empty());
  junk.write("0/gpu_id", "many\n");
  junk.write("1/gpu_id", "7\n");
  junk.write("1/properties", "unique_id -1\ndomain 99999999999999999999\n");
  junk.write("x/gpu_id", "7\n");
  const auto devices = amdDevices(junk.path());
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].mem, Bytes(0));
}

}  // namespace
}  // namespace qgpu
