#!/bin/sh
# run.sh BUILD [COMMIT]: daemons of this tree in BUILD and those of another release in one cluster,
# up and back (tests/e2e/upgrade_test.cc). COMMIT: of the other one; without it the newest release,
# which is a tag vNUMBER, before this commit. It is built once, below BUILD/previous.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
build=$(CDPATH='' cd -- "$1" && pwd)
of=${2:-$(git -C "$root" describe --tags --match 'v[0-9]*' --abbrev=0 HEAD^ 2>/dev/null || true)}
if [ -z "$of" ]; then
  echo "test-upgrade: there is no release (a tag vNUMBER) before this commit; name a commit," \
    "as in: ./dev test-upgrade HEAD~20" >&2
  exit 2
fi
commit=$(git -C "$root" rev-parse --verify --quiet "$of^{commit}") || {
  echo "test-upgrade: git knows no commit \"$of\"" >&2
  exit 2
}
folder=$build/previous/$(git -C "$root" rev-parse --short=12 "$commit")
if [ ! -f "$folder/made" ]; then
  echo "test-upgrade: builds $of in $folder"
  rm -rf "$folder"
  mkdir -p "$folder/source"
  git -C "$root" archive "$commit" | tar -x -C "$folder/source"
  cmake -S "$folder/source" --preset dev -B "$folder" -DQGPU_TESTS=ON -DQGPU_PAGE=OFF \
    -DQGPU_PRECOMPILE=ON -DQGPU_UNITY=ON >"$folder/configure.log" 2>&1 || {
    cat "$folder/configure.log" >&2
    exit 1
  }
  ninja -C "$folder" qgpu-manager qgpu-scheduler qgpuctl qgpu_guest qgpu-crash-tenant
  : >"$folder/made"
fi
echo "test-upgrade: $of and this tree"
QGPU_PREVIOUS=$folder exec "$build/bin/e2e_test" upgrade
