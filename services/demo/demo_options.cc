#include "services/demo/demo_options.h"

#include <algorithm>
#include <charconv>

namespace qgpu::demo {
namespace {

constexpr double kSecondsMin = 2;  // the owner's act needs a window of 1 s after the return
constexpr double kSecondsMax = 3600;
constexpr std::int64_t kRoomPercentMax = 100;

Result<std::vector<std::string>> parseActs(std::string_view text) {
  const std::vector<std::string> known = DemoOptions().acts;
  std::vector<std::string> acts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    acts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (std::find(known.begin(), known.end(), acts.back()) == known.end()) {
      return fail(ErrorCode::InvalidArgument,
                  "'" + acts.back() + "' is no act: be, fs, bs, hybrid, clpeak, alone");
    }
  }
  if (acts.empty()) return fail(ErrorCode::InvalidArgument, "--acts names no act");
  return acts;
}

}  // namespace

Result<DemoOptions> parseDemoOptions(const std::vector<std::string>& arguments) {
  DemoOptions options;
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      options.help = true;
    } else if (argument.starts_with("--acts=")) {
      Result<std::vector<std::string>> acts = parseActs(std::string_view(argument).substr(7));
      if (!acts) return acts.error();
      options.acts = std::move(*acts);
    } else if (argument.starts_with("--seconds=")) {
      const char* end = argument.data() + argument.size();
      const auto [stop, error] = std::from_chars(argument.data() + 10, end, options.seconds);
      const bool inRange = options.seconds >= kSecondsMin && options.seconds <= kSecondsMax;
      if (error != std::errc() || stop != end || !inRange) {
        return fail(ErrorCode::InvalidArgument, "--seconds takes a number from 2 to 3600");
      }
    } else if (argument == "--strict") {
      options.strict = true;
    } else if (argument.starts_with("--room=")) {
      const char* end = argument.data() + argument.size();
      const auto [stop, error] = std::from_chars(argument.data() + 7, end, options.roomPercent);
      const bool inRange = options.roomPercent >= 0 && options.roomPercent <= kRoomPercentMax;
      if (error != std::errc() || stop != end || !inRange) {
        return fail(ErrorCode::InvalidArgument, "--room takes a whole number from 0 to 100");
      }
    } else {
      return fail(ErrorCode::InvalidArgument, "unknown option '" + argument + "'; see --help");
    }
  }
  return options;
}

const char* demoUsage() {
  return R"(usage: qgpu-demo [--acts=LIST] [--seconds=N] [--strict] [--room=PERCENT]

Starts a manager of its own in a private folder, lets real OpenCL programs share this machine's
OpenCL card under it, and measures what each of them got. Nothing is left behind.

  --acts=LIST   of be,fs,bs,hybrid,clpeak,alone (default all, in this order)
  --seconds=N   length of an act (default 10; hybrid takes four times as long)
  --strict      a figure that is missed makes the exit code 1
  --room=N      under --strict, let a figure be missed by N percent of what is wanted (default 0)

Writes demo.json (or the file that DEMO_JSON names). Exit code: 0 all acts ran and every result was
right, also where a figure was missed; 1 an act failed, a result was wrong, or a figure was missed
under --strict; 2 usage; 130 stopped.
)";
}

}  // namespace qgpu::demo
