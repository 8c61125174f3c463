#include "services/guest/rm/rm_ioctl.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/ioctl.h>

#include "services/guest/gate/driver_files.h"
#include "services/guest/gate/lending.h"
#include "services/guest/gate/quota.h"
#include "services/guest/gate/real_loader.h"
#include "services/nvidia_abi/rm_card.h"
#include "services/nvidia_abi/rm_decode.h"
#include "services/nvidia_abi/rm_events.h"
#include "services/nvidia_abi/rm_files.h"
#include "services/nvidia_abi/rm_objects.h"

namespace qgpu::guest {
namespace {

using rm::Call;
using rm::Object;
using rm::Objects;
using rm::Verb;

// --- what libc has, past this library ---

int rawIoctl(int fd, unsigned long request, void* argument) {
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}
int rawClose(int fd) {
  return static_cast<int>(syscall(SYS_close, fd));
}
int rawDup(int fd) {
  return static_cast<int>(syscall(SYS_dup, fd));
}
int rawDup3(int from, int to, int flags) {
  return static_cast<int>(syscall(SYS_dup3, from, to, flags));
}
int rawFcntl(int fd, int command, long argument) {
  return static_cast<int>(syscall(SYS_fcntl, fd, command, argument));
}
int rawDup2(int from, int to) {
  return from == to ? rawFcntl(from, F_GETFD, 0) < 0 ? -1 : to : rawDup3(from, to, 0);
}

// Before the constructor ran (another library's came first) the kernel is asked itself: looking
// symbols up then, or in the child of a vfork(), could wait for a lock that nobody gives back.
std::atomic<int (*)(int, unsigned long, void*)> realIoctl{rawIoctl};
std::atomic<int (*)(int)> realClose{rawClose};
std::atomic<int (*)(int)> realDup{rawDup};
std::atomic<int (*)(int, int)> realDup2{rawDup2};
std::atomic<int (*)(int, int, int)> realDup3{rawDup3};
std::atomic<int (*)(int, int, long)> realFcntl{rawFcntl};  // by both of its names

template <typename F>
void findReal(std::atomic<F>& place, const char* name) {
  void* found = realLoader().dlsym(RTLD_NEXT, name);
  if (found) place.store(reinterpret_cast<F>(found), std::memory_order_relaxed);
}

__attribute__((constructor)) void findRealCalls() {
  findReal(realIoctl, "ioctl");
  findReal(realClose, "close");
  findReal(realDup, "dup");
  findReal(realDup2, "dup2");
  findReal(realDup3, "dup3");
  findReal(realFcntl, "fcntl");
}

template <typename F>
F real(const std::atomic<F>& place) {
  return place.load(std::memory_order_relaxed);
}

// --- state ---

Mutex mutex;  // of objects and files; never held in a call to the driver
Objects objects;
rm::Files files;
rm::Handle lostExports = 0x10000;  // names of what is in files that there is no room to know
std::atomic<rm::Layout> layout{rm::Layout::kUnknown};
std::atomic<bool> layoutLearnt{false};
std::atomic<std::uint32_t> counted{QGPU_COUNTED_UNDECIDED};
std::atomic<std::int32_t> owner{0};  // the process that all of this is of
std::atomic<RmChannelHandler> handler{nullptr};

std::int32_t ownPid() {
  return static_cast<std::int32_t>(syscall(SYS_getpid));  // libc of old remembers the parent's
}

void forgetInChild() {
  Inherited inherited;
  files.eachThatHoldsMemory([&](int fd) { inherited.drop(fd); });
  inherited.dropMaps();
  mutex.renewInChild();
  objects.forget();
  files.forget();
  counted.store(QGPU_COUNTED_UNDECIDED);
  owner.store(0);
}

// Whether this is the process that attached, not a child of vfork() in its memory.
bool isOwner() {
  const std::int32_t pid = ownPid();
  std::int32_t before = 0;
  if (owner.compare_exchange_strong(before, pid)) onForkInChild(forgetInChild);
  return before == 0 || before == pid;
}

bool follows() {
  return session.state.load(std::memory_order_relaxed) == State::kAttached &&
         counted.load(std::memory_order_relaxed) != QGPU_COUNTED_BY_CALLS;
}

// --- events ---

bool isFollowed(const Object& object) {
  return object.objectClass == rm::kChannelGroup || rm::isChannel(object.objectClass);
}

RmChannelEvent eventOf(const Object& object, RmChannelEvent::What what, int fd) {
  const Object* above = object.parent;
  const Object* group = above && above->objectClass == rm::kChannelGroup ? above : nullptr;
  RmChannelEvent event{};
  event.what = what;
  event.fd = fd;
  event.client = object.client;
  event.parent = object.parentHandle;
  event.object = object.handle;
  event.group = group ? group->handle : 0;
  event.objectClass = object.objectClass;
  event.engine = object.detail || !group ? object.detail : group->detail;
  event.device = Objects::deviceOf(object);
  return event;
}

void tell(const RmChannelEvent& event) {
  if (RmChannelHandler to = handler.load()) to(event);
}

void tellEnded(const Object& object, void*) {
  if (isFollowed(object)) tell(eventOf(object, RmChannelEvent::What::kEnded, -1));
}

// --- objects and their memory ---

// What others hold of it counts as theirs before it stops to count as ours.
void onEnd(const Object& object, const rm::Memory* freed, void*) {
  if (const rm::Memory* memory = object.memory) {
    const std::uint64_t lent = bytesOfLoan(memory->loan, memory->generation);
    lentNameEnds(object.client, object.handle, memory->loan ? lent : memory->bytes,
                 memory->generation);
  }
  if (object.handle == object.client) lendsNoMore(object.client);
  if (!freed) return;
  giveBack(freed->loan, freed->generation);
  release(freed->bytes, freed->generation);
}

// What was taken out and the driver has freed by now.
void ended(Object* top) {
  if (!top) return;
  if (handler.load()) Objects::eachBeneath(*top, tellEnded, nullptr);
  Lock lock(mutex);
  Objects::end(top, onEnd, nullptr);
}

// With the mutex held: the open file of the client that a call names.
std::uint32_t fileOf(int fd, FileClass place, rm::Handle client) {
  const Object* known = objects.find(client, client);
  const std::uint32_t file = known ? known->file : rm::Files::kNone;
  if (place != FileClass::kControl) return file;
  if (file == rm::Files::kNone) return files.of(fd);
  if (!files.known(fd)) files.learn(fd, file);
  return file;
}

// With the mutex held: memory that counts here has one more name.
void madeName(const Objects::Made& name, const Object* made) {
  if (!made || !made->memory) return;
  lends(name.client);
  files.holdsMemory(name.file);
}

// A name that was just made ends again.
void drop(int fd, rm::Handle client, rm::Handle parent, rm::Handle object) {
  Object* top = nullptr;
  {
    Lock lock(mutex);
    top = objects.takeOut(client, object);
  }
  rm::FreeCall free{client, parent, object, rm::kOk};
  driverIoctl(fd, _IOC(_IOC_READ | _IOC_WRITE, rm::kIoctlType, rm::kEscFree, sizeof free), &free);
  ended(top);
}

// The driver rounds sizes up; what it took beyond the reservation counts too, and where the quota
// has no room for that, the memory is given back. False: it was.
bool settle(int fd, const Call& call, std::uint64_t& bytes, std::uint32_t generation) {
  const std::uint64_t taken = rm::bytesTaken(call);
  if (taken == 0 || taken == bytes) return true;
  if (taken < bytes) {
    release(bytes - taken, generation);
    bytes = taken;
    return true;
  }
  if (reserveOrFail(taken - bytes)) {
    bytes = taken;
    return true;
  }
  drop(fd, call.client, call.parent, rm::madeBy(call));
  return false;
}

struct Asked {
  int fd;
  unsigned long request;
  void* argument;
  FileClass place;

  int go() const { return real(realIoctl)(fd, request, argument); }
};

// Whether the driver did what it was asked.
bool done(int rc, const Call& call) {
  return rc == 0 && rm::statusOf(call) == rm::kOk;
}

constinit thread_local int uncounted = 0;

int allocate(const Asked& asked, const Call& call) {
  const std::uint32_t generation = session.generation.load();
  std::uint64_t bytes = uncounted ? 0 : call.bytes;
  if (bytes && !reserveOrFail(bytes)) {
    rm::answerNoMemory(call);
    return 0;
  }
  const int rc = asked.go();
  const bool made = done(rc, call);
  if (!made || (bytes && !settle(asked.fd, call, bytes, generation))) {
    if (made) rm::answerNoMemory(call);
    const int saved = errno;
    if (bytes) release(bytes, generation);
    errno = saved;
    return rc;
  }
  const rm::Handle name = rm::madeBy(call);
  const bool isClient = rm::isClient(call.objectClass);
  RmChannelEvent event{};
  {
    Lock lock(mutex);
    Objects::Made wanted{isClient ? name : call.client,
                         call.parent,
                         name,
                         call.objectClass,
                         call.detail,
                         0,
                         bytes,
                         generation};
    wanted.file = isClient ? files.of(asked.fd) : fileOf(asked.fd, asked.place, call.client);
    const Object* object = call.sourceObject ? objects.duplicate(wanted, call.sourceClient,
                                                                 call.sourceObject, onEnd, nullptr)
                                             : objects.add(wanted, onEnd, nullptr);
    madeName(wanted, object);
    if (object && isFollowed(*object)) {
      event = eventOf(*object, RmChannelEvent::What::kMade, asked.fd);
    }
  }
  if (event.object) tell(event);
  return rc;
}

// --- memory that other processes allocated ---

// How much of the card an object is, whoever made it. False: the driver does not say.
bool askSize(int fd, rm::Handle client, rm::Handle object, std::uint64_t& bytes) {
  rm::SurfaceInfo infos[] = {{rm::kSurfacePages, 0}, {rm::kSurfacePlace, 0}};
  rm::SurfaceInfoCall list{2, 0, reinterpret_cast<std::uintptr_t>(infos)};
  rm::ControlCall control{};
  control.client = client;
  control.object = object;
  control.command = rm::kSurfaceInfo;
  control.parameters = reinterpret_cast<std::uintptr_t>(&list);
  control.parametersSize = sizeof list;
  const unsigned long request =
      _IOC(_IOC_READ | _IOC_WRITE, rm::kIoctlType, rm::kEscControl, sizeof control);
  bytes = 0;
  if (driverIoctl(fd, request, &control) != 0) return false;
  // It is no memory, or addresses for cards that have not all come yet (kMulticast).
  if (control.status == rm::kNotSupported || control.status == rm::kNotReady) return true;
  if (control.status != rm::kOk) return false;
  // What addresses for other cards hold is told nowhere; their own size covers it.
  bool onCard = infos[1].value == rm::kPlaceCard;
  if (infos[1].value == rm::kPlaceOther) {
    std::uint32_t objectClass = 0;
    if (rm::classOf(fd, {client, object}, objectClass) != rm::kOk) return false;
    onCard = objectClass == rm::kFabricMemory;
  }
  if (onCard) bytes = rm::bytesGiven(infos[0].value * rm::kSurfacePage);
  return true;
}

// A task of several cards has them to itself, and its processes share much by files: what can't be
// told from its own is not counted a second time. Nobody else is on those cards.
bool hasCardsAlone() {
  return session.welcome.cards > 1;
}

// Counts a name that the driver just gave for what another process allocated: by its loan, or in
// this process's own slot. False: there is no room for it in the quota, and the name has ended.
bool hold(int fd, Objects::Made name, Loan loan) {
  std::uint64_t bytes = 0;
  bool paid = askSize(fd, name.client, name.handle, bytes);
  if (paid && bytes != 0 && settleLoan(loan, bytes)) {
    name.loan = loan;
  } else {
    if (hasCardsAlone()) bytes = 0;
    paid = paid && (bytes == 0 || reserveOrFail(bytes));
    name.bytes = bytes;
  }
  if (!paid) drop(fd, name.client, name.parent, name.handle);
  if (name.loan == kNoLoan) giveBack(loan, name.generation);
  if (!paid) return false;
  Lock lock(mutex);
  madeName(name, objects.add(name, onEnd, nullptr));
  return true;
}

// With the mutex held: a second name for what is known here. False: it is not.
bool nameAgain(const Objects::Made& name, rm::Handle sourceClient, rm::Handle sourceObject) {
  if (!objects.find(sourceClient, sourceObject)) return false;
  madeName(name, objects.duplicate(name, sourceClient, sourceObject, onEnd, nullptr));
  return true;
}

// With the mutex held: a name beneath a client of ours that a call makes, without what it is.
Objects::Made madeOf(const Asked& asked, const Call& call, rm::Handle parent, rm::Handle name) {
  Objects::Made made{};
  made.client = call.client;
  made.parent = parent;
  made.handle = name;
  made.file = fileOf(asked.fd, asked.place, call.client);
  made.generation = session.generation.load();
  return made;
}

int duplicate(const Asked& asked, const Call& call) {
  Loan loan = kNoLoan;
  {
    Lock lock(mutex);
    if (!objects.find(call.sourceClient, call.sourceObject)) {
      loan = borrow(call.sourceClient, call.sourceObject);
    }
  }
  const std::uint32_t generation = session.generation.load();
  const int rc = asked.go();
  if (!done(rc, call)) {
    giveBack(loan, generation);
    return rc;
  }
  Objects::Made name;
  {
    Lock lock(mutex);
    name = madeOf(asked, call, call.parent, rm::madeBy(call));
    if (loan == kNoLoan && nameAgain(name, call.sourceClient, call.sourceObject)) return rc;
  }
  if (!hold(asked.fd, name, loan)) rm::answerNoMemory(call);
  return rc;
}

// A file that holds objects, a control file or a dma-buf, stands in the forest as a client, and
// ends as those of a file do. The driver's own clients have other names (from 0xc1d00000).
constexpr rm::Handle kFileClient = 0x80000000;

// What an open file calls the object at an index.
rm::Handle nameInFile(std::uint32_t index) {
  return index + 1;
}

int exportObjects(const Asked& asked, const Call& call) {
  const int rc = asked.go();
  if (!done(rc, call)) return rc;
  const rm::FileObjects out = rm::fileObjects(call);
  Lock lock(mutex);
  const std::uint32_t file = files.of(out.fd);
  for (std::uint32_t i = 0; i < out.count; ++i) {
    Objects::Made name{};
    name.client = name.parent = kFileClient | file;
    name.handle = file == rm::Files::kNone ? ++lostExports : nameInFile(out.index + i);
    name.file = file;
    if (out.object(i) == 0 || !objects.find(call.client, out.object(i))) continue;
    const Object* made = objects.duplicate(name, call.client, out.object(i), onEnd, nullptr);
    if (made && made->memory) files.holdsMemory(file);
  }
  return rc;
}

bool importOne(const Asked& asked, const Call& call, const rm::FileObjects& in, std::uint32_t i) {
  Objects::Made name;
  {
    Lock lock(mutex);
    name = madeOf(asked, call, in.parent, in.object(i));
    const rm::Handle holder = kFileClient | (files.known(in.fd) ? files.of(in.fd) : 0);
    if (holder != kFileClient && nameAgain(name, holder, nameInFile(in.index + i))) return true;
  }
  return hold(asked.fd, name, kNoLoan);  // who exported it can't be known
}

// All that a call asks for, or nothing.
int importObjects(const Asked& asked, const Call& call) {
  const int rc = asked.go();
  if (!done(rc, call)) return rc;
  const rm::FileObjects in = rm::fileObjects(call);
  std::uint32_t held = 0;
  while (held < in.count && (in.object(held) == 0 || importOne(asked, call, in, held))) ++held;
  if (held == in.count) return rc;
  for (std::uint32_t i = 0; i < in.count; ++i) {
    if (i != held && in.object(i) != 0) drop(asked.fd, call.client, in.parent, in.object(i));
  }
  rm::answerNoMemory(call);
  return rc;
}

// --- what else is asked ---

// What is about to be freed leaves the forest first: its names may come again at once.
int freeObject(const Asked& asked, const Call& call) {
  Object* top = nullptr;
  {
    Lock lock(mutex);
    top = objects.takeOut(call.client, call.object);
  }
  const int rc = asked.go();
  if (done(rc, call)) {
    ended(top);
  } else if (top) {
    const RmChannelEvent event = eventOf(*top, RmChannelEvent::What::kKept, asked.fd);
    {
      Lock lock(mutex);
      objects.putBack(top, onEnd, nullptr);
    }
    tell(event);
  }
  return rc;
}

int askSizes(const Asked& asked, const Call& call) {
  const int rc = asked.go();
  if (done(rc, call)) rm::limitSizes(call, loadRelaxed(session.gate->quota_bytes), leftBytes());
  return rc;
}

bool isOfTask(std::uint32_t pid) {
  return slotOf(pid) != QGPU_SLOTS;
}

int askPids(const Asked& asked, const Call& call) {
  const int rc = asked.go();
  if (done(rc, call)) rm::keepPids(call, isOfTask);
  return rc;
}

// Of a channel or group, by a control that the driver carried out.
void tellOf(const Asked& asked, const Call& call, RmChannelEvent::What what) {
  RmChannelEvent event{};
  {
    Lock lock(mutex);
    const Object* of = objects.find(call.client, call.object);
    if (of) event = eventOf(*of, what, asked.fd);
  }
  if (event.object) tell(event);
}

// What puts channels where the hardware runs them, or takes them away.
int schedule(const Asked& asked, const Call& call) {
  const int rc = asked.go();
  if (!done(rc, call)) return rc;
  const bool enable = call.parameters && *static_cast<const std::uint8_t*>(call.parameters) != 0;
  if (enable) tellOf(asked, call, RmChannelEvent::What::kEnabled);
  return rc;
}

int setTimeslice(const Asked& asked, const Call& call) {
  const int rc = asked.go();
  if (done(rc, call)) tellOf(asked, call, RmChannelEvent::What::kSliced);
  return rc;
}

// The layout of the driver that answers on the control file `fd`, once, before anything is read by
// it. The question is this library's own: CUDA from 535 on asks for no version, and to what it
// asked before, a driver before 530 answers with what the program said. Of such a one sysfs tells.
void learnLayout(int fd) {
  if (layoutLearnt.load()) return;
  const int saved = errno;
  rm::VersionCall version{};
  version.command = rm::kVersionQuery;
  constexpr unsigned long kRequest =
      _IOC(_IOC_READ | _IOC_WRITE, rm::kIoctlType, rm::kEscCheckVersion, sizeof version);
  const bool told = driverIoctl(fd, kRequest, &version) == 0 && version.version[0] != 0;
  if (told || readModuleVersion(version.version, sizeof version.version)) {
    if (!told) version.reply = rm::kVersionRecognised;
    layout.store(rm::layoutTold(version, loadRelaxed(session.gate->layout_seen)));
  }
  layoutLearnt.store(true);
  errno = saved;
}

// --- descriptors ---

// A card's file, which from now on holds the control file that it is registered with.
int registerFile(const Asked& asked) {
  const int rc = asked.go();
  if (rc != 0) return rc;
  Lock lock(mutex);
  const std::uint32_t file = files.of(*static_cast<const int*>(asked.argument));
  files.learn(asked.fd, file, rm::Files::Way::kReference);
  return rc;
}

// Unified memory's own file: the first call on it.
int openUnifiedMemory(int fd, unsigned long request, void* argument) {
  const int rc = driverIoctl(fd, request, argument);
  if (rc != 0 || !isOwner() || !isUnifiedMemory(fd)) return rc;
  Lock lock(mutex);
  files.holdsMemory(files.of(fd));
  return rc;
}

// The clients of a file whose last descriptor is about to be closed, as one list by `after`.
Object* takeClientsOf(int fd) {
  Lock lock(mutex);
  const std::uint32_t file = files.closed(fd);
  Object* all = nullptr;
  while (Object* top = file != rm::Files::kNone ? objects.takeClientOf(file) : nullptr) {
    top->inBucket = all;  // not in a bucket now
    all = top;
  }
  return all;
}

void endAll(Object* all) {
  while (Object* top = all) {
    all = top->inBucket;
    ended(top);
  }
}

bool watches(int fd) {
  return files.known(fd) && isOwner();
}

void duplicated(int from, int to) {
  Lock lock(mutex);
  files.duplicated(from, to);
}

// After dup(), or an fcntl() that does the same.
int copied(int from, int rc) {
  if (rc >= 0 && watches(from)) duplicated(from, rc);
  return rc;
}

// After dup2() or dup3(): `to` was closed and is now another.
int replaced(int from, int to, int rc) {
  if (rc < 0 || from == to) return rc;
  if (watches(to)) endAll(takeClientsOf(to));
  if (watches(from)) duplicated(from, to);
  return rc;
}

int look(int fd, unsigned long request, void* argument) {
  const Asked asked{fd, request, argument, classOf(fd)};
  if (asked.place == FileClass::kForeign || !isOwner()) return asked.go();
  if (asked.place == FileClass::kControl) learnLayout(fd);
  if (_IOC_NR(request) == rm::kEscRegisterFd) return registerFile(asked);
  const Call call = rm::decode(layout.load(), _IOC_NR(request), _IOC_SIZE(request), argument);
  switch (call.verb) {
    case Verb::kAlloc:
      return allocate(asked, call);
    case Verb::kDup:
      return duplicate(asked, call);
    case Verb::kFree:
      return freeObject(asked, call);
    case Verb::kSizes:
      return askSizes(asked, call);
    case Verb::kPids:
      return askPids(asked, call);
    case Verb::kSchedule:
      return schedule(asked, call);
    case Verb::kTimeslice:
      return setTimeslice(asked, call);
    case Verb::kExport:
      return exportObjects(asked, call);
    case Verb::kImport:
      return importObjects(asked, call);
    case Verb::kOther:
      break;
  }
  return asked.go();
}

}  // namespace

Uncounted::Uncounted() {
  ++uncounted;
}
Uncounted::~Uncounted() {
  --uncounted;
}

bool countedByDriver() {
  std::uint32_t now = counted.load(std::memory_order_relaxed);
  if (now != QGPU_COUNTED_UNDECIDED) return now == QGPU_COUNTED_BY_DRIVER;
  const std::uint32_t wanted =
      layout.load() == rm::Layout::kUnknown ? QGPU_COUNTED_BY_CALLS : QGPU_COUNTED_BY_DRIVER;
  if (counted.compare_exchange_strong(now, wanted)) now = wanted;
  shared(session.slot->counted).store(now);
  return now == QGPU_COUNTED_BY_DRIVER;
}

void onRmChannel(RmChannelHandler to) {
  handler.store(to);
}

void eachRmChannel(void (*visit)(const RmChannelEvent&, void*), void* context) {
  struct Visit {
    void (*visit)(const RmChannelEvent&, void*);
    void* context;
  } all{visit, context};
  Lock lock(mutex);
  objects.each(
      [](const Object& object, void* to) {
        if (!isFollowed(object)) return;
        const Object* client = objects.find(object.client, object.client);
        const int fd = client ? files.descriptorOf(client->file) : -1;
        const auto& one = *static_cast<Visit*>(to);
        one.visit(eventOf(object, RmChannelEvent::What::kMade, fd), one.context);
      },
      &all);
}

bool isRmChannel(rm::Handle client, rm::Handle object) {
  Lock lock(mutex);
  const Object* found = objects.find(client, object);
  return found && isFollowed(*found);
}

rm::Layout rmLayout() {
  return layout.load();
}

int driverIoctl(int fd, unsigned long request, void* argument) {
  return real(realIoctl)(fd, request, argument);
}

}  // namespace qgpu::guest

// --- what libc's names lead to ---

#define QGPU_IN_FRONT_OF(name) __asm__(#name) __attribute__((visibility("default")))

extern "C" {
int qgpuIoctl(int fd, unsigned long request, void* argument) QGPU_IN_FRONT_OF(ioctl);
int qgpuClose(int fd) QGPU_IN_FRONT_OF(close);
int qgpuDup(int fd) QGPU_IN_FRONT_OF(dup);
int qgpuDup2(int from, int to) QGPU_IN_FRONT_OF(dup2);
int qgpuDup3(int from, int to, int flags) QGPU_IN_FRONT_OF(dup3);
int qgpuFcntl(int fd, int command, long argument) QGPU_IN_FRONT_OF(fcntl);
int qgpuFcntl64(int fd, int command, long argument) QGPU_IN_FRONT_OF(fcntl64);

int qgpuIoctl(int fd, unsigned long request, void* argument) {
  using namespace qgpu::guest;
  if (__builtin_expect(_IOC_TYPE(request) == qgpu::rm::kIoctlType, 0) && argument && follows()) {
    return look(fd, request, argument);
  }
  if (__builtin_expect(qgpu::rm::opensUnifiedMemory(request), 0) && follows()) {
    return openUnifiedMemory(fd, request, argument);
  }
  return real(realIoctl)(fd, request, argument);
}

int qgpuClose(int fd) {
  using namespace qgpu::guest;
  if (__builtin_expect(!files.known(fd), 1) || !isOwner()) return real(realClose)(fd);
  Object* gone = takeClientsOf(fd);
  const int rc = real(realClose)(fd);  // closed, whatever it answers
  const int saved = errno;
  endAll(gone);
  errno = saved;
  return rc;
}

int qgpuDup(int fd) {
  using namespace qgpu::guest;
  return copied(fd, real(realDup)(fd));
}

int qgpuDup2(int from, int to) {
  using namespace qgpu::guest;
  return replaced(from, to, real(realDup2)(from, to));
}

int qgpuDup3(int from, int to, int flags) {
  using namespace qgpu::guest;
  return replaced(from, to, real(realDup3)(from, to, flags));
}

// The third argument is a number, a pointer, or is not there: each comes as one register.
int qgpuFcntl(int fd, int command, long argument) {
  using namespace qgpu::guest;
  const bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  if (__builtin_expect(!copies, 1)) return real(realFcntl)(fd, command, argument);
  return copied(fd, real(realFcntl)(fd, command, argument));
}

int qgpuFcntl64(int fd, int command, long argument) {
  return qgpuFcntl(fd, command, argument);
}
}
