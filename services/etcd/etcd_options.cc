#include "services/etcd/etcd_options.h"

namespace qgpu {
namespace {

constexpr std::string_view kScheme = "etcd:";
constexpr std::string_view kPlain = "http://";
constexpr std::string_view kSecured = "https://";
constexpr std::size_t kEndpointsMax = 9;

Error badUrl(std::string_view url, const char* wanted) {
  return fail(ErrorCode::InvalidArgument, "'" + std::string(url) +
                                              "' is no address of etcd: " + wanted + ", as in " +
                                              "etcd:http://10.0.0.1:2379,http://10.0.0.2:2379");
}

}  // namespace

Result<EtcdOptions> parseEtcdStore(std::string_view text) {
  if (!text.starts_with(kScheme)) return badUrl(text, "it begins with etcd:");
  std::string_view left = text.substr(kScheme.size());
  EtcdOptions options;
  while (true) {
    const std::string_view url = left.substr(0, left.find(','));
    const bool last = url.size() == left.size();
    const std::string_view scheme = url.starts_with(kPlain) ? kPlain : kSecured;
    if (!url.starts_with(scheme)) return badUrl(url, "a URL begins with http:// or https://");
    std::string_view host = url.substr(scheme.size());
    if (const std::size_t slash = host.find('/'); slash != std::string_view::npos) {
      if (!last) return badUrl(url, "only the last URL has a path, the prefix of all keys");
      options.prefix = host.substr(slash);
      if (options.prefix.back() != '/') options.prefix.push_back('/');
      host = host.substr(0, slash);
    }
    const std::size_t colon = host.rfind(':');
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == host.size() ||
        host.find_first_not_of("0123456789", colon + 1) != std::string_view::npos) {
      return badUrl(url, "a URL has a host and a port");
    }
    options.endpoints.push_back(std::string(scheme) + std::string(host));
    if (last) break;
    left.remove_prefix(url.size() + 1);
  }
  if (options.endpoints.size() > kEndpointsMax) {
    return fail(ErrorCode::InvalidArgument,
                "more than " + std::to_string(kEndpointsMax) + " addresses of etcd");
  }
  const bool secured = options.endpoints.front().starts_with(kSecured);
  for (const std::string& each : options.endpoints) {
    if (each.starts_with(kSecured) != secured) {
      return badUrl(each, "all URLs are http, or all are https");
    }
  }
  return options;
}

}  // namespace qgpu
