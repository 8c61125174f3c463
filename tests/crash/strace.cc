#include "tests/crash/strace.h"

#include <chrono>
#include <signal.h>
#include <sstream>
#include <vector>

#include "tests/crash/violation.h"
#include "tests/testing/eventually.h"

namespace qgpu::crash {

Strace::Strace(pid_t process, const std::string& inject) {
  std::vector<std::string> argv = {"strace", "-f", "-p", std::to_string(process),
                                   "-o",     "/dev/null"};
  std::istringstream words(inject);
  std::string traced;
  for (std::string word; words >> word;) {
    traced += (traced.empty() ? "" : ",") + word.substr(0, word.find(':'));
    argv.insert(argv.end(), {"-e", "inject=" + word});
  }
  argv.insert(argv.end(), {"-e", "trace=" + traced});
  strace_ = std::make_unique<testing::Child>(std::move(argv));
  const auto said = [this](const char* what) {
    return strace_->output().find(what) != std::string::npos;
  };
  const bool decided = testing::eventually([&] { return said(" attached") || !strace_->alive(); });
  if (!said(" attached")) {
    throw Skipped("strace " + std::string(decided ? "does not work here: " : "hangs: ") +
                  strace_->output());
  }
}

void Strace::end() {
  if (!strace_) return;
  strace_->signal(SIGINT);   // lets the process go and ends
  strace_->wait(std::chrono::seconds(10));
  strace_.reset();
}

}  // namespace qgpu::crash
