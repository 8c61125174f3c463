#pragma once
// What the name of a driver's function says of it. Newer drivers bring ways to launch and to copy
// that libqgpu.so does not know; a program that takes one is neither held nor counted there, which
// must at least be told. The tests hold the same rule against the list of all names.

#include <string_view>

namespace qgpu::cuda {

// Puts work for the card into a stream, or begins or ends a capture of it.
constexpr bool looksLikeWork(std::string_view name) {
  constexpr std::string_view kBegins[] = {
      "cuLaunch",          "cuGraphLaunch",  "cuGraphUpload",        "cuMemcpy",
      "cuMemset",          "cuMemPrefetch",  "cuMemDiscard",         "cuMemBatch",
      "cuMemMapArray",     "cuStreamWrite",  "cuStreamWait",         "cuStreamBatch",
      "cuSignal",          "cuWaitExternal", "cuStreamBeginCapture", "cuStreamBeginRecapture",
      "cuStreamEndCapture"};
  // Orders streams, and no card is busy with that.
  if (name.substr(0, 17) == "cuStreamWaitEvent") return false;
  for (const std::string_view begin : kBegins) {
    if (name.substr(0, begin.size()) == begin) return true;
  }
  return false;
}

}  // namespace qgpu::cuda
