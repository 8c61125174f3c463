#!/bin/sh
# Takes the guard of every manager of this machine out of the kernel, where it is pinned and so
# outlives them: for who removes qgpu, and never for an upgrade. Below $HOST, the machine's root.
set -eu

pins=${HOST:-}/sys/fs/bpf/qgpu
[ -d "$pins" ] || exit 0
if [ "$(stat -f -c %t "$pins")" != cafe4a11 ]; then
  echo "unload-guard.sh: $pins is on no bpffs, so no guard is pinned there: it is left alone" >&2
  exit 1
fi
rm -rf "$pins"
