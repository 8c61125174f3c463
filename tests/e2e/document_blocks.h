#pragma once
// The commands that the documents show: the lines of their ```sh blocks, and what stands in the
// text as `qgpuctl ...`. A block that can't be run anywhere says what it needs in a comment above
// it, which readers don't see:
//
//   <!-- needs: kubernetes, docker -->

#include <string>
#include <vector>

namespace qgpu::e2e {

// What a block may need that a test does not have.
inline constexpr const char* kNeeds[] = {
    "build",       // compiles, or runs what is only there in a build folder of one's own
    "docker",      // an engine that makes images
    "etcd",        // on machines of its own
    "history",     // git's, back to a commit
    "kubernetes",  // a cluster
    "minutes",     // it runs for long
    "root",        // changes this machine
    "systemd",
};

struct Shown {
  std::string place;  // "docs/get-started.md:34"
  std::string text;   // a whole command: lines that end with '\' are joined, comments are off
};

struct Block {
  std::string place;
  std::vector<std::string> needs;
  std::vector<Shown> commands;
};

struct Page {
  std::string path;           // from the root of the tree
  std::vector<Block> blocks;  // of ```sh
  std::vector<Shown> spans;   // in the text
  std::vector<Shown> strays;  // what looks like a command in an indented block or another fence
};

Page readPage(const std::string& path, const std::string& text);

// The words of a command as a shell has them, up to `#`; quotes are taken off, nothing is expanded.
std::vector<std::string> shellWords(const std::string& text);

}  // namespace qgpu::e2e
