#include "tests/e2e/hosts/host_daemon.h"

#include <gtest/gtest.h>
#include <iostream>
#include <signal.h>

namespace qgpu::e2e {

HostDaemon::HostDaemon(const Network& network, std::size_t host, const std::string& program,
                       std::vector<std::string> flags)
    : network_(network), host_(host), program_(program), flags_(std::move(flags)) {
  start();
}

HostDaemon::~HostDaemon() {
  if (::testing::Test::HasFailure()) {
    std::cerr << program_ << " on host " << host_ << ":\n" << child_->output() << "\n";
  }
}

void HostDaemon::launch() {
  std::vector<std::string> argv = {binary(program_), "--run-dir=" + dir_.path() + "/run",
                                   "--dbfile=" + dir_.path() + "/db", "--http=127.0.0.1:0"};
  argv.insert(argv.end(), flags_.begin(), flags_.end());
  child_ = std::make_unique<Child>(network_.on(host_, argv));
  paused_ = false;
}

void HostDaemon::start() {
  launch();
  EXPECT_TRUE(eventually([&] { return !ask("status").is_null(); }, kPatience)) << log();
}

void HostDaemon::kill() {
  child_->signal(SIGKILL);
  child_->wait();
}

void HostDaemon::pause() {
  child_->signal(SIGSTOP);
  paused_ = true;
}

void HostDaemon::resume() {
  child_->signal(SIGCONT);
  paused_ = false;
}

std::string HostDaemon::socket() const {
  return dir_.path() + "/run/" + program_.substr(5) + ".sock";
}

Json HostDaemon::ask(const std::string& line) {
  if (!answers()) return nullptr;
  const Json answer =
      Json::parse(askSocket(socket(), line, std::chrono::seconds(60)), nullptr, false);
  return answer.is_discarded() ? Json() : answer;
}

}  // namespace qgpu::e2e
