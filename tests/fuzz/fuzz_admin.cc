// The admin socket. Layout: FLAGS (1 byte: 1 may change, 2 does not read its answers, 4 says that
// nothing more comes), SIZE (1 byte: pieces that the bytes arrive in), then what the peer says. The
// real server takes it from accept to answer; each line goes through the parser alone as well.
//
// Promises: C2 (one JSON document for each line, in order, an error exactly where the line is no
// command), C7 (a stranger changes nothing; a peer that reads nothing is closed in time; no buffer
// grows past its limit), and what is a command has its values within their bounds.

#include <simdjson.h>
#include <vector>

#include "actors/model.h"
#include "services/api/admin/admin_server.h"
#include "services/api/admin/node_handler.h"
#include "services/api/commands/command_line.h"
#include "services/base/json.h"
#include "tests/fuzz/fuzz_servers.h"
#include "tests/fuzz/target.h"

namespace qgpu::fuzz {
namespace {

class Keeping final : public Housekeeping {
 public:
  void snapshot(std::function<void(Status)> done) override { done(ok()); }
  Status setLogLevel(const std::string& level) override {
    if (level == "debug") return ok();
    return fail(ErrorCode::InvalidArgument, "no such level");
  }
};

struct Admin : Servers {
  Keeping keeping;
  NodeHandler handler{actor, keeping, "here", {"/usr/lib/libqgpu.so", {}}};
  AdminServer server{handler, ChangeRule(kDaemon), AdminLimits{}, io, timer, listener()};
};

// --- the parser alone ---

void checkCommand(const Command& command) {
  const Arguments& given = command.given;
  require(given.card.size() <= kWordMax && given.level.size() <= kWordMax, "words are bounded");
  if (command.row->name == "evict" || command.row->name == "end") {
    require(given.number != 0, "a task has a number");
  }
  if (command.row->does != Does::Run) return;
  const TaskSpec& spec = given.spec.task;
  require(spec.name.size() <= kWordMax && spec.requestId.size() <= kWordMax,
          "texts of a SPEC are bounded");
  require(spec.mem.value > 0 && spec.mem.value % gibibytes(1).value == 0 &&
              spec.mem <= gibibytes(kMemoryGibMax),
          "memory is whole GiB");
  require(spec.share.value <= 1000 && spec.share.value % 10 == 0, "a share is of one card");
  require(spec.cards >= 1 && spec.cards <= kTaskCardsMax, "at least one card");
}

// Whether `line` is a command, and which.
const CommandRow* parse(const std::string& line) {
  const Result<Command> command = parseCommand(line, Side::Node);
  const Result<Command> padded = parseCommand(" \t" + line + " \r", Side::Node);
  require(command.ok() == padded.ok(), "blanks around a command mean nothing");
  if (command) {
    checkCommand(*command);
    return command->row;
  }
  require(command.error().code == ErrorCode::InvalidArgument, "what is no command is told so");
  require(isUtf8(command.error().message), "errors are text");
  return nullptr;
}

// --- the server ---

std::vector<std::string> linesOf(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos;) {
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  require(text.empty(), "an answer ends with its line");
  return lines;
}

bool isOk(const std::string& answer) {
  static simdjson::dom::parser& parser = *new simdjson::dom::parser;
  simdjson::dom::element root;
  require(parser.parse(answer).get(root) == simdjson::SUCCESS, "an answer is JSON");
  bool ok = false;
  require(root["ok"].get(ok) == simdjson::SUCCESS, "an answer says whether it is one");
  return ok;
}

// What the peer said against what it heard.
void checkAnswers(std::string_view said, bool ends, const std::string& heard) {
  const std::vector<std::string> answers = linesOf(heard);
  std::size_t at = 0;
  for (; !said.empty(); ++at) {
    const std::size_t newline = said.find('\n');
    const bool whole = newline != std::string_view::npos;
    if (!whole && !ends) break;
    require(at < answers.size(), "C2: each line has its answer");
    const bool ok = isOk(answers[at]);
    if (!whole || newline > kLineMax) {
      require(!ok, "what is no line is refused");
      ++at;
      break;  // and the connection closed
    }
    const CommandRow* row = parse(std::string(said.substr(0, newline)));
    require(row != nullptr || !ok, "what is no command is refused");
    if (row != nullptr && row->does == Does::Watch)
      return;  // events follow until the peer says more
    said.remove_prefix(newline + 1);
  }
  require(at == answers.size(), "C2: one answer for each line");
}

void serve(Admin& admin, Input in) {
  const std::uint8_t flags = in.byte();
  const bool mayChange = (flags & 1U) != 0, deaf = (flags & 2U) != 0, ends = (flags & 4U) != 0;
  const std::size_t piece = 1 + in.byte() * std::size_t{32};
  const std::string said = in.text(in.left());
  {
    MemoryPeer peer(admin.io.connect(Servers::peer(mayChange)));
    if (!deaf) peer.startReading();
    for (std::size_t at = 0; at < said.size(); at += piece) peer.write(said.substr(at, piece));
    if (ends) peer.endWrites();
    admin.run();
    require(admin.server.connections() <= 1, "one connection");
    if (!deaf) checkAnswers(said, ends, peer.heard());
    if (deaf) admin.advance(seconds(60));
    if (deaf && said.find('\n') != std::string::npos) {
      require(admin.server.connections() == 0, "C7: who takes no answer is closed in time");
    }
  }
  admin.checkAsked(mayChange);
  admin.checkIdle();
  require(admin.server.connections() == 0, "a connection ends with its peer");
}

}  // namespace
}  // namespace qgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qgpu::fuzz;
  static Admin& admin = *new Admin;
  serve(admin, Input(data, size));
  return 0;
}
