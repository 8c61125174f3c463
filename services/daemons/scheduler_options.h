#pragma once
// The flags and the config file of qgpu-scheduler, read and checked in full before anything is
// touched.

#include <string>
#include <variant>

#include "runtime/log.h"
#include "runtime/units.h"
#include "schema/cluster.capnp.h"
#include "services/daemons/flags.h"
#include "services/daemons/surroundings.h"
#include "services/extender/pod_rules.h"

namespace qgpu {

struct SchedulerDaemonOptions {
  std::string dbfile;
  std::string runDir;
  std::string http;                                 // HOST:PORT, port 0: any free one
  std::string rpc;                                  // likewise
  schema::Score priority = schema::Score::BINPACK;  // of ordinary tasks
  Nanos lease = seconds(15);
  LogLevel logLevel = LogLevel::Info;
  std::string tlsCert;  // PEM files; all three or none
  std::string tlsKey;
  std::string tlsCa;
  bool insecure = false;
  bool httpTls = false;  // for --http as well
  PodRules pods;
  std::string webhook;  // HOST:PORT; empty: none
};

std::variant<SchedulerDaemonOptions, ExitNow> parseSchedulerOptions(int argc,
                                                                    const char* const* argv,
                                                                    const Surroundings& around);

}  // namespace qgpu
