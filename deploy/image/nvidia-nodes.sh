#!/bin/sh
# Loads NVIDIA's modules and makes /dev/nvidia*, where a machine has cards of theirs and does
# neither at boot. NVML and CUDA would do it for a program that may: the unit of qgpu-manager may
# not, and a container has a /dev of its own. Below $HOST, the machine's root. What is there stays.
set -eu

HOST=${HOST:-}

if [ ! -x "$HOST/usr/bin/nvidia-modprobe" ]; then exit 0; fi
make() { chroot "$HOST/" /usr/bin/nvidia-modprobe "$@"; }

make -c 255  # nvidiactl; loads the module nvidia, which then lists its cards
for card in "$HOST"/proc/driver/nvidia/gpus/*/information; do
  [ -r "$card" ] || continue
  minor=$(sed -n 's/^Device Minor:[^0-9]*\([0-9][0-9]*\).*/\1/p' "$card")
  [ -z "$minor" ] || make -c "$minor"
done
make -u -c 0  # nvidia-uvm and nvidia-uvm-tools; with -u it makes nothing else
