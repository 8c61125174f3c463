#include "services/cards/cards.h"

#include <algorithm>
#include <capnp/message.h>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "services/cards/opencl/probe.h"

namespace qgpu {
namespace {

Result<CardsFound> find(const char* backend, SuspendChoice suspend = SuspendChoice::Auto) {
  CardsOptions options;
  options.backend = backend;
  options.sim = {8, gibibytes(32)};
  options.suspend = suspend;
  return findCards(options);
}

bool mapsLlvm() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find("libpocl") != line.npos || line.find("LLVM") != line.npos) return true;
  }
  return false;
}

// Sets a variable for one test.
class Env {
 public:
  Env(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Env() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Cards, SimMakesAsManyImaginaryCardsAsAsked) {
  const auto found = find("sim");
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->cards.size(), 8u);
  EXPECT_EQ(found->cards[3].id, "sim-3");
  EXPECT_EQ(found->cards[3].index, 3u);
  EXPECT_EQ(found->cards[3].mem, gibibytes(32));
  EXPECT_EQ(found->cards[3].suspend, schema::Suspend::GATE);
}

TEST(Cards, NvidiaIsRefusedClearlyWhereThereIsNone) {
  if (::access("/proc/driver/nvidia", F_OK) == 0) GTEST_SKIP() << "this machine has some";
  const auto found = find("nvidia");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::NotFound);
  EXPECT_NE(found.error().message.find("nvidia-smi -L"), std::string::npos);
}

TEST(Cards, AnIdIsAPlainWordWhateverThePlatformIsCalled) {
  EXPECT_EQ(openclCardId("Portable Computing Language", 1), "opencl-portable-computing-language-1");
  EXPECT_EQ(openclCardId("  NVIDIA(R) CUDA\xc3\xa9 ", 0), "opencl-nvidia-r-cuda-0");
  EXPECT_EQ(openclCardId("***", 2), "opencl-unnamed-2");
}

// Of "MemTotal:       24683520 kB".
Bytes halfOfTheMachine() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kib = 0;
  file >> name >> kib;
  return gibibytes((kib + (1 << 20) - 1) / (1 << 20) / 2);
}

TEST(OpenclProbe, ACpuHasHalfOfItsMachineInWholeGib) {
  EXPECT_EQ(cpuCardBytes(mebibytes(24'105)), gibibytes(12));
  EXPECT_EQ(cpuCardBytes(mebibytes(15'900)), gibibytes(8));
  EXPECT_EQ(cpuCardBytes(mebibytes(7'900)), gibibytes(4));
  EXPECT_EQ(cpuCardBytes(mebibytes(1'900)), gibibytes(1));
  EXPECT_EQ(cpuCardBytes(mebibytes(512)), mebibytes(256));
}

TEST(Cards, PoclIsACardThatFreezesAndItsDriverStaysOutOfThisProcess) {
  const auto found = find("opencl");
  ASSERT_TRUE(found.ok()) << found.error().message;
  const Card& card = found->cards.front();
  EXPECT_EQ(card.backend, "opencl");
  EXPECT_EQ(card.mem, halfOfTheMachine()) << "whatever is free now";
  if (card.platform == "Portable Computing Language" && card.model.starts_with("pthread")) {
    EXPECT_EQ(card.id, "opencl-portable-computing-language-0");
    EXPECT_EQ(card.suspend, schema::Suspend::FREEZE);
    const auto gated = find("opencl", SuspendChoice::Gate);
    EXPECT_EQ(gated->cards.front().suspend, schema::Suspend::GATE);
  }
  EXPECT_FALSE(mapsLlvm());
}

TEST(Cards, TwoPoclDevicesAreTwoCardsAndTenantsMustSeeTheSame) {
  Env env("POCL_DEVICES", "pthread pthread");
  const auto found = find("opencl");
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_GE(found->cards.size(), 2u);
  EXPECT_EQ(found->cards[1].id, "opencl-portable-computing-language-1");
  EXPECT_EQ(found->cards[1].device, 1u);
  const std::pair<std::string, std::string> expected("POCL_DEVICES", "pthread pthread");
  EXPECT_EQ(std::count(found->tenantEnv.begin(), found->tenantEnv.end(), expected), 1);
}

TEST(Cards, NoDriverIsAClearError) {
  Env env("OCL_ICD_VENDORS", "/nonexistent/");
  const auto found = find("opencl");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::NotFound);
  EXPECT_NE(found.error().message.find("pocl-opencl-icd"), std::string::npos);
}

TEST(Cards, ADriverThatNeverAnswersIsGivenUp) {
  CardsOptions options;
  options.backend = "opencl";
  options.probeTimeout = Nanos(0);
  EXPECT_EQ(findCards(options).error().code, ErrorCode::Unavailable);
}

}  // namespace
}  // namespace qgpu
