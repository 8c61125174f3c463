#pragma once
// The NVIDIA cards of a machine as the stand-in of NVML (tests/cuda_stand_in/nvml.cc) has them, so
// that a test makes them ill or takes them away under whoever watches them. Nothing of it stays.

#include <cstdio>
#include <fstream>
#include <stdlib.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "tests/testing/temp_folder.h"

namespace qgpu {

// The cards of the machine, in the file that the stand-in reads at every question.
class Machine {
 public:
  Machine() {
    ::setenv("QGPU_STAND_IN_CARDS", file().c_str(), 1);
    write({});
  }
  ~Machine() { ::unsetenv("QGPU_STAND_IN_CARDS"); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Whole or not at all: a watching child reads whenever it likes.
  void write(const std::vector<std::string>& cards) {
    const std::string next = file() + ".next";
    std::ofstream out(next);
    for (const std::string& card : cards) out << card << "\n";
    out.close();
    ::rename(next.c_str(), file().c_str());
  }
  std::string pciDevices() const { return folder_ / "pci"; }
  // Card N of the stand-in, and the memory that it is near.
  void plugInCard(int n, int numa) {
    char bus[16];
    std::snprintf(bus, sizeof bus, "0000:%02x:00.0", 0x30 + n);
    std::filesystem::create_directories(pciDevices() + "/" + bus);
    std::ofstream(pciDevices() + "/" + bus + "/numa_node") << numa << "\n";
  }
  void plugIn(const std::string& vendor, const std::string& deviceClass) {
    const std::string device = pciDevices() + "/0000:" + std::to_string(++plugged_) + ":00.0";
    std::filesystem::create_directories(device);
    std::ofstream(device + "/vendor") << vendor << "\n";
    std::ofstream(device + "/class") << deviceClass << "\n";
  }

 private:
  std::string file() const { return folder_ / "cards"; }
  const testing::TempFolder folder_{"nvml"};
  int plugged_ = 0;
};

inline const std::string kFirst = "GPU-5f1b1b0c-0000-4000-8000-000000000001";
inline const std::string kSecond = "GPU-5f1b1b0c-0000-4000-8000-000000000002";

// uuid|name|bytes|used|mig|lost|errors|xid
inline std::string t4(const std::string& uuid, const std::string& state = "0|0|0|0") {
  return uuid + "|Tesla T4|15843721216|0|" + state;  // 15,109 MiB
}

}  // namespace qgpu
