#pragma once
// `qgpuctl join`: a machine that has no certificate gets one by a token, and the configuration of
// its manager. Its key is made here and stays here; the token says which CA to believe, so that no
// word of it goes to anybody else.
//
// Everything that can be wrong on this machine is looked at before the token is shown, which is
// good once. Nothing is overwritten that was not asked for.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu::ctl {

struct JoinOptions {
  std::string door;   // HOST:PORT, where --join of the scheduler listens
  std::string token;  // as `qgpuctl token create` told it; "-": a line of stdin
  std::string node;   // empty: the host's name
  std::string folder = "/etc/qgpu";
  bool force = false;
  bool start = true;  // the unit, where systemd runs this machine
};

struct Joined {
  std::string node;
  std::string scheduler;   // HOST:PORT of its RPC
  std::string config;      // file
  std::int64_t until = 0;  // Unix seconds, of the certificate
};

// InvalidArgument: what was typed. AlreadyExists, Denied: the folder. Unavailable: the scheduler
// can't be reached, or is another one. Conflict: the clocks. Whatever the scheduler refused is
// Denied.
Result<Joined> joinCluster(const JoinOptions& options, std::int64_t now);

// Whether the manager's unit takes the configuration of this folder, and systemd runs here.
bool unitReads(const std::string& folder);
// Enables the manager's unit and starts it anew, which no program on a card notices. Unavailable:
// what it said.
Status startUnit();

// What there is to do or to know now.
std::string joinedText(const Joined& joined, bool started);
std::string joinedJson(const Joined& joined, bool started);

// A body that is posted to the scheduler's join server at HOST:PORT over TLS, and what it answers.
// Before anything is sent the other side has shown that the CA of this fingerprint signed it for
// HOST. Unavailable: nobody answers there. Denied: somebody else does. Conflict: by this machine's
// clock its certificate does not hold.
Result<std::string> askServer(const std::string& server, const std::string& caFingerprint,
                              const std::string& body);

}  // namespace qgpu::ctl
