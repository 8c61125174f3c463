#pragma once
// The listening sockets of a daemon. A unix socket replaces a stale file that a dead daemon left
// and leaves a live one alone; a TCP socket is on loopback unless more is allowed, because nothing
// there says who is asking. Errors name the address and the fix; nothing was touched when one comes
// back.

#include <cstdint>
#include <kj/async-io.h>
#include <kj/io.h>
#include <string>
#include <sys/stat.h>

#include "runtime/result.h"

namespace qgpu {

// A unix socket that listens, and its file, which goes when this goes.
class UnixListener {
 public:
  // `mode`: of the socket file. AlreadyExists: a daemon answers there, or the path is no socket.
  static Result<UnixListener> open(const std::string& path, mode_t mode);

  UnixListener(UnixListener&&) = default;
  UnixListener& operator=(UnixListener&&) = delete;
  ~UnixListener();

  const std::string& path() const { return path_; }
  // Gives the descriptor to the loop that accepts; once.
  kj::Own<kj::ConnectionReceiver> receive(kj::LowLevelAsyncIoProvider& io);

 private:
  UnixListener(std::string path, kj::AutoCloseFd fd, dev_t device, ino_t inode)
      : path_(std::move(path)), fd_(kj::mv(fd)), device_(device), inode_(inode) {}

  std::string path_;
  kj::AutoCloseFd fd_;
  dev_t device_;
  ino_t inode_;
};

// From where a TCP socket may be reached.
enum class Reach : std::uint8_t { Loopback, Anywhere };

class TcpListener {
 public:
  // `address`: "127.0.0.1:PORT", "[::1]:PORT", "localhost:PORT" or "PORT"; port 0 takes a free one.
  // Denied where the address is beyond `reach`. `flag` chose it, as errors say: "--http".
  static Result<TcpListener> open(const std::string& address, const std::string& flag,
                                  Reach reach = Reach::Loopback);

  // The address in use, with the real port.
  const std::string& address() const { return address_; }
  std::uint16_t port() const { return port_; }
  // While it is open the address listens, whoever accepts or does not.
  kj::AutoCloseFd staying() const;
  kj::Own<kj::ConnectionReceiver> receive(kj::LowLevelAsyncIoProvider& io);

 private:
  TcpListener(std::string address, std::uint16_t port, kj::AutoCloseFd fd)
      : address_(std::move(address)), port_(port), fd_(kj::mv(fd)) {}

  std::string address_;
  std::uint16_t port_;
  kj::AutoCloseFd fd_;
};

}  // namespace qgpu
