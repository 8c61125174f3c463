#pragma once
// The flags and the config file of qgpu-scheduler, read and checked in full before anything is
// touched.

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "runtime/log.h"
#include "runtime/units.h"
#include "schema/cluster.capnp.h"
#include "services/base/flags.h"
#include "services/base/platform.h"
#include "services/daemons/log_format.h"
#include "services/etcd/etcd_options.h"
#include "services/kubernetes/pods/pod_rules.h"
#include "services/web/web_options.h"

namespace qgpu {

// Whether Kubernetes nodes are members: Auto where a service account or KUBECONFIG is there.
enum class KubernetesChoice : std::uint8_t { Auto, On, Off };

struct SchedulerDaemonOptions {
  std::string dbfile;
  std::optional<EtcdOptions> etcd;  // in the place of `dbfile`
  std::string restore;              // a snapshot to put there, and end; empty: none
  std::string record;               // folder of recordings; empty: none are made
  std::int64_t recordMib = 0;       // bound of all of them
  std::string replay;               // a recording, or a folder of them, to replay, and end
  std::int64_t untilUnixMs = std::numeric_limits<std::int64_t>::max();
  std::uint64_t explain = 0;  // the task that is asked about then; 0: none
  bool rebuild = false;       // where it is empty, it was lost
  std::string advertise;      // HOST:PORT at which others reach `rpc`; empty: as `rpc` says
  std::string runDir;
  std::string http;                                 // HOST:PORT, port 0: any free one
  std::string rpc;                                  // HOST:PORT, or empty: none
  schema::Score priority = schema::Score::BINPACK;  // of ordinary tasks
  Nanos lease = seconds(15);
  std::int64_t reportDays = 0;  // that a card's report may be old; 0: none is wanted
  LogLevel logLevel = LogLevel::Info;
  LogFormat logFormat = LogFormat::Text;
  std::string tlsCert;  // PEM files; all three or none
  std::string tlsKey;
  std::string tlsCa;
  bool insecure = false;
  bool httpTls = false;  // for --http as well
  std::string metrics;   // address of /metrics alone, from anywhere; empty: none
  bool metricsTls = false;
  std::string extender;  // address of the extender for other machines; empty: none
  std::string extenderCerts;
  std::string join;  // where machines join without a certificate; empty: none
  std::string joinCaKey;
  WebOptions web;
  PodRules pods;
  std::string webhook;   // HOST:PORT; empty: none
  std::string hostname;  // of this machine or pod
  KubernetesChoice kubernetes = KubernetesChoice::Auto;
  bool leaderElect = true;  // of several on one Kubernetes cluster, one acts
};

// In the order of help.
std::span<const FlagRow> schedulerFlags();

std::variant<SchedulerDaemonOptions, ExitNow> parseSchedulerOptions(int argc,
                                                                    const char* const* argv,
                                                                    const Platform& around);

}  // namespace qgpu
