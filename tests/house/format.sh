#!/bin/sh
# Sets all sources as .clang-format says; with --check it only names those that are set otherwise.
# By clang-format 14, Debian 12's, alone: each version has its own opinions. 77 without it.
#
#   format.sh [--check]
set -eu

cd "$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)"
for program in clang-format-14 clang-format none; do
  case "$("$program" --version 2>/dev/null || true)" in
    *'version 14.'*) break ;;
  esac
done
[ "$program" != none ] || {
  echo "format: clang-format 14 is not here (Debian 12: clang-format); nothing was looked at"
  exit 77
}
case "${1:-}" in
  '') how=-i ;;
  --check) how='--dry-run -Werror' ;;
  *)
    echo "format: unknown option '$1': --check, or none" >&2
    exit 2
    ;;
esac
# Names here have no blanks.
# shellcheck disable=SC2038,SC2086
find actors bench runtime services store tests -name '*.h' -o -name '*.cc' |
  xargs -n 50 -P "$(nproc)" "$program" $how || {
  echo "format: ./dev format mends it" >&2
  exit 1
}
