#pragma once
// Where a card is plugged in, as the kernel tells it under /sys: for tasks of several cards, which
// are to be near each other, and for claims that want a card near another device, by attributes
// that drivers of all kinds give the same name. Pure but for the folder that it reads.

#include <cstdint>
#include <optional>
#include <string>

namespace qgpu {

struct PciPlace {
  std::string bus;                        // "0000:3b:00.0"; empty: not known, nor is the rest
  std::string root;                       // its root complex, "pci0000:3a"; empty: not told
  std::optional<std::uint32_t> numaNode;  // nothing: the machine has one memory, or does not tell
  bool operator==(const PciPlace&) const = default;
};

// Of the device at `bus`; `pciDevices`: where the kernel lists them, /sys/bus/pci/devices.
std::optional<std::uint32_t> numaNodeOf(const std::string& pciDevices, const std::string& bus);

// Of the device at `bus`; `sys` is where the kernel's /sys lies. What is no such address gives
// nothing.
PciPlace pciPlaceOf(const std::string& sys, const std::string& bus);

}  // namespace qgpu
