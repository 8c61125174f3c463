#pragma once
// The rules of the house as code: who may include whom, how long things may be, which words have
// no place where. Each rule is a function of a file's path and text, so that a test can show it a
// bad sample, and the whole tree.

#include <string>
#include <string_view>
#include <vector>

namespace qgpu::tidy {

struct SourceFile {
  std::string path;  // from the root of the repository
  std::string text;
  bool hasOwnHeader = false;  // x.cc beside an x.h
};

struct Finding {
  std::string path;
  int line = 0;
  std::string rule;
  std::string what;
};

std::vector<Finding> checkFile(const SourceFile& file);

// Rows of the matrix of rooms that name a row below themselves, whence a cycle could grow.
std::vector<Finding> checkRows();

// Folders of the product that include each other, over however many others: also those within one
// row of the matrix.
std::vector<Finding> checkFolderCycles(const std::vector<SourceFile>& files);

// Folders of the product with more C++ files than a reader looks over. Paths from the root.
std::vector<Finding> checkRoomSizes(const std::vector<std::string>& paths);

// Names of files and folders at the root.
std::vector<Finding> checkTop(const std::vector<std::string>& names);

}  // namespace qgpu::tidy
