#pragma once
// The catalogue of variables of the environment that programs of qgpu read, or give to the programs
// that they start: from it comes docs/reference/flags.md. A new variable gets a row here first: the
// reference test fails where the code names one that the catalogue lacks, and the other way round.

#include <cstdint>
#include <string_view>

namespace qgpu {

// A row of the page. `meaning` is a phrase of Markdown, without a full stop.
struct VariableEntry {
  std::string_view name;
  std::string_view who;     // reads it
  std::string_view preset;  // where it is not set; empty: nothing
  std::string_view meaning;
};

// In the order of the page: qgpuctl and tasks, daemons and their places, Kubernetes, units.
inline constexpr VariableEntry kVariables[] = {
    {"QGPU_SERVER", "qgpuctl", "", "the scheduler of `--server`: HOST:PORT, unix:PATH or srv:NAME"},
    {"QGPU_TLS_CERT", "qgpuctl", "", "file of `--tls-cert`, where there is a server"},
    {"QGPU_TLS_KEY", "qgpuctl", "", "file of `--tls-key`"},
    {"QGPU_TLS_CA", "qgpuctl", "", "file of `--tls-ca`"},
    {"QGPU_LIB", "qgpuctl run, Python", "lib/libqgpu.so beside the folder of qgpuctl",
     "path of the library"},
    {"QGPU_SOCKET", "qgpuctl, Python, libqgpu.so", "in a container the one that was mounted",
     "for qgpuctl and Python the socket of `--socket`; for the library the manager's attach "
     "socket, "
     "`RUN_DIR/attach.sock`, which qgpuctl run gives it: in a task qgpuctl asks the manager beside "
     "that"},
    {"QGPU_TOKEN", "libqgpu.so", "",
     "whose task a program is; without one the library does nothing"},
    {"QGPU_TOKEN_FILE", "libqgpu.so", "in a container the one that was mounted",
     "files whose first line may be the token, joined by colons"},
    {"LD_PRELOAD", "libc", "",
     "names libqgpu.so, for CUDA; qgpuctl run puts it before what is there"},
    {"OPENCL_LAYERS", "OpenCL's loader", "", "the same for OpenCL"},
    {"CUDA_VISIBLE_DEVICES", "CUDA, libqgpu.so", "",
     "a task's cards by UUID; qgpuctl run and submit give it, in a container the library sets it"},
    {"NVIDIA_VISIBLE_DEVICES", "NVIDIA's container runtime", "",
     "the same for a launcher of containers; `void` in containers that have copies of the driver"},
    {"ROCR_VISIBLE_DEVICES", "ROCm", "",
     "a task's AMD cards by UUID; qgpuctl run and submit give it"},
    {"NVIDIA_DRIVER_CAPABILITIES", "NVIDIA's container runtime", "",
     "which parts of the driver a container gets where that runtime brings it"},
    {"PORT", "qgpu-scheduler", "12345", "port of `--http`, where that flag is not given"},
    {"XDG_RUNTIME_DIR", "all, not as root", "/tmp/qgpu-UID as run dir", "run dir: qgpu below it"},
    {"XDG_STATE_HOME", "daemons, not as root", "$HOME/.local/state", "database: qgpu below it"},
    {"XDG_DATA_HOME", "Python", "$HOME/.local/share",
     "where `python3 -m qgpu kernel install` puts a notebook's kernel"},
    {"KUBECONFIG", "daemons", "the service account of the pod",
     "file that says where the API server is; one file"},
    {"KUBERNETES_SERVICE_HOST", "daemons", "", "address of the API server, as Kubernetes gives it"},
    {"KUBERNETES_SERVICE_PORT", "daemons", "", "its port"},
    {"POD_NAME", "qgpu-scheduler", "", "its own pod, which gets the label qgpu.io/scheduler"},
    {"POD_NAMESPACE", "qgpu-scheduler", "", "that pod's namespace"},
    {"QGPU_MANAGER_FLAGS", "unit qgpu-manager", "", "flags, in /etc/default/qgpu-manager"},
    {"QGPU_MANAGER_JOINED", "unit qgpu-manager", "", "flags of `join`, in /etc/qgpu/manager.env"},
    {"QGPU_SCHEDULER_FLAGS", "unit qgpu-scheduler", "", "flags, in /etc/default/qgpu-scheduler"},
    {"NOTIFY_SOCKET", "daemons", "", "systemd's; it is told when a daemon serves"},
    {"JOURNAL_STREAM", "daemons", "",
     "systemd's; log lines to that stream have a priority and no time"},
    {"WATCHDOG_USEC", "daemons", "", "systemd's; its watchdog is fed while all loops turn"},
    {"DEMO_JSON", "qgpu-demo", "demo.json", "the file that the demo writes"},
    {"NO_COLOR", "qgpu-demo", "", "if set: no colours"},
};

}  // namespace qgpu
