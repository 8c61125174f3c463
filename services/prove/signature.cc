#include "services/prove/signature.h"

#include <algorithm>
#include <errno.h>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "runtime/fd.h"

namespace qgpu::prove {
namespace {

struct Ran {
  int status = 0;
  std::string said;  // stdout and stderr
};

// Reads `input`; asks for a passphrase on the terminal where it must.
Result<Ran> runKeygen(std::vector<std::string> words, const std::string& input) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::Unavailable, "no descriptor is left for ssh-keygen");
  }
  const Fd from(ends[0]);
  Fd to(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, input.c_str(), O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
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

std::string signatureOf(const std::string& file) {
  return file + ".sig";
}

}  // namespace

Status sign(const std::string& file, const std::string& key) {
  std::error_code ignored;
  std::filesystem::remove(signatureOf(file), ignored);
  const Result<Ran> ran =
      runKeygen({"-Y", "sign", "-q", "-n", kNamespace, "-f", key, file}, "/dev/null");
  if (!ran) return ran.error();
  if (ran->status == 0) return ok();
  return fail(ErrorCode::InvalidArgument, "the key " + key + " does not sign: " + ran->said);
}

Result<std::string> signerOf(const std::string& file, const std::string& allowedSigners) {
  const std::string signature = signatureOf(file);
  if (::access(signature.c_str(), R_OK) != 0) {
    return fail(ErrorCode::NotFound,
                "there is no " + signature + ", which `prove --sign KEY` writes beside a report");
  }
  const Result<Ran> found =
      runKeygen({"-Y", "find-principals", "-s", signature, "-f", allowedSigners}, "/dev/null");
  if (!found) return found.error();
  const std::string signer = found->said.substr(0, found->said.find(' '));
  if (found->status != 0) {
    return fail(ErrorCode::Denied,
                "nobody in " + allowedSigners + " made " + signature + ": " + found->said);
  }
  const Result<Ran> checked = runKeygen(
      {"-Y", "verify", "-f", allowedSigners, "-I", signer, "-n", kNamespace, "-s", signature},
      file);
  if (!checked) return checked.error();
  if (checked->status == 0) return signer;
  return fail(ErrorCode::Corrupt, file + " is not what " + signer +
                                      " signed: it was changed since, or the signature is of "
                                      "another file (" +
                                      checked->said + ")");
}

}  // namespace qgpu::prove
