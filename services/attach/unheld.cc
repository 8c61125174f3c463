#include "services/attach/unheld.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <optional>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "runtime/fd.h"
#include "services/base/process.h"
#include "services/nvidia_abi/rm_abi.h"
#include "services/wire/places.h"

namespace qgpu {
namespace {

constexpr std::size_t kEnvironMax = 2 << 20;  // a quarter of the usual stack is the kernel's limit
constexpr std::size_t kMountsMax = 1 << 20;   // of text; a container has a few dozen lines
constexpr std::size_t kNameMax = 64;
constexpr int kNicest = 19;
constexpr std::string_view kTokenIs = "QGPU_TOKEN=";

std::string ofProcess(std::uint32_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

// As much of a file as there is, up to `most` bytes; empty where it can't be read.
std::string readUpTo(const std::string& path, std::size_t most) {
  std::string text;
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  char bytes[16'384];
  while (file && text.size() < most) {
    const ssize_t n = ::read(file.get(), bytes, std::min(sizeof bytes, most - text.size()));
    if (n <= 0) break;
    text.append(bytes, static_cast<std::size_t>(n));
  }
  return text;
}

// Names in a folder of numbers, in their order.
std::vector<std::uint32_t> numbersIn(const char* path) {
  std::vector<std::uint32_t> numbers;
  DIR* folder = ::opendir(path);
  if (folder == nullptr) return numbers;
  while (const dirent* entry = ::readdir(folder)) {
    const auto number = static_cast<std::uint32_t>(std::strtoul(entry->d_name, nullptr, 10));
    if (number != 0) numbers.push_back(number);
  }
  ::closedir(folder);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

const CardNode* nodeAt(int folder, const char* name, const std::vector<CardNode>& nodes) {
  struct statx facts {};
  // What a file system of the tenant's own would have to be asked for is not wanted.
  constexpr int kHow = AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT;
  if (::statx(folder, name, kHow, STATX_TYPE, &facts) != 0) return nullptr;
  if (!S_ISCHR(facts.stx_mode)) return nullptr;
  const dev_t device = makedev(facts.stx_rdev_major, facts.stx_rdev_minor);
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [device](const CardNode& node) { return node.device == device; });
  return found == nodes.end() ? nullptr : &*found;
}

// The first of `nodes` that the process has open; null: none, or it may not be looked at.
const CardNode* openNode(std::uint32_t pid, const std::vector<CardNode>& nodes, std::size_t& left) {
  DIR* folder = ::opendir(ofProcess(pid, "fd").c_str());
  if (folder == nullptr) return nullptr;
  const CardNode* found = nullptr;
  for (std::size_t looks = 0; looks < kProcessFdsMax && left > 0 && found == nullptr; looks++) {
    const dirent* entry = ::readdir(folder);
    if (entry == nullptr) break;
    if (entry->d_name[0] == '.') continue;
    left--;
    found = nodeAt(::dirfd(folder), entry->d_name, nodes);
  }
  ::closedir(folder);
  return found;
}

// `text` up to `end`, and `text` goes on behind it.
std::string_view cut(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

// The key of the placeholder that a line of mountinfo mounts for a container; empty: of none.
// "ID PARENT DEVICE FOLDER-IN-ITS-FILE-SYSTEM MOUNT-POINT ..."
std::string_view placeholderIn(std::string_view line) {
  for (int i = 0; i < 3; i++) cut(line, ' ');
  std::string_view source = cut(line, ' ');
  const std::string_view at = cut(line, ' ');
  const std::string_view ours = kTenantTask;
  if (!at.starts_with(ours) || at.substr(ours.size(), 1) != "/") return {};
  const std::size_t slash = source.rfind('/');
  if (slash == std::string_view::npos) return {};
  const std::string_view key = source.substr(slash + 1);
  return source.substr(0, slash).ends_with("/kubelet") && !key.starts_with('.') ? key : "";
}

// What a process calls itself, safe to print.
std::string nameOf(std::uint32_t pid) {
  std::string name = readUpTo(ofProcess(pid, "comm"), kNameMax);
  name = name.substr(0, name.find('\n'));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

}  // namespace

std::vector<CardNode> cardNodes(const std::vector<Card>& cards) {
  std::vector<CardNode> nodes;
  for (const Card& card : cards) {
    if (card.minor < 0) continue;
    nodes.push_back({makedev(rm::kDeviceMajor, static_cast<unsigned>(card.minor)), card.id});
  }
  return nodes;
}

std::vector<UnheldFinder::Accused> UnheldFinder::accuse(const std::vector<CardUser>& users,
                                                        const std::set<std::uint32_t>& looked) {
  std::set<ProcessKey> now;
  std::vector<Accused> accused;
  for (const CardUser& user : users) {
    if (user.attached || user.task == 0) continue;
    now.insert(user.process);
    const auto [suspect, isNew] = suspects_.try_emplace(user.process, false);
    if (isNew || accused.size() == kAccusedMax) continue;
    accused.push_back({user, !suspect->second});
    suspect->second = true;
  }
  std::erase_if(suspects_, [&](const auto& suspect) {
    return looked.contains(suspect.first.pid) && !now.contains(suspect.first);
  });
  return accused;
}

UnheldWatch::UnheldWatch(UnheldOptions options, std::string runDir, const TokenBook& book,
                         Accuse accuse)
    : options_(std::move(options)),
      runDir_(std::move(runDir)),
      book_(book),
      accuse_(std::move(accuse)) {}

UnheldWatch::~UnheldWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void UnheldWatch::start() {
  if (!options_.nodes.empty()) thread_ = std::thread([this] { run(); });
}

void UnheldWatch::run() {
  ::setpriority(PRIO_PROCESS, 0, kNicest);  // of this thread alone
  const std::chrono::nanoseconds every(options_.every.value);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    scan();
    lock.lock();
    stopped_.wait_for(lock, every, [this] { return stop_; });
  }
}

bool UnheldWatch::stopping() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void UnheldWatch::scan() {
  std::set<std::uint32_t> looked;
  std::vector<CardUser> users = findUsers(looked);
  // Read after the descriptors were: who opened a card had attached before that.
  std::set<ProcessKey> attached;
  AttachedList list;
  if (!list.open(runDir_)) return;
  for (const AttachedEntry& entry : list.read()) attached.insert({entry.pid, entry.start});
  for (CardUser& user : users) {
    user.attached = attached.contains(user.process);
    if (!user.attached) user.task = taskOf(user.process.pid);
  }
  for (const auto& accused : finder_.accuse(users, looked)) {
    const std::uint32_t pid = accused.user.process.pid;
    accuse_(accused, "process " + std::to_string(pid) + " (" + nameOf(pid) + ") has " +
                         accused.user.card + " open and never attached: no quota or turn holds it");
  }
}

std::vector<CardUser> UnheldWatch::findUsers(std::set<std::uint32_t>& looked) {
  std::vector<CardUser> users;
  std::vector<std::uint32_t> pids = numbersIn("/proc");
  std::rotate(pids.begin(), std::lower_bound(pids.begin(), pids.end(), next_), pids.end());
  std::size_t left = kScanFdsMax;
  next_ = 0;
  for (const std::uint32_t pid : pids) {
    if (stopping()) break;
    const CardNode* node = openNode(pid, options_.nodes, left);
    if (left == 0 || looked.size() == kScanProcessesMax) {
      next_ = pid;
      break;
    }
    looked.insert(pid);
    if (node == nullptr) continue;
    if (const auto start = processStart(pid)) users.push_back({{pid, *start}, node->card});
  }
  return users;
}

std::uint64_t UnheldWatch::taskOf(std::uint32_t pid) const {
  const std::uint64_t task = byEnvironment(pid);
  return task != 0 ? task : byMount(pid);
}

std::uint64_t UnheldWatch::byEnvironment(std::uint32_t pid) const {
  const std::string environment = readUpTo(ofProcess(pid, "environ"), kEnvironMax);
  for (std::string_view rest = environment; !rest.empty();) {
    const std::string_view entry = cut(rest, '\0');
    if (!entry.starts_with(kTokenIs)) continue;
    const std::string_view token = entry.substr(kTokenIs.size());
    return token.size() == QGPU_TOKEN_LEN ? book_.find(token.data()).task : 0;
  }
  return 0;
}

// The token is read from our side of the mount, where no tenant can make us wait.
std::uint64_t UnheldWatch::byMount(std::uint32_t pid) const {
  const std::string mounts = readUpTo(ofProcess(pid, "mountinfo"), kMountsMax);
  for (std::string_view rest = mounts; !rest.empty();) {
    const std::string key(placeholderIn(cut(rest, '\n')));
    if (key.empty()) continue;
    const std::string token = readUpTo(runDir_ + "/kubelet/" + key + "/token", QGPU_TOKEN_LEN);
    if (token.size() != QGPU_TOKEN_LEN) continue;
    if (const std::uint64_t task = book_.find(token.data()).task) return task;
  }
  return 0;
}

}  // namespace qgpu
