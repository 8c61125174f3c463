#pragma once
// The flags and the config file of qgpu-manager, read and checked in full before anything is
// touched.

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "actors/arbiter/arbiter.h"
#include "runtime/config.h"
#include "runtime/log.h"
#include "runtime/units.h"
#include "schema/types.capnp.h"
#include "services/base/flags.h"
#include "services/base/net/tls.h"
#include "services/base/platform.h"
#include "services/cards/cards.h"
#include "services/cards/device_nodes.h"
#include "services/daemons/log_format.h"
#include "services/kubernetes/pods/pod_rules.h"
#include "services/web/web_options.h"

namespace qgpu {

enum class KubeletChoice : std::uint8_t { Auto, On, Off };
enum class GuardChoice : std::uint8_t { Auto, On, Off };
enum class RealtimeChoice : std::uint8_t { Auto, Off };

struct ManagerOptions {
  std::string nodename;
  std::string dbfile;
  std::string restore;  // a snapshot to put there, and end; empty: none
  std::string runDir;
  std::string http;                     // HOST:PORT, port 0: any free one
  std::string rpc;                      // HOST:PORT, empty: only RUN_DIR/manager.rpc
  std::string metrics;                  // HOST:PORT of /metrics alone, from anywhere; empty: none
  bool metricsTls = false;              // for those who show a certificate
  std::vector<std::string> schedulers;  // of parseDialList(); empty: the node stands alone
  TlsFiles tls;                         // of the way to them, of --metrics-tls and --web-tls
  bool insecure = false;                // they may be reached over the network without
  WebOptions web;
  schema::Policy policy = schema::Policy::BEST_EFFORT;
  CardsOptions cards;
  bool mixed = false;
  bool strict = false;  // services/attach/unheld.h
  GuardChoice guard = GuardChoice::Off;
  std::vector<DeviceNode> guardNodes;  // beside those that a kind of cards knows
  std::uint32_t maxTasksPerCard = 0;   // 0: nominal GiB / 4
  Permille overcommit{0};              // of each card's memory, for what may leave it
  Nanos onlineIdle = ArbiterConfig{}.onlineIdle;
  DurationRange slice{ArbiterConfig{}.sliceMin, ArbiterConfig{}.sliceMax};
  LogLevel logLevel = LogLevel::Info;
  LogFormat logFormat = LogFormat::Text;
  RealtimeChoice realtime = RealtimeChoice::Auto;
  bool timeslices = true;                       // on NVIDIA cards (attach/pages/timeslices.h)
  KubeletChoice kubelet = KubeletChoice::Auto;  // Auto: where there is one, and a cluster
  std::string kubeletDir;
  std::string kubeletConfig;  // file for the device plugin; empty: none
  std::string cdi;            // off, on or a folder, for the device plugin
  std::string reportSigners;  // who may sign reports of its cards, for ssh-keygen; empty: anybody
  bool labelNode = false;     // the manager names its node as one of ours
  PodRules pods;
};

// In the order of help.
std::span<const FlagRow> managerFlags();

std::variant<ManagerOptions, ExitNow> parseManagerOptions(int argc, const char* const* argv,
                                                          const Platform& around);

}  // namespace qgpu
