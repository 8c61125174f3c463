#!/bin/sh
# run.sh BUILD: the unit tests that were built for aarch64 in this folder, under qemu, and what
# libqgpu.so needs of glibc: nothing above 2.17, the first that knows aarch64.
# run.sh list: the names of these tests. Left out is what starts a program of its own, since a
# kernel runs none of aarch64 unless it is told how (tests of gate, OpenCL, CUDA and NVML in whole
# processes), and single tests: one that starts itself anew, for the same reason, one that has a
# process debugged, which qemu can't, and those that judge microseconds.
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
newer=$(aarch64-linux-gnu-objdump -T "$build/lib/libqgpu.so" | grep -o 'GLIBC_[0-9.]*' |
  sort -u | grep -vx GLIBC_2.17 || true)
[ -z "$newer" ] || failed="$failed libqgpu.so, which needs $newer"
[ -z "$failed" ] || {
  echo "arm64: failed:$failed" >&2
  exit 1
}
