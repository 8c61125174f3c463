#pragma once
// The manual page of qgpuctl, from what its parser has.

#include <CLI/CLI.hpp>
#include <string>

namespace qgpu::ctl {

// For man(1), section 1. `footer`: what help ends with, indented as it stands there.
std::string manPage(const CLI::App& app, const std::string& footer, const std::string& version);

}  // namespace qgpu::ctl
