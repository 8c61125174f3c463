#!/bin/sh
# The init container qgpu-installer: makes a node ready for qgpu-manager, or says in one line why it
# can't serve, where `kubectl describe pod` shows it. The node's root is at $HOST. It may run any
# number of times; nothing that is right already is touched.
set -eu

HOST=${HOST:-/host}
TOLD=${TOLD:-/dev/termination-log}
RELEASE=${RELEASE:-$(uname -r)}

fail() {
  echo "qgpu-installer: $*" >&2
  { echo "qgpu-installer: $*" >"$TOLD"; } 2>/dev/null || true
  exit 1
}
warn() { echo "qgpu-installer: warning: $*" >&2; }

# folder PATH MODE: a directory of root's with exactly that mode.
folder() {
  path=$HOST$1
  if [ -L "$path" ]; then fail "$1 is a link; remove it, qgpu keeps sockets or state there"; fi
  if [ -e "$path" ] && [ ! -d "$path" ]; then fail "$1 is no folder; move it away"; fi
  if [ ! -d "$path" ]; then
    mkdir -p "${path%/*}"
    mkdir -m "$2" "$path"
    echo "qgpu-installer: made $1"
  fi
  if [ "$(stat -c %u:%g "$path")" != "$(id -u):$(id -g)" ]; then
    chown "$(id -u):$(id -g)" "$path"
    echo "qgpu-installer: $1 is now root's"
  fi
  if [ "$(stat -c %a "$path")" != "$2" ]; then
    chmod "$2" "$path"
    echo "qgpu-installer: $1 has mode $2 now"
  fi
}

kernel() {
  major=${RELEASE%%.*}
  rest=${RELEASE#*.}
  minor=${rest%%[!0-9]*}
  case "$major$minor" in
    '' | *[!0-9]*) warn "kernel $RELEASE: its version can't be read; 5.3 or later is needed" ;;
    *)
      if [ "$major" -lt 5 ] || { [ "$major" -eq 5 ] && [ "$minor" -lt 3 ]; }; then
        fail "kernel $RELEASE is too old: qgpu follows processes by pidfd, which came with 5.3"
      fi
      ;;
  esac
}

# Where no container runtime brings the node's user-mode driver into containers, the device plugin
# does: from copies, which stay what they are for a running program when the driver is replaced.
COPIES=/var/lib/qgpu/kubelet/driver
DRIVER='libcuda.so.1 libnvidia-ml.so.1 libnvidia-ptxjitcompiler.so.1 libnvidia-nvvm.so.4
  libnvidia-gpucomp.so.* libnvidia-opencl.so.1 libcudadebugger.so.1'

runtime_brings_driver() {
  for config in etc/containerd/config.toml etc/docker/daemon.json etc/crio/crio.conf; do
    ! grep -qs nvidia-container-runtime "$HOST/$config" || return 0
  done
  return 1
}

# A file of the host by its path there, also where that is a link with a path from the root.
real_file() {
  path=$1
  for _ in 1 2 3 4; do
    [ -L "$HOST$path" ] || break
    link=$(readlink "$HOST$path")
    case "$link" in
      /*) path=$link ;;
      *) path=${path%/*}/$link ;;
    esac
  done
  [ ! -f "$HOST$path" ] || echo "$HOST$path"
}

copy_driver() {
  wanted=' '
  for folder in /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/lib; do
    for name in $DRIVER; do
      for found in "$HOST$folder"/$name; do
        name=${found##*/}
        case "$wanted" in *" $name "*) continue ;; esac
        file=$(real_file "$folder/$name")
        [ -n "$file" ] || continue
        wanted="$wanted$name "
        ! cmp -s "$file" "$HOST$COPIES/$name" || continue
        cp "$file" "$HOST$COPIES/.new"
        chmod 755 "$HOST$COPIES/.new"
        mv "$HOST$COPIES/.new" "$HOST$COPIES/$name"
        echo "qgpu-installer: copied $folder/$name"
      done
    done
  done
  for copy in "$HOST$COPIES"/*; do
    name=${copy##*/}
    case "$wanted" in *" $name "*) continue ;; esac
    [ ! -e "$copy" ] || { rm "$copy" && echo "qgpu-installer: removed a copy of $name"; }
  done
}

if [ ! -d "$HOST/etc" ] || [ ! -d "$HOST/var" ]; then
  fail "$HOST is not the node's root: mount the host path / there"
fi
kernel
if [ ! -d "$HOST/var/lib/kubelet/device-plugins" ]; then
  fail "/var/lib/kubelet/device-plugins is missing: kubelet has another --root-dir;" \
    "change the manager's mounts and its --kubelet-dir to that"
fi
for socket in "$HOST"/var/lib/kubelet/device-plugins/nvidia*.sock; do
  [ -e "$socket" ] || continue
  warn "${socket##*/} in kubelet's folder: a device plugin for nvidia.com/gpu; a node that serves" \
    "those is refused, keep that plugin away from nodes with the label qgpu-device-enable"
done
if [ -z "$(find "$HOST/dev" -maxdepth 1 -name 'nvidia[0-9]*' 2>/dev/null)" ]; then
  warn "no /dev/nvidia*: the NVIDIA driver is not loaded, or this node has no NVIDIA card"
fi
folder /var/lib/qgpu 700
folder /run/qgpu 755
folder /var/lib/qgpu/kubelet 755
folder $COPIES 755
if runtime_brings_driver; then DRIVER=; fi
copy_driver
