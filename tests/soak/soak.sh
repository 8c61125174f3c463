#!/bin/sh
# The long run: every proof of tests/ in parts that can be stopped and continued. Each chunk that
# passed is a line of BUILD/soak/ledger.tsv under the digest of the sources that it ran with, so
# that it does not run again until these change; the table counts what ran with today's sources.
#
#   soak.sh ROOT BUILD FUZZ_BUILD [PART...]
#
# Parts: again seeds cluster paging planted power kills starve fuzz load packages chaos. `again`
# runs each test that does not judge by time 20 times in a row, beside others. `packages` upgrades
# them 20 times under a program. `chaos` harms a real cluster for CHAOS_MINUTES (60), by CHAOS_SEED
# (1).
#
# SOAK_TIMES, SOAK_SEEDS, SOAK_CLUSTER_SEEDS, SOAK_PAGING_SEEDS, SOAK_KILLS, SOAK_FUZZ_SECONDS,
# SOAK_LOAD_MINUTES and SOAK_UPGRADES shorten or lengthen a part; SOAK_TESTS=REGEX chooses the tests
# of `again`.
set -eu

root=$1 build=$2 fuzz=$3
shift 3
all='again seeds cluster paging planted power kills starve fuzz load packages chaos'
parts=${*:-$all}
mkdir -p "$build/soak"
ledger=$build/soak/ledger.tsv
touch "$ledger"
cd "$root"

# digest PATH...: of these parts of the tree, committed or not.
digest() { git ls-files -z "$@" | xargs -0 sha1sum 2>/dev/null | sha1sum | cut -c1-12; }

# What the sources are: the parts of the tree that any proof depends on.
sources=$(digest actors runtime schema services store tests CMakeLists.txt)

# good PART NAME: it passed with these sources.
good() {
  awk -F '\t' -v s="$sources" -v p="$1" -v n="$2" \
    '$1 == s && $2 == p && $3 == n && $4 == "good" { found = 1 } END { exit !found }' "$ledger"
}

# entry PART NAME VERDICT SECONDS FIGURES
entry() {
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$sources" "$1" "$2" "$3" "$4" \
    "$(date -u +%Y-%m-%dT%H:%MZ)" "$5" >>"$ledger"
}

# chunk PART NAME COMMAND...: runs once. The last line that the command prints is kept.
chunk() {
  part=$1 name=$2
  shift 2
  if good "$part" "$name"; then return 0; fi
  out=$build/soak/$part-$(echo "$name" | tr -c 'A-Za-z0-9\n' '_').log
  began=$(date +%s)
  echo "soak: $part $name"
  status=0
  "$@" >"$out" 2>&1 || status=$?
  case $status in
    0) verdict=good ;;
    77) verdict=skipped ;;   # this machine can't
    *) verdict=bad ;;
  esac
  entry "$part" "$name" "$verdict" $(($(date +%s) - began)) "$(tail -n 1 "$out" | tr '\t' ' ')"
  [ "$verdict" = good ] || { tail -n 20 "$out"; echo "soak: $part $name is $verdict, see $out"; }
}

bin=$build/bin

# seeds_of PART LAST [OPTION]: of the simulator, 5,000 at a time.
seeds_of() {
  from=1
  while [ "$from" -le "$2" ]; do
    to=$((from + 4999))
    # shellcheck disable=SC2086
    chunk "$1" "$from..$to" "$bin/qgpu-sim" ${3:-} --seeds "$from..$to" --marks --quiet
    from=$((to + 1))
  done
}

for part in $parts; do
  case $part in
    again)
      times=${SOAK_TIMES:-20}
      tests=$(ctest --test-dir "$build" -N -LE '^timing$' -R "${SOAK_TESTS:-.}" |
        sed -n 's/^ *Test *#.*: //p' | while read -r name; do
          good again "$name $times" || echo "$name"
        done)
      [ -n "$tests" ] || continue
      echo "soak: again, $times times each: $(echo "$tests" | wc -l) tests"
      # Beside each other, as in ./dev test. The line "I/N Test #K" is a test's last, if it passed.
      ctest --test-dir "$build" -j "${JOBS:-$(($(nproc) + 2))}" --output-on-failure \
        --repeat "until-fail:$times" -R "^($(echo "$tests" | paste -sd '|'))\$" 2>&1 |
        tee "$build/soak/again.log" |
        sed -unE -e 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) \.* +Passed .*/\1 Passed/p' \
          -e 's/^ *([0-9]+\/[0-9]+ )?Test +#[0-9]+: ([^ ]+) \.*[^*]*\*+([A-Z][a-z]+).*/\2 \3/p' |
        while read -r name is; do
          case $is in
            Passed) entry again "$name $times" good 0 "$is"; continue ;;
            Skipped) ;;
            *) entry again "$name $times" bad 0 "$is" ;;
          esac
          echo "soak: again $name: $is, see $build/soak/again.log"
        done ;;
    seeds) seeds_of seeds "${SOAK_SEEDS:-100000}" ;;
    cluster) seeds_of cluster "${SOAK_CLUSTER_SEEDS:-50000}" --cluster ;;
    paging) seeds_of paging "${SOAK_PAGING_SEEDS:-100000}" --paging ;;
    planted)
      chunk planted all "$bin/qgpu-sim" --bugs --quiet
      chunk planted cluster "$bin/qgpu-sim" --cluster --bugs --quiet
      chunk planted paging "$bin/qgpu-sim" --paging --bugs --quiet ;;
    power) chunk power 20000 "$bin/qgpu-sim" --power-loss 20000 ;;
    kills)
      n=1
      while [ "$n" -le "$((${SOAK_KILLS:-5000} / 500))" ]; do
        for cards in opencl sim:4x64; do
          chunk kills "$cards $n" "$bin/qgpu-crash" kills --count 250 --seed "$n" --cards "$cards"
        done
        n=$((n + 1))
      done ;;
    starve)
      chunk starve absence "$bin/qgpu-crash" absence --rounds 20 --cards opencl
      chunk starve disk-full "$bin/qgpu-crash" disk-full --rounds 50
      chunk starve syscalls "$bin/qgpu-crash" syscalls ;;
    fuzz)
      for target in $(ls tests/fuzz/corpus); do
        chunk fuzz "$target" sh tests/fuzz/run.sh "$fuzz" "${SOAK_FUZZ_SECONDS:-1200}" "$target"
      done ;;
    load)
      chunk load 30 "$bin/qgpu-crash" load --minutes "${SOAK_LOAD_MINUTES:-30}" \
        --samples "$build/soak/load.jsonl" ;;
    packages)
      deploy=$(digest deploy | cut -c1-8)
      chunk packages "${SOAK_UPGRADES:-20} $deploy" env QGPU_UPGRADES="${SOAK_UPGRADES:-20}" \
        "$bin/deploy_test" packages --gtest_filter='*.ComeAndGo*' ;;
    chaos)
      chunk chaos "${CHAOS_MINUTES:-60} seed ${CHAOS_SEED:-1}" "$bin/qgpu-chaos" \
        --minutes "${CHAOS_MINUTES:-60}" --seed "${CHAOS_SEED:-1}" ;;
    *)
      echo "soak: no part '$part': $all" >&2
      exit 2 ;;
  esac
done

echo
awk -F '\t' -v s="$sources" '
  $1 == s { newest[$2 "\t" $3] = $4; time[$2 "\t" $3] = $5; line[$2 "\t" $3] = $7 }
  END {
    printf "%-8s %-16s %-7s %7s  %s\n", "part", "chunk", "is", "seconds", "figures"
    for (key in newest) {
      split(key, k, "\t")
      if (k[1] == "again" && newest[key] == "good") {
        again++
        continue
      }
      printf "%-8s %-16s %-7s %7d  %s\n", k[1], k[2], newest[key], time[key], line[key] | "sort -V"
      bad += newest[key] == "bad"
    }
    close("sort -V")
    if (again) printf "%-8s %-16s %-7s\n", "again", again " tests", "good"
    exit bad != 0
  }' "$ledger"
