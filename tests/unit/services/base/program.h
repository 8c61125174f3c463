#pragma once
// A program that a test starts, with its output in an unnamed file. It does not outlive the object,
// nor the test's process.

#include <fcntl.h>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace qgpu::testing {

class Program {
 public:
  Program(const std::vector<std::string>& argv, bool ownGroup) {
    out_ = ::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ownGroup) ::setpgid(0, 0);
    ::dup2(out_, 1);
    ::dup2(out_, 2);
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::execv(words[0], words.data());
    ::_exit(99);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (!status_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(out_);
  }

  pid_t pid() const { return pid_; }
  std::optional<int> status() {
    int raw = 0;
    if (!status_ && ::waitpid(pid_, &raw, WNOHANG) == pid_) {
      status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    }
    return status_;
  }
  bool stopped() const {
    int raw = 0;
    return ::waitpid(pid_, &raw, WNOHANG | WUNTRACED) == pid_ && WIFSTOPPED(raw);
  }
  std::string output() const {
    std::string text(64 * 1024, '\0');
    const ssize_t n = ::pread(out_, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  std::optional<int> status_;
};

}  // namespace qgpu::testing
