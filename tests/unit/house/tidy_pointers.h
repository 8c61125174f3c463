#pragma once
// What the texts of the tree point at: the ids of invariants and hazards that code cites, the ids
// that a document has, and the files that a document links to. No parser of Markdown: a reader of
// lines that is right for how documents are written here.

#include <string>
#include <string_view>
#include <vector>

namespace qgpu::tidy {

struct Pointer {
  int line = 0;
  std::string target;
};

// What code cites in comments, literals and names of tests: A4 as "a4", HAZARDS 23 as "hazards-23".
std::vector<Pointer> citationsOf(std::string_view code);

// The targets `<a id="...">` of a document.
std::vector<std::string> anchorsOf(std::string_view document);

// The files that a document's links name, without `#...`. Addresses of other sites are left out,
// and links within the document, and what stands in code.
std::vector<Pointer> linksOf(std::string_view document);

// The pages that the navigation of mkdocs' configuration names, its last part: `- PAGE` or
// `- TITLE: PAGE`, from top to bottom.
std::vector<std::string> navigationOf(std::string_view configuration);

}  // namespace qgpu::tidy
