@0xb1a0c7d25e934f05;
# The older form of the file of --config: Cap'n Proto text of ManagerConfig, SchedulerConfig or
# KubeletPluginConfig. It is still read, and no longer grows: newer flags have their keys in TOML
# alone (services/base/flags.h). Fields are named as the flags are.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");

struct ManagerConfig {
  nodename @0 :Text;
  dbfile @1 :Text;
  policy @2 :Text;             # be, fs, bs, or the full name
  cards @3 :Text;              # auto, nvidia, opencl, sim:NxM
  mixed @4 :Bool;
  maxTasksPerCard @5 :Text;    # auto or a number
  onlineIdle @6 :Text;         # a duration
  slice @7 :Text;              # 2ms..30ms
  runDir @8 :Text;
  http @9 :Text;
  rpc @10 :Text;
  logLevel @11 :Text;
  suspend @12 :Text;           # auto, gate, freeze, rm
  scheduler @13 :Text;         # HOST:PORT, unix:PATH or srv:NAME, several joined by commas
  realtime @14 :Text;          # auto, off
  tlsCert @15 :Text;           # files, for the way to the scheduler
  tlsKey @16 :Text;
  tlsCa @17 :Text;
  insecure @18 :Bool;
  kubelet @19 :Text;           # auto, on, off
  kubeletDir @20 :Text;
  resourcePrefix @21 :Text;
  memoryUnit @22 :Text;        # GiB, MiB
  kubeletConfig @23 :Text;     # file of a KubeletPluginConfig
  cdi @24 :Text;               # off, on, or a folder of specs
  timeslices @25 :Text;        # on, off
  strict @26 :Bool;
  web @27 :Text;
  webToken @28 :Text;          # file
  webTls @29 :Bool;
}

struct SchedulerConfig {
  dbfile @0 :Text;
  priority @1 :Text;           # binpack, spread, fgd
  runDir @2 :Text;
  http @3 :Text;
  rpc @4 :Text;
  logLevel @5 :Text;
  lease @6 :Text;              # a duration: 15s
  tlsCert @7 :Text;            # PEM files
  tlsKey @8 :Text;
  tlsCa @9 :Text;
  insecure @10 :Bool;
  webhook @11 :Text;           # HOST:PORT
  httpTls @12 :Bool;
  resourcePrefix @13 :Text;
  memoryUnit @14 :Text;        # GiB, MiB
  kubernetes @15 :Text;        # auto, on, off
  leaderElect @16 :Text;       # on, off
  extender @17 :Text;          # HOST:PORT
  extenderCerts @18 :Text;     # folder
  web @19 :Text;               # HOST:PORT
  webToken @20 :Text;          # file
  webTls @21 :Bool;
}

struct KubeletPluginConfig {
  manager @0 :Text;            # socket of the manager's RPC
  kubeletDir @1 :Text;
  runDir @2 :Text;
  filesDir @3 :Text;
  hostPrefix @4 :Text;
  resourcePrefix @5 :Text;
  memoryUnit @6 :Text;
  library @7 :Text;
  reconcile @8 :Text;          # durations
  goneAfter @9 :Text;
  settle @10 :Text;
  parent @11 :Text;
  logLevel @12 :Text;
  cdi @13 :Text;               # off, on, or a folder of specs
}
