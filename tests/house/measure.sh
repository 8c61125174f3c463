#!/bin/sh
# What the house is like to live in, as rows of a Markdown table: floors and cycles of its rooms,
# files a room, files that a change touches, the share of comments in headers, build steps, minutes,
# the size of the front page.
#
#   measure.sh [--steps] [FOLDER [MINUTES]]
#
# FOLDER: a tree, the one that this script is in unless it is named. An older commit is measured in
# a folder of its own: `git archive COMMIT | tar x -C FOLDER`. MINUTES: the file minutes.tsv that
# `./dev test` leaves in its build folder. --steps: configures FOLDER in a
# temporary folder and counts what ninja would do; needs the packages of a build.
#
# A room is a folder with C++ files. It stands on another one where it includes a file of it. Its
# floor is the longest way down, rooms of a cycle being one; a cycle is counted once, whatever its
# length. What a change touches can't be read off the text, so a witness stands for it: a thing of
# that kind which is there already, and the files of the product that name it.
set -eu

steps=no
if [ "${1:-}" = --steps ]; then
  steps=yes
  shift
fi
here=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
root=$(CDPATH='' cd -- "${1:-$here}" && pwd)
minutes=${2:-}
[ -f "$root/CMakeLists.txt" ] || {
  echo "$root is no tree of qgpu: it has no CMakeLists.txt" >&2
  exit 2
}
cd "$root"

product=
for folder in actors runtime schema store services; do
  [ ! -d "$folder" ] || product="$product $folder"
done

row() { printf '| %s | %s |\n' "$1" "$2"; }
sources() { find "$@" -name '*.h' -o -name '*.cc' | sort; }   # FOLDER...

# "FROM TO" for each room that includes a file of another one, or of its own.
includes() {   # FOLDER...
  sources "$@" | grep -v /testing/ | xargs grep -H '^#include "' |
    sed -n 's,^\(.*\)/[^/:]*:#include "\([^"]*\)/[^/"]*".*,\1 \2,p' |
    while read -r from to; do
      [ ! -d "$to" ] || echo "$from $to"
    done | sort -u
}

# shellcheck disable=SC2086
includes $product | awk '
  { rooms[$1]; rooms[$2]; reach[$1, $2] = 1; if ($1 != $2) edge[$1, $2] = 1 }
  function together(a, b) { return (a, b) in reach && (b, a) in reach }
  END {
    for (k in rooms) for (i in rooms) if ((i, k) in reach) for (j in rooms)
      if ((k, j) in reach) reach[i, j] = 1
    for (room in rooms) floors[room] = 1
    do {
      rose = 0
      for (a in rooms) for (b in rooms) if ((a, b) in edge) {
        floor = floors[b] + (together(a, b) ? 0 : 1)
        if (floor > floors[a]) { floors[a] = floor; rose = 1 }
        if (floor > most) most = floor
      }
    } while (rose)
    for (a in rooms) {
      if (a in told) continue
      names = a; count = 1
      for (b in rooms) if (b != a && together(a, b)) { names = names " <-> " b; told[b]; ++count }
      if (count > 1) { ++cycles; list = list (list == "" ? "" : "; ") names }
    }
    printf "| rooms of the product | %d |\n| floors | %d |\n", length(rooms), most
    printf "| cycles | %d%s |\n", cycles, cycles ? ": " list : ""
  }'

# shellcheck disable=SC2086
sources $product tests bench | sed 's,/[^/]*$,,' | sort | uniq -c | sort -rn | awk '
  { if (NR <= 5) list = list (list == "" ? "" : ", ") $2 " " $1; if ($1 > 30) ++full; all += $1 }
  END {
    printf "| C++ files | %d in %d rooms |\n| rooms of more than 30 files | %d |\n", all, NR, full
    printf "| the fullest rooms | %s |\n", list
  }'

# touched CHANGE WITNESS [FOLDERS TO LEAVE OUT]
touched() {
  # shellcheck disable=SC2086
  count=$(grep -rlE "$2" $product --include='*.h' --include='*.cc' --include='*.capnp' |
    grep -cvE "${3:-^$}" || true)
  row "files of: $1" "$count"
}
touched 'a fourth policy (burst-share)' 'BurstShare|burst-share|burstShare'
row 'and its checkers in tests' \
  "$(grep -rlE 'BurstShare|burstShare' tests --include='*.h' --include='*.cc' |
    grep -cE 'check|judge|model|oracle' || true)"
touched 'a metric of a card (overruns)' '[oO]verruns'
touched 'a cluster command (uncordon)' '[uU]ncordon'
touched 'a command for node and cluster (limits)' \
  '(set|init)Limits|::LIMITS|limits @|struct Limit\b'
touched 'a CUDA launch function' 'cuLaunchCooperativeKernel\b'
touched 'cards of AMD (says NVIDIA, outside its rooms)' '[nN]vidia|[nN]vml|NVIDIA' \
  '^services/(cards|suspend|guest|nvidia_abi)/'
touched 'etcd beside SQLite (outside store/)' '[sS]qlite|"store/store\.h"' '^store/'
touched 'a reason code (stale state)' 'StaleState|"stale-state"'
touched 'a placement rule (fragment gradient)' '\bFgd\b|"fgd"'
touched 'the 100 ms' "([oO]nline-?[iI]dle.*100|100.*[oO]nline-?[iI]dle)"
touched 'a pod annotation (assigned)' 'qgpu\.io/assigned|kAssigned'

# Lines of comment among those that are not empty, in headers of the product.
# shellcheck disable=SC2086
find $product -name '*.h' ! -path '*/testing/*' -exec cat {} + | awk '
  /^[ \t]*$/ { next }
  { ++lines }
  /^[ \t]*(\/\/|\/\*|\*)/ { ++comments }
  END { printf "| comment share of headers | %.1f %% |\n", 100 * comments / lines }'

row 'README.md, bytes' "$(wc -c <README.md | tr -d ' ')"

if [ "$steps" = yes ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  for preset in dev asan tsan; do
    cmake -S . --preset "$preset" -B "$work/$preset" >"$work/log" 2>&1 || {
      cat "$work/log" >&2
      exit 1
    }
  done
  cmake -S . --preset dev -B "$work/product" -DQGPU_TESTS=OFF >"$work/log" 2>&1
  count() { build=$1; shift; ninja -C "$work/$build" -n "$@" | grep -c '^\[' || true; }
  row 'build steps of ./dev demo' "$(count product qgpu-demo)"
  row 'build steps of ./dev build with tests' "$(count dev)"
  row 'with AddressSanitizer' "$(count asan unit_tests qgpu-sim)"
  row 'with ThreadSanitizer' "$(count tsan threads_tests)"
fi
if [ -n "$minutes" ]; then
  awk -F '\t' '{ printf "| %s, minutes | %.1f |\n", $1, $2 / 60 }' "$minutes"
fi
