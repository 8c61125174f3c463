#!/bin/sh
# pack.sh BUILD FOLDER VERSION DEB|RPM|TXZ [ARGUMENT...]: packages of what was built in BUILD, into
# FOLDER, by cpack with these arguments. SOURCE_DATE_EPOCH is the time of all that is in them.
set -eu

build=$1 folder=$2 version=$3 kind=$4
shift 4
: "${SOURCE_DATE_EPOCH:?is the time of all that is packed}"
export SOURCE_DATE_EPOCH LC_ALL=C
# Neither modes of files nor the order of lists is a habit of who packs.
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cpack --config "$build/CPackConfig.cmake" -G "$kind" -B "$work" \
  -D CPACK_PACKAGE_VERSION="$version" "$@"
mkdir -p "$folder"
find "$work" -maxdepth 1 -type f -exec mv -t "$folder" {} +
