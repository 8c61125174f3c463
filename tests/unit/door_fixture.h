#pragma once
// What tests of the doors share: a folder of their own, KJ's event loop, a scripted node behind a
// NodeDoor, and a client that speaks lines over a real unix socket.

#include <gtest/gtest.h>
#include <kj/async-io.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "services/admin/node_door.h"
#include "tests/unit/scripted_node.h"

namespace qgpu::testing {

class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/qgpu-doors-XXXXXX";
    path_ = ::mkdtemp(name);
    ::chmod(path_.c_str(), 0755);  // for peers of another user
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct DoorFixture : ::testing::Test {
  explicit DoorFixture(NodeDoor::Limits limits = {})
      : sink(node), door(sink, io.provider->getTimer(), limits) {
    sink.door = &door;
  }
  ~DoorFixture() noexcept override = default;

  template <typename T>
  T wait(kj::Promise<T> promise) {
    return promise.wait(io.waitScope);
  }
  // Serves until `done`, which the outside brings about.
  template <typename Done>
  void waitUntil(Done done) {
    while (!done()) io.provider->getTimer().afterDelay(kj::MILLISECONDS).wait(io.waitScope);
  }

  TempFolder folder;
  kj::AsyncIoContext io = kj::setupAsyncIo();
  ScriptedNode node;
  ScriptedSink sink;
  NodeDoor door;
};

// A connection that reads lines, on the fixture's loop.
class LineClient {
 public:
  LineClient(kj::AsyncIoContext& io, const std::string& path)
      : io_(io),
        stream_(io.provider->getNetwork()
                    .parseAddress(kj::str("unix:", path.c_str()))
                    .wait(io.waitScope)
                    ->connect()
                    .wait(io.waitScope)) {}

  // Nothing where the server closed before it took everything.
  bool write(const std::string& text) {
    bool written = true;
    kj::evalNow([&]() { return stream_->write(text.data(), text.size()); })
        .catch_([&](kj::Exception&&) { written = false; })
        .wait(io_.waitScope);
    return written;
  }
  void endWrites() { stream_->shutdownWrite(); }

  // The next line, or "" at the end.
  std::string readLine() {
    std::size_t newline = 0;
    while ((newline = buffer_.find('\n')) == std::string::npos) {
      char chunk[4096];
      std::size_t count = 0;
      kj::evalNow([&]() { return stream_->tryRead(chunk, 1, sizeof chunk); })
          .then([&](std::size_t n) { count = n; }, [](kj::Exception&&) {})
          .wait(io_.waitScope);
      if (count == 0) return "";
      buffer_.append(chunk, count);
    }
    std::string line = buffer_.substr(0, newline);
    buffer_.erase(0, newline + 1);
    return line;
  }
  std::string ask(const std::string& line) {
    write(line + "\n");
    return readLine();
  }

 private:
  kj::AsyncIoContext& io_;
  kj::Own<kj::AsyncIoStream> stream_;
  std::string buffer_;
};

}  // namespace qgpu::testing
