#pragma once
// What may come next on a command line of qgpuctl, for the completion of shells. A shell's script
// holds no word of ours: it asks `qgpuctl complete WORD...`, so that it is never older than the
// program. Who calls: the parser, which has all that can be typed.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qgpu::ctl {

struct Completion {
  struct Word {
    std::string text;
    std::string meaning;  // may be empty
  };
  // What is known outside of the parser alone.
  enum class More : std::uint8_t { None, Files, Programs, Tasks, Cards, Nodes, Targets };

  std::vector<Word> words;           // all that begin with what was typed
  More more = More::None;            // and these
  std::string typed;                 // so far, of the last word
  std::vector<std::string> globals;  // options before the command, and their values: whom to ask
};

// `words`: what follows the program's name; the last one is being typed, and may be empty.
Completion complete(const CLI::App& app, const std::vector<std::string>& words);

// The names of shells, and what each is to read once: "bash", "zsh" or "fish".
std::vector<std::string> shells();
std::string completionScript(std::string_view shell);

}  // namespace qgpu::ctl
