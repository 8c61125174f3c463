#!/bin/sh
# unit.sh BUILD KERNEL: the manager's unit as packages have it, started by Debian's systemd on
# another kernel in qemu. Without deploy/systemd/guard.conf beside it --guard=auto has no guard, and
# with it one: then a task's program has its card's node when it has attached, and not before. With
# the driver that stands in for NVIDIA's, below BUILD/guard, it has the cap of memory as well.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
build=$(CDPATH="" cd -- "$1" && pwd)
tree=$build/guard/tree
rm -rf "$tree"
for component in qgpu-manager qgpuctl libqgpu; do
  DESTDIR=$tree cmake --install "$build" --prefix /usr --component "$component" >"$tree.log"
done
cp "$build/bin/guard_tenant" "$tree/usr/bin"
[ ! -f "$build/guard/driver/nvidia.ko" ] || cp "$build/guard/driver/nvidia.ko" "$tree"
units=$tree/etc/systemd/system
mkdir -p "$units" "$tree/etc/default" "$tree/var/tmp" "$tree/run"
echo 'root:x:0:0::/root:/bin/sh' >"$tree/etc/passwd"
echo 'root:x:0:' >"$tree/etc/group"
printf '[Manager]\nDefaultStandardOutput=tty\nDefaultStandardError=tty\n' \
  >"$tree/etc/systemd/system.conf"
printf '[Unit]\nDescription=What all others wait for\n' >"$units/sysinit.target"
printf '[Unit]\nRequires=sysinit.target\nAfter=sysinit.target\n' >"$units/basic.target"
printf '[Unit]\nRequires=check.service\n' >"$units/check.target"
printf '[Unit]\nAfter=basic.target\n[Service]\nType=oneshot\nExecStart=/check\n' \
  >"$units/check.service"
echo 'QGPU_MANAGER_FLAGS="--cards=sim:1x16 --guard=auto --guard-nodes=0:/dev/zero"' \
  >"$tree/etc/default/qgpu-manager"
printf '#!/bin/sh\nexec /lib/systemd/systemd\n' >"$tree/begin"
cat >"$tree/check" <<'CHECK'
#!/bin/sh
# Ends with the number of what is not so.
export PATH=/bin:/usr/bin
isolation() { qgpuctl cards -o json | sed -n 's/.*"isolation": *"\([a-z]*\)".*/\1/p'; }
in_task() { qgpuctl run --name tenant -- guard_tenant /dev/zero "$@"; }
check() {
  rung=guarded
  if [ -f /nvidia.ko ]; then
    # Debian's kernels ask for CAP_SYS_ADMIN to probe above 2.
    insmod /nvidia.ko && echo 2 >/proc/sys/kernel/perf_event_paranoid && rung=capped
  fi
  systemctl start qgpu-manager || return 1
  echo "without: $(isolation)"
  [ "$(isolation)" = library ] || return 2
  in_task || return 3
  mkdir /etc/systemd/system/qgpu-manager.service.d
  cp /usr/share/doc/qgpu-manager/examples/guard.conf /etc/systemd/system/qgpu-manager.service.d
  systemctl daemon-reload
  systemctl restart qgpu-manager || return 4
  echo "with: $(isolation)"
  grep Cap "/proc/$(systemctl show -P MainPID qgpu-manager)/status"
  [ "$(isolation)" = "$rung" ] || return 5
  in_task && return 6
  in_task attach || return 7
}
check
echo "status: $?"
poweroff -f
CHECK
chmod +x "$tree/begin" "$tree/check"
libraries=$(ls /usr/lib/*/systemd/libsystemd-core-*.so /usr/lib/*/systemd/libsystemd-shared-*.so)
EXTRA="/lib/systemd/systemd /bin/systemctl $libraries" TREE=$tree RUN=exec CPUS=1 \
  APPEND='quiet systemd.unit=check.target' sh "$here/boot.sh" "$build/guard" "$2" /begin
