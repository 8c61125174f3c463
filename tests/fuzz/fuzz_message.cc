// Messages from outside, as a boundary takes them: one to four segments of Cap'n Proto, read with
// limits, copied and checked, then rebuilt in the memory of a mailbox. An input holds several.
// A `request` goes on to the real node actor in the deterministic world, with its sender's rights
// as the message claims them, and so does what a tenant's page makes its task actor hear.
//
// Promises: what was copied reads in full without checks and stays the same when copied again; C2
// (one answer for each request), C7 (what is refused or only asks changes nothing, who may not
// change a node does not), P1, P2 and P4 after each request.

#include <capnp/serialize.h>
#include <gtest/gtest.h>
#include <kj/exception.h>
#include <optional>
#include <vector>

#include "tests/fuzz/target.h"
#include "tests/unit/actors/base/actors_world.h"

namespace qgpu::fuzz {
namespace {

using testing::World;
using Which = schema::Envelope::Which;

constexpr std::uint64_t kWordsMax = 8 * 1024;
constexpr int kNestingMax = 16;
constexpr int kMessagesMax = 8;

// Layout: (segments - 1), then for each its length in words (2 bytes) and the words themselves.
std::vector<Words> segmentsOf(Input& in) {
  std::vector<Words> segments(1 + (in.byte() & 3U));
  for (Words& segment : segments) {
    const std::size_t words = in.number<std::uint16_t>() & 0x3ffU;
    const auto bytes = in.bytes(words * sizeof(capnp::word));
    segment = Words((bytes.size() + sizeof(capnp::word) - 1) / sizeof(capnp::word));
    if (!bytes.empty()) {
      std::memcpy(static_cast<void*>(segment.data()), bytes.data(), bytes.size());
    }
  }
  return segments;
}

Words rebuilt(ScratchBuilder& scratch, schema::Envelope::Reader message) {
  scratch.begin()->setRoot(message);
  return scratch.finish<schema::Envelope>();
}

bool same(const Words& a, const Words& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 8) == 0;
}

// The message as an actor would get it, or nothing where it does not decode.
std::optional<Words> decode(const std::vector<Words>& segments) {
  static ScratchBuilder scratch;
  std::vector<kj::ArrayPtr<const capnp::word>> parts;
  for (const Words& s : segments) parts.emplace_back(s.data(), s.size());
  std::optional<Words> copy;
  const auto refused = kj::runCatchingExceptions([&] {
    capnp::SegmentArrayMessageReader reader(kj::arrayPtr(parts.data(), parts.size()),
                                            capnp::ReaderOptions{kWordsMax, kNestingMax});
    capnp::MallocMessageBuilder checked(64);
    checked.setRoot(reader.getRoot<schema::Envelope>());
    static_cast<void>(checked.getRoot<schema::Envelope>().asReader().toString());
    copy = flatten<schema::Envelope>(checked);
  });
  if (refused != nullptr) return std::nullopt;
  const auto failed = kj::runCatchingExceptions([&] {
    static_cast<void>(readEnvelope(copy->data()).toString());
    const Words mail = rebuilt(scratch, readEnvelope(copy->data()));
    static_cast<void>(readEnvelope(mail.data()).toString());
    require(same(mail, rebuilt(scratch, readEnvelope(copy->data()))),
            "a builder is as clean after a message as before");
    require(same(mail, rebuilt(scratch, readEnvelope(mail.data()))), "a copy of a copy is equal");
  });
  require(failed == nullptr, "what a boundary let in reads in full without checks");
  return copy;
}

// --- the node ---

bool changes(schema::Request::Which which) {
  switch (which) {
    case schema::Request::POLICY:
    case schema::Request::CORDON:
    case schema::Request::UNCORDON:
    case schema::Request::DRAIN:
    case schema::Request::EVICT:
    case schema::Request::SNAPSHOT:
    case schema::Request::SAVE:
    case schema::Request::REPORT:
    case schema::Request::LOG_LEVEL:
      return true;
    default:
      return false;
  }
}

void checkLedger(const Ledger& ledger) {
  for (std::size_t i = 0; i < ledger.cards(); ++i) {
    const CardRoom& use = ledger.use(i);
    require(use.memBound >= Bytes(0) && use.memBound <= gibibytes(nominalGib(ledger.card(i).mem)),
            "P1: bound memory fits the card");
    require(use.ordinary >= Permille(0) && use.ordinary <= kWholeCard &&
                use.greedy >= Permille(0) && use.greedy <= kWholeCard,
            "P2: shares add up to a card at most");
  }
}

class Node {
 public:
  Node() {
    world_.start();
    world_.actor.clear();
  }
  ~Node() { world_.fixture.dropPending(); }

  void ask(schema::Request::Reader request) {
    const std::uint64_t before = world_.node->ledger().digest();
    const std::size_t rows = world_.fixture.journal().size();
    // The client numbers requests itself, so no two of them are equal.
    const std::uint64_t corr = ++lastCorr_;
    const SendResult sent =
        world_.fixture.tell(world_.clientId, world_.nodeId, [&](schema::Envelope::Builder out) {
          out.setRequest(request);
          out.getRequest().setCorr(corr);
        });
    require(sent == SendResult::Sent, "C5: there is room for one request");
    settle();
    require(world_.answers(corr) == 1, "C2: one answer for each request");
    const auto reply = world_.reply(corr);
    const bool done = reply.isDone() || reply.isBound();
    if (!done) {
      require(world_.node->ledger().digest() == before, "C7: what is refused changes nothing");
    }
    if (done && changes(request.which())) {
      require(request.getMayChange(), "C7: who may not change a node does not");
      const bool changed = world_.node->ledger().digest() != before;
      require(!changed || world_.fixture.journal().size() > rows, "C7: a change is audited");
    }
    checkLedger(world_.node->ledger());
    require(world_.node->ledger().tasks() == world_.node->tasks(), "P4: the views agree");
    world_.actor.clear();
  }

  // What attach server and gate port tell of a tenant's processes and page.
  void tell(schema::Envelope::Reader message) {
    world_.fixture.tellUrgent(world_.attachId, world_.taskIds.front(),
                              [&](schema::Envelope::Builder out) {
                                if (message.isUsed())
                                  out.setUsed(message.getUsed());
                                else
                                  out.setProcessAttached(message.getProcessAttached());
                              });
    settle();
  }

 private:
  void settle() {
    world_.run();
    if (world_.fixture.timers() != 0) world_.fixture.advance(seconds(7));
  }

  World world_;
  std::uint64_t lastCorr_ = 0;
};

}  // namespace
}  // namespace qgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qgpu::fuzz;
  [[maybe_unused]] static const bool set = [] {
    GTEST_FLAG_SET(break_on_failure, true);  // what the world expects is a promise, too
    return true;
  }();
  Input in(data, size);
  std::optional<Node> node;
  for (int i = 0; i < kMessagesMax && !in.empty(); ++i) {
    const std::optional<qgpu::Words> words = decode(segmentsOf(in));
    if (!words) continue;
    const auto message = qgpu::readEnvelope(words->data());
    const bool asks = message.isRequest();
    if (!asks && !message.isUsed() && !message.isProcessAttached()) continue;
    if (!node) node.emplace();
    if (asks)
      node->ask(message.getRequest());
    else
      node->tell(message);
  }
  return 0;
}
