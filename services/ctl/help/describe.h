#pragma once
// All that can be typed, as one JSON document: from it come completion, man page and
// docs/reference/commands.md. Of each command: its options and arguments as the parser has them,
// and what the table of commands (services/api/commands/commands.h) says of it.

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace qgpu::ctl {

// {"ok":true,"options":[...],"commands":[{"name","group","what","right","example","lines":{"node",
// "cluster"},"arguments":[{"name","meaning","required"}],"options":[{"names","value","meaning"}],
// "commands":[...]}]}. `lines`: of the admin sockets that know it.
std::string describe(const CLI::App& app);

// Arguments of qgpuctl that show how a command is used, by its name as in "what-if place"; those of
// its row, where it has one.
std::string_view exampleOf(std::string_view command);

}  // namespace qgpu::ctl
