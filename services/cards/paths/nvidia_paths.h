#pragma once
// The device nodes through which a container's driver reaches NVIDIA's cards: those of the cards
// given, by the minor number that the driver tells for each UUID, and those that all cards share.
// Cards that are not ours to share, as ones that are split into instances, stay out of containers.

#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// A card as the driver's own files describe it.
struct NvidiaCardFile {
  std::string uuid;
  std::string minor;   // empty: not told
  std::string pciBus;  // "0000:3b:00.0"
};
// Of all cards; empty where there is no driver. `hostRoot` as below.
std::vector<NvidiaCardFile> nvidiaCardFiles(const std::string& hostRoot);

// Paths "/dev/...", sorted. `hostRoot` (may be empty) is where the host's root lies for us; `dev`
// and `proc/driver/nvidia` below it are read. NotFound: the driver tells no minor of one of the
// cards.
Result<std::vector<std::string>> nvidiaNodes(const std::string& hostRoot,
                                             const std::vector<std::string>& uuids);
// The same of all cards that are there.
std::vector<std::string> allNvidiaNodes(const std::string& hostRoot);

}  // namespace qgpu
