#include "services/demo/workload/work_options.h"

#include <charconv>
#include <functional>
#include <map>
#include <sys/stat.h>

namespace qgpu::demo {
namespace {

Result<double> parseNumber(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !(value >= 0) || value > 1e9) {
    return fail(ErrorCode::InvalidArgument, "'" + text + "' is not a number from 0 to 1e9");
  }
  return value;
}

using Setter = std::function<Status(const std::string&)>;

Setter number(double& target) {
  return [&target](const std::string& text) -> Status {
    Result<double> value = parseNumber(text);
    if (!value) return value.error();
    target = *value;
    return ok();
  };
}

Setter whole(std::uint32_t& target, double least, double most) {
  return [&target, least, most](const std::string& text) -> Status {
    Result<double> value = parseNumber(text);
    if (!value) return value.error();
    if (*value < least || *value > most || *value != static_cast<std::uint32_t>(*value)) {
      return fail(ErrorCode::InvalidArgument,
                  "'" + text + "' is not a whole number from " +
                      std::to_string(static_cast<std::uint32_t>(least)) + " to " +
                      std::to_string(static_cast<std::uint32_t>(most)));
    }
    target = static_cast<std::uint32_t>(*value);
    return ok();
  };
}

Setter range(Range& target) {
  return [&target](const std::string& text) -> Status {
    Result<Range> value = parseRange(text);
    if (!value) return value.error();
    target = *value;
    return ok();
  };
}

Setter devicePath(std::string& target) {
  return [&target](const std::string& text) -> Status {
    struct stat facts {};
    if (!text.starts_with('/') || ::stat(text.c_str(), &facts) != 0 || !S_ISCHR(facts.st_mode)) {
      return fail(ErrorCode::InvalidArgument, "'" + text + "' is no device node");
    }
    target = text;
    return ok();
  };
}

Setter mode(WorkOptions::Mode& target) {
  return [&target](const std::string& text) -> Status {
    if (text != "steady" && text != "bursts") {
      return fail(ErrorCode::InvalidArgument, "'" + text + "' is neither steady nor bursts");
    }
    target = text == "steady" ? WorkOptions::Mode::Steady : WorkOptions::Mode::Bursts;
    return ok();
  };
}

std::map<std::string, Setter> valued(WorkOptions& options) {
  constexpr double kMemoryMibMax = 16384;  // item indexes are 32 bits wide
  return {{"--seconds", number(options.seconds)},
          {"--kernel-ms", range(options.kernelMs)},
          {"--gap-ms", number(options.gapMs)},
          {"--idle-ms", range(options.idleMs)},
          {"--burst-kernels", range(options.burstKernels)},
          {"--memory-mib", whole(options.memoryMib, 1, kMemoryMibMax)},
          {"--loops-per-ms", number(options.loopsPerMs)},
          {"--fill-mib", whole(options.fillMib, 1, kMemoryMibMax)},
          {"--seed", whole(options.seed, 0, 1e9)},
          {"--ways-out", devicePath(options.waysOut)},
          {"--mode", mode(options.mode)}};
}

std::map<std::string, bool*> switches(WorkOptions& options) {
  return {{"--calibrate", &options.calibrate}, {"--describe", &options.describe},
          {"--control", &options.control},     {"--progress", &options.watchProgress},
          {"--json", &options.json},           {"--verify", &options.verify},
          {"--help", &options.help},           {"-h", &options.help}};
}

}  // namespace

Result<Range> parseRange(const std::string& text) {
  const std::size_t dots = text.find("..");
  Result<double> low = parseNumber(text.substr(0, dots));
  if (!low) return low.error();
  if (dots == std::string::npos) return Range{*low, *low};
  Result<double> high = parseNumber(text.substr(dots + 2));
  if (!high) return high.error();
  if (*high < *low) {
    return fail(ErrorCode::InvalidArgument, "'" + text + "' ends before it begins");
  }
  return Range{*low, *high};
}

Result<WorkOptions> parseWorkOptions(const std::vector<std::string>& arguments) {
  WorkOptions options;
  const std::map<std::string, Setter> setters = valued(options);
  const std::map<std::string, bool*> flags = switches(options);
  for (std::size_t i = 0; i < arguments.size(); i++) {
    std::string name = arguments[i];
    if (const auto flag = flags.find(name); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    std::string value;
    const std::size_t equals = name.find('=');
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    const auto setter = setters.find(name);
    if (setter == setters.end()) {
      return fail(ErrorCode::InvalidArgument, "unknown option '" + name + "'; see --help");
    }
    if (equals == std::string::npos) {
      if (++i == arguments.size()) {
        return fail(ErrorCode::InvalidArgument, name + " needs a value");
      }
      value = arguments[i];
    }
    if (Status status = setter->second(value); !status) {
      return fail(ErrorCode::InvalidArgument, name + ": " + status.error().message);
    }
  }
  return options;
}

const char* workUsage() {
  return R"(usage: qgpu-work [OPTIONS]

An OpenCL program that keeps a device busy with integer kernels and checks every item of every
result on the host. It runs on any OpenCL 1.2 device and knows nothing of qgpu.

  --mode=steady|bursts   steady: one kernel after the other; bursts: idle, then a few kernels
  --seconds=N            how long; 0: until SIGTERM, SIGINT or "end" (default 5)
  --kernel-ms=A[..B]     length of a kernel alone on the device, drawn evenly (default 2)
  --gap-ms=N             steady: pause after each kernel; 0 keeps the queue full (default 0)
  --idle-ms=A[..B]       bursts: quiet time before each burst (default 110..200)
  --burst-kernels=A[..B] bursts: kernels of one (default 1..3)
  --memory-mib=N         size of the buffer that the kernels walk through (default 16)
  --loops-per-ms=N       from --calibrate on an idle machine; else measured at the start
  --calibrate            print {"loops_per_ms":N} and end
  --describe             print the device and its driver as JSON and end
  --fill-mib=N           compute nothing: take memory until it is refused, to the byte and N MiB at
                         most, give it back, take it again, print that as JSON and end
  --ways-out=NODE        compute nothing: try every way to open a card's device node, in a process
                         each, and print what each ended with: 0 it was open, 200 it can't be tried
                         here, else the error that it was refused by
  --seed=N               draws lengths and first values
  --control              read "pause", "go", "mark" and "end" from stdin, a line each; end of file
                         ends; at a mark the report says how much was done by then
  --progress             watch finished work-groups from the host and report every standstill
  --verify               check results, which is always done
  --json                 the report as one JSON document

Exit code: 0 all results right, 1 a result was wrong or a call failed, 2 usage, 3 no memory
(over quota), 4 no OpenCL device.
)";
}

}  // namespace qgpu::demo
