#pragma once
// TLS towards the API server: its certificate is verified against the cluster's CA, by DNS name or,
// where the server is known by its address as in every cluster (https://10.96.0.1), by the IP
// addresses that the certificate lists.

#include <kj/compat/tls.h>

#include "runtime/result.h"
#include "services/kubernetes/client/credentials.h"

namespace qgpu {

// `credentials` outlive the context and all of its connections. InvalidArgument names the file or
// the place in the KUBECONFIG that is wrong.
Result<kj::Own<kj::TlsContext>> openApiTls(const KubeCredentials& credentials);

}  // namespace qgpu
