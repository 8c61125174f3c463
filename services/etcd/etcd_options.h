#pragma once
// Where an etcd is and how one gets in, as flags say it. Apart from the client, so that who reads
// flags needs no gRPC.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

struct EtcdOptions {
  std::vector<std::string> endpoints;  // "http://HOST:PORT" or "https://HOST:PORT", one at least
  std::string prefix = "/qgpu/";       // of all keys, with a '/' at its end
  std::string ca;                      // PEM files, for https: who signed etcd's certificate,
  std::string cert;                    // and what this client shows; empty: none
  std::string key;
  std::string user;  // where etcd asks for one; empty: nobody signs in
  std::string password;
  Nanos callLimit = seconds(1);
};

// "etcd:URL[,URL...][/PREFIX/]" taken apart: the endpoints, and the prefix of the last of them
// where it has one. InvalidArgument names what is none.
Result<EtcdOptions> parseEtcdStore(std::string_view text);

}  // namespace qgpu
