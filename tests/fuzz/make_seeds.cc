// Writes the seeds of the fuzz targets into FOLDER/TARGET/, one file each: whatever a fuzzer would
// take long to guess. `make_seeds tests/fuzz/corpus` after a schema or an input's layout changed.

#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>

#include "schema/envelope.capnp.h"
#include "schema/node.capnp.h"
#include "schema/rows.capnp.h"

namespace qgpu::fuzz {
namespace {

using schema::TaskClass;

std::string folder;

void seed(const std::string& target, const std::string& name, const std::string& bytes) {
  const std::filesystem::path at = std::filesystem::path(folder) / target;
  std::filesystem::create_directories(at);
  std::ofstream(at / name, std::ios::binary) << bytes;
}

template <typename Int>
std::string raw(Int value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string bytesOf(kj::ArrayPtr<const capnp::word> words) {
  return {reinterpret_cast<const char*>(words.begin()), words.size() * sizeof(capnp::word)};
}

// --- message ---

using Fill = std::function<void(schema::Envelope::Builder)>;

std::string message(const Fill& fill) {
  capnp::MallocMessageBuilder built;
  fill(built.initRoot<schema::Envelope>());
  const auto segments = built.getSegmentsForOutput();
  std::string bytes(1, static_cast<char>(segments.size() - 1));
  for (const auto segment : segments) {
    bytes += raw(static_cast<std::uint16_t>(segment.size())) + bytesOf(segment);
  }
  return bytes;
}

std::string request(bool mayChange, const std::function<void(schema::Request::Builder)>& fill) {
  return message([&](schema::Envelope::Builder envelope) {
    auto out = envelope.initRequest();
    out.setPeerUid(mayChange ? 0 : 1000);
    out.setPeerPid(12);
    out.setMayChange(mayChange);
    fill(out);
  });
}

std::string bind(const char* name, schema::TaskClass taskClass, std::uint64_t gib,
                 std::uint32_t share, std::uint32_t cards = 1, const char* id = "") {
  return request(false, [&](schema::Request::Builder out) {
    auto spec = out.initBind();
    spec.setName(name);
    spec.setClass(taskClass);
    spec.setMemBytes(gib << 30U);
    spec.setSharePermille(share);
    spec.setCards(cards);
    spec.setOwnerUid(1000);
    spec.setRequestId(id);
  });
}

void questions() {
  seed("message", "info", request(false, [](auto out) { out.setInfo(); }));
  seed("message", "cards", request(false, [](auto out) { out.setCards(); }));
  seed("message", "tasks", request(false, [](auto out) { out.setTasks(); }));
  seed("message", "events", request(false, [](auto out) { out.setEvents(1); }));
  seed("message", "watch", request(false, [](auto out) { out.setWatch(true); }));
  seed("message", "snapshot", request(true, [](auto out) { out.setSnapshot(); }));
  seed("message", "loglevel", request(true, [](auto out) { out.setLogLevel("debug"); }));
  seed("message", "cordon", request(true, [](auto out) {
                              out.setCordon("sim-0");
                            }) + request(true, [](auto out) { out.setUncordon("0"); }));
  seed("message", "policy", request(true, [](auto out) {
         auto policy = out.initPolicy();
         policy.setCard("all");
         policy.setPolicy(schema::Policy::FIXED_SHARE);
       }));
}

void lives() {
  const std::string used = message([](schema::Envelope::Builder envelope) {
    auto out = envelope.initUsed();
    out.setTask(1);
    out.setMemBytes(1 << 20);
    out.setLaunches(5);
    out.setFault("a counter ran backwards");
  });
  const std::string attached = message([](schema::Envelope::Builder envelope) {
    auto out = envelope.initProcessAttached();
    out.setTask(1);
    out.setPid(100);
  });
  const std::string evict = request(true, [](auto out) { out.setEvict(1); });
  const std::string unbind = request(false, [](auto out) { out.setUnbind(1); });
  const std::string drain = request(true, [](auto out) { out.setDrain("sim-0"); });
  seed("message", "bind-unbind", bind("a", TaskClass::ORDINARY, 2, 300) + unbind + unbind);
  seed("message", "bind-attach-evict",
       bind("a", TaskClass::ORDINARY, 1, 0) + attached + used + evict);
  seed("message", "bind-twice",
       bind("a", TaskClass::ORDINARY, 1, 100, 1, "x") +
           bind("a", TaskClass::ORDINARY, 1, 100, 1, "x"));
  seed("message", "hybrid",
       bind("on", TaskClass::ONLINE, 1, 0) + bind("off", TaskClass::OFFLINE, 1, 500) + drain);
  seed("message", "whole",
       bind("w", TaskClass::ORDINARY, 8, 1000, 2) + bind("too-much", TaskClass::ORDINARY, 64, 1));
}

// One of each of the other kinds, so that the copy of every struct is seen.
void otherMessages() {
  seed("message", "reply", message([](schema::Envelope::Builder envelope) {
         auto bound = envelope.initReply().initBound();
         bound.setToken("0123456789abcdef0123456789abcdef");
         bound.initCards(2).set(0, "sim-0");
       }));
  seed("message", "report", message([](schema::Envelope::Builder envelope) {
         auto report = envelope.initCardReport();
         report.initStatus().initInfo().setId("sim-0");
         report.initShares(2)[1].setNote("late");
       }));
  seed("message", "known", message([](schema::Envelope::Builder envelope) {
         auto known = envelope.initTaskKnown();
         known.setToken("0123456789abcdef0123456789abcdef");
         known.initCards(3).set(2, 9);
       }));
  seed("message", "unsent", message([](schema::Envelope::Builder envelope) {
         auto health = envelope.initStorageHealth();
         health.setText("disk full");
         health.initUnsent(2)[0].setCorr(4);
       }));
  seed("message", "event", message([](schema::Envelope::Builder envelope) {
         envelope.initEventTold().setText("bound");
       }));
}

// --- rpc ---

namespace rpc = capnp::rpc;

std::string spoken(const std::function<void(rpc::Message::Builder)>& fill) {
  capnp::MallocMessageBuilder built;
  fill(built.initRoot<rpc::Message>());
  const auto words = capnp::messageToFlatArray(built);
  return bytesOf(words.asPtr());
}

std::string bootstrap() {
  return spoken([](rpc::Message::Builder m) { m.initBootstrap().setQuestionId(0); });
}

template <typename Params>
std::string call(std::uint32_t question, std::uint16_t method,
                 const std::function<void(typename Params::Builder)>& fill,
                 const std::function<void(rpc::Payload::Builder)>& caps = {}) {
  return spoken([&](rpc::Message::Builder m) {
    auto out = m.initCall();
    out.setQuestionId(question);
    out.initTarget().initPromisedAnswer().setQuestionId(0);
    out.setInterfaceId(capnp::typeId<schema::Node>());
    out.setMethodId(method);
    auto params = out.initParams();
    if (caps) caps(params);
    fill(params.getContent().initAs<Params>());
  });
}

std::string finish(std::uint32_t question) {
  return spoken([&](rpc::Message::Builder m) {
    auto out = m.initFinish();
    out.setQuestionId(question);
    out.setReleaseResultCaps(true);
  });
}

std::string watch(std::uint32_t question) {
  using Params = schema::Node::WatchParams;
  return spoken([&](rpc::Message::Builder m) {
    auto out = m.initCall();
    out.setQuestionId(question);
    out.initTarget().initPromisedAnswer().setQuestionId(0);
    out.setInterfaceId(capnp::typeId<schema::Node>());
    out.setMethodId(5);
    auto params = out.initParams();
    params.initCapTable(1)[0].setSenderHosted(1);
    // A capability is a pointer of kind 3 with its index in the table.
    auto content = params.getContent().initAs<Params>();
    auto* pointer = reinterpret_cast<std::uint64_t*>(
        const_cast<kj::byte*>(capnp::toAny(content.asReader()).getDataSection().end()));
    *pointer = 3;
  });
}

void conversations() {
  using N = schema::Node;
  const std::string hello(2, '\1');  // may change; pieces of 33 bytes
  const std::string open = hello + bootstrap();
  const auto nothing = [](auto) {};
  seed("rpc", "bootstrap", open + finish(0));
  seed("rpc", "info", open + call<N::InfoParams>(1, 0, nothing) + finish(1));
  seed("rpc", "lists",
       open + call<N::CardsParams>(1, 1, nothing) + call<N::TasksParams>(2, 2, nothing) +
           finish(1) + finish(2));
  seed("rpc", "bind", open + call<N::BindParams>(1, 3, [](N::BindParams::Builder params) {
                        auto spec = params.initSpec();
                        spec.setName("job");
                        spec.setMemBytes(1ULL << 30U);
                        spec.setSharePermille(100);
                        spec.setRequestId("x");
                      }));
  seed("rpc", "unbind", open + call<N::UnbindParams>(1, 4, [](auto p) { p.setTask(7); }));
  seed("rpc", "policy", open + call<N::SetPolicyParams>(1, 6, [](auto params) {
                          params.setCard("all");
                          params.setPolicy(schema::Policy::BURST_SHARE);
                        }));
  seed("rpc", "cordon", open + call<N::CordonParams>(1, 7, [](auto p) {
                          p.setCard("sim-0");
                        }) + call<N::UncordonParams>(2, 8, [](auto p) { p.setCard("sim-0"); }));
  seed("rpc", "events", open + call<N::EventsParams>(1, 9, [](auto p) { p.setSince(3); }));
  seed("rpc", "watch", open + watch(1) + watch(2) + finish(1));
  seed("rpc", "no-method", open + call<N::InfoParams>(1, 99, nothing));
  const std::string stranger = std::string("\0\2", 2) + bootstrap();
  seed("rpc", "stranger", stranger + call<N::CordonParams>(1, 7, [](auto p) { p.setCard("0"); }));
  const auto evict = [](N::AskParams::Builder p) { p.initRequest().setEvict(7); };
  seed("rpc", "ask",
       open + call<N::AskParams>(1, 11, evict) +
           call<N::AskParams>(
               2, 11, [](N::AskParams::Builder p) { p.initRequest().initBind().setName("job"); }));
  seed("rpc", "ask-stranger",
       stranger + call<N::AskParams>(1, 11, evict) +
           call<N::AskParams>(2, 11, [](N::AskParams::Builder p) {
             auto request = p.initRequest();
             request.setMayChange(true);
             request.initBind().setOwnerUid(0);
           }));
}

void rareMessages() {
  const std::string hello(2, '\4');  // ends its writes
  const auto say = [&](const char* name, const std::function<void(rpc::Message::Builder)>& fill) {
    seed("rpc", name, hello + bootstrap() + spoken(fill));
  };
  say("abort", [](rpc::Message::Builder m) { m.initAbort().setReason("bye"); });
  say("release", [](rpc::Message::Builder m) {
    m.initRelease().setId(0);
    m.getRelease().setReferenceCount(1);
  });
  say("resolve", [](rpc::Message::Builder m) {
    m.initResolve().setPromiseId(3);
    m.getResolve().initCap().setSenderHosted(4);
  });
  say("disembargo", [](rpc::Message::Builder m) {
    auto out = m.initDisembargo();
    out.initTarget().initPromisedAnswer().setQuestionId(0);
    out.getContext().setSenderLoopback(1);
  });
  say("return", [](rpc::Message::Builder m) { m.initReturn().setAnswerId(9); });
  say("unimplemented",
      [](rpc::Message::Builder m) { m.initUnimplemented().initBootstrap().setQuestionId(5); });
  say("provide", [](rpc::Message::Builder m) { m.initProvide().setQuestionId(1); });
  say("join", [](rpc::Message::Builder m) { m.initJoin().setQuestionId(1); });
}

// --- row ---

std::string rowBytes(const std::function<void(schema::Row::Builder)>& fill) {
  capnp::MallocMessageBuilder built(4096);
  fill(built.initRoot<schema::Row>());
  return bytesOf(built.getSegmentsForOutput()[0]);
}

std::string key(std::uint16_t kind, std::uint64_t id) {
  return raw(kind) + raw(id);
}

// One row of a whole database, as fuzz_store.cc reads it.
std::string stored(char flags, std::int8_t lsn, std::uint8_t kind, std::uint8_t id,
                   const std::string& bytes) {
  return std::string(1, flags) + raw(lsn) + raw(kind) + raw(id) +
         raw(static_cast<std::uint8_t>(bytes.size() / 8)) + bytes;
}

void rows() {
  const std::string node = rowBytes([](schema::Row::Builder row) {
    row.initNode().setIncarnation(3);
    row.getNode().setNextTask(8);
  });
  const std::string card = rowBytes([](schema::Row::Builder row) {
    row.initCard().setId("sim-0");
    row.getCard().setPolicy(schema::Policy::FIXED_SHARE);
  });
  const std::string task = rowBytes([](schema::Row::Builder row) {
    auto out = row.initTask();
    out.setId(1);
    out.initSpec().setName("job");
    out.setToken("0123456789abcdef0123456789abcdef");
    out.initCards(2).set(1, "sim-1");
  });
  const std::string audit = rowBytes([](schema::Row::Builder row) {
    row.initAudit().setKind("policy");
    row.getAudit().setText("all to fixed-share");
  });
  seed("row", "node", key(1, 0) + node);
  seed("row", "card", key(2, 0) + card);
  seed("row", "task", key(3, 1) + task);
  seed("row", "audit", key(4, 9) + audit);
  seed("row", "erased", key(3, 1) + rowBytes([](auto row) { row.setErased(); }));
  seed("row", "zeros", key(3, 1) + std::string(16, '\0'));
  const std::string ours(2, '\0');
  const std::string journal = stored(0, 1, 1, 0, node) + stored(0, 2, 3, 1, task) +
                              stored(0, 3, 4, 9, audit) + stored(0, 4, 3, 1, "");
  seed("store", "rows", ours + journal);
  seed("store", "damaged", ours + stored(0, 1, 1, 0, node) + stored(2, 2, 3, 1, task));
  seed("store", "newer", std::string("\2\0", 2) + journal);
  seed("store", "snapshot",
       std::string("\1\2", 2) + stored(1, 1, 1, 0, node) + stored(1, 2, 3, 1, task) +
           stored(0, 3, 2, 0, card));
}

// --- text ---

void texts() {
  const char* const lines[] = {
      "help",
      "status",
      "cards",
      "tasks",
      "events 3",
      "watch 2",
      "policy all bs",
      "cordon sim-0",
      "uncordon 0",
      "drain sim-0",
      "evict 7",
      "snapshot",
      "loglevel debug",
      "end 7",
      "run {\"name\":\"a\",\"class\":\"online\",\"memory_gib\":2,\"cards\":1}",
      "run {\"core_percent\":200,\"owner\":\"none\",\"request_id\":\"x\\u00e9\"}"};
  std::string all;
  for (const char* line : lines) all += std::string(line) + "\n";
  const std::string mayChange("\1\2", 2), stranger("\4\1", 2), deaf("\3\377", 2);
  seed("admin", "all", mayChange + all);
  seed("admin", "stranger", stranger + all);
  seed("admin", "deaf", deaf + all);
  for (const char* line : lines) {
    const std::string text(line);
    const std::size_t end = std::min(text.find(' '), text.size());
    seed("admin", text.substr(0, end) + "-" + std::to_string(text.size()), mayChange + text + "\n");
  }
  seed("admin", "half", std::string("\5\0", 2) + "evict 12");
  const std::string nul(1, '\0');
  seed("config", "file",
       "# a comment\n(nodename = \"n\", policy = \"fs\", mixed = true, slice = \"1ms..2ms\",\n"
       " maxTasksPerCard = \"3\", realtime = \"off\", cards = \"sim:8x32\", onlineIdle = \"1.5s\","
       "\n dbfile = \"/a/b\", runDir = \"/run/x\", http = \"127.0.0.1:0\", rpc = \"[::1]:1\","
       " logLevel = \"warn\", suspend = \"gate\")");
  seed("config", "flags",
       "()" + nul + "--policy=burst-share" + nul + "--slice=100us..10s" + nul + "--cards=sim:1x1" +
           nul + "--max-tasks-per-card=auto" + nul + "--mixed" + nul + "--nodename" + nul + "n" +
           nul);
  seed("config", "help", nul + "--help" + nul);
  seed("config", "wrong", "(policy = \"a\\nb\", mixed = 3)" + nul + "--polcy=fs" + nul);
  seed("config", "nested", "(nodename = ((((((((((\"x\"))))))))))");
}

// --- page ---

// Calls of fuzz_page.cc, by their order there.
void pages() {
  const std::string take("\x09\x01\x01", 3), sample("\x05", 1), use("\x06", 1), judge("\x07", 1);
  // Number: slot, field, by (2 bytes), how (and 8 bytes).
  const auto number = [](char slot, char field, std::int16_t by, char how) {
    return std::string("\x01", 1) + slot + field + raw(by) + how;
  };
  const std::string work = number(0, 0, 5, 0) + number(0, 1, 3, 0) + number(0, 2, -7, 1) +
                           number(0, 3, -3, 1) + number(0, 4, 5, 0) + number(0, 6, 4096, 0);
  seed("page", "work", take + work + sample + use + judge + number(0, 1, 2, 0) + sample);
  seed("page", "backwards", take + work + sample + number(0, 1, -2, 0) + sample + use);
  seed("page", "two",
       take + take + work + number(1, 0, 100, 0) + sample + std::string("\x0b\x00", 2) + sample +
           use);
  seed("page", "nonsense",
       take + std::string("\x02\x00\xff", 3) + sample + use + judge + judge +
           std::string("\x08\x00", 2));
  seed("page", "claim", std::string("\x0c\x03\x0a\x03\x01\x01", 6) + sample);
  for (char kind = 0; kind < 5; ++kind) {
    seed("page", std::string("adopt-") + static_cast<char>('0' + kind),
         std::string("\x0d", 1) + kind + std::string("\0\0\0", 3) + take + sample);
  }
  seed("page", "gate",
       take + std::string("\x0e\x01\x00\x00\x00\x01", 6) + work + sample + std::string("\x0f", 1) +
           sample);
}

// --- attach ---

// Acts of fuzz_attach.cc, by their order there.
void hellos() {
  const std::string connect("\0", 1), turn("\3", 1);
  // Hello: flags, token, what the flags ask for; then descriptors and who says it.
  const auto hello = [](char flags, char token, const std::string& more = {},
                        const std::string& fds = std::string(1, '\0')) {
    return std::string("\1", 1) + flags + token + more + fds + std::string(1, '\0');
  };
  const std::string leave("\4\0", 2), recovering("\5\1", 2);
  const std::string page("\1\0", 2), seen = raw(std::uint32_t{20});
  seed("attach", "hello", connect + hello(0, 1) + turn);
  seed("attach", "online", connect + hello(16, 2, raw(std::uint32_t{40})) + turn);
  seed("attach", "closed", connect + hello(0, 3) + turn);
  seed("attach", "unknown", connect + hello(0, 0) + turn);
  seed("attach", "twice", hello(0, 1) + turn + connect + hello(0, 1) + turn);
  seed("attach", "again", hello(0, 1) + turn + leave + turn + hello(0, 1) + turn);
  seed("attach", "reattach", hello(0, 1) + turn + leave + hello(1, 1, "", page) + turn);
  seed("attach", "restart",
       hello(0, 1) + turn + recovering + connect + hello(1, 1, "", page) + turn);
  seed("attach", "waits",
       hello(0, 1) + turn + recovering + hello(0, 1) + turn + hello(0, 4) + turn +
           std::string("\6\3", 2) + turn);
  seed("attach", "incarnation",
       hello(4, 1, seen) + turn + std::string("\x08", 1) + raw(std::uint32_t{21}) + turn);
  seed("attach", "fakes", hello(1, 1, "", std::string("\5\2\3\4\1\0", 6)) + turn);
  seed("attach", "short", hello(static_cast<char>(0x80), 1, "\x40") + turn);
  seed("attach", "long", std::string("\2\xff", 2) + std::string(255, 'x') + turn);
  seed("attach", "scribble",
       hello(0, 1) + turn + std::string("\x09\0\0\x20", 4) + std::string(32, '\xff') + leave +
           hello(1, 1, "", page) + turn);
}

}  // namespace
}  // namespace qgpu::fuzz

int main(int argc, char** argv) {
  using namespace qgpu::fuzz;
  if (argc != 2) {
    std::cerr << "usage: fuzz_seeds FOLDER\n";
    return 2;
  }
  folder = argv[1];
  questions();
  lives();
  otherMessages();
  conversations();
  rareMessages();
  rows();
  texts();
  pages();
  hellos();
  return 0;
}
