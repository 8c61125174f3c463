#include "services/demo/tenants/node_client.h"

#include <poll.h>
#include <simdjson.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "services/demo/workload/clock.h"

namespace qgpu::demo {
namespace {

using simdjson::dom::element;

constexpr std::size_t kAnswerMax = 16 << 20;
constexpr int kAnswerMsMax = 5000;

// A key that an answer lacks counts as zero or empty: the manager may be older than the demo.
std::int64_t integer(const element& object, const char* key) {
  std::int64_t value = 0;
  return object[key].get(value) == simdjson::SUCCESS ? value : 0;
}

std::string text(const element& object, const char* key) {
  std::string_view value;
  return object[key].get(value) == simdjson::SUCCESS ? std::string(value) : std::string();
}

Measured measured(const element& object, const char* key) {
  element value;
  if (object[key].get(value) != simdjson::SUCCESS) return {};
  return {integer(value, "p50"), integer(value, "p99"), integer(value, "n")};
}

Result<element> parseOk(simdjson::dom::parser& parser, const std::string& json) {
  element document;
  bool fine = false;
  if (parser.parse(json).get(document) != simdjson::SUCCESS ||
      document["ok"].get(fine) != simdjson::SUCCESS) {
    return fail(ErrorCode::Corrupt,
                "the manager answered what is no JSON answer: " + json.substr(0, 200));
  }
  if (!fine) {
    return fail(ErrorCode::Conflict, "the manager refused: " + text(document, "error") + " (" +
                                         text(document, "code") + ")");
  }
  return document;
}

Result<simdjson::dom::array> list(const element& document, const char* key) {
  simdjson::dom::array entries;
  if (document[key].get(entries) != simdjson::SUCCESS) {
    return fail(ErrorCode::Corrupt, std::string("the manager's answer has no list '") + key + "'");
  }
  return entries;
}

}  // namespace

const TaskCounters* TaskSnapshot::find(const std::string& name) const {
  for (const TaskCounters& task : tasks) {
    if (task.name == name) return &task;
  }
  return nullptr;
}

Result<TaskSnapshot> parseTasks(const std::string& json) {
  simdjson::dom::parser parser;
  const Result<element> document = parseOk(parser, json);
  if (!document) return document.error();
  const Result<simdjson::dom::array> entries = list(*document, "tasks");
  if (!entries) return entries.error();
  TaskSnapshot snapshot;
  for (const element entry : *entries) {
    snapshot.tasks.push_back({integer(entry, "id"), text(entry, "card"), text(entry, "name"),
                              text(entry, "class"), text(entry, "state"), integer(entry, "used_ns"),
                              integer(entry, "gpu_ns"), integer(entry, "held_ns"),
                              integer(entry, "launches"), integer(entry, "turns")});
  }
  return snapshot;
}

Result<std::vector<CardCounters>> parseCards(const std::string& json) {
  simdjson::dom::parser parser;
  const Result<element> document = parseOk(parser, json);
  if (!document) return document.error();
  const Result<simdjson::dom::array> cards = list(*document, "cards");
  if (!cards) return cards.error();
  if (cards->size() == 0) return fail(ErrorCode::NotFound, "the manager found no card");
  std::vector<CardCounters> all;
  for (const element card : *cards) {
    CardCounters& counters = all.emplace_back();
    counters.raw = simdjson::minify(card);
    counters.id = text(card, "id");
    counters.index = integer(card, "index");
    counters.backend = text(card, "backend");
    counters.model = text(card, "model");
    counters.policy = text(card, "policy");
    counters.suspend = text(card, "suspend");
    counters.isolation = text(card, "isolation");
    counters.state = text(card, "state");
    counters.holds = integer(card, "holds");
    counters.onlineNs = integer(card, "online_ns");
    counters.settleUsP99 = measured(card, "settle_us").p99;
    counters.preemptUs = measured(card, "preempt_us");
    counters.releaseUs = measured(card, "release_us");
  }
  return all;
}

NodeClient::NodeClient(std::string socketPath) : socketPath_(std::move(socketPath)) {}

NodeClient::~NodeClient() {
  if (fd_ >= 0) close(fd_);
}

Status NodeClient::connect() {
  if (fd_ >= 0) close(fd_);
  received_.clear();
  fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socketPath_.size() >= sizeof address.sun_path) {
    return fail(ErrorCode::InvalidArgument,
                "the path " + socketPath_ + " is too long for a socket");
  }
  socketPath_.copy(address.sun_path, sizeof address.sun_path - 1);
  if (fd_ < 0 || ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    return fail(ErrorCode::Unavailable, "nobody answers at " + socketPath_);
  }
  return ok();
}

Result<std::string> NodeClient::exchange(const std::string& command) {
  if (fd_ < 0) {
    if (Status status = connect(); !status) return status.error();
  }
  const std::string line = command + "\n";
  std::size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return fail(ErrorCode::Unavailable, "the manager's socket closed");
    sent += static_cast<std::size_t>(n);
  }
  const std::int64_t until = monotonicNs() + std::int64_t{kAnswerMsMax} * 1'000'000;
  while (received_.find('\n') == std::string::npos) {
    pollfd ready{fd_, POLLIN, 0};
    if (poll(&ready, 1, 100) <= 0) {
      if (monotonicNs() < until) continue;
      return fail(ErrorCode::Unavailable, "the manager did not answer '" + command + "' within " +
                                              std::to_string(kAnswerMsMax) + " ms");
    }
    char chunk[16384];
    const ssize_t n = recv(fd_, chunk, sizeof chunk, 0);
    if (n <= 0 || received_.size() > kAnswerMax) {
      return fail(ErrorCode::Unavailable, "the manager closed its socket at '" + command + "'");
    }
    received_.append(chunk, static_cast<std::size_t>(n));
  }
  const std::size_t end = received_.find('\n');
  std::string answer = received_.substr(0, end);
  received_.erase(0, end + 1);
  return answer;
}

Result<std::string> NodeClient::ask(const std::string& command) {
  Result<std::string> answer = exchange(command);
  if (!answer) {  // the next question begins on a connection of its own
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    return answer;
  }
  simdjson::dom::parser parser;
  const Result<element> document = parseOk(parser, *answer);
  if (!document) return document.error();
  return answer;
}

Result<TaskSnapshot> NodeClient::tasks() {
  const std::int64_t before = monotonicNs();
  const Result<std::string> answer = ask("tasks");
  const std::int64_t after = monotonicNs();
  if (!answer) return answer.error();
  Result<TaskSnapshot> snapshot = parseTasks(*answer);
  if (snapshot) snapshot->atNs = before + (after - before) / 2;
  return snapshot;
}

Result<std::vector<CardCounters>> NodeClient::cards() {
  const Result<std::string> answer = ask("cards");
  if (!answer) return answer.error();
  return parseCards(*answer);
}

Result<CardCounters> NodeClient::firstCard() {
  const Result<std::vector<CardCounters>> all = cards();
  if (!all) return all.error();
  return all->front();
}

Result<NodeSettings> NodeClient::settings() {
  const Result<std::string> answer = ask("status");
  if (!answer) return answer.error();
  simdjson::dom::parser parser;
  const Result<element> document = parseOk(parser, *answer);
  if (!document) return document.error();
  const std::string got = text(*document, "realtime");
  return NodeSettings{text(*document, "node"), text(*document, "version"),
                      got.empty() ? "unknown" : got.substr(0, got.find(':')),
                      integer(*document, "online_idle_ns"), integer(*document, "slice_max_ns")};
}

}  // namespace qgpu::demo
