#pragma once
// Hosts of a test on one machine: network namespaces around a router, which is the namespace of the
// test itself. Host I is 10.77.I.2, behind 10.77.I.1. Links can be pulled, or lose everything in
// one direction without a word to anybody. Nothing of it is seen outside the test, and all of it is
// gone with the test's processes.

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/testing_names.h"

namespace qgpu::e2e {

class Network {
 public:
  // Puts this process into a network namespace of its own, as root or with the rights of a user
  // namespace. Once, before any thread. Empty, or why this machine does not allow it.
  static std::string enter();

  explicit Network(std::size_t hosts);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  static std::string address(std::size_t host);
  // A command line that runs this on a host, in the process that is started.
  std::vector<std::string> on(std::size_t host, std::vector<std::string> argv) const;

  // The cable; what it sends; what is sent to it; another machine has its address, and refuses.
  enum class Cut { Pulled, FromHost, ToHost, Taken };
  void cut(std::size_t host, Cut how);
  void heal(std::size_t host);  // whatever was cut
  // What one host sends to another one is lost, or no longer.
  void cutBetween(std::size_t from, std::size_t to, bool is);

 private:
  struct Host {
    std::unique_ptr<Child> anchor;  // keeps the namespace
    std::vector<Cut> cuts;
  };
  std::vector<Host> hosts_;
};

}  // namespace qgpu::e2e
