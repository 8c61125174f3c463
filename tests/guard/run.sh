#!/bin/sh
# run.sh BUILD: the guard's tests on Debian 12's own kernel, in qemu, for machines whose kernel
# takes no program at its security hooks, and the manager's unit with it (unit.sh). KERNEL=FILE
# takes another kernel, TESTS some of the tests, SET variables for them (QGPU_CAP_STORIES=10000);
# arguments after BUILD go to each. The kernel's package is unpacked below BUILD/guard, and not
# installed. Ends with the status of the last that failed, else with 77 where one was skipped as a
# whole, and names both.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
sources=$(dirname "$(dirname "$here")")
build=$(CDPATH="" cd -- "$1" && pwd)
shift
folder=$build/guard
if [ -z "${KERNEL:-}" ]; then
  package=$(apt-cache depends linux-image-amd64 |
    sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p')
  KERNEL=$folder/boot/vmlinuz-${package#linux-image-}
  if [ ! -f "$KERNEL" ]; then
    mkdir -p "$folder"
    (cd "$folder" && apt-get -qq -o APT::Sandbox::User= download "$package")
    dpkg-deb --fsys-tarfile "$folder/$package"_*.deb |
      tar -x -C "$folder" --wildcards './boot/vmlinuz*'
    rm "$folder/$package"_*.deb
  fi
fi
# A driver that stands in for NVIDIA's, where the kernel's headers are; else its tests are skipped.
headers=/usr/src/linux-headers-$(basename "$KERNEL" | sed 's/^vmlinuz-//')
driver=$folder/driver/nvidia.ko
rm -f "$driver"
if [ -d "$headers" ]; then
  mkdir -p "$folder/driver"
  cp "$here/driver/Kbuild" "$here/driver/nvidia.c" "$folder/driver"
  make -s -C "$headers" M="$folder/driver" modules 2>&1 | sed '/^Skipping BTF/d'
else
  echo "run.sh: no $headers: the cap of memory is not tried" >&2
fi
[ ! -f "$driver" ] || export SET="QGPU_STANDIN_DRIVER=$driver ${SET:-}"
# Of ours: what a program of these tests starts.
of_test() {
  case $1 in
    guard_test) echo "$build/bin/guard_outsider /bin/true /bin/cat" ;;
    e2e_guard_test)
      echo "$build/bin/qgpu-manager $build/bin/qgpuctl $build/bin/guard_tenant" \
        "$build/bin/qgpu-work $build/lib/libqgpu.so /usr/bin/curl"
      ;;
    e2e_guarded_*_test)
      echo "$build/bin/qgpu-manager $build/bin/qgpu-kubelet-plugin $build/lib/libqgpu.so" \
        "$build/bin/guard_tenant $build/bin/guard_stays $sources/deploy/kubernetes" \
        "$(command -v runc || true)"
      ;;
  esac
}
status=0
not_passed() {   # TEST STATUS
  if [ "$2" = 77 ]; then
    echo "run.sh: skipped: $1" >&2
    [ "$status" != 0 ] || status=77
  else
    echo "run.sh: failed: $1" >&2
    status=$2
  fi
}
run() {   # TEST PROGRAM [ARGUMENT...]
  EXTRA="$(of_test "$1") $([ ! -f "$driver" ] || echo "$driver")" CPUS=1
  export EXTRA CPUS
  test=$1
  shift
  sh "$here/boot.sh" "$folder" "$KERNEL" "$@" || not_passed "$test" $?
}
for test in ${TESTS:-guard_test e2e_guard_test e2e_guarded_pods_test e2e_guarded_claims_test}; do
  case $test in
    e2e_*)   # a story of that program
      story=${test#e2e_}
      run "$test" "$build/bin/e2e_test" "${story%_test}" "$@"
      ;;
    *) run "$test" "$build/bin/$test" "$@" ;;
  esac
done
[ -n "${TESTS:-}" ] || sh "$here/unit.sh" "$build" "$KERNEL" || not_passed unit.sh $?
exit "$status"
