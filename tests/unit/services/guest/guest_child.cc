#include "tests/unit/services/guest/guest_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/check.h"
#include "tests/testing/child_process.h"

namespace qgpu::testing {
namespace {

constexpr std::size_t kProgressBytes = 4096;
constexpr int kProgressWords = 64;

void need(bool held) {
  QGPU_CHECK(held, "a test machine gives pipes, files and processes");
}

// The first of one name holds, as for getenv().
Environment variablesOf(const std::vector<std::string>& entries) {
  Environment all;
  for (const std::string& entry : entries) {
    const std::size_t end = entry.find('=');
    all.emplace(entry.substr(0, end), entry.substr(end + 1));
  }
  return all;
}

}  // namespace

bool retiresAll(const FakeManager& manager) {
  return eventually([&] { return manager.inFlight() == 0; });
}

std::vector<std::string> tenantOf(const FakeManager& manager) {
  return {"OPENCL_LAYERS=" QGPU_GUEST_LIBRARY, "QGPU_SOCKET=" + manager.socketPath(),
          "QGPU_TOKEN=" + FakeManager::token()};
}

GuestChild::GuestChild(const std::vector<std::string>& environment, const std::string& program) {
  const std::string progress = folder_ / "progress";
  int fd = open(progress.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  need(fd >= 0 && ftruncate(fd, kProgressBytes) == 0);
  void* map = mmap(nullptr, kProgressBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  need(map != MAP_FAILED);
  words_ = static_cast<std::uint32_t*>(map);
  close(fd);
  int in[2], out[2];
  need(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
  err_ = openOutput();
  pid_ = startProgram({program, progress}, variablesOf(environment), {in[0], out[1], err_});
  close(in[0]);
  close(out[1]);
  in_ = in[1];
  out_ = out[0];
}

GuestChild::~GuestChild() {
  close(in_);
  if (pid_ > 0) {
    int status = 0;
    bool ended = eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
    if (!ended) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
    }
    QGPU_CHECK(ended && WIFEXITED(status), "a guest program ends by itself when its input ends");
  }
  close(out_);
  close(err_);
  munmap(words_, kProgressBytes);
}

void GuestChild::send(const std::string& command) {
  std::string line = command + "\n";
  need(write(in_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
}

bool GuestChild::answered() {
  pollfd watch{out_, POLLIN, 0};
  return buffered_.find('\n') != std::string::npos || poll(&watch, 1, 0) > 0;
}

std::string GuestChild::answer() {
  for (;;) {
    std::size_t end = buffered_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    char text[512];
    ssize_t n = read(out_, text, sizeof text);
    if (n <= 0) return "";
    buffered_.append(text, static_cast<std::size_t>(n));
  }
}

std::uint64_t GuestChild::progress() const {
  std::uint64_t sum = 0;
  for (int i = 0; i < kProgressWords; ++i) sum += __atomic_load_n(&words_[i], __ATOMIC_SEQ_CST);
  return sum;
}

std::string GuestChild::errors() {
  char text[4096];
  ssize_t n = pread(err_, text, sizeof text, 0);
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "";
}

void GuestChild::kill() {
  ::kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
}

}  // namespace qgpu::testing
