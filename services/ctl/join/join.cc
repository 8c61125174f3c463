#include "services/ctl/join/join.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/whole_file.h"
#include "services/api/join/join_codec.h"
#include "services/api/rpc/certificate.h"
#include "services/base/child_probe.h"
#include "services/base/json.h"
#include "services/base/net/pem.h"
#include "services/base/net/x509.h"
#include "services/base/platform.h"
#include "services/base/wall_time.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kSystemctlLimit = seconds(60);
constexpr mode_t kOwnMode = 0600, kSharedMode = 0644, kJoinFolderMode = 0755;
constexpr const char* kUnit = "qgpu-manager";
// What a join writes; the last is read by the unit.
constexpr const char* kKeyFile = "node.key";
constexpr const char* kCertFile = "node.pem";
constexpr const char* kCaFile = "ca.pem";
constexpr const char* kConfigFile = "manager.toml";
constexpr const char* kUnitFile = "manager.env";

Status usableFolder(const JoinOptions& options) {
  const std::string& folder = options.folder;
  if (::mkdir(folder.c_str(), kJoinFolderMode) != 0 && errno != EEXIST) {
    const std::string why = std::strerror(errno);
    return fail(ErrorCode::Denied, "can't make the folder " + folder + ": " + why +
                                       "; become root, or name another with --dir");
  }
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return fail(ErrorCode::Denied, folder + " is no folder: name another with --dir");
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(ErrorCode::Denied, folder +
                                       " may be written to by others, who could put certificates "
                                       "of theirs there: chmod 755 " +
                                       folder);
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return fail(ErrorCode::Denied,
                "can't write to " + folder + ": become root, or name another with --dir");
  }
  for (const char* name : {kKeyFile, kCertFile, kCaFile, kConfigFile}) {
    const std::string path = folder + "/" + name;
    if (options.force || ::lstat(path.c_str(), &info) != 0) continue;
    return fail(ErrorCode::AlreadyExists, path +
                                              " is there already: this machine has joined before, "
                                              "or somebody wrote it; --force writes it anew");
  }
  return ok();
}

Result<std::string> tokenOf(const JoinOptions& options) {
  if (options.token != "-") return options.token;
  std::string line;
  std::getline(std::cin, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

bool holdsCa(const std::string& bundle, const std::string& fingerprint) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
  for (std::size_t at = bundle.find(kBegin); at != std::string::npos;
       at = bundle.find(kBegin, at + 1)) {
    if (fingerprintOf(bundle.substr(at)) == fingerprint) return true;
  }
  return false;
}

// The scheduler is who it should be; this is for one that is broken.
Status checkAnswer(const JoinAnswer& answer, const std::string& key, const std::string& node,
                   const std::string& ca, std::int64_t now) {
  const auto from = beginningOf(answer.certificate), until = expiryOf(answer.certificate);
  if (!belongTogether(answer.certificate, key) || !holdsCa(answer.ca, ca) ||
      !ownerOf(answer.certificate).mayJoinAs(node)) {
    return fail(ErrorCode::Corrupt,
                "the scheduler signed something else than was asked: nothing was written, and the "
                "token is used up");
  }
  if (from && until && *from <= now && now < *until) return ok();
  return fail(ErrorCode::Conflict,
              "by this machine's clock (" + rfc3339(now * 1000) +
                  ") the new certificate does not hold: set the clock, and join by another token");
}

std::string configText(const Joined& joined, const std::string& folder) {
  std::string text =
      "# Written by `qgpuctl join`: qgpu-manager --config reads it; flags win over it.\n";
  const auto add = [&](const char* key, const std::string& value) {
    text += std::string(key) + " = ";
    appendJsonString(text, value);  // TOML's basic strings have the same escapes
    text += '\n';
  };
  add("nodename", joined.node);
  add("scheduler", joined.scheduler);
  add("tls-cert", folder + "/" + kCertFile);
  add("tls-key", folder + "/" + kKeyFile);
  add("tls-ca", folder + "/" + kCaFile);
  return text;
}

// The key first: a certificate without it is of no use to anybody.
Status writeAll(const std::string& folder, const std::string& key, const JoinAnswer& answer,
                const Joined& joined) {
  const struct {
    const char* name;
    std::string text;
    mode_t mode;
  } kFiles[] = {
      {kKeyFile, key, kOwnMode},
      {kCertFile, answer.certificate, kSharedMode},
      {kCaFile, answer.ca, kSharedMode},
      {kConfigFile, configText(joined, folder), kSharedMode},
      {kUnitFile, "QGPU_MANAGER_JOINED=\"--config=" + joined.config + "\"\n", kSharedMode}};
  for (const auto& [name, text, mode] : kFiles) {
    if (Status written = writeAnew(folder + "/" + name, text, mode); !written) {
      return fail(ErrorCode::Unavailable,
                  written.error().message + "; the token is used up: join by another one");
    }
  }
  return ok();
}

}  // namespace

Result<Joined> joinCluster(const JoinOptions& options, std::int64_t now) {
  const auto typed = tokenOf(options);
  if (!typed) return typed.error();
  const auto token = readToken(*typed);
  if (!token) return token.error();
  const std::string node = options.node.empty() ? Platform::ofThisProcess().hostname : options.node;
  if (Status named = checkCertificateName(node); !named) {
    return fail(ErrorCode::InvalidArgument,
                named.error().message + "; name the node with --nodename");
  }
  if (Status folder = usableFolder(options); !folder) return folder.error();
  const auto key = newPrivateKey();
  if (!key) return key.error();
  const auto request = newRequest(node, *key);
  if (!request) return request.error();
  const auto said = askServer(options.door, token->ca,
                              joinAskText({token->id, token->secret, node, *request, now}));
  if (!said) return said.error();
  const auto answer = readJoinAnswer(*said);
  if (!answer) return answer.error();
  if (Status good = checkAnswer(*answer, *key, node, token->ca, now); !good) return good.error();
  Joined joined;
  joined.node = node;
  joined.scheduler =
      options.door.substr(0, options.door.rfind(':') + 1) + std::to_string(answer->rpcPort);
  joined.config = options.folder + "/" + kConfigFile;
  joined.until = *expiryOf(answer->certificate);
  if (Status all = writeAll(options.folder, *key, *answer, joined); !all) return all.error();
  return joined;
}

bool unitReads(const std::string& folder) {
  struct stat info {};
  return folder == JoinOptions().folder && ::geteuid() == 0 &&
         ::stat("/run/systemd/system", &info) == 0;
}

Status startUnit() {
  for (const char* what : {"enable", "restart"}) {
    const auto done = askInChild("systemctl", std::string("systemctl ") + what + " " + kUnit,
                                 kSystemctlLimit, [&](int) {
                                   ::execlp("systemctl", "systemctl", what, kUnit, nullptr);
                                   ::_exit(127);
                                 });
    if (!done) return done.error();
  }
  return ok();
}

std::string joinedText(const Joined& joined, bool started) {
  return joined.node + " may join " + joined.scheduler + " until " + rfc3339(joined.until * 1000) +
         ", by " + joined.config +
         (started ? "; qgpu-manager runs with it\n"
                  : "\nstart its manager: qgpu-manager --config=" + joined.config + "\n");
}

std::string joinedJson(const Joined& joined, bool started) {
  JsonWriter json;
  json.beginObject().flag("ok", true).field("node", joined.node);
  json.field("scheduler", joined.scheduler).field("config", joined.config);
  json.field("until", rfc3339(joined.until * 1000)).flag("started", started).endObject();
  return json.take() + "\n";
}

}  // namespace qgpu::ctl
