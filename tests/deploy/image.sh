#!/bin/sh
# image.sh FOLDER: deploy/Dockerfile really built, of the commit that is checked out, by buildah,
# which needs no daemon; then what is in both images is run. Its base is made of Debian's packages,
# under the name that the Dockerfile gives it: nothing is pulled. Everything stays below FOLDER, so
# that a second run builds only what changed. Needs root.
set -eu

mkdir -p "${1:?usage: image.sh FOLDER}"
FOLDER=$(CDPATH='' cd -- "$1" && pwd)
TREE=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
DOCKERFILE=deploy/Dockerfile
BASE=$(sed -n 's/^ARG BASE=//p' "$TREE/$DOCKERFILE")
VERSION=$(sed -n 's/^appVersion: //p' "$TREE/deploy/kubernetes/Chart.yaml")

for tool in buildah mmdebstrap; do
  command -v $tool >/dev/null || { echo "image.sh: there is no $tool" >&2; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "image.sh: needs root" >&2; exit 77; }

# No overlay below: FOLDER may lie on one.
b() { buildah --root "$FOLDER/storage" --runroot "$FOLDER/run" --storage-driver vfs "$@"; }

if ! b inspect --type image "$BASE" >/dev/null 2>&1; then
  echo "image.sh: making $BASE"
  mmdebstrap --quiet --variant=minbase bookworm "$FOLDER/base.tar"
  container=$(b from scratch)
  b add --quiet "$container" "$FOLDER/base.tar" / >/dev/null
  b config --cmd bash --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "$container"
  b commit --quiet --rm "$container" "docker.io/library/$BASE" >/dev/null
  rm "$FOLDER/base.tar"
fi

rm -rf "$FOLDER/context"
mkdir -p "$FOLDER/context" "$FOLDER/ccache"
git -C "$TREE" archive HEAD | tar -x -C "$FOLDER/context"
for target in scheduler manager; do
  echo "image.sh: building $target"
  b build --isolation chroot --layers --pull-never --file "$FOLDER/context/$DOCKERFILE" \
    --ignorefile "$FOLDER/context/$DOCKERFILE.dockerignore" --target $target \
    --volume "$FOLDER/ccache:/root/.cache/ccache" \
    --tag "localhost/qgpu/$target:$VERSION" "$FOLDER/context" >"$FOLDER/$target.log" 2>&1 || {
    tail -n 40 "$FOLDER/$target.log" >&2
    exit 1
  }
done

# in_image TARGET LINE: by the image's own shell.
in_image() {
  container=$(b from --pull-never "localhost/qgpu/$1:$VERSION")
  b run --isolation chroot "$container" -- sh -c "$2" || { echo "image.sh: $1: $2" >&2; exit 1; }
  b rm "$container" >/dev/null
}
# shellcheck disable=SC2016
{
  LINKED='for f in /usr/bin/qgpu* $(find /usr/lib -name libqgpu.so); do
    ! ldd "$f" | grep "not found" || { echo "of $f"; exit 1; }; done; '
  ANSWERED='for i in $(seq 100); do $ASK >/dev/null 2>&1 && break; sleep 0.1; done
    $ASK; kill $!; wait $!'
  in_image scheduler "$LINKED ASK='qgpuctl nodes'; qgpu-scheduler --log-level=error & $ANSWERED"
  in_image manager "$LINKED ASK='qgpuctl cards'
    qgpu-manager --cards=sim:2x16 --log-level=error & $ANSWERED"
}
for target in scheduler manager; do
  b push --quiet --digestfile "$FOLDER/$target.digest" "localhost/qgpu/$target:$VERSION" \
    "oci-archive:$FOLDER/$target.tar:qgpu/$target:$VERSION"
  echo "image.sh: $target $(cat "$FOLDER/$target.digest")," \
    "$(($(stat -c %s "$FOLDER/$target.tar") / 1048576)) MiB"
done
