@0xb1a0c7d25e934f05;
# The file of --config: Cap'n Proto text of ManagerConfig. Flags win over it; an absent field means
# the flag's default.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("qgpu::schema");

struct ManagerConfig {
  nodename @0 :Text;
  dbfile @1 :Text;
  policy @2 :Text;             # be, fs, bs, or the full name
  cards @3 :Text;              # auto, nvidia, opencl, sim:NxM
  mixed @4 :Bool;
  maxTasksPerCard @5 :Text;    # auto or a number
  onlineIdle @6 :Text;         # a duration: 100ms
  slice @7 :Text;              # 2ms..30ms
  runDir @8 :Text;
  http @9 :Text;
  rpc @10 :Text;
  logLevel @11 :Text;
  suspend @12 :Text;           # auto, gate, freeze
  scheduler @13 :Text;
  realtime @14 :Text;          # auto, off
}
