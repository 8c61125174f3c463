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

# The node's own user-mode driver, in copies, which stay what they are for a running program when
# the driver is replaced. The manager uses them, and the device plugin gives them to containers,
# whatever container runtime there is: one of NVIDIA's need not be the one that a pod gets, and is
# told to bring nothing where the copies are. They are what that one brings for compute, utility and
# video, but for what watches and shows; a driver has those of its version.
COPIES=/var/lib/qgpu/kubelet/driver
DRIVER='libcuda.so.1 libnvidia-ml.so.1 libnvidia-ptxjitcompiler.so.1 libnvidia-nvvm.so.4
  libnvidia-gpucomp.so.* libnvidia-tileiras.so.* libnvidia-opencl.so.1 libnvidia-compiler.so.*
  libnvidia-fatbinaryloader.so.* libnvidia-allocator.so.1 libnvidia-pkcs11.so.*
  libnvidia-pkcs11-openssl3.so.* libcudadebugger.so.1 nvidia-smi
  libnvcuvid.so.1 libnvidia-encode.so.1 libnvidia-opticalflow.so.1'
# Of a driver on the node itself, or in a container of NVIDIA's GPU operator.
DRIVER_ROOTS='/ /run/nvidia/driver/'
DRIVER_FOLDERS='usr/lib/x86_64-linux-gnu usr/lib/aarch64-linux-gnu usr/lib64 usr/lib usr/bin'
# Talos has its driver beside a glibc that its own programs do not use.
[ ! -d "$HOST/usr/local/glibc" ] ||
  DRIVER_FOLDERS="$DRIVER_FOLDERS usr/local/glibc/usr/lib usr/local/glibc/lib usr/local/bin"

# real_file ROOT PATH: a file by its path below that root, also where that is a link with a path
# from there.
real_file() {
  path=$2
  for _ in 1 2 3 4; do
    [ -L "$1$path" ] || break
    link=$(readlink "$1$path")
    case "$link" in
      /*) path=${link#/} ;;
      *) path=${path%/*}/$link ;;
    esac
  done
  [ ! -f "$1$path" ] || echo "$1$path"
}

# The root of the first driver that is whole: libraries of one, never of two.
driver_root() {
  for root in $DRIVER_ROOTS; do
    for folder in $DRIVER_FOLDERS; do
      if [ -n "$(real_file "$HOST$root" "$folder/libcuda.so.1")" ]; then
        echo "$root"
        return
      fi
    done
  done
}

copy_driver() {
  wanted=' '
  root=$(driver_root)
  for folder in ${root:+$DRIVER_FOLDERS}; do
    for name in $DRIVER; do
      for found in "$HOST$root$folder"/$name; do
        name=${found##*/}
        case "$wanted" in *" $name "*) continue ;; esac
        file=$(real_file "$HOST$root" "$folder/$name")
        [ -n "$file" ] || continue
        wanted="$wanted$name "
        ! cmp -s "$file" "$HOST$COPIES/$name" || continue
        cp "$file" "$HOST$COPIES/.new"
        chmod 755 "$HOST$COPIES/.new"
        mv "$HOST$COPIES/.new" "$HOST$COPIES/$name"
        echo "qgpu-installer: copied $root$folder/$name"
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
HOST="$HOST" "${0%/*}/nvidia-nodes.sh" || warn "nvidia-modprobe could not make /dev/nvidia*"
if [ -z "$(find "$HOST/dev" -maxdepth 1 -name 'nvidia[0-9]*' 2>/dev/null)" ]; then
  warn "no /dev/nvidia*: the NVIDIA driver is not loaded, or this node has no NVIDIA card"
fi
folder /var/lib/qgpu 700
folder /run/qgpu 755
folder /var/lib/qgpu/kubelet 755
folder $COPIES 755
copy_driver
