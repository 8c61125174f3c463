#!/bin/sh
# The init container of qgpu-scheduler, which itself runs as no root: makes the node's folders that
# it writes to, gives them to it, and takes over what a scheduler that ran as root left behind. The
# node's folders are below $HOST. It may run any number of times.
set -eu

HOST=${HOST:-/host}
STATE=$HOST/var/lib/qgpu
RUN=$HOST/run/qgpu
OWNER=${OWNER:-65532:65532}  # as the Deployment has it

fail() {
  echo "qgpu-scheduler: $*" >&2
  exit 1
}

for folder in "$STATE/scheduler" "$RUN/scheduler"; do
  if [ -L "$folder" ] || { [ -e "$folder" ] && [ ! -d "$folder" ]; }; then
    fail "${folder#"$HOST"} is no folder; move it away"
  fi
  mkdir -p "$folder"
done

# A database is its file and what stands in its log, which is the newer part; its file comes last,
# so that a move that was cut short goes on.
if [ ! -e "$STATE/scheduler/scheduler.db" ] && [ -e "$STATE/scheduler.db" ]; then
  for part in -wal -shm ''; do
    [ ! -e "$STATE/scheduler.db$part" ] ||
      mv "$STATE/scheduler.db$part" "$STATE/scheduler/scheduler.db$part"
  done
  echo "qgpu-scheduler: took over /var/lib/qgpu/scheduler.db"
fi
chmod 700 "$STATE/scheduler"
chmod 755 "$RUN/scheduler"
chown -Rh "$OWNER" "$STATE/scheduler" "$RUN/scheduler"

# Where the host's qgpuctl looks.
for name in scheduler.sock scheduler.rpc; do
  ln -sfn "scheduler/$name" "$RUN/$name"
done
