#!/bin/sh
# image.sh FOLDER: deploy/Dockerfile really built, of the commit that is checked out, by buildah,
# which needs no daemon: for this machine and, on x86-64 where the kernel can be told of qemu, for
# aarch64. What is in the images is run, and each image's machines become one archive below one
# digest. Their base is made of Debian's packages, under the name that the Dockerfile gives it:
# nothing is pulled. Everything stays below FOLDER, so that a second run builds only what changed.
# Needs root.
set -eu

mkdir -p "${1:?usage: image.sh FOLDER}"
FOLDER=$(CDPATH='' cd -- "$1" && pwd)
TREE=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
DOCKERFILE=deploy/Dockerfile
BASE=$(sed -n 's/^ARG BASE=//p' "$TREE/$DOCKERFILE")
VERSION=$(sed -n 's/^appVersion: //p' "$TREE/deploy/kubernetes/Chart.yaml")
BINFMT=/proc/sys/fs/binfmt_misc
machines=$(dpkg --print-architecture)

for tool in buildah jq mmdebstrap; do
  command -v $tool >/dev/null || { echo "image.sh: there is no $tool" >&2; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "image.sh: needs root" >&2; exit 77; }

# No overlay below: FOLDER may lie on one.
b() { buildah --root "$FOLDER/storage" --runroot "$FOLDER/run" --storage-driver vfs "$@"; }

# The kernel starts programs of aarch64 by qemu, which it opens now (F) and no image needs. What
# was not so before is undone at the end.
mounted='' registered=''
emulate() {
  [ "$machines" = amd64 ] && command -v arch-test >/dev/null || return 1
  if [ ! -e $BINFMT/register ]; then
    mount -t binfmt_misc none $BINFMT 2>/dev/null || return 1
    mounted=yes
  fi
  if [ -e $BINFMT/qemu-aarch64 ]; then
    grep -q '^flags:.*F' $BINFMT/qemu-aarch64
    return
  fi
  cat /usr/lib/binfmt.d/qemu-aarch64.conf 2>/dev/null >$BINFMT/register || return 1
  registered=yes
}
undo() {
  [ -z "$registered" ] || echo -1 >$BINFMT/qemu-aarch64
  [ -z "$mounted" ] || umount $BINFMT
}
trap undo EXIT
trap 'exit 130' INT TERM HUP
if emulate; then
  machines="$machines arm64"
else
  echo "image.sh: programs of aarch64 can't be started here: only $machines is built"
fi

# list NAME IMAGE: one name for IMAGE-MACHINE of each machine.
list() {
  b manifest rm "$1" >/dev/null 2>&1 || true
  b manifest create "$1" >/dev/null
  for machine in $machines; do
    b manifest add --os linux --arch "$machine" "$1" "containers-storage:$2-$machine" >/dev/null
  done
}

base=localhost/base/$BASE
for machine in $machines; do
  ! b inspect --type image "$base-$machine" >/dev/null 2>&1 || continue
  echo "image.sh: making $BASE for $machine"
  mmdebstrap --quiet --variant=minbase --architectures="$machine" bookworm "$FOLDER/base.tar"
  container=$(b from scratch)
  b add --quiet "$container" "$FOLDER/base.tar" / >/dev/null
  b config --os linux --arch "$machine" --cmd bash \
    --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
  b commit --quiet --rm "$container" "$base-$machine" >/dev/null
  rm "$FOLDER/base.tar"
done
list "docker.io/library/$BASE" "$base"

rm -rf "$FOLDER/context"
mkdir -p "$FOLDER/context" "$FOLDER/ccache"
git -C "$TREE" archive HEAD | tar -x -C "$FOLDER/context"
for machine in $machines; do
  for target in scheduler manager; do
    echo "image.sh: building $target for $machine"
    log=$FOLDER/$target-$machine.log
    b build --isolation chroot --layers --pull-never --platform "linux/$machine" \
      --build-arg "BUILDPLATFORM=linux/${machines%% *}" --target $target \
      --file "$FOLDER/context/$DOCKERFILE" \
      --ignorefile "$FOLDER/context/$DOCKERFILE.dockerignore" \
      --volume "$FOLDER/ccache:/root/.cache/ccache" \
      --tag "localhost/qgpu/$target:$VERSION-$machine" "$FOLDER/context" >"$log" 2>&1 || {
      tail -n 40 "$log" >&2
      exit 1
    }
  done
done

# in_image TARGET LINE: by the image's own shell, on each machine.
in_image() {
  for machine in $machines; do
    container=$(b from --pull-never --platform "linux/$machine" \
      "localhost/qgpu/$1:$VERSION-$machine")
    b run --isolation chroot "$container" -- sh -c "$2" || {
      echo "image.sh: $1 for $machine: $2" >&2
      exit 1
    }
    b rm "$container" >/dev/null
  done
}
# shellcheck disable=SC2016
{
  LINKED='for f in /usr/bin/qgpu* $(find /usr/lib -name libqgpu.so); do
    linked=$(ldd "$f") || { echo "$linked: $f"; exit 1; }
    case $linked in *"not found"*) echo "$linked: $f"; exit 1 ;; esac
  done; '
  ANSWERED='for i in $(seq 600); do $ASK >/dev/null 2>&1 && break; sleep 0.1; done
    $ASK; kill $!; wait $!'
  in_image scheduler "$LINKED ASK='qgpuctl nodes'; qgpu-scheduler --log-level=error & $ANSWERED"
  in_image manager "$LINKED LD_PRELOAD=/usr/lib/libqgpu.so /bin/true || exit 1
    ASK='qgpuctl cards'
    qgpu-manager --cards=sim:2x16 --log-level=error & $ANSWERED"
}

# Read back from the archive: each machine once, with an image of its own.
for target in scheduler manager; do
  name=qgpu/$target:$VERSION archive=$FOLDER/$target.tar
  list "localhost/$name" "localhost/$name"
  rm -f "$archive"
  b manifest push --quiet --all --digestfile "$FOLDER/$target.digest" "localhost/$name" \
    "oci-archive:$archive:$name"
  digest=$(cat "$FOLDER/$target.digest")
  echo "image.sh: $target $digest, $(($(stat -c %s "$archive") / 1048576)) MiB"
  tar -xOf "$archive" "blobs/sha256/${digest#sha256:}" |
    jq -r '.manifests[] | .platform.architecture + " " + .digest' | sort >"$FOLDER/$target.list"
  sed 's/^/image.sh:   /' "$FOLDER/$target.list"
  for machine in $machines; do echo "$machine"; done | sort >"$FOLDER/machines"
  cut -d ' ' -f 1 "$FOLDER/$target.list" | cmp - "$FOLDER/machines"
  [ -z "$(cut -d ' ' -f 2 "$FOLDER/$target.list" | sort | uniq -d)" ]
done
