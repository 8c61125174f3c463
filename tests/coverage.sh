#!/bin/sh
# Which lines and branches of the product the unit tests run: one table with a row for each room,
# the pure cores apart and file by file, then one JSON line. Fails below 85 % of all lines, below
# 95 % of the pure cores' branches, and when a test fails. Sources that are in none of these
# programs are named and do not count: only tests from end to end run them.
#
#   coverage.sh ROOT BUILD      BUILD: of the preset `coverage` (clang), with unit_tests built
#
# The unit tests are those of tests/unit: what the simulator tests of itself says nothing here.
#
# What counts: .cc and .h of actors/, runtime/, store/ and services/. Not: services/demo, testing/
# folders, runtime/codegen (a tool of the build: all tests run what it writes), generated code.
# Every process that a test starts counts when it ends by itself; one that is killed or leaves by
# _exit() writes no profile, so what is printed is a lower bound.
#
# A line counts when it ran at all. A branch is one of the two outcomes of a condition, or of a case
# (taken or not); all instantiations of a template are one. Not a branch:
#   - what a macro's expansion decides. The failing side of QGPU_CHECK is a bug by definition: no
#     test may reach it. llvm-cov keeps conditions in macro arguments with the expansion, so the
#     whole condition of a QGPU_CHECK is left out, its passing side too.
#   - what the compiler folds: `if constexpr`, `while (true)`, and QGPU_PLANTED, which is `false`
#     outside the simulator.
#   - a condition beside QGPU_PLANTED on one line that never ran either way: it is there for the
#     planted bug alone.
#
# BUILD/coverage.txt has every source with its counts: "|      0|" is a line that never ran.
set -eu

root=$(CDPATH= cd -- "$1" && pwd)
build=$(CDPATH= cd -- "$2" && pwd)
lines_least=85
core_branches_least=95
# The tests of the house rules and of the demo run nothing that counts.
aside='^(tidy|demo_.*)_test$'
bad=0

# units OPTION...: ctest over them. Those that judge by time have a second try, as in ./dev test.
units() { ctest --test-dir "$build/tests/unit" -L unit -E "$aside" "$@"; }

rm -rf "$build/profiles"
mkdir -p "$build/profiles"
export LLVM_PROFILE_FILE="$build/profiles/%m-%p.profraw"
units -LE '^timing$' --output-on-failure -j "${JOBS:-$(nproc)}" || bad=1
units -L '^timing$' --output-on-failure --repeat until-pass:2 || bad=1
llvm-profdata merge -sparse -failure-mode=all "$build/profiles" -o "$build/unit.profdata"

# The programs: every unit test has the name of its binary, or of that and `_timing`.
set -- "$build/lib/libqgpu.so"
for name in qgpu-manager qgpuctl $(units -LE '^timing$' -N | sed -n 's/^ *Test *#[0-9]*: //p'); do
  set -- "$@" -object "$build/bin/$name"
done
llvm-cov show "$@" -instr-profile="$build/unit.profdata" -show-branches=count \
  -show-instantiations=false -ignore-filename-regex='/testing/|services/demo/|runtime/codegen/' \
  "$root/actors" "$root/runtime" "$root/store" "$root/services" >"$build/coverage.txt"

# What the table does not show.
for source in $(cd "$root" && find actors runtime store services -name '*.cc' |
    grep -Ev '/(testing|demo|codegen)/' | sort); do
  grep -qxF "$root/$source:" "$build/coverage.txt" && continue
  echo "coverage: $source is in none of the programs of the unit tests" >&2
done

awk -v root="$root/" -v linesLeast="$lines_least" -v branchesLeast="$core_branches_least" '
  function roomOf(path,   parts) {
    if (path ~ /^actors\/(arbiter\/[a-z_]+|ledger\/ledger)\.(cc|h)$/) {
      sub(/\.(cc|h)$/, "", path)
      sub(/^.*\//, "", path)
      return "core " path
    }
    split(path, parts, "/")
    return parts[1] == "services" ? parts[1] "/" parts[2] : parts[1]
  }
  function ran(outcome) { return outcome ~ /: / && outcome !~ /: 0[],]?$/ }
  function percent(part, all) { return all ? sprintf("%.1f", int(part * 1000 / all) / 10) : "-" }
  function row(name, l, lAll, b, bAll) {
    return sprintf("%-20s %7d %7s %9d %9s", name, lAll, percent(l, lAll), bAll, percent(b, bAll))
  }

  substr($0, 1, length(root)) == root && /:$/ {
    file = substr($0, length(root) + 1, length($0) - length(root) - 1)
    room = roomOf(file)
    rooms[room] = 1
    next
  }
  /^ *[0-9]+\| *[0-9]/ {
    split($0, cell, "|")
    ++lines[room]
    if (cell[2] + 0 > 0) ++linesRun[room]
  }
  /^ *[0-9]+\|/ { planted = /QGPU_PLANTED/; next }
  /^ *\|  Branch \(/ {
    if (/Folded/) next
    place = file $3
    split(substr($0, index($0, "[") + 1), outcome, ", ")
    roomOfBranch[place] = room
    besidePlanted[place] = planted
    if (ran(outcome[1])) isTrue[place] = 1
    if (ran(outcome[2])) isFalse[place] = 1
  }

  END {
    for (place in roomOfBranch) {
      room = roomOfBranch[place]
      sides = (place in isTrue) + (place in isFalse)
      if (besidePlanted[place] && sides == 0) continue
      branches[room] += 2
      branchesRun[room] += sides
    }
    printf "%-20s %7s %7s %9s %9s\n", "room", "lines", "run %", "branches", "taken %"
    sorter = "sort"
    for (room in rooms) {
      if (room ~ /^core /) {
        core += branches[room]; coreRun += branchesRun[room]
        coreLines += lines[room]; coreLinesRun += linesRun[room]
      }
      l += linesRun[room]; lAll += lines[room]; b += branchesRun[room]; bAll += branches[room]
      print row(room, linesRun[room], lines[room], branchesRun[room], branches[room]) | sorter
    }
    close(sorter)
    print row("pure cores", coreLinesRun, coreLines, coreRun, core)
    print row("all", l, lAll, b, bAll)
    printf "{\"coverage\":\"unit\",\"lines_pct\":%s,\"core_branches_pct\":%s}\n",
      percent(l, lAll), percent(coreRun, core)
    exit l * 100 < linesLeast * lAll || coreRun * 100 < branchesLeast * core
  }' "$build/coverage.txt" || bad=1

exit "$bad"
