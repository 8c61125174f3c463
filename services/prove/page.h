#pragma once
// What people read of a report: a page in Markdown and its pictures, made of the document alone, so
// that whoever has that can make them again.

#include <string>

#include "services/prove/report.h"

namespace qgpu::prove {

inline constexpr const char* kLatencyPicture = "latency.svg";
inline constexpr const char* kSharesPicture = "shares.svg";

std::string pageOf(const Report& report);
// Pictures; empty where nothing of it was measured.
// How soon online began, over all bursts, behind each length of kernels; on a scale of powers
// of 10.
std::string latencySvg(const Report& report);
// The share that was wanted, the work that was done, and the time that the manager counted.
std::string sharesSvg(const Report& report);

// "7 of 11 promises are proven, ...".
std::string countsOf(const Report& report);

}  // namespace qgpu::prove
