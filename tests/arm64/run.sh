#!/bin/sh
# run.sh BUILD: the unit tests that were built for aarch64 in this folder, under qemu.
# run.sh list: their names. Left out is what starts a program of its own, since this machine's
# kernel runs none of aarch64 (tests of gate, OpenCL, CUDA and NVML in whole processes), and single
# tests: one that starts itself anew, for the same reason, one that has a process debugged, which
# qemu can't, and those that judge microseconds.
set -eu

units='runtime_test store_test cores_test placement_test actors_test base_test guest_parts_test'
left_out=JournalTest.D4_AFailedFsyncEndsTheProcess
left_out=$left_out:ChildProbe.OneThatCantBeKilledIsLeftBehind
left_out=$left_out:KjBridge.ItsTimerIsFinerThanAMillisecondAndNeverEarly
left_out=$left_out:Loop.HAZARDS24_ARealtimeLoopThatPreemptsItsWakerDoesNotWaitForIt

if [ "${1:?is a folder, or list}" = list ]; then
  echo "$units"
  exit
fi
build=$1 failed=
for unit in $units; do
  echo "arm64: $unit"
  qemu-aarch64 -L "$build/root" "$build/bin/$unit" --gtest_brief=1 --gtest_filter="-$left_out" ||
    failed="$failed $unit"
done
[ -z "$failed" ] || {
  echo "arm64: failed:$failed" >&2
  exit 1
}
