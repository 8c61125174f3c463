#!/bin/sh
# sbom.sh BUILD VERSION COMMIT DEB...: on stdout what is in these Debian packages of ours, as SPDX
# JSON: which Debian packages their programs link (DYNAMIC_LINK, what the linker wrote into them;
# STATIC_LINK, archives of the link command), and whose headers were compiled into them
# (BUILD_DEPENDENCY_OF), with the versions that dpkg has installed; and which npm packages are in
# the web page inside them (CONTAINS), as its bundler says. BUILD is the folder of ninja that they
# were built in. The same packages give the same bytes, dated by SOURCE_DATE_EPOCH.
set -eu
export LC_ALL=C

build=$1 version=$2 commit=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# owners FILE KIND NAME: the packages that have the files of this list, with versions, a line each.
# dpkg may know a file by the path that it had before /lib became a link to /usr/lib.
owners() {
  xargs -r realpath -e <"$1" | sort -u >"$work/paths"
  [ -s "$work/paths" ] || return 0
  { cat "$work/paths"; sed -n 's|^/usr||p' "$work/paths"; } |
    xargs dpkg-query -S 2>/dev/null >"$work/owners" || true  # no file has both spellings
  sed 's|^[^ ]*: ||' "$work/owners" | sort -u >"$work/known"
  sed 's|^/usr||' "$work/known" | sort -u >"$work/known-short"
  sed 's|^/usr||' "$work/paths" | sort -u | comm -23 - "$work/known-short" >"$work/unknown"
  if [ -s "$work/unknown" ]; then
    echo "sbom: no Debian package has $(head -n 1 "$work/unknown")" >&2
    exit 1
  fi
  sed 's|: /.*||; s|, |\n|g' "$work/owners" | sort -u |
    xargs dpkg-query -W -f "$2 $3 \${Package} \${Version} \${Architecture}\n" | sort -u
}

programs() { find "$1" -type f \( -perm -u+x -o -name '*.so' \) | sort; }

# ELF files are built under the name that they have in a package.
target_of() {
  case $1 in
    *.so) echo "lib/${1##*/}" ;;
    *) echo "bin/${1##*/}" ;;
  esac
}

page=$build/services/web/page/out/bundled.tsv  # none: built without the page
ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
for deb in "$@"; do
  name=$(dpkg-deb -f "$deb" Package)
  dpkg-deb -x "$deb" "$work/$name"
  : >"$work/dynamic" && : >"$work/static" && : >"$work/headers"
  for program in $(programs "$work/$name"); do
    [ "$(head -c 4 "$program" | tr -d '\177')" = ELF ] || continue
    target=$(target_of "$program")
    for soname in $(objdump -p "$program" | sed -n 's/^ *NEEDED *//p'); do
      "$ldconfig" -p | sed -n "s|^.$soname (libc6,x86-64.*=> ||p" | head -n 1 >>"$work/dynamic"
    done
    ninja -C "$build" -t commands "$target" | tail -n 1 | tr ' ' '\n' >"$work/link"
    sed -n '/^\/.*\.a$/p' "$work/link" >>"$work/static"
    if grep -q '/libqgpu_web\.a$' "$work/link" && [ -f "$page" ]; then
      sed "s/^/CONTAINS $name /" "$page"
    fi
    ninja -C "$build" -t inputs "$target" | grep -E '\.(o|gch)$' | sort -u |
      xargs -r ninja -C "$build" -t deps | sed -n 's|^ *\(/usr/.*\)|\1|p' | sort -u \
      >>"$work/headers"
  done
  echo "OURS $name $(sha256sum "$deb" | cut -d ' ' -f 1) ${deb##*/}"
  owners "$work/dynamic" DYNAMIC_LINK "$name"
  owners "$work/static" STATIC_LINK "$name"
  owners "$work/headers" BUILD_DEPENDENCY_OF "$name"
done >"$work/facts"

awk -v version="$version" -v commit="$commit" \
  -v created="$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" '
function id(name) { gsub(/[^A-Za-z0-9.-]/, "-", name); return "SPDXRef-" name }
function encoded(text) { gsub(/\+/, "%2B", text); gsub(/:/, "%3A", text); return text }
function relation(from, kind, to) {
  relations = relations (relations == "" ? "" : ",\n") "    {\"spdxElementId\":\"" from \
    "\",\"relationshipType\":\"" kind "\",\"relatedSpdxElement\":\"" to "\"}"
}
function package(name, its, more, key) {
  packages = packages (packages == "" ? "" : ",\n") "    {\"name\":\"" name "\",\"SPDXID\":\"" \
    id(key == "" ? name : key) "\",\"versionInfo\":\"" its "\",\"downloadLocation\":" \
    "\"NOASSERTION\",\"filesAnalyzed\":false," more "}"
}
$1 == "OURS" {
  package($2, version, "\"licenseDeclared\":\"Apache-2.0\",\"packageFileName\":\"" $4 \
    "\",\"checksums\":[{\"algorithm\":\"SHA256\",\"checksumValue\":\"" $3 "\"}]")
  relation("SPDXRef-DOCUMENT", "DESCRIBES", id($2))
  next
}
$1 == "CONTAINS" {
  npm = "npm-" $3
  if (!(npm in seen)) {
    purl = $3
    sub(/^@/, "%40", purl)
    licence = $6
    for (i = 7; i <= NF; i++) licence = licence " " $i
    package($3, $4, "\"licenseDeclared\":\"" licence "\",\"checksums\":[{\"algorithm\":" \
      "\"SHA512\",\"checksumValue\":\"" $5 "\"}],\"externalRefs\":[{\"referenceCategory\":" \
      "\"PACKAGE-MANAGER\",\"referenceType\":\"purl\",\"referenceLocator\":\"pkg:npm/" purl \
      "@" $4 "\"}]", npm)
    seen[npm] = 1
  }
  if (!(($2, npm) in inside)) relation(id($2), $1, id(npm))
  inside[$2, npm] = 1
  next
}
{
  if (!($3 in seen)) {
    package($3, $4, "\"externalRefs\":[{\"referenceCategory\":\"PACKAGE-MANAGER\"," \
      "\"referenceType\":\"purl\",\"referenceLocator\":\"pkg:deb/debian/" encoded($3) "@" \
      encoded($4) "?arch=" $5 "\"}]")
    seen[$3] = 1
  }
  if ($1 == "BUILD_DEPENDENCY_OF") relation(id($3), $1, id($2))
  else relation(id($2), $1, id($3))
}
END {
  print "{"
  print "  \"spdxVersion\":\"SPDX-2.3\","
  print "  \"dataLicense\":\"CC0-1.0\","
  print "  \"SPDXID\":\"SPDXRef-DOCUMENT\","
  print "  \"name\":\"qgpu-" version "\","
  print "  \"documentNamespace\":\"https://spdx.org/spdxdocs/qgpu-" version "-" commit "\","
  print "  \"creationInfo\":{\"created\":\"" created "\",\"creators\":[\"Tool: qgpu-sbom\"]},"
  print "  \"packages\":[\n" packages "\n  ],"
  print "  \"relationships\":[\n" relations "\n  ]"
  print "}"
}' "$work/facts"
