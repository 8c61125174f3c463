# FILES: a list of PATH|TYPE|FILE. Writes OUT, which implements page_files.h.
string(CONCAT text "// Made by embed.cmake.\n#include \"services/web/page_files.h\"\n\n"
  "namespace qgpu {\nnamespace {\n\n")
set(rows "")
set(count 0)
foreach(one IN LISTS FILES)
  string(REPLACE "|" ";" one "${one}")
  list(GET one 0 path)
  list(GET one 1 type)
  list(GET one 2 file)
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  string(APPEND text "constexpr char kFile${count}[] =\n    \"${bytes}\";\n")
  string(APPEND rows
    "    {\"${path}\", \"${type}; charset=utf-8\", {kFile${count}, sizeof kFile${count} - 1}},\n")
  math(EXPR count "${count} + 1")
endforeach()
string(APPEND text "\nconstexpr PageFile kFiles[] = {\n${rows}};\n\n}  // namespace\n\n"
  "std::span<const PageFile> pageFiles() {\n  return kFiles;\n}\n\n}  // namespace qgpu\n")
file(WRITE "${OUT}" "${text}")
