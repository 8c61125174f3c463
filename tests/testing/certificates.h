#pragma once
// Certificates of a test, made by the openssl command, in a folder that goes with the test.

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#include "services/base/net/tls.h"

namespace qgpu::testing {

class Certificates {
 public:
  explicit Certificates(std::string folder) : folder_(std::move(folder)) {}

  void makeCa(const std::string& ca) {
    run("req -x509 " + newKey(ca) + " -out " + path(ca + ".pem") + " -days 2 -subj /CN=" + ca);
  }
  // A certificate with this common name, signed by `ca`. `names`: other names and addresses, as in
  // "DNS:a.b,IP:10.0.0.1". `units` of its subject: "/OU=qgpu-node".
  TlsFiles make(const std::string& ca, const std::string& name, const std::string& names = "",
                const std::string& units = "") {
    const std::string request = path(name + ".csr");
    run("req " + newKey(name) + " -out " + request + " -subj " + units + "/CN=" + name +
        (names.empty() ? "" : " -addext subjectAltName=" + names));
    run("x509 -req -in " + request + " -CA " + path(ca + ".pem") + " -CAkey " + path(ca + ".key") +
        " -CAcreateserial -copy_extensions copyall -out " + path(name + ".pem") + " -days 2");
    return {path(name + ".pem"), path(name + ".key"), path(ca + ".pem")};
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string newKey(const std::string& name) const {
    return "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout " + path(name + ".key");
  }
  static void run(const std::string& arguments) {
    const std::string command = "openssl " + arguments + " >/dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  const std::string folder_;
};

}  // namespace qgpu::testing
