#include "tests/rm_stand_in/rm_state.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/rm_stand_in/nvidia_rm.h"

namespace qgpu::rm_stand_in {
namespace {

std::string root() {
  const char* given = std::getenv("QGPU_DRIVER_ROOT");
  return given ? given : "";
}

// What an older build left in the folder has another layout, and so another name.
std::string stateFile() {
  return root() + "/rm.state." + std::to_string(sizeof(State));
}

State* map() {
  if (root().empty()) return nullptr;
  const int fd = ::open(stateFile().c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat file {};
  const bool whole = ::fstat(fd, &file) == 0 && file.st_size == sizeof(State);
  void* at = MAP_FAILED;
  if (whole) at = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return at == MAP_FAILED ? nullptr : static_cast<State*>(at);
}

// The numbers of the driver's files that some process has open.
std::set<std::uint32_t> openFiles() {
  std::set<std::uint32_t> open;
  std::error_code gone;  // processes end meanwhile
  for (const auto& process : std::filesystem::directory_iterator("/proc", gone)) {
    for (const auto& each : std::filesystem::directory_iterator(process.path() / "fd", gone)) {
      const auto of = std::filesystem::read_symlink(each, gone);
      if (of != root() + "/dev/nvidiactl" && of != root() + "/dev/dmabuf") continue;
      // In another mount name space the same path may be another driver's.
      if (!std::filesystem::equivalent(each, of, gone)) continue;
      std::ifstream info(process.path() / "fdinfo" / each.path().filename());
      std::string word;
      std::uint32_t position = 0;
      if (info >> word >> position && position != 0) open.insert(position);
    }
  }
  return open;
}

const Object* find(const State& all, std::uint32_t client, std::uint32_t channel) {
  for (const Object& object : all.objects) {
    if (object.pid != 0 && object.client == client && object.handle == channel) return &object;
  }
  return nullptr;
}

// A living process's, or kept by a file of its client that somebody still has open.
bool lives(const State& all, const std::set<std::uint32_t>& open, const Object& object) {
  const Object* client = object.pid != 0 ? find(all, object.client, object.client) : nullptr;
  return client && open.count(client->file) != 0;
}

}  // namespace

void prepare() {
  if (root().empty()) return;
  ::mkdir((root() + "/dev").c_str(), 0755);
  for (const std::string& name :
       {root() + "/dev/nvidiactl", root() + "/dev/nvidia0", root() + "/dev/dmabuf", stateFile()}) {
    const int made = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (made < 0) continue;
    if (name == stateFile() && ::ftruncate(made, sizeof(State)) != 0) ::unlink(name.c_str());
    ::close(made);
  }
}

State* state() {
  static std::atomic<State*> only{nullptr};
  State* known = only.load();
  if (known) return known;
  State* const made = map();
  if (!made || only.compare_exchange_strong(known, made)) return made;
  ::munmap(made, sizeof(State));
  return known;
}

std::uint64_t heldBytes(const State& all) {
  const std::set<std::uint32_t> open = openFiles();
  std::map<std::uint64_t, std::uint64_t> held;
  const auto hold = [&](const Memory& memory) {
    constexpr std::uint64_t kGiven = 64 << 10;  // what the card gives at least, and tells nobody
    held[memory.number] = (memory.bytes + kGiven - 1) / kGiven * kGiven;
  };
  for (const Object& object : all.objects) {
    if (object.memory.number != 0 && lives(all, open, object)) hold(object.memory);
  }
  for (const Exported& each : all.exported) {
    if (open.count(each.file) != 0) hold(each.memory);
  }
  std::uint64_t sum = 0;
  for (const auto& one : held) sum += one.second;
  return sum;
}

std::uint64_t goneBytes(const State& all) {
  const std::set<std::uint32_t> open = openFiles();
  std::uint64_t sum = heldBytes(all);
  for (const Object& object : all.objects) {
    if (object.objectClass == nvidia::rm::kChannelGroup && lives(all, open, object))
      sum += kOwnBytes;
  }
  return sum;
}

bool knows(const State& all, std::uint32_t client, std::uint32_t channel) {
  return find(all, client, channel) != nullptr;
}

bool mayRun(const State& all, std::uint32_t client, std::uint32_t channel) {
  const Object* object = find(all, client, channel);
  return !object || object->stopped.load() == 0;
}

bool areOff(const State& all, std::int32_t pid) {
  bool any = false;
  for (const Object& object : all.objects) {
    if (object.pid != pid || !nvidia::rm::isChannel(object.objectClass)) continue;
    if (object.stopped.load() == 0) return false;
    any = true;
  }
  return any;
}

}  // namespace qgpu::rm_stand_in
