#!/bin/sh
# chart.sh FOLDER VERSION: the chart of deploy/kubernetes as FOLDER/qgpu-VERSION.tgz, as `helm push`
# and `helm install` take it. VERSION is that of packages; a chart's is written otherwise, NUMBER or
# NUMBER-TIME.gCOMMIT, and sorts the same. It has what git has, with the time in SOURCE_DATE_EPOCH:
# the same commit gives the same bytes. Helm itself is not needed.
set -eu

FOLDER=${1:?usage: chart.sh FOLDER VERSION}
VERSION=$(printf %s "${2:?usage: chart.sh FOLDER VERSION}" | sed 's/~\(.*\)\.\(.*\)/-\1.g\2/')
TREE=$(CDPATH='' cd -- "$(dirname -- "$0")/../kubernetes" && pwd)
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

mkdir "$WORK/qgpu"
git -C "$TREE" ls-files | while read -r file; do
  mkdir -p "$WORK/qgpu/$(dirname "$file")"
  cp -RLp "$TREE/$file" "$WORK/qgpu/$file"   # of a link what it leads to
done
sed "s/^version: .*/version: $VERSION/" "$TREE/Chart.yaml" >"$WORK/qgpu/Chart.yaml"
mkdir -p "$FOLDER"
tar -C "$WORK" --sort=name --mtime="@${SOURCE_DATE_EPOCH:-0}" --owner=0 --group=0 --numeric-owner \
  --mode=u+rw,go=rX -c qgpu | gzip -9n >"$FOLDER/qgpu-$VERSION.tgz"
