#pragma once
// A daemon on a host of a test's network, which may be killed and started again, or stand still.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/hosts/network.h"

namespace qgpu::e2e {

class HostDaemon {
 public:
  // Far beyond lease, fence and every pause.
  static constexpr auto kPatience = std::chrono::seconds(90);

  // Starts qgpu-NAME there, and waits until it serves.
  HostDaemon(const Network& network, std::size_t host, const std::string& program,
             std::vector<std::string> flags);
  ~HostDaemon();  // shows what it said where the test failed

  void start();
  void launch();  // without waiting
  void kill();
  void pause();
  void resume();
  bool answers() { return !paused_ && child_->alive(); }
  Child& child() { return *child_; }

  // Null where it does not answer.
  Json ask(const std::string& line);
  std::string socket() const;
  std::string log() const { return child_->output(); }
  std::string logged(const std::string& field) const { return loggedIn(log(), field); }

 private:
  const Network& network_;
  const std::size_t host_;
  const std::string program_;
  const std::vector<std::string> flags_;
  TempFolder dir_;
  std::unique_ptr<Child> child_;
  bool paused_ = false;
};

}  // namespace qgpu::e2e
