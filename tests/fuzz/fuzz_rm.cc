// The argument of an ioctl to NVIDIA's kernel driver, as libqgpu.so reads it. Layout: the driver's
// layout, the number of the call, then its bytes; an allocation's, a control's or a carried call's
// inner bytes follow, in memory of exactly the size that the call says. Then a program of such
// calls is played into the forest of objects.
//
// Promises: nothing is read or written beyond what the call covers (the sanitizer sees it), what is
// left alone is left untouched, an answer changes the status alone, sizes only get smaller, and
// every object that is put into the forest comes out of it once.

#include <memory>
#include <vector>

#include "services/nvidia_abi/rm_decode.h"
#include "services/nvidia_abi/rm_objects.h"
#include "tests/fuzz/target.h"

namespace qgpu::fuzz {
namespace {

using namespace rm;  // the words of the interface

constexpr Layout kLayouts[] = {Layout::kUnknown, Layout::kFrom515, Layout::kFrom525,
                               Layout::kFrom535};
constexpr std::uint32_t kNumbers[] = {
    kEscAllocMemory, kEscAllocObject,    kEscFree,         kEscControl,  kEscAlloc,
    kEscDupObject,   kEscVidHeapControl, kEscCheckVersion, kEscTransfer, kEscExportDmaBuf};
constexpr std::uint32_t kSizes[] = {16, 20, 28, 32, 40, 48, 56, 72, 184, 2600, 2608};
constexpr std::uint32_t kReadMost = 255;  // bytes of a call that the input has

// Bytes of the input in a block of their own, so that one too many is seen.
struct Block {
  Block(Input& in, std::size_t bytes) : Block(in, bytes, bytes) {}
  // Takes so many of the input and keeps `bytes`, so that one length more or less moves no other.
  Block(Input& in, std::size_t bytes, std::size_t taken)
      : size(bytes), at(new std::uint8_t[bytes]()) {
    const auto from = in.bytes(taken);
    std::copy_n(from.begin(), std::min(from.size(), size), at.get());
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(at.get()); }
  void put(std::size_t where, const void* value, std::size_t bytes) {
    if (where + bytes <= size) std::memcpy(at.get() + where, value, bytes);
  }
  std::vector<std::uint8_t> copy() const { return {at.get(), at.get() + size}; }

  std::size_t size;
  std::unique_ptr<std::uint8_t[]> at;
};

// What a call points to: a pointer at `where`, and its size at `sizeAt` where the call says one.
void point(Block& call, const Block& to, std::size_t where, std::size_t sizeAt) {
  const std::uint64_t address = to.address();
  const auto size = static_cast<std::uint32_t>(to.size);
  call.put(where, &address, sizeof address);
  if (sizeAt) call.put(sizeAt, &size, sizeof size);
}

void pointInside(Block& call, const Block& inner, Layout layout, std::uint32_t number) {
  if (number == kEscAlloc) {
    const AllocForms forms = allocForms(layout);
    const bool longer = call.size == forms.longForm.size;
    point(call, inner, offsetof(AllocCall, parameters),
          (longer ? forms.longForm : forms.shortForm).sizeAt);
  }
  if (number == kEscControl) {
    point(call, inner, offsetof(ControlCall, parameters), offsetof(ControlCall, parametersSize));
  }
}

struct Ends {
  std::uint64_t objects = 0, bytes = 0;
};
void onEnd(const Object&, const Memory* freed, void* context) {
  auto& ends = *static_cast<Ends*>(context);
  ++ends.objects;
  if (freed) ends.bytes += freed->bytes;
}

constexpr Handle kClients = 3, kNames = 13;
constexpr std::size_t kInner = 160;
constexpr std::size_t kFileSizes[] = {sizeof(ExportOne), sizeof(ImportOne), sizeof(ImportMany),
                                      sizeof(ExportMany), sizeof(PidsCall)};

// Large, and empty again after each game.
Objects& forest() {
  static Objects only;
  return only;
}

class Game {
 public:
  explicit Game(Input in) : in_(in), layout_(kLayouts[in_.byte() % std::size(kLayouts)]) {}

  void play() {
    for (int calls = 0; calls < 200 && !in_.empty(); ++calls) one();
    for (Handle client = 1; client <= kClients; ++client) {
      if (Object* top = objects_.takeOut(client, client)) Objects::end(top, onEnd, &ends_);
      for (Handle name = 1; name <= kNames; ++name) {
        require(!objects_.find(client, name), "every object is beneath its client");
      }
    }
    require(ends_.objects >= made_, "what was put into the forest came out");
    require(ends_.bytes == charged_, "every charge was returned once");
  }

 private:
  void one() {
    const std::uint32_t number = kNumbers[in_.byte() % std::size(kNumbers)];
    const std::uint32_t size = in_.flag() ? kSizes[in_.byte() % std::size(kSizes)] : in_.byte();
    // A driver that is told no size of an allocation's parameters knows it: at least 128 bytes.
    const std::size_t pick = in_.byte();
    const bool ofFile = number == kEscControl && pick < std::size(kFileSizes);
    const std::size_t told = ofFile ? kFileSizes[pick] : 1 + pick % kInner;
    Block inner(in_, ofFile || layout_ == Layout::kFrom535 ? told : 512, kInner);
    Block call(in_, size, std::min(size, kReadMost));
    pointInside(call, inner, layout_, number);
    if (number == kEscCheckVersion && size == sizeof(VersionCall)) {
      VersionCall version;
      std::memcpy(&version, call.at.get(), sizeof version);
      static_cast<void>(layoutTold(version));
    }
    if (number != kEscTransfer) return read(number, call, inner);
    const std::uint32_t carried = kNumbers[in_.byte() % std::size(kNumbers)];
    pointInside(call, inner, layout_, carried);
    const TransferCall outer{carried, size, call.address()};
    Block transfer(in_, sizeof outer);
    transfer.put(0, &outer, sizeof outer);
    use(decode(layout_, number, static_cast<std::uint32_t>(transfer.size), transfer.at.get()),
        call);
  }

  void read(std::uint32_t number, Block& call, const Block& inner) {
    const auto before = call.copy(), beforeInner = inner.copy();
    const Call decoded =
        decode(layout_, number, static_cast<std::uint32_t>(call.size), call.at.get());
    require(before == call.copy() && beforeInner == inner.copy(), "reading changes nothing");
    use(decoded, call);
  }

  void use(const Call& call, Block& block) {
    if (call.verb == Verb::kOther) return;
    require(layout_ != Layout::kUnknown, "nothing is assumed of an unknown driver");
    if (call.verb == Verb::kSchedule) return;
    if (call.verb == Verb::kSizes) return limit(call, block);
    if (call.verb == Verb::kPids) {
      return keepPids(call, [](std::uint32_t pid) { return pid % 2 != 0; });
    }
    if (call.verb == Verb::kExport || call.verb == Verb::kImport) return exchange(call);
    auto before = block.copy();
    answerNoMemory(call);
    require(statusOf(call) == kNoMemory, "an answer is read as it was given");
    std::memcpy(before.data() + call.statusAt, block.at.get() + call.statusAt, 4);
    require(before == block.copy(), "an answer changes the status alone");
    keep(call);
  }

  void limit(const Call& call, const Block& block) {
    if (call.command == kFbGetInfo) return;  // it points where only a program can
    const auto quota = in_.number<std::uint32_t>(), left = in_.number<std::uint32_t>();
    if (call.command == 0) return limitInPlace(call, block, quota, left);
    const std::vector<std::uint8_t> before(
        static_cast<std::uint8_t*>(call.parameters),
        static_cast<std::uint8_t*>(call.parameters) + call.parametersSize);
    limitSizes(call, quota, left);
    for (std::size_t at = 4; at + sizeof(FbInfo) <= before.size(); at += sizeof(FbInfo)) {
      FbInfo was, is;
      std::memcpy(&was, before.data() + at, sizeof was);
      std::memcpy(&is, static_cast<std::uint8_t*>(call.parameters) + at, sizeof is);
      require(is.index == was.index && is.kibibytes <= was.kibibytes, "sizes only get smaller");
    }
  }

  static void limitInPlace(const Call& call, const Block& block, std::uint64_t quota,
                           std::uint64_t left) {
    const auto before = block.copy();
    limitSizes(call, quota, left);
    for (std::size_t at = 0; at + 8 <= before.size(); at += 8) {
      std::uint64_t was, is;
      std::memcpy(&was, before.data() + at, sizeof was);
      std::memcpy(&is, block.at.get() + at, sizeof is);
      require(is <= was, "sizes only get smaller");
    }
  }

  // What goes into a file has a name beneath it, and what comes out has another.
  void exchange(const Call& call) {
    const FileObjects all = fileObjects(call);
    require(all.count <= kExportMost, "no more than the call has room for");
    for (std::uint32_t i = 0; i < all.count; ++i) {
      if (all.object(i) == 0) continue;
      const Handle file = 1 + static_cast<Handle>(all.fd) % kClients;
      const Handle outside = 1 + all.object(i) % kNames, inside = 1 + (all.index + i) % kNames;
      const Handle client = 1 + call.client % kClients;
      ++made_;
      if (call.verb == Verb::kExport) {
        objects_.duplicate({file, file, inside}, client, outside, onEnd, &ends_);
      } else {
        objects_.duplicate({client, all.parent, outside}, file, inside, onEnd, &ends_);
      }
    }
  }

  // As the interposer keeps it, with few names so that they meet.
  void keep(const Call& call) {
    const auto few = [](Handle handle) { return 1 + handle % kNames; };
    const Handle client = 1 + call.client % kClients;
    if (call.verb == Verb::kFree) {
      Object* top = objects_.takeOut(client, few(call.object));
      if (!top) return;
      if (in_.flag()) return objects_.putBack(top, onEnd, &ends_);
      return Objects::end(top, onEnd, &ends_);
    }
    Objects::Made made{client,      few(call.parent), few(madeBy(call)),     call.objectClass,
                       call.detail, in_.byte() % 4u,  bytesTaken(call) >> 8, 1};
    ++made_;
    if (call.verb == Verb::kDup) {
      objects_.duplicate(made, 1 + call.sourceClient % kClients, few(call.sourceObject), onEnd,
                         &ends_);
    } else {
      charged_ += made.bytes;
      objects_.add(made, onEnd, &ends_);
    }
  }

  Input in_;
  Layout layout_;
  Objects& objects_ = forest();
  Ends ends_;
  std::uint64_t made_ = 0, charged_ = 0;
};

}  // namespace
}  // namespace qgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qgpu::fuzz;
  Game(Input(data, size)).play();
  return 0;
}
