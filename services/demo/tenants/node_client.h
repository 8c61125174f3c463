#pragma once
// What the demo asks of its manager, over the admin socket: one command a line, one JSON document a
// line back. Counters are read with the instant at which they held, as exactly as one can from
// outside: the middle between question and answer.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu::demo {

struct TaskCounters {
  std::int64_t id = 0;
  std::string card;  // ids of its cards
  std::string name;
  std::string taskClass;
  std::string state;
  std::int64_t usedNs = 0;
  std::int64_t gpuNs = 0;
  std::int64_t heldNs = 0;
  std::int64_t launches = 0;
  std::int64_t turns = 0;
};

// What the manager measured itself, in microseconds.
struct Measured {
  std::int64_t p50 = 0;
  std::int64_t p99 = 0;
  std::int64_t n = 0;
};

struct CardCounters {
  std::string raw;  // the card's JSON object as the manager wrote it
  std::string id;
  std::int64_t index = 0;
  std::string backend;
  std::string model;
  std::string policy;
  std::string suspend;
  std::string isolation;
  std::string state;
  std::int64_t holds = 0;
  std::int64_t onlineNs = 0;
  std::int64_t settleUsP99 = 0;
  Measured preemptUs;  // online submit to the last other gate shut
  Measured releaseUs;  // online's last retired work to the others' resume
};

// How the manager arbitrates.
struct NodeSettings {
  std::string name;
  std::string version;
  std::string realtime;  // what the card loop got: "fifo", "slice", "nice", "none", or "unknown"
  std::int64_t onlineIdleNs = 0;
  std::int64_t sliceMaxNs = 0;
};

struct TaskSnapshot {
  std::int64_t atNs = 0;  // CLOCK_MONOTONIC
  std::vector<TaskCounters> tasks;

  const TaskCounters* find(const std::string& name) const;
};

class NodeClient {
 public:
  explicit NodeClient(std::string socketPath);
  ~NodeClient();
  NodeClient(const NodeClient&) = delete;
  NodeClient& operator=(const NodeClient&) = delete;

  // One command; the answer's line if it says ok, else its error. Reconnects when needed.
  Result<std::string> ask(const std::string& command);

  Result<TaskSnapshot> tasks();
  Result<std::vector<CardCounters>> cards();
  Result<CardCounters> firstCard();
  Result<NodeSettings> settings();

 private:
  Status connect();
  Result<std::string> exchange(const std::string& command);

  std::string socketPath_;
  int fd_ = -1;
  std::string received_;
};

// The parts that need no socket.
Result<TaskSnapshot> parseTasks(const std::string& json);
Result<std::vector<CardCounters>> parseCards(const std::string& json);  // one at least

}  // namespace qgpu::demo
