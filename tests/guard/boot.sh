#!/bin/sh
# boot.sh FOLDER KERNEL PROGRAM [ARGUMENT...]: runs a program as root on another Linux kernel, in
# qemu, with nothing but the program, the shared libraries it needs, what EXTRA names (paths), the
# tree in the folder TREE, and busybox. FOLDER is for what it makes. Ends with the program's status;
# with RUN=exec the program is the first process, and says "status: N" itself. SET are variables for
# the program. ACCEL="-accel tcg" keeps off a kvm that does not work. MORE has further options of
# qemu: with "-icount shift=0,sleep=off" a nanosecond of its clock is an instruction.
set -eu

folder=$1 kernel=$2
shift 2
root=$folder/root
rm -rf "$root"
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/root"
chmod 1777 "$root/tmp"
busybox=${BUSYBOX:-$(command -v busybox || true)}
[ -n "$busybox" ] || { echo "boot.sh: no busybox: install busybox-static" >&2; exit 2; }
cp "$busybox" "$root/bin/busybox"
[ -z "${TREE:-}" ] || cp -R "$TREE/." "$root"
# shellcheck disable=SC2086
for path in "$1" ${EXTRA:-}; do
  mkdir -p "$root$(dirname "$path")"
  [ -e "$root$path" ] || cp -RL "$path" "$root$path"
done
find "$root" -type f \( -perm -u+x -o -name '*.so' \) -exec ldd {} \; 2>/dev/null |
  sed -n -e 's/^.*=> \(\/[^ ]*\) .*/\1/p' -e 's/^\t\(\/[^ ]*\) .*/\1/p' |
  sort -u | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
{
  echo '#!/bin/busybox sh'
  echo '/bin/busybox --install -s /bin'
  echo "export PATH=/bin:/usr/bin:/usr/sbin HOME=/root ${SET:-}"
  echo 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev'
  echo 'mount -t bpf bpf /sys/fs/bpf; ln -s /proc/self/fd /dev/fd'
  echo 'ip link set lo up; hostname guest'
  echo 'uname -r'
  printf '%s %s' "${RUN:-}" "$1"
  shift
  printf ' "%s"' "$@"
  echo
  echo 'echo "status: $?"'
  echo 'poweroff -f'
} >"$root/init"
chmod +x "$root/init"
mkdir -p "$root/bin"
ln -sf /bin/busybox "$root/bin/sh"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$folder/initramfs"
log=$folder/console.log
# shellcheck disable=SC2086
timeout "${LIMIT:-600}" qemu-system-x86_64 ${ACCEL:--accel kvm -accel tcg} -cpu max \
  -smp "${CPUS:-2}" -m 1024 -nodefaults -no-reboot -nographic -serial stdio -kernel "$kernel" \
  -initrd "$folder/initramfs" ${MORE:-} \
  -append "console=ttyS0 ${APPEND:-quiet} panic=-1 rdinit=/init" </dev/null >"$log" 2>&1 || true
tr -d '\r' <"$log"
exit "$(tr -d '\r' <"$log" | sed -n 's/^status: //p' | tail -n 1 | grep . || echo 99)"
