#!/bin/sh
# fetch.sh NPM FOLDER [ARGUMENT...]: what the lock file in FOLDER names, into FOLDER/node_modules.
# No script of a package runs.
set -eu

npm=$1 folder=$2
shift 2
cd "$folder"
"$npm" ci --ignore-scripts --no-audit --no-fund --loglevel=error "$@" || {
  echo "The web page needs these packages once. Without a network: PAGE=OFF ./dev build" >&2
  exit 1
}
