#include "services/prove/signature.h"

#include <algorithm>
#include <errno.h>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "runtime/fd.h"
#include "services/prove/report.h"

namespace qgpu::prove {
namespace {

constexpr int kSignature = 3;  // ssh-keygen's descriptor of one
constexpr const char* kSignaturePath = "/proc/self/fd/3";

Error noDescriptor() {
  return fail(ErrorCode::Unavailable, "no descriptor is left for ssh-keygen");
}

struct Ran {
  int status = 0;
  std::string said;  // stdout and stderr
};

// What ssh-keygen reads; -1: nothing. It asks for a passphrase on the terminal where it must.
struct Given {
  int input = -1;
  int signature = -1;  // its kSignature
};

Result<Ran> runKeygen(std::vector<std::string> words, Given given) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return noDescriptor();
  const Fd from(ends[0]);
  Fd to(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (given.input < 0) {
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  } else {
    ::posix_spawn_file_actions_adddup2(&actions, given.input, STDIN_FILENO);
  }
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  // The last: of this process any of the others may have that number.
  if (given.signature >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions, given.signature, kSignature);
  }
  words.insert(words.begin(), "ssh-keygen");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return fail(ErrorCode::Unavailable,
                "ssh-keygen can't be started: install openssh-client, which has it");
  }
  to.reset();
  Ran ran;
  char chunk[4096];
  for (ssize_t n = 0; (n = ::read(from.get(), chunk, sizeof chunk)) > 0;) {
    ran.said.append(chunk, static_cast<std::size_t>(n));
  }
  int raw = 0;
  while (::waitpid(child, &raw, 0) < 0 && errno == EINTR) {
  }
  ran.status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  // In a sentence of ours, on one line.
  std::erase(ran.said, '\r');
  while (!ran.said.empty() && ran.said.back() == '\n') ran.said.pop_back();
  std::ranges::replace(ran.said, '\n', ' ');
  return ran;
}

// A text as a file that nobody else has, read from its beginning.
Result<Fd> inMemory(const std::string& text) {
  Fd file(::memfd_create("qgpu-report", MFD_CLOEXEC));
  if (!file) return noDescriptor();
  for (std::size_t put = 0; put < text.size();) {
    const ssize_t n =
        ::pwrite(file.get(), text.data() + put, text.size() - put, static_cast<off_t>(put));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(ErrorCode::Unavailable, "no memory is left for ssh-keygen");
    put += static_cast<std::size_t>(n);
  }
  return file;
}

std::string signatureOf(const std::string& file) {
  return file + ".sig";
}

}  // namespace

Status sign(const std::string& file, const std::string& key) {
  std::error_code ignored;
  std::filesystem::remove(signatureOf(file), ignored);
  const Result<Ran> ran = runKeygen({"-Y", "sign", "-q", "-n", kNamespace, "-f", key, file}, {});
  if (!ran) return ran.error();
  if (ran->status == 0) return ok();
  return fail(ErrorCode::InvalidArgument, "the key " + key + " does not sign: " + ran->said);
}

Result<Signed> readSigned(const std::string& file, const std::string& allowedSigners) {
  Result<std::string> text = readDocument(file);
  if (!text) return text.error();
  const std::string beside = signatureOf(file);
  const Result<std::string> signature = readDocument(beside);
  if (!signature) {
    return fail(ErrorCode::NotFound,
                "there is no " + beside + ", which `prove --sign KEY` writes beside a report");
  }
  const Result<Fd> signedText = inMemory(*text), given = inMemory(*signature);
  if (!signedText || !given) return signedText ? given.error() : signedText.error();
  const Result<Ran> found = runKeygen(
      {"-Y", "find-principals", "-s", kSignaturePath, "-f", allowedSigners}, {-1, given->get()});
  if (!found) return found.error();
  const std::string signer = found->said.substr(0, found->said.find(' '));
  if (found->status != 0) {
    return fail(ErrorCode::Denied,
                "nobody in " + allowedSigners + " made " + beside + ": " + found->said);
  }
  const Result<Ran> checked = runKeygen(
      {"-Y", "verify", "-f", allowedSigners, "-I", signer, "-n", kNamespace, "-s", kSignaturePath},
      {signedText->get(), given->get()});
  if (!checked) return checked.error();
  if (checked->status == 0) return Signed{std::move(*text), signer};
  return fail(ErrorCode::Corrupt, file + " is not what " + signer +
                                      " signed: it was changed since, or the signature is of "
                                      "another file (" +
                                      checked->said + ")");
}

}  // namespace qgpu::prove
