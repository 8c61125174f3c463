#pragma once
// The flags of both daemons that concern browsers (--web and its companions), as they were written.

#include <string>

namespace qgpu {

struct WebOptions {
  std::string address;    // HOST:PORT, port 0: any free one; empty: none is served
  std::string tokenFile;  // its text is asked for; empty: none
  bool tls = false;       // whoever connects shows a certificate of --tls-ca
};

}  // namespace qgpu
