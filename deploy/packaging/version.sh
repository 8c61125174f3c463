#!/bin/sh
# version.sh: the version of the packages of the commit that is checked out. CHANGELOG.md has the
# number, which the programs say too. A commit with the tag vNUMBER is that release; any other is
# on the way to it, and sorts before it and after earlier commits: NUMBER~TIME.COMMIT.
set -eu
cd "$(dirname "$0")/../.."

fail() {
  echo "version: $*" >&2
  exit 1
}

heading=$(sed -n '/^## [0-9]/{p;q}' CHANGELOG.md)
number=$(printf '%s\n' "$heading" | sed -n 's/^## \([0-9]*\.[0-9]*\.[0-9]*\).*/\1/p')
[ -n "$number" ] || fail "CHANGELOG.md has no heading such as '## 1.2.3'"
tags=$(git tag --points-at HEAD --list 'v[0-9]*')
if [ -z "$tags" ]; then
  TZ=UTC0 git show -s --date='format-local:%Y%m%d%H%M%S' --format="$number~%cd.%h" --abbrev=8 HEAD
  exit
fi
for tag in $tags; do
  [ "$tag" = "v$number" ] || fail "this commit has the tag $tag, and CHANGELOG.md begins with" \
    "$number: move the tag, or name the release in CHANGELOG.md"
done
case $heading in
  *unreleased*) fail "this commit has the tag v$number, and CHANGELOG.md calls it unreleased" ;;
esac
echo "$number"
