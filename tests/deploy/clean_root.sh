#!/bin/sh
# A root of its own with systemd in it, made of the packages of this machine, so that installing is
# tested as on a machine that has nothing but what Debian always has. Needs root.
#
#   clean_root.sh why                      why this machine can't have one; nothing where it can
#   clean_root.sh make FOLDER PACKAGE...   these, the essential ones, and all that they depend on
#   clean_root.sh boot FOLDER              becomes a process whose child is the systemd of that root
#   clean_root.sh end FOLDER               removes its cgroups, once that has ended
#
# It has namespaces of its own, also of the network, and a cgroup (version 2) of its own.
set -eu

cgroups() {
  for folder in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    [ ! -f "$folder/cgroup.procs" ] || [ ! -f "$folder/cgroup.controllers" ] || {
      echo "$folder"
      return
    }
  done
}
# Of the whole path: another run's root is called like it, also of one that was killed.
group() { echo "$(cgroups)/qgpu-test-$(echo "${1#/}" | tr / -)"; }

why() {
  if [ "$(id -u)" != 0 ]; then echo "a root with packages of its own is made by root alone"
  elif ! awk '$3 < 65536 { exit 1 }' /proc/self/uid_map; then
    echo "this namespace has too few users for files of packages"
  elif ! unshare -mpfuniC --kill-child true 2>/dev/null; then
    echo "namespaces can't be made here"
  elif [ -z "$(cgroups)" ]; then echo "there are no cgroups of version 2"
  elif ! { mkdir "$(group why)" && rmdir "$(group why)"; } 2>/dev/null; then
    echo "cgroups can't be made here"
  elif [ ! -x /lib/systemd/systemd ]; then echo "there is no systemd to copy"
  fi
}

# The installed packages that these and the essential ones come to, a line each.
closure() {
  dpkg-query -W -f \
    '${db:Status-Abbrev}\t${Package}\t${Provides}\t${Pre-Depends}, ${Depends}\t${Essential}\n' |
    awk -F '\t' -v want="$*" '
      function bare(list) { gsub(/\([^)]*\)|:[a-z0-9]+| /, "", list); return list }
      $1 !~ /^ii/ { next }
      {
        depends[$2] = bare($4)
        by[$2] = $2
        count = split(bare($3), names, ",")
        for (i = 1; i <= count; i++) if (!(names[i] in by)) by[names[i]] = $2
        if ($5 == "yes") want = want " " $2
      }
      END {
        left = split(want, queue, " ")
        for (i = 1; i <= left; i++) {
          if (!(queue[i] in by)) {
            print "clean_root: " queue[i] " is not installed here" >"/dev/stderr"
            exit 1
          }
          package = by[queue[i]]
          if (seen[package]++) continue
          print package
          count = split(depends[package], needs, ",")
          for (n = 1; n <= count; n++) {
            either = split(needs[n], names, "|")
            for (e = 1; e < either && !(names[e] in by); e++) continue
            if (names[e] != "") queue[++left] = names[e]
          }
        }
      }'
}

# Without what nobody looks at in it: documents, headers and sanitizers.
files_of() {   # NAMES, a file of package names
  while read -r package; do
    for list in "/var/lib/dpkg/info/$package.list" "/var/lib/dpkg/info/$package":*.list; do
      [ ! -f "$list" ] || cat "$list"
    done
  done <"$1" |
    grep -Ev '^/usr/share/(doc|man|locale|info|i18n)/|^/usr/include/|/libclang_rt|^/\.$' |
    sort -u | while read -r path; do [ ! -e "$path" ] || echo ".$path"; done
}

make() {
  root=$1
  shift
  mkdir -p "$root/usr"
  closure "$@" >"$root/names"
  for link in bin sbin lib lib32 lib64 libx32; do
    [ ! -L "/$link" ] || { mkdir -p "$root/usr/$link" && ln -s "usr/$link" "$root/$link"; }
  done
  files_of "$root/names" >"$root/files"
  tar -C / --no-recursion -cf - -T "$root/files" |
    tar -C "$root" --keep-directory-symlink -xpf -
  dpkg=$root/var/lib/dpkg
  mkdir -p "$dpkg/info" "$dpkg/updates" "$dpkg/triggers" "$dpkg/alternatives" \
    "$root/root" "$root/opt"
  awk 'BEGIN { RS = ""; ORS = "\n\n" }
    NR == FNR { count = split($0, names, "\n"); for (i in names) ours[names[i]]; next }
    { split($0, lines, "\n"); if (substr(lines[1], 10) in ours) print }' \
    "$root/names" /var/lib/dpkg/status >"$dpkg/status"
  cp /var/lib/dpkg/info/format "$dpkg/info"
  while read -r package; do
    for file in "/var/lib/dpkg/info/$package".* "/var/lib/dpkg/info/$package":*; do
      [ ! -f "$file" ] || cp "$file" "$dpkg/info"
    done
  done <"$root/names"
  rm "$root/names" "$root/files"
  : >"$dpkg/available"
  : >"$root/etc/machine-id"
  for base in passwd group; do
    cp "$root/usr/share/base-passwd/$base.master" "$root/etc/$base"
  done
  chroot "$root" sh -c 'ldconfig; systemd-sysusers' >/dev/null 2>&1
  # A machine has these; here they would wait for consoles and buses that there are none of.
  for unit in getty.target console-getty.service systemd-logind.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
  done
}

# In the namespaces: what systemd finds mounted in a container.
inside() {
  root=$1
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  for path in sys sysrq-trigger; do
    [ -e "$root/proc/$path" ] || continue
    mount --bind "$root/proc/$path" "$root/proc/$path"
    mount -o remount,bind,ro "$root/proc/$path"
  done
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  for node in null zero full random urandom tty; do
    : >"$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
  done
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s pts/ptmx "$root/dev/ptmx"
  hostname clean-root
  ip link set lo up
  cd "$root"
  exec env -i container=qgpu-test PATH=/usr/sbin:/usr/bin chroot . \
    /lib/systemd/systemd --system --unit=multi-user.target
}

command=$1
shift
case $command in
  why) why ;;
  make) make "$@" ;;
  boot)
    mkdir "$(group "$1")"
    echo $$ >"$(group "$1")/cgroup.procs"
    exec unshare -mpfuniC --kill-child sh "$0" inside "$1"
    ;;
  inside) inside "$1" ;;
  end) find "$(group "$1")" -depth -type d -exec rmdir {} + ;;
esac
