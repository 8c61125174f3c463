#pragma once
// What somebody says of the door for browsers: the flags of both daemons, as they were written.

#include <string>

namespace qgpu {

struct WebOptions {
  std::string address;    // HOST:PORT, port 0: any free one; empty: no door
  std::string tokenFile;  // its text is asked for; empty: none
  bool tls = false;       // whoever connects shows a certificate of --tls-ca
};

}  // namespace qgpu
