#!/bin/sh
# Container images without a container engine: what deploy/Dockerfile puts into its images, taken
# from the Debian packages of this machine and an installed build, and imported into containerd.
# Sourced by node.sh; ROOT, BUILD, STATE and CTR are set there.

# Everything that packages need, as far as it is installed here.
closure() {
  apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts \
    --no-breaks --no-replaces --no-enhances "$@" | grep "^[a-z0-9]" |
    grep -v -e lib32 -e i386 | sort -u
}

# tree FOLDER PACKAGE...: the files of packages, below FOLDER.
tree() {
  mkdir -p "$1/usr/bin" "$1/usr/sbin" "$1/usr/lib" "$1/usr/lib64" "$1/etc" "$1/tmp"
  for link in bin sbin lib lib64; do ln -sfn "usr/$link" "$1/$link"; done
  for package in $(shift; closure "$@"); do
    dpkg -L "$package" 2>/dev/null || true   # one that another provides is not installed
  done | grep -vE '^/(\.|usr/share/(doc|man|locale|lintian)(/.*)?|package diverts.*)$' | sort -u |
    tar -C / --no-recursion --ignore-failed-read -c -T - 2>/dev/null |
    tar -C "$1" -x --keep-directory-symlink
}

# layer NAME FOLDER: STATE/layers/NAME.tar and the digest beside it.
layer() {
  mkdir -p "$STATE/layers"
  tar -C "$2" --sort=name --owner=0 --group=0 --numeric-owner -cf "$STATE/layers/$1.tar" .
  sha256sum "$STATE/layers/$1.tar" | cut -d' ' -f1 >"$STATE/layers/$1.digest"
}

# image NAME:TAG CMD LAYER...: made of layers, and imported. CMD is a JSON list.
image() {
  name=$1 cmd=$2
  shift 2
  folder=$STATE/image
  rm -rf "$folder"
  mkdir -p "$folder"
  ids='' files=''
  for one in "$@"; do
    ln "$STATE/layers/$one.tar" "$folder/$one.tar"
    ids="$ids${ids:+,}\"sha256:$(cat "$STATE/layers/$one.digest")\""
    files="$files${files:+,}\"$one.tar\""
  done
  path=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  cat >"$folder/config.json" <<TEXT
{"architecture":"amd64","os":"linux","config":{"Env":["$path"],"Cmd":$cmd},
 "rootfs":{"type":"layers","diff_ids":[$ids]}}
TEXT
  cat >"$folder/manifest.json" <<TEXT
[{"Config":"config.json","RepoTags":["$name"],"Layers":[$files]}]
TEXT
  mkdir -p "$STATE/images"
  archive=$STATE/images/$(echo "$name" | tr '/:' '__').tar
  tar -C "$folder" -cf "$archive" .
  ctr -n k8s.io images import "$archive" >/dev/null
  rm -rf "$folder"
  [ "$NODES" != 1 ] || rm "$archive"
}
# The same images on another node than the one that made them, whose folder is named.
import_images() {
  for archive in "$1"/images/*.tar; do ctr -n k8s.io images import "$archive" >/dev/null; done
}

# The packages that a stage of the Dockerfile installs.
packages_of() {
  sed -n "/^FROM .* AS $1\$/,/^FROM .* AS /p" "$ROOT/deploy/Dockerfile" |
    sed -n 's/^ *\([a-z0-9.+-]*\) \\$/\1/p'
}

make_debian_layers() {
  trees=$STATE/trees
  mkdir -p "$trees"
  # shellcheck disable=SC2046
  tree "$trees/base" $(dpkg-query -Wf '${Package} ${Essential}\n' | sed -n 's/ yes$//p') \
    $(packages_of libraries)
  chmod 1777 "$trees/base/tmp"
  cp /etc/passwd /etc/group /etc/ld.so.conf "$trees/base/etc/"
  layer base "$trees/base"
  # shellcheck disable=SC2046
  tree "$trees/grpc" $(packages_of manager)
  layer grpc "$trees/grpc"
  tree "$trees/opencl" libpocl2 pocl-opencl-icd ocl-icd-libopencl1
  layer opencl "$trees/opencl"
  rm -rf "$trees"
}

make_product_layers() {
  trees=$STATE/trees
  # Stays: the checks use the qgpuctl of what runs, also when the build goes on.
  DESTDIR=$STATE/out cmake --install "$BUILD" --prefix /usr >/dev/null
  out=$STATE/out/usr
  mkdir -p "$trees/scheduler/usr/bin" "$trees/manager/usr/bin" "$trees/manager/usr/lib"
  cp "$out/bin/qgpu-scheduler" "$out/bin/qgpuctl" "$ROOT/deploy/image/scheduler-folders.sh" \
    "$trees/scheduler/usr/bin/"
  cp "$out/bin/qgpu-manager" "$out/bin/qgpu-kubelet-plugin" "$out/bin/qgpuctl" \
    "$ROOT/deploy/image/install.sh" "$ROOT/deploy/image/nvidia-nodes.sh" \
    "$ROOT/deploy/image/unload-guard.sh" "$trees/manager/usr/bin/"
  cp "$out/lib/libqgpu.so" "$trees/manager/usr/lib/"
  mkdir -p "$trees/tenant/usr/bin" "$trees/kube-scheduler/usr/local/bin"
  cp "$BUILD/bin/qgpu-work" "$trees/tenant/usr/bin/"
  # What the example pods run, where there is no card of NVIDIA's.
  cat >"$trees/tenant/usr/bin/nvidia-smi" <<'TEXT'
#!/bin/sh
exec qgpu-work --seconds=2 --json
TEXT
  chmod 755 "$trees/tenant/usr/bin/nvidia-smi"
  cp "$(command -v kube-scheduler)" "$trees/kube-scheduler/usr/local/bin/"
  for one in scheduler manager tenant kube-scheduler; do layer "$one" "$trees/$one"; done
  rm -rf "$trees"
}

# The tenant has the name that the example pods use.
make_images() {
  make_debian_layers
  image docker.io/qgpu-test/pause:1 '["sleep","infinity"]' base
  make_product_images
}

make_product_images() {
  make_product_layers
  image docker.io/qgpu/scheduler:0.1.0 '["qgpu-scheduler"]' base scheduler
  image docker.io/qgpu/manager:0.1.0 '["/usr/bin/qgpu-manager"]' base opencl grpc manager
  image docker.io/nvidia/cuda:12.2.2-base-ubuntu22.04 '["sh"]' base opencl tenant
  image "k8s.gcr.io/kube-scheduler:v1.$MINOR.0" '["kube-scheduler"]' kube-scheduler
}
