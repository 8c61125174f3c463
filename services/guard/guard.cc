#include "services/guard/guard.h"

#include <algorithm>
#include <array>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <linux/magic.h>
#include <set>
#include <string_view>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <utility>

#include "services/guard/guard_abi.h"
#include "services/nvidia_abi/rm_abi.h"

// The programs, as clang made them in the build folder.
asm(".section .rodata\n"
    ".balign 8\n"
    "qgpuGuardObject:\n"
    ".incbin \"" GUARD_OBJECTS
    "/guard.o\"\n"
    "qgpuGuardObjectEnd:\n"
    ".balign 8\n"
    "qgpuCapObject:\n"
    ".incbin \"" GUARD_OBJECTS
    "/cap.o\"\n"
    "qgpuCapObjectEnd:\n"
    ".previous\n");
extern "C" const char qgpuGuardObject[], qgpuGuardObjectEnd[];
extern "C" const char qgpuCapObject[], qgpuCapObjectEnd[];

namespace qgpu {
namespace {

static_assert(kGuardCardsMax == QGPU_GUARD_CARDS && kGuardShared == QGPU_GUARD_SHARED);

constexpr std::size_t kSaidMax = 64 * 1024;  // of libbpf and the verifier, its last part
constexpr std::size_t kReasonMax = 600;
// The programs whose hook older kernels lack, and the hook of each.
constexpr std::pair<const char*, const char*> kOfNewer[] = {
    {"qgpu_ioctl_32", "file_ioctl_compat"},
    {"qgpu_cap_door_32", "file_ioctl_compat"},
    {"qgpu_command", "uring_cmd"},
    {"qgpu_cap_command", "uring_cmd"},
};

// libbpf's way to say something has no argument of ours.
thread_local std::string* said = nullptr;

int keepSaid(libbpf_print_level level, const char* format, va_list arguments) {
  if (said == nullptr || level == LIBBPF_DEBUG) return 0;
  va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  const std::size_t before = said->size();
  if (size > 0) {
    said->resize(before + static_cast<std::size_t>(size) + 1);
    std::vsnprintf(said->data() + before, static_cast<std::size_t>(size) + 1, format, again);
    said->pop_back();
  }
  va_end(again);
  if (said->size() > kSaidMax) said->erase(0, said->size() - kSaidMax);
  return size;
}

// What libbpf says on this thread while it lives.
class Said {
 public:
  Said() {
    libbpf_set_print(keepSaid);
    said = &text_;
  }
  Said(const Said&) = delete;
  Said& operator=(const Said&) = delete;
  ~Said() { said = nullptr; }
  bool hasVerdict() const { return text_.find("PROG LOAD LOG") != std::string::npos; }
  // The end, where the reason stands.
  std::string reason() const {
    const bool cut = text_.size() > kReasonMax;
    return (cut ? "..." : "") + text_.substr(cut ? text_.size() - kReasonMax : 0);
  }

 private:
  std::string text_;
};

Error failed(const std::string& what, int error, const std::string& more = {}) {
  const ErrorCode code = error == EPERM || error == EACCES         ? ErrorCode::Denied
                         : error == EOPNOTSUPP || error == ENOTSUP ? ErrorCode::Unsupported
                                                                   : ErrorCode::Unavailable;
  return fail(code, what + ": " + std::strerror(error) + (more.empty() ? "" : ": " + more));
}

struct ObjectCloser {
  void operator()(bpf_object* object) const { bpf_object__close(object); }
};
using Object = std::unique_ptr<bpf_object, ObjectCloser>;

// --- what this kernel has ---

// The security modules that act, as securityfs tells them. Where nobody has mounted it, it is
// mounted for this one look, at no place that anybody else sees.
std::string securityModules() {
  Fd list(::open("/sys/kernel/security/lsm", O_RDONLY | O_CLOEXEC));
  if (!list) {
    const Fd context(::fsopen("securityfs", FSOPEN_CLOEXEC));
    if (context) ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
    const Fd mount(context ? ::fsmount(context.get(), FSMOUNT_CLOEXEC, 0) : -1);
    if (mount) list.reset(::openat(mount.get(), "lsm", O_RDONLY | O_CLOEXEC));
  }
  std::array<char, 512> text{};
  const ssize_t size = list ? ::read(list.get(), text.data(), text.size() - 1) : 0;
  return std::string(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
}

Status kernelCan() {
  if (::access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
    return fail(ErrorCode::Unsupported,
                "this kernel has no /sys/kernel/btf/vmlinux "
                "(CONFIG_DEBUG_INFO_BTF), so the guard finds nothing in it");
  }
  const std::string modules = securityModules();
  if (("," + modules + ",").find(",bpf,") == std::string::npos) {
    return fail(ErrorCode::Unsupported,
                "bpf is none of this kernel's security modules (" +
                    (modules.empty() ? "they can't be read" : modules) +
                    "): boot with lsm=...,bpf, on a kernel with CONFIG_BPF_LSM");
  }
  return ok();
}

// How NVIDIA's driver that this kernel has lays its calls out.
Result<rm::AllocForms> driverForms() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  if (!std::getline(file, version)) {
    return fail(ErrorCode::NotFound, "this kernel has no NVIDIA driver");
  }
  const rm::Layout layout = rm::layoutOf(version.c_str(), version.size() + 1);
  if (layout == rm::Layout::kUnknown) {
    return fail(ErrorCode::Unsupported,
                "the calls of NVIDIA's driver " + version + " are not known to this qgpu");
  }
  return rm::allocForms(layout);
}

// --- the folder ---

std::string above(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// `folder` and the one above it are made, below a bpffs that is there.
Status makeFolder(const std::string& folder) {
  struct statfs facts {};
  std::string root = folder;
  while (!root.empty() && ::statfs(root.c_str(), &facts) != 0) root = above(root);
  if (root.empty() || facts.f_type != BPF_FS_MAGIC) {
    return fail(ErrorCode::Unsupported,
                folder + " is below no bpffs: mount -t bpf bpf /sys/fs/bpf");
  }
  for (const std::string& made : {above(folder), folder}) {
    if (::mkdir(made.c_str(), 0700) != 0 && errno != EEXIST) return failed(made, errno);
  }
  return ok();
}

std::vector<std::string> namesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* open = ::opendir(folder.c_str());
  if (open == nullptr) return names;
  while (const dirent* entry = ::readdir(open)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(open);
  return names;
}

std::uint32_t kernelDevice(dev_t device) {
  return static_cast<std::uint32_t>(major(device) << 20 | minor(device));
}

qgpu_guard_process labelOf(std::uint64_t task, const std::vector<std::uint32_t>& cards) {
  qgpu_guard_process label{task, 0};
  for (const std::uint32_t card : cards) {
    if (card < kGuardCardsMax) label.cards |= std::uint64_t{1} << card;
  }
  return label;
}

// The cgroup of a folder, as the program finds it.
Result<qgpu_guard_group> groupOf(const std::string& folder) {
  struct statfs system {};
  struct stat facts {};
  if (::statfs(folder.c_str(), &system) != 0 || ::stat(folder.c_str(), &facts) != 0) {
    return failed(folder, errno);
  }
  if (system.f_type != CGROUP2_SUPER_MAGIC && system.f_type != CGROUP_SUPER_MAGIC) {
    return fail(ErrorCode::InvalidArgument, folder + " is no cgroup");
  }
  return qgpu_guard_group{facts.st_ino, system.f_type == CGROUP_SUPER_MAGIC ? 1u : 0u};
}

}  // namespace

struct Guard::Parts {
  Object guard, cap;
  std::string folder;
  int processes = -1, groups = -1, nodes = -1, tallies = -1;  // of `guard`
  int quotas = -1, accounts = -1;                             // of `cap`; -1: there is none
  std::string whyNoCap;
  ring_buffer* ring = nullptr;
  std::set<std::string> pinned;  // names in the folder that are this guard's
  std::set<std::uint32_t> told;  // the devices in `nodes`
  const std::function<void(const GuardRefusal&)>* listener = nullptr;

  ~Parts() { ring_buffer__free(ring); }

  Result<Object> read(const char* name, const char* from, const char* end) const;
  Status load(bpf_object* object, const std::string& what);
  Status pin(bpf_object* object, const std::string& suffix);
  Status begin();
  Status beginCap();
  void clear() const;
  void adopt();
  static int onRefusal(void* self, void* record, std::size_t size);
};

// With its maps to be pinned under the names that both objects use.
Result<Object> Guard::Parts::read(const char* name, const char* from, const char* end) const {
  Said libbpf;
  LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = name);
  Object made(bpf_object__open_mem(from, static_cast<std::size_t>(end - from), &options));
  if (!made) return failed("the guard's program", errno, libbpf.reason());
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, made.get()) {
    if (bpf_map__is_internal(map)) continue;
    const std::string path =
        folder + "/" + bpf_map__name(map) + "-" + std::to_string(QGPU_GUARD_LAYOUT);
    bpf_map__set_pin_path(map, path.c_str());
  }
  for (const auto& [program, hook] : kOfNewer) {
    bpf_program* const of = bpf_object__find_program_by_name(made.get(), program);
    if (of == nullptr || libbpf_find_vmlinux_btf_id(hook, BPF_LSM_MAC) >= 0) continue;
    bpf_program__set_autoload(of, false);
  }
  return made;
}

Status Guard::Parts::load(bpf_object* object, const std::string& what) {
  Said libbpf;
  if (const int error = bpf_object__load(object); error != 0) {
    const std::string refused = "the kernel does not take " + what;
    // What its verifier judged is a fault of the program, not of who loads it.
    if (!libbpf.hasVerdict()) return failed(refused, -error, libbpf.reason());
    return fail(ErrorCode::Unavailable, refused + ": " + libbpf.reason());
  }
  return ok();
}

// Each program is in force before the one that it replaces is not.
Status Guard::Parts::pin(bpf_object* object, const std::string& suffix) {
  Said libbpf;
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, object) {
    if (bpf_map__is_internal(map)) continue;
    pinned.insert(bpf_map__name(map) + ("-" + std::to_string(QGPU_GUARD_LAYOUT)));
  }
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object) {
    if (!bpf_program__autoload(program)) continue;
    const std::string name = bpf_program__name(program) + suffix;
    const std::string path = folder + "/" + name, begun = path + "_new";
    bpf_link* link = bpf_program__attach(program);
    if (link == nullptr) return failed("the hook of " + name, errno, libbpf.reason());
    ::unlink(begun.c_str());  // of a manager that ended here
    const int error = bpf_link__pin(link, begun.c_str());
    const bool there = error == 0 && ::rename(begun.c_str(), path.c_str()) == 0;
    const int why = error != 0 ? -error : errno;
    bpf_link__destroy(link);  // what is pinned stays
    if (!there) return failed(path, why, libbpf.reason());
    pinned.insert(name);
  }
  return ok();
}

Status Guard::Parts::begin() {
  auto made = read("qgpu_guard", qgpuGuardObject, qgpuGuardObjectEnd);
  if (!made) return made.error();
  guard = std::move(*made);
  if (Status loaded = load(guard.get(), "the guard's program"); !loaded) return loaded;
  const auto fdOf = [this](const char* name) {
    return bpf_object__find_map_fd_by_name(guard.get(), name);
  };
  processes = fdOf("processes");
  groups = fdOf("groups");
  nodes = fdOf("nodes");
  tallies = fdOf("tallies");
  ring = ring_buffer__new(fdOf("refusals"), onRefusal, this, nullptr);
  if (ring == nullptr) return failed("the guard's refusals", errno);
  return pin(guard.get(), "");
}

// Two programs that count would count twice. So the new one does nothing until all of its hooks are
// there, and one word in a map says which acts.
Status Guard::Parts::beginCap() {
  const auto forms = driverForms();
  if (!forms) return forms.error();
  auto made = read("qgpu_cap", qgpuCapObject, qgpuCapObjectEnd);
  if (!made) return made.error();
  bpf_map* const choices = bpf_object__find_map_by_name(made->get(), "choice");
  bpf_map* constants = nullptr;
  bpf_object__for_each_map(constants, made->get()) {
    if (std::string_view(bpf_map__name(constants)).ends_with(".rodata")) break;
  }
  const int old = ::bpf_obj_get(bpf_map__pin_path(choices));
  const std::uint32_t first = 0;
  qgpu_cap_choice choice{};
  if (old >= 0) {
    bpf_map_lookup_elem(old, &first, &choice);
    ::close(old);
  }
  ++choice.generation;
  const auto form = [](const rm::AllocForm& of) { return qgpu_cap_form{of.size, of.statusAt}; };
  choice.forms = {form(forms->shortForm), form(forms->longForm)};
  if (bpf_map__set_initial_value(constants, &choice.generation, sizeof choice.generation) != 0) {
    return failed("the cap's program", errno);
  }
  if (Status loaded = load(made->get(), "the cap's program"); !loaded) return loaded;
  const std::string suffix = "-" + std::to_string(choice.generation);
  if (Status there = pin(made->get(), suffix); !there) return there;
  if (bpf_map_update_elem(bpf_map__fd(choices), &first, &choice, BPF_ANY) != 0) {
    return failed("the cap's program", errno);
  }
  cap = std::move(*made);
  quotas = bpf_object__find_map_fd_by_name(cap.get(), "quotas");
  accounts = bpf_object__find_map_fd_by_name(cap.get(), "accounts");
  return ok();
}

// What an earlier manager left, and this one does not go on with.
void Guard::Parts::clear() const {
  for (const std::string& name : namesIn(folder)) {
    if (!pinned.contains(name)) ::unlink((folder + "/" + name).c_str());
  }
}

// Which nodes an earlier manager told of.
void Guard::Parts::adopt() {
  std::uint32_t device = 0;
  const void* before = nullptr;
  while (bpf_map_get_next_key(nodes, before, &device) == 0) {
    told.insert(device);
    before = &device;
  }
}

int Guard::Parts::onRefusal(void* self, void* record, std::size_t size) {
  const Parts& parts = *static_cast<const Parts*>(self);
  if (size < sizeof(qgpu_guard_refusal) || parts.listener == nullptr) return 0;
  const auto& from = *static_cast<const qgpu_guard_refusal*>(record);
  GuardRefusal refusal;
  refusal.task = from.task;
  refusal.pid = from.pid;
  refusal.card = from.card;
  refusal.device = makedev(from.device >> 20, from.device & 0xfffff);
  refusal.way = from.way <= QGPU_WAY_ALTERED ? static_cast<GuardRefusal::Way>(from.way)
                                             : GuardRefusal::Way::Ioctl;
  refusal.attached = from.attached != 0;
  refusal.program.assign(from.name, ::strnlen(from.name, sizeof from.name));
  std::replace_if(
      refusal.program.begin(), refusal.program.end(), [](char c) { return c < ' ' || c > '~'; },
      '?');
  (*parts.listener)(refusal);
  return 0;
}

// --- Guard ---

Guard::Guard(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Guard::~Guard() = default;

Result<std::unique_ptr<Guard>> Guard::open(const std::string& folder) {
  if (Status can = kernelCan(); !can) return can.error();
  if (Status made = makeFolder(folder); !made) return made.error();
  auto parts = std::make_unique<Parts>();
  parts->folder = folder;
  if (Status opened = parts->begin(); !opened) return opened.error();
  const std::set<std::string> guards = parts->pinned;
  if (Status begun = parts->beginCap(); !begun) {
    parts->pinned = guards;
    parts->whyNoCap = begun.error().message;
    // An earlier manager's goes on with the quotas that it had, rather than nothing.
    const std::string ofMap = "-" + std::to_string(QGPU_GUARD_LAYOUT);
    for (const std::string& name : namesIn(folder)) {
      if (name.starts_with("qgpu_cap_") || name.ends_with(ofMap)) parts->pinned.insert(name);
    }
  }
  parts->clear();
  parts->adopt();
  return std::unique_ptr<Guard>(new Guard(std::move(parts)));
}

Status Guard::remove(const std::string& folder) {
  for (const std::string& name : namesIn(folder)) {
    const std::string path = folder + "/" + name;
    if (::unlink(path.c_str()) != 0) return failed(path, errno);
  }
  if (::rmdir(folder.c_str()) != 0 && errno != ENOENT) return failed(folder, errno);
  ::rmdir(above(folder).c_str());  // which others may use
  return ok();
}

Status Guard::setNodes(const std::vector<GuardNode>& nodes) {
  std::set<std::uint32_t> now;
  for (const GuardNode& node : nodes) {
    const std::uint32_t device = kernelDevice(node.device);
    if (bpf_map_update_elem(parts_->nodes, &device, &node.card, BPF_ANY) != 0) {
      return failed("a device node for the guard", errno);
    }
    now.insert(device);
  }
  for (const std::uint32_t device : parts_->told) {
    if (!now.contains(device)) bpf_map_delete_elem(parts_->nodes, &device);
  }
  parts_->told = std::move(now);
  return ok();
}

Status Guard::judge(const Fd& pidfd, std::uint64_t task, const std::vector<std::uint32_t>& cards) {
  const int key = pidfd.get();
  const qgpu_guard_process label = labelOf(task, cards);
  if (bpf_map_update_elem(parts_->processes, &key, &label, BPF_NOEXIST) == 0) return ok();
  return errno == EEXIST ? ok() : failed("a process for the guard", errno);
}

Status Guard::letIn(const Fd& pidfd, std::uint64_t task, const std::vector<std::uint32_t>& cards) {
  const int key = pidfd.get();
  const qgpu_guard_process label = labelOf(task, cards);
  if (bpf_map_update_elem(parts_->processes, &key, &label, BPF_ANY) == 0) return ok();
  return failed("an attached process for the guard", errno);
}

void Guard::shutOut(const Fd& pidfd, std::uint64_t task) {
  const int key = pidfd.get();
  const qgpu_guard_process label{task, 0};
  bpf_map_update_elem(parts_->processes, &key, &label, BPF_EXIST);
}

Status Guard::judgeGroup(const std::string& folder, std::uint64_t task) {
  const Result<qgpu_guard_group> group = groupOf(folder);
  if (!group) return group.error();
  if (bpf_map_update_elem(parts_->groups, &*group, &task, BPF_ANY) == 0) return ok();
  return failed(folder, errno);
}

void Guard::keepGroups(const std::vector<std::string>& folders) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> kept;
  for (const std::string& folder : folders) {
    if (const auto group = groupOf(folder)) kept.emplace(group->id, group->devices);
  }
  std::vector<qgpu_guard_group> judged;
  qgpu_guard_group group{};
  const void* before = nullptr;
  while (bpf_map_get_next_key(parts_->groups, before, &group) == 0) {
    judged.push_back(group);
    before = &judged.back();
  }
  for (const qgpu_guard_group& one : judged) {
    if (!kept.contains({one.id, one.devices})) bpf_map_delete_elem(parts_->groups, &one);
  }
}

int Guard::news() const {
  return ring_buffer__epoll_fd(parts_->ring);
}

void Guard::takeNews(const std::function<void(const GuardRefusal&)>& told) {
  parts_->listener = &told;
  ring_buffer__consume(parts_->ring);
  parts_->listener = nullptr;
}

bool Guard::caps() const {
  return parts_->accounts >= 0;
}

const std::string& Guard::whyNoCap() const {
  return parts_->whyNoCap;
}

// What is counted goes on being counted under a new quota.
Status Guard::setQuota(std::uint64_t task, std::uint32_t card, Bytes quota) {
  if (!caps()) return ok();
  const qgpu_cap_account none{};
  qgpu_cap_quota now{};
  if (bpf_map_lookup_elem(parts_->quotas, &task, &now) != 0 || now.altered == 0) {
    now.bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(quota.value, 0));
  }
  now.card = std::min(card, kGuardShared);
  const bool counted = bpf_map_update_elem(parts_->accounts, &task, &none, BPF_NOEXIST) == 0;
  if ((counted || errno == EEXIST) &&
      bpf_map_update_elem(parts_->quotas, &task, &now, BPF_ANY) == 0) {
    return ok();
  }
  return failed("the cap of task " + std::to_string(task), errno);
}

void Guard::dropQuota(std::uint64_t task) {
  if (!caps()) return;
  bpf_map_delete_elem(parts_->quotas, &task);
  bpf_map_delete_elem(parts_->accounts, &task);
}

void Guard::keepQuotas(const std::set<std::uint64_t>& tasks) {
  if (!caps()) return;
  std::vector<std::uint64_t> gone;
  std::uint64_t task = 0;
  const void* before = nullptr;
  while (bpf_map_get_next_key(parts_->accounts, before, &task) == 0) {
    if (!tasks.contains(task)) gone.push_back(task);
    before = &task;
  }
  for (const std::uint64_t one : gone) dropQuota(one);
}

std::optional<Bytes> Guard::bytesHeld(std::uint64_t task) const {
  qgpu_cap_account account{};
  if (!caps() || bpf_map_lookup_elem(parts_->accounts, &task, &account) != 0) return std::nullopt;
  return Bytes(static_cast<std::int64_t>(account.used));
}

std::uint64_t Guard::tally(std::uint32_t card) const {
  qgpu_guard_tally tally{};
  bpf_map_lookup_elem(parts_->tallies, &card, &tally);
  return tally.refused;
}

}  // namespace qgpu
