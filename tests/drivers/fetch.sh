#!/bin/sh
# fetch.sh FOLDER: NVIDIA's own libcuda.so.1, libnvidia-ml.so.1, libraries for video and nvidia-smi
# of several driver branches, as Debian packs them in non-free, into FOLDER/VERSION. Nothing is
# installed, and apt's own state is left alone. A branch that its archive does not have (any more)
# is named and left out.
set -eu

FOLDER=${1:?usage: fetch.sh FOLDER}
KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
WORK=$(mktemp -d)
trap 'rm -rf "$WORK" "$FOLDER.part"' EXIT

format='$(COMPONENT) $(RELEASE) $(REPO_URI)'
mirror=$(apt-get indextargets --format "$format" 'Created-By: Packages' |
  awk '$1 == "main" && $2 == "bookworm" { print $3; exit }')
[ -n "$mirror" ] || {
  echo "fetch.sh: apt knows no archive of Debian 12 (bookworm main)" >&2
  exit 1
}

# A suite, and the packages of one driver in it.
branches() {
  cat <<'TEXT'
sid          libnvidia-tesla-450-cuda1 libnvidia-tesla-450-ml1
bookworm     libnvidia-tesla-470-cuda1 libnvidia-tesla-470-ml1
sid          libnvidia-tesla-cuda1 libnvidia-tesla-ml1
bookworm     libcuda1 libnvidia-ml1 libnvidia-encode1 libnvcuvid1 nvidia-smi
trixie       libcuda1 libnvidia-ml1 libnvidia-encode1 libnvcuvid1 nvidia-smi
experimental libcuda1 libnvidia-ml1 libnvidia-encode1 libnvcuvid1
TEXT
}

# apt with the lists of one suite, in a folder of its own.
apt_of() {
  suite=$1 state=$WORK/$1
  shift
  apt-get -qq -o Dir::Etc::SourceList="$state/list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::State::Lists="$state/lists" -o Dir::Cache="$state/cache" -o APT::Sandbox::User=root "$@"
}

lists_of() {
  mkdir -p "$WORK/$1/lists/partial" "$WORK/$1/cache/archives/partial"
  echo "deb [signed-by=$KEYS] $mirror $1 non-free" >"$WORK/$1/list"
  apt_of "$1" update
}

# Takes what was unpacked below a folder by the names that programs load.
keep() {
  found=$(find "$1" -name 'libcuda.so.[1-9]*.*' -type f)
  version=${found##*/libcuda.so.}
  to=$FOLDER.part/$version
  mkdir -p "$to"
  cp "$found" "$to/libcuda.so.1"
  cp "$(find "$1" -name 'libnvidia-ml.so.[1-9]*.*' -type f)" "$to/libnvidia-ml.so.1"
  for video in libnvidia-encode libnvcuvid; do
    find "$1" -name "$video.so.[1-9]*.*" -type f -exec cp {} "$to/$video.so.1" \;
  done
  find "$1" -name nvidia-smi -type f -perm -100 -exec cp {} "$to/" \;
  echo "fetch.sh: driver $version"
}

branches | while read -r suite packages; do
  unpacked=$WORK/unpacked
  rm -rf "$unpacked"
  mkdir "$unpacked"
  # shellcheck disable=SC2086  # several packages
  if { [ -d "$WORK/$suite" ] || lists_of "$suite"; } &&
    (cd "$unpacked" && apt_of "$suite" download $packages); then
    for each in "$unpacked"/*.deb; do dpkg-deb -x "$each" "$unpacked/files"; done
    keep "$unpacked/files"
  else
    echo "fetch.sh: $suite has no $packages: left out" >&2
  fi
done
mv "$FOLDER.part" "$FOLDER"  # whole, or not there
