#!/bin/sh
# root.sh ROOT PACKAGE...: Debian's arm64 packages and all that they depend on, unpacked below ROOT,
# for a compiler to link with and qemu to run. From where this machine's apt has its own packages;
# what this machine has installed, and its architectures, stay as they are. Needs no root.
set -eu

root=$1
shift
state=$root.apt
rm -rf "$root"
mkdir -p "$state/lists/partial" "$state/archives/partial" "$root/usr/lib" "$root/usr/bin" \
  "$root/usr/sbin"
: >"$state/status"
apt() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Debug::NoLocking=1 \
    -o APT::Sandbox::User= -o Dir::State="$state" -o Dir::State::status="$state/status" \
    -o Dir::Cache="$state" -o APT::Install-Recommends=false "$@"
}
apt update
apt --download-only --yes install "$@"
# As Debian 12 has them: a package that says /lib means /usr/lib.
for folder in bin sbin lib; do ln -s "usr/$folder" "$root/$folder"; done
for deb in "$state"/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$deb" |
    tar -x -C "$root" --keep-directory-symlink --no-same-owner --exclude=./dev/*
done
# A link that begins with / means the root, not this machine's.
find "$root" -type l -lname '/*' | while read -r link; do
  ln -sfn "$root$(readlink "$link")" "$link"
done
