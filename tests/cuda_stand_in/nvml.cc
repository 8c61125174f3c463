// libnvidia-ml.so.1 without a card. What cards there are is read anew at every question from the
// file that QGPU_STAND_IN_CARDS names, one line a card, so that a test makes a card ill or takes it
// away under a running program:
//   uuid|name|bytes|used|mig (0 or 1)|lost (0 or 1)|uncorrected ECC errors|last Xid
// Their processes are in the file that QGPU_STAND_IN_PROCESSES names, one line each, pid|bytes, and
// in each list; a line "!full" has every room too small for a list that is told to be empty. An
// entry of the lists _v3 has QGPU_STAND_IN_ENTRY bytes (24).
// Lines of the cards' file that make it unkind:
//   !init|N   nvmlInit answers N
//   !count|N  nvmlDeviceGetCount answers N, and so does the search for a card by its UUID
//   !hang|1   questions about cards are never answered
//   !die|1    they end the process
//   !limits|N setting a cgroup's limits answers N
// QGPU_STAND_IN_LIMITS names a file for the limits of memory that drivers have from 615 on, one
// line each, cgroup|uuid|soft|hard; no such file: a driver before that. Nothing here keeps to them.
// A line "!reserved|BYTES" says what the driver keeps of each card for itself; "!reserved|?" is a
// driver that does not tell.
// A line "!links|0>1 1>0 2>s" says which NVLinks are up, by the cards' places: of each card to
// another one or to the switch s. Card N is plugged in at 0000:(30 + N in hex):00.0.
// Errors of "?" are a question about them that fails. A card that was lost or not there once stays
// so until the library is initialised anew.
// With QGPU_DRIVER_ROOT what the kernel's stand-in (tests/rm_stand_in) has given away is used as
// well. QGPU_STAND_IN_DRIVER is the driver's version (580.142). Without the file: as many healthy
// cards as QGPU_STAND_IN_DEVICES says. An empty file is a machine whose driver is not loaded.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "tests/cuda_stand_in/nvidia_cuda.h"
#include "tests/rm_stand_in/rm_state.h"

namespace {

constexpr int kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3,
              kNotFound = 6, kInsufficientSize = 7, kDriverNotLoaded = 9, kTimeout = 10,
              kFunctionNotFound = 13, kGpuIsLost = 15, kVersionMismatch = 18,
              kArgumentVersionMismatch = 25, kUnknown = 999;
constexpr unsigned long long kXidEvent = 8;
constexpr std::size_t kCardsMax = 64;

struct Card {
  std::string uuid, name;
  unsigned long long bytes = 0, used = 0, mig = 0, lost = 0, ecc = 0, xid = 0;
  bool eccFails = false;
};

std::mutex lock;
int initialised = 0;
// A handle is a place in this array, by UUID: it stays what it is when other cards go.
std::string known[kCardsMax];
std::map<std::string, unsigned long long> toldXid;
std::set<std::string> gone;  // since the library was initialised

Card parse(const std::string& line) {
  Card card;
  std::istringstream fields(line);
  std::string text;
  std::getline(fields, card.uuid, '|');
  std::getline(fields, card.name, '|');
  for (unsigned long long* number :
       {&card.bytes, &card.used, &card.mig, &card.lost, &card.ecc, &card.xid}) {
    if (!std::getline(fields, text, '|')) break;
    *number = std::strtoull(text.c_str(), nullptr, 10);
    if (number == &card.ecc) card.eccFails = text == "?";
  }
  return card;
}

// What the line "!name|value" says; empty: there is none.
std::string unkind(const std::string& name) {
  const char* path = std::getenv("QGPU_STAND_IN_CARDS");
  std::ifstream in(path ? path : "");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("!" + name + "|")) return line.substr(name.size() + 2);
  }
  return "";
}

std::vector<Card> cards() {
  std::vector<Card> all;
  if (const char* path = std::getenv("QGPU_STAND_IN_CARDS")) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with('!')) all.push_back(parse(line));
    }
    return all;
  }
  const char* count = std::getenv("QGPU_STAND_IN_DEVICES");
  for (int i = 0; i < (count ? std::atoi(count) : 1); ++i) {
    char uuid[64];
    std::snprintf(uuid, sizeof uuid, "GPU-00000000-0000-0000-0000-%012d", i);
    all.push_back({uuid, "Stand-in GPU", 16ull << 30, 0, 0, 0, 0, 0});
  }
  return all;
}

using Device = qgpu::nvidia::cuda::NvmlDevice;

// With the lock held.
Device handleOf(const std::string& uuid) {
  for (std::string& place : known) {
    if (place.empty()) place = uuid;
    if (place == uuid) return reinterpret_cast<Device>(&place);
  }
  return nullptr;
}

// With the lock held.
int look(const std::string& uuid, Card& out) {
  while (!unkind("hang").empty()) ::pause();
  if (!unkind("die").empty()) ::_exit(1);
  for (const Card& card : cards()) {
    if (card.uuid != uuid) continue;
    if (card.lost) gone.insert(uuid);
    out = card;
    return gone.contains(uuid) ? kGpuIsLost : kSuccess;
  }
  gone.insert(uuid);
  return kGpuIsLost;
}

// The card behind a handle, as the machine has it now.
int look(Device device, Card& out) {
  std::lock_guard held(lock);
  if (!initialised) return kUninitialized;
  const auto* place = reinterpret_cast<const std::string*>(device);
  if (place < known || place >= known + kCardsMax || place->empty()) return kInvalidArgument;
  return look(*place, out);
}

std::size_t placeOf(Device device) {
  return static_cast<std::size_t>(reinterpret_cast<const std::string*>(device) - known);
}

// Where the links of the card at this place lead.
std::vector<std::string> linksOf(std::size_t place) {
  std::vector<std::string> ends;
  std::istringstream links(unkind("links"));
  for (std::string link; links >> link;) {
    const std::size_t to = link.find('>');
    if (link.substr(0, to) == std::to_string(place)) ends.push_back(link.substr(to + 1));
  }
  return ends;
}

void pciAt(unsigned number, qgpu::nvidia::cuda::NvmlPci& out) {
  out = {};
  out.bus = 0x30 + number;
  std::snprintf(out.shortId, sizeof out.shortId, "0000:%02X:00.0", out.bus);
  std::snprintf(out.id, sizeof out.id, "00000000:%02X:00.0", out.bus);
}

std::uint64_t usedOf(const Card& card) {
  const auto* kernel = qgpu::rm_stand_in::state();
  return std::min(card.bytes, card.used + (kernel ? qgpu::rm_stand_in::goneBytes(*kernel) : 0));
}

int give(const std::string& text, char* out, unsigned room) {
  if (text.size() >= room) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

struct Processes {
  std::vector<std::pair<unsigned, unsigned long long>> all;
  bool full = false;
};
Processes processes() {
  const char* path = std::getenv("QGPU_STAND_IN_PROCESSES");
  std::ifstream in(path ? path : "");
  Processes told;
  for (std::string line; std::getline(in, line);) {
    if (line == "!full") {
      told.full = true;
      continue;
    }
    char* end = nullptr;
    const auto pid = static_cast<unsigned>(std::strtoul(line.c_str(), &end, 10));
    told.all.emplace_back(pid, std::strtoull(end + 1, nullptr, 10));
  }
  return told;
}

// One list of them, with entries of a length, which begin with the process and the other number in
// either order.
int listProcesses(Device device, std::size_t entry, unsigned* count, void* out,
                  std::size_t pidAt = 0) {
  Card card;
  if (const int rc = look(device, card); rc != kSuccess) return rc;
  const auto [all, full] = processes();
  const bool fits = !full && all.size() <= *count && (out || all.empty());
  *count = static_cast<unsigned>(all.size());
  if (!fits) return kInsufficientSize;
  auto* at = static_cast<char*>(out);
  for (const auto& [pid, bytes] : all) {
    std::memset(at, 0xff, entry);  // no partition of a card, and nothing else that is told
    std::memcpy(at + pidAt, &pid, sizeof pid);
    std::memcpy(at + 8 - pidAt, &bytes, sizeof bytes);
    at += entry;
  }
  return kSuccess;
}
std::size_t lengthOfThird() {
  const char* text = std::getenv("QGPU_STAND_IN_ENTRY");
  return text ? std::strtoul(text, nullptr, 10) : 24;
}

// nvmlSetMemoryLimits_v1_t, and nvmlGetMemoryLimits_v1_t, which has one more.
struct SetLimits {
  const char* nameSpace;
  unsigned long long soft, hard;
};
struct GetLimits {
  const char* nameSpace;
  unsigned long long soft, hard, used;
};
static_assert(sizeof(SetLimits) == 24 && sizeof(GetLimits) == 32);
constexpr unsigned long long kNoLimit = 0xffff'ffff'ffff'ffff;

// By cgroup and card, as they lie in the file, the soft one and the hard one.
using Limits = std::map<std::string, std::pair<unsigned long long, unsigned long long>>;
Limits limitsIn(const char* file) {
  Limits limits;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t hard = line.rfind('|'), soft = line.rfind('|', hard - 1);
    limits[line.substr(0, soft)] = {std::strtoull(&line[soft + 1], nullptr, 10),
                                    std::strtoull(&line[hard + 1], nullptr, 10)};
  }
  return limits;
}
void keepLimits(const char* file, const Limits& limits) {
  const std::string next = std::string(file) + ".next";  // whoever reads has all of it or none
  std::ofstream out(next);
  for (const auto& [whose, both] : limits) {
    out << whose << '|' << both.first << '|' << both.second << '\n';
  }
  out.close();
  std::rename(next.c_str(), file);
}

using EventSet = std::vector<std::string>;  // UUIDs

struct EventData {
  Device device;
  unsigned long long type, data;
  unsigned gpuInstance, computeInstance;
};

}  // namespace

#define QGPU_NVML extern "C" __attribute__((visibility("default"))) int

QGPU_NVML nvmlInit_v2() {
  std::lock_guard held(lock);
  if (const std::string code = unkind("init"); !code.empty()) return std::atoi(code.c_str());
  if (cards().empty()) return kDriverNotLoaded;
  if (initialised == 0) gone.clear();
  ++initialised;
  return kSuccess;
}
QGPU_NVML nvmlInit() {
  return nvmlInit_v2();
}
QGPU_NVML nvmlInitWithFlags(unsigned) {
  return nvmlInit_v2();
}
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int code) {
  switch (code) {
    case kGpuIsLost:
      return "GPU is lost";
    case kVersionMismatch:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}
QGPU_NVML nvmlShutdown() {
  std::lock_guard held(lock);
  if (initialised == 0) return kUninitialized;
  --initialised;
  return kSuccess;
}
QGPU_NVML nvmlSystemGetDriverVersion(char* out, unsigned room) {
  const char* version = std::getenv("QGPU_STAND_IN_DRIVER");
  return give(version ? version : "580.142", out, room);
}
QGPU_NVML nvmlDeviceGetCount_v2(unsigned* out) {
  std::lock_guard held(lock);
  if (!initialised) return kUninitialized;
  if (const std::string code = unkind("count"); !code.empty()) return std::atoi(code.c_str());
  *out = static_cast<unsigned>(cards().size());
  return kSuccess;
}
QGPU_NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* out) {
  std::lock_guard held(lock);
  if (!initialised) return kUninitialized;
  const auto all = cards();
  if (index >= all.size()) return kInvalidArgument;
  *out = handleOf(all[index].uuid);
  return all[index].lost ? kGpuIsLost : kSuccess;
}
QGPU_NVML nvmlDeviceGetHandleByUUID(const char* uuid, Device* out) {
  std::lock_guard held(lock);
  if (!initialised) return kUninitialized;
  if (const std::string code = unkind("count"); !code.empty()) return std::atoi(code.c_str());
  const auto all = cards();
  const auto isLost = [](const Card& each) { return each.lost != 0; };
  if (std::any_of(all.begin(), all.end(), isLost)) return kGpuIsLost;  // whichever is asked for
  Card card;
  const int rc = look(std::string(uuid), card);
  *out = handleOf(uuid);
  return card.uuid.empty() ? kNotFound : rc;
}
QGPU_NVML nvmlDeviceGetUUID(Device device, char* out, unsigned room) {
  Card card;
  const int rc = look(device, card);
  return rc == kSuccess ? give(card.uuid, out, room) : rc;
}
QGPU_NVML nvmlDeviceGetName(Device device, char* out, unsigned room) {
  Card card;
  const int rc = look(device, card);
  return rc == kSuccess ? give(card.name, out, room) : rc;
}
QGPU_NVML nvmlDeviceGetPciInfo_v3(Device device, qgpu::nvidia::cuda::NvmlPci* out) {
  Card card;
  const int rc = look(device, card);
  if (rc == kSuccess) pciAt(static_cast<unsigned>(placeOf(device)), *out);
  return rc;
}
QGPU_NVML nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned* up) {
  Card card;
  const int rc = look(device, card);
  if (rc != kSuccess) return rc;
  const auto ends = linksOf(placeOf(device));
  if (ends.empty()) return kNotSupported;
  if (link >= 18) return kInvalidArgument;
  *up = link < ends.size() ? 1 : 0;
  return kSuccess;
}
QGPU_NVML nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link,
                                              qgpu::nvidia::cuda::NvmlPci* out) {
  Card card;
  const int rc = look(device, card);
  if (rc != kSuccess) return rc;
  const auto ends = linksOf(placeOf(device));
  if (link >= ends.size()) return kNotSupported;
  pciAt(ends[link] == "s" ? 0x80 : static_cast<unsigned>(std::atoi(ends[link].c_str())), *out);
  return kSuccess;
}
// Reads and writes between two cards always work; by NVLink they do where a link is up.
QGPU_NVML nvmlDeviceGetP2PStatus(Device from, Device to, int asked, int* status) {
  constexpr int kByLink = 2, kOk = 0, kNotThisChipset = 1;
  Card card;
  for (Device each : {from, to}) {
    if (const int rc = look(each, card); rc != kSuccess) return rc;
  }
  const auto ends = linksOf(placeOf(from));
  const bool linked =
      std::find(ends.begin(), ends.end(), std::to_string(placeOf(to))) != ends.end();
  *status = asked != kByLink || linked ? kOk : kNotThisChipset;
  return kSuccess;
}
QGPU_NVML nvmlDeviceGetMinorNumber(Device device, unsigned* out) {
  Card card;
  const int rc = look(device, card);
  const auto* place = reinterpret_cast<const std::string*>(device);
  if (rc == kSuccess) *out = static_cast<unsigned>(place - known);
  return rc;
}
std::uint64_t reserved() {
  return std::strtoull(unkind("reserved").c_str(), nullptr, 10);
}
QGPU_NVML nvmlDeviceGetMemoryInfo(Device device, qgpu::nvidia::cuda::NvmlMemory* out) {
  Card card;
  const int rc = look(device, card);
  if (rc != kSuccess) return rc;
  const std::uint64_t used = usedOf(card);
  const std::uint64_t kept = reserved();
  *out = {card.bytes, card.bytes - kept - used, kept + used};
  return rc;
}
QGPU_NVML nvmlDeviceGetMemoryInfo_v2(Device device, qgpu::nvidia::cuda::NvmlMemory2* out) {
  Card card;
  const int rc = look(device, card);
  if (rc != kSuccess) return rc;
  const std::uint64_t used = usedOf(card);
  if (unkind("reserved") == "?") return kNotSupported;
  constexpr unsigned kSecond = 40 | 2u << 24;  // bytes of the structure, and its version
  if (out->version != kSecond) return kArgumentVersionMismatch;
  const std::uint64_t kept = reserved();
  *out = {out->version, card.bytes, kept, card.bytes - kept - used, used};
  return rc;
}
QGPU_NVML nvmlDeviceSetMemoryLimits_v1(Device device, const SetLimits* set) {
  const char* file = std::getenv("QGPU_STAND_IN_LIMITS");
  if (!file) return kFunctionNotFound;
  Card card;
  if (const int rc = look(device, card); rc != kSuccess) return rc;
  if (card.mig) return kNotSupported;
  if (const std::string code = unkind("limits"); !code.empty()) return std::atoi(code.c_str());
  if (::access(set->nameSpace, F_OK) != 0) return kNotFound;
  if (set->soft > set->hard) return kInvalidArgument;
  std::lock_guard held(lock);
  Limits limits = limitsIn(file);
  const std::string whose = std::string(set->nameSpace) + "|" + card.uuid;
  limits[whose] = {set->soft, set->hard};
  if (set->soft == 0 && set->hard == kNoLimit) limits.erase(whose);
  keepLimits(file, limits);
  return kSuccess;
}
QGPU_NVML nvmlDeviceGetMemoryLimits_v1(Device device, GetLimits* get) {
  const char* file = std::getenv("QGPU_STAND_IN_LIMITS");
  if (!file) return kFunctionNotFound;
  Card card;
  if (const int rc = look(device, card); rc != kSuccess) return rc;
  if (card.mig) return kNotSupported;
  std::lock_guard held(lock);
  const Limits limits = limitsIn(file);
  const auto found = limits.find(std::string(get->nameSpace) + "|" + card.uuid);
  const bool none = found == limits.end();
  get->soft = none ? 0 : found->second.first;
  get->hard = none ? kNoLimit : found->second.second;
  get->used = card.used;
  return kSuccess;
}
#define QGPU_PROCESSES(name, entry)                           \
  QGPU_NVML name(Device device, unsigned* count, void* out) { \
    return listProcesses(device, entry, count, out);          \
  }
QGPU_PROCESSES(nvmlDeviceGetComputeRunningProcesses, 16)
QGPU_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 24)
QGPU_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, lengthOfThird())
QGPU_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, 16)
QGPU_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, 24)
QGPU_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, lengthOfThird())
QGPU_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, 16)
QGPU_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, 24)
QGPU_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, lengthOfThird())
QGPU_NVML nvmlDeviceGetRunningProcessDetailList(Device device,
                                                qgpu::nvidia::cuda::NvmlProcesses* list) {
  return listProcesses(device, 32, &list->count, list->entries);
}
QGPU_NVML nvmlDeviceGetProcessUtilization(Device device, void* out, unsigned* count,
                                          unsigned long long) {
  return listProcesses(device, 32, count, out);
}
QGPU_NVML nvmlDeviceGetProcessesUtilizationInfo(Device device,
                                                qgpu::nvidia::cuda::NvmlUtilization* list) {
  return listProcesses(device, 40, &list->count, list->entries, 8);
}
QGPU_NVML nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  Card card;
  const int rc = look(device, card);
  if (rc != kSuccess) return rc;
  *current = *pending = static_cast<unsigned>(card.mig);
  return kSuccess;
}
QGPU_NVML nvmlDeviceGetTotalEccErrors(Device device, int kind, int, unsigned long long* out) {
  constexpr int kUncorrected = 1;
  Card card;
  int rc = look(device, card);
  if (rc == kSuccess && card.eccFails) rc = kUnknown;
  if (rc == kSuccess) *out = kind == kUncorrected ? card.ecc : 0;
  return rc;
}
QGPU_NVML nvmlEventSetCreate(void** out) {
  *out = new EventSet;
  return kSuccess;
}
QGPU_NVML nvmlEventSetFree(void* set) {
  delete static_cast<EventSet*>(set);
  return kSuccess;
}
QGPU_NVML nvmlDeviceRegisterEvents(Device device, unsigned long long types, void* set) {
  Card card;
  const int rc = look(device, card);
  if (rc != kSuccess) return rc;
  if (!(types & kXidEvent)) return kNotSupported;
  std::lock_guard held(lock);
  static_cast<EventSet*>(set)->push_back(card.uuid);
  return kSuccess;
}
// Tells each card's Xid once; never waits. A lost card of the set is told of before anything that
// the others have to say.
QGPU_NVML nvmlEventSetWait_v2(void* set, EventData* out, unsigned) {
  std::lock_guard held(lock);
  std::vector<Card> all = cards();
  const auto& members = *static_cast<EventSet*>(set);
  std::erase_if(all, [&](const Card& card) {
    return std::find(members.begin(), members.end(), card.uuid) == members.end();
  });
  std::stable_partition(all.begin(), all.end(), [](const Card& card) { return card.lost; });
  for (const Card& card : all) {
    if (card.xid != 0 && toldXid[card.uuid] != card.xid) {
      toldXid[card.uuid] = card.xid;
      *out = {handleOf(card.uuid), kXidEvent, card.xid, ~0u, ~0u};
      return kSuccess;
    }
    if (card.lost) return kGpuIsLost;
  }
  return kTimeout;
}
