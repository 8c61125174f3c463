#include "services/kubernetes/client/credentials.h"

#include <cstdlib>
#include <simdjson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/base/base64.h"
#include "services/base/net/pem.h"
#include "services/base/text.h"
#include "services/base/yaml.h"

namespace qgpu {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool isFile(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string trimmed(std::string text) {
  const auto blank = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  std::size_t from = 0;
  while (from < text.size() && blank(text[from])) ++from;
  return text.substr(from);
}

// "https://HOST[:PORT][/PREFIX]" taken apart.
Status readServer(const std::string& named, std::string server, KubeCredentials& to) {
  const Error bad = fail(ErrorCode::InvalidArgument,
                         named + "server: \"" + server + "\": write https://HOST:PORT");
  to.tls = server.starts_with("https://");
  if (!to.tls && !server.starts_with("http://")) return bad;
  server.erase(0, to.tls ? 8 : 7);
  const std::size_t slash = std::min(server.find('/'), server.size());
  to.prefix = server.substr(slash);
  while (to.prefix.ends_with('/')) to.prefix.pop_back();
  std::string host = server.substr(0, slash);
  const std::size_t bracket = host.rfind(']');
  const std::size_t colon = host.rfind(':');
  to.port = to.tls ? "443" : "80";
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    to.port = host.substr(colon + 1);
    host.resize(colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  to.host = host;
  const auto port = parseUint(to.port);
  const bool usable = !host.empty() && host.find_first_of(" \t@?#[]") == std::string::npos;
  if (!usable || !port || *port == 0 || *port > 65535) return bad;
  return ok();
}

// One KUBECONFIG: its file, and the folder that its relative paths start from.
class Kubeconfig {
 public:
  explicit Kubeconfig(std::string path) : path_(std::move(path)) {
    const std::size_t slash = path_.rfind('/');
    folder_ = slash == std::string::npos ? "." : path_.substr(0, slash);
  }

  Result<KubeCredentials> read() {
    const auto text = readSmallFile("KUBECONFIG=" + path_ + ": ", path_);
    if (!text) return text.error();
    const auto documents = yamlToJson(*text);
    if (!documents) return wrong(documents.error().message);
    if (documents->size() != 1) return wrong("it is no kubeconfig");
    if (parser_.parse(documents->front()).get(root_) != simdjson::SUCCESS || !root_.is_object()) {
      return wrong("it is no kubeconfig");
    }
    return resolve();
  }

 private:
  using Node = simdjson::dom::element;

  // Plain numbers are texts here too.
  static std::string text(Node node, const std::string& key) {
    Node value;
    if (node[key].get(value) != simdjson::SUCCESS || value.is_object() || value.is_array() ||
        value.is_null()) {
      return "";
    }
    std::string_view words;
    if (value.get(words) == simdjson::SUCCESS) return std::string(words);
    return simdjson::minify(value);
  }
  static bool has(Node node, const char* key) {
    Node value;
    return node[key].get(value) == simdjson::SUCCESS && !value.is_null();
  }
  Error wrong(const std::string& what) const {
    return fail(ErrorCode::InvalidArgument, "KUBECONFIG=" + path_ + ": " + what);
  }
  // The entry of a list by its name, as `kind` holds it.
  Result<Node> entry(const char* list, const char* kind, const std::string& name) const {
    simdjson::dom::array all;
    if (root_[list].get(all) == simdjson::SUCCESS) {
      for (const Node one : all) {
        Node found;
        if (text(one, "name") == name && one[kind].get(found) == simdjson::SUCCESS) return found;
      }
    }
    return wrong(std::string(list) + " has no \"" + name + "\"");
  }
  // KEY is a file's path, KEY-data the text itself in base64, which wins.
  Status readSource(Node node, const std::string& key, TextSource& to) const {
    to.named = "KUBECONFIG=" + path_ + ": " + key + ": ";
    const std::string data = text(node, key + "-data");
    if (!data.empty()) {
      auto plain = fromBase64(data);
      if (!plain) {
        return fail(ErrorCode::InvalidArgument,
                    "KUBECONFIG=" + path_ + ": " + key + "-data: it is no base64");
      }
      to.text = std::move(*plain);
      return ok();
    }
    to.path = absolute(text(node, key));
    return ok();
  }
  std::string absolute(const std::string& path) const {
    return path.empty() || path.starts_with('/') ? path : folder_ + "/" + path;
  }

  Result<KubeCredentials> resolve() {
    const std::string current = text(root_, "current-context");
    if (current.empty())
      return wrong("current-context is not set: kubectl config use-context NAME");
    const auto context = entry("contexts", "context", current);
    if (!context) return context.error();
    KubeCredentials out;
    out.source = path_;
    out.nameSpace = text(*context, "namespace");
    if (out.nameSpace.empty()) out.nameSpace = "default";
    const auto cluster = entry("clusters", "cluster", text(*context, "cluster"));
    if (!cluster) return cluster.error();
    if (Status read = readCluster(*cluster, out); !read) return read.error();
    const std::string name = text(*context, "user");
    if (name.empty()) return out;
    const auto user = entry("users", "user", name);
    if (!user) return user.error();
    if (Status read = readUser(*user, name, out); !read) return read.error();
    return out;
  }

  Status readCluster(Node cluster, KubeCredentials& to) const {
    if (Status read = readServer("KUBECONFIG=" + path_ + ": ", text(cluster, "server"), to);
        !read) {
      return read;
    }
    if (!text(cluster, "proxy-url").empty()) return wrong("proxy-url is not supported");
    to.serverName = text(cluster, "tls-server-name");
    to.unverified = text(cluster, "insecure-skip-tls-verify") == "true";
    if (to.unverified) {
      to.warnings.push_back("KUBECONFIG=" + path_ + " says insecure-skip-tls-verify: whoever " +
                            "sits between may pose as the API server");
    }
    if (!to.tls) to.warnings.push_back("the API server is reached without TLS");
    return readSource(cluster, "certificate-authority", to.ca);
  }

  Status readUser(Node user, const std::string& name, KubeCredentials& to) const {
    for (const char* program : {"exec", "auth-provider"}) {
      if (!has(user, program)) continue;
      return wrong("user \"" + name + "\" wants a program run for its token (" + program +
                   "), which a daemon does not do: use a token, tokenFile or client certificate");
    }
    if (has(user, "username")) return wrong("user \"" + name + "\": passwords are not supported");
    to.token.named = "KUBECONFIG=" + path_ + ": tokenFile: ";
    to.token.path = absolute(text(user, "tokenFile"));
    if (to.token.path.empty()) to.token.text = text(user, "token");
    if (Status read = readSource(user, "client-certificate", to.certificate); !read) return read;
    if (Status read = readSource(user, "client-key", to.key); !read) return read;
    if (to.certificate.given() == to.key.given()) return ok();
    return wrong("user \"" + name + "\": client-certificate and client-key belong together");
  }

  const std::string path_;
  std::string folder_;
  simdjson::dom::parser parser_;
  Node root_;
};

Result<KubeCredentials> readAccount(const KubePlatform& around) {
  KubeCredentials out;
  out.source = "service account";
  out.host = around.serviceHost;
  out.port = around.servicePort.empty() ? "443" : around.servicePort;
  out.ca = {around.account + "/ca.crt: ", around.account + "/ca.crt", ""};
  out.token = {around.account + "/token: ", around.account + "/token", ""};
  if (auto token = out.token.read(); !token) return token.error();
  const auto name = readSmallFile("", around.account + "/namespace");
  out.nameSpace = name ? trimmed(*name) : std::string("default");
  return out;
}

bool hasAccount(const KubePlatform& around) {
  return !around.serviceHost.empty() && isFile(around.account + "/token");
}

}  // namespace

Result<std::string> TextSource::read() const {
  if (path.empty()) return text;
  auto found = readSmallFile(named, path);
  if (!found) return fail(found.error().code, found.error().message + " (" + path + ")");
  return found;
}

KubePlatform KubePlatform::ofProcess() {
  KubePlatform around;
  around.kubeconfig = environment("KUBECONFIG");
  around.serviceHost = environment("KUBERNETES_SERVICE_HOST");
  around.servicePort = environment("KUBERNETES_SERVICE_PORT");
  around.pod = environment("POD_NAME");
  around.podNameSpace = environment("POD_NAMESPACE");
  return around;
}

bool KubePlatform::present() const {
  return !kubeconfig.empty() || hasAccount(*this);
}

Result<KubeCredentials> findCredentials(const KubePlatform& around) {
  const bool account = hasAccount(around);
  if (!around.kubeconfig.empty() && (!account || isFile(around.kubeconfig))) {
    if (around.kubeconfig.find(':') != std::string::npos && !isFile(around.kubeconfig)) {
      return fail(ErrorCode::InvalidArgument,
                  "KUBECONFIG=" + around.kubeconfig + ": name one file; several are not merged");
    }
    return readKubeconfig(around.kubeconfig);
  }
  if (!account) {
    return fail(ErrorCode::InvalidArgument,
                "no way to the Kubernetes API server: KUBECONFIG is not set, and there is no "
                "service account in " +
                    around.account);
  }
  auto out = readAccount(around);
  if (out && !around.kubeconfig.empty()) {
    out->warnings.push_back("KUBECONFIG=" + around.kubeconfig +
                            " is no file here: the service account is used");
  }
  return out;
}

Result<KubeCredentials> readKubeconfig(const std::string& path) {
  return Kubeconfig(path).read();
}

}  // namespace qgpu
