#pragma once
// How a program reaches the API server and who it is there: KUBECONFIG, else the service account
// that a pod is given. Read and checked before anything is sent.
//
// What lies in files is kept as a path and read again when a connection is made: kubelet rotates
// tokens, client certificates and CAs under the same names. Programs that a KUBECONFIG wants run
// for a token (exec, auth-provider) are refused: a daemon starts nothing that a file names.

#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// A text that stands in a file or was given as it is.
struct TextSource {
  std::string named;  // where it comes from, as a begin of an error line: "FILE: users[0]: "
  std::string path;   // of the file; empty: `text`
  std::string text;

  bool given() const { return !path.empty() || !text.empty(); }
  Result<std::string> read() const;
};

struct KubeCredentials {
  std::string source;  // for people: "service account", or the KUBECONFIG file
  std::string host;    // name or IP address, without brackets
  std::string port;
  std::string prefix;  // of each path, without the slash at its end; mostly empty
  bool tls = true;
  bool unverified = false;  // insecure-skip-tls-verify
  std::string serverName;   // tls-server-name; empty: the host
  TextSource ca;            // none: the system's trust store
  TextSource certificate;   // of the client; none: it has a token
  TextSource key;
  TextSource token;
  std::string nameSpace;              // of this account
  std::vector<std::string> warnings;  // what a person should know
};

// What the search depends on; a test brings its own.
struct KubePlatform {
  std::string kubeconfig;   // $KUBECONFIG, or empty
  std::string serviceHost;  // $KUBERNETES_SERVICE_HOST, or empty
  std::string servicePort;  // $KUBERNETES_SERVICE_PORT
  std::string account = "/var/run/secrets/kubernetes.io/serviceaccount";
  std::string pod{};           // $POD_NAME: this process's own; empty: it runs in none, or unnamed
  std::string podNameSpace{};  // $POD_NAMESPACE

  static KubePlatform ofProcess();
  // True where there is a reason to look: --kubernetes=auto.
  bool present() const;
};

// KUBECONFIG where that file is, else the service account. InvalidArgument names the file, the
// place in it and the fix.
Result<KubeCredentials> findCredentials(const KubePlatform& around);

Result<KubeCredentials> readKubeconfig(const std::string& path);

}  // namespace qgpu
