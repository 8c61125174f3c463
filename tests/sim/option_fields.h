#pragma once
// The options of a world as words: "faults=crash,liars cards=2 life_min_us=50000". What a seed drew
// is printed like that, and a person or --shrink sets single ones the same way. The one home of
// that text for both worlds, of a node (options.h) and of a cluster (cluster_options.h): what
// text() says set() takes.
//
// Options are FaultOptions with numbers of their own; FaultName is their NamedFault.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu::sim {

// One number by name, in the unit that its name says.
template <typename Options>
struct OptionField {
  const char* name;
  std::function<std::int64_t(const Options&)> get;
  std::function<void(Options&, std::int64_t)> set;
};

template <typename Options, typename Number>
OptionField<Options> number(const char* name, Number Options::*member) {
  return {name, [member](const Options& o) { return static_cast<std::int64_t>(o.*member); },
          [member](Options& o, std::int64_t v) { o.*member = static_cast<Number>(v); }};
}

template <typename Options>
OptionField<Options> inUnits(Nanos unit, const char* name, Nanos Options::*member) {
  return {name, [=](const Options& o) { return (o.*member) / unit; },
          [=](Options& o, std::int64_t v) { o.*member = unit * v; }};
}

template <typename Options, typename FaultName>
class OptionTable {
 public:
  OptionTable(std::vector<OptionField<Options>> fields, std::vector<FaultName> faults)
      : fields_(std::move(fields)), faults_(std::move(faults)) {}

  // All of them, separated by spaces.
  std::string text(const Options& options) const {
    std::string text;
    for (const FaultName& entry : faults_) {
      if (options.has(entry.fault)) text += (text.empty() ? "" : ",") + std::string(entry.name);
    }
    text = "faults=" + (text.empty() ? "none" : text);
    for (const auto& field : fields_) {
      text += " " + std::string(field.name) + "=" + std::to_string(field.get(options));
    }
    return text;
  }

  // One of them. InvalidArgument names what is possible.
  Status set(Options& options, const std::string& assignment) const {
    const std::size_t equals = assignment.find('=');
    const std::string name = assignment.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : assignment.substr(equals + 1);
    if (name == "faults") return setFaults(options, value);
    if (name == "judge") return options.judge = value, ok();
    std::string known = "faults, judge";
    for (const auto& field : fields_) {
      known += ", " + std::string(field.name);
      if (name != field.name) continue;
      std::int64_t parsed = 0;
      const char* const last = value.data() + value.size();
      const auto [end, error] = std::from_chars(value.data(), last, parsed);
      if (error != std::errc() || end != last || parsed < 0) {
        return fail(ErrorCode::InvalidArgument, "'" + assignment + "': a number from 0 is wanted");
      }
      field.set(options, parsed);
      return ok();
    }
    return fail(ErrorCode::InvalidArgument, "no option '" + name + "'; there are: " + known);
  }

 private:
  Status setFaults(Options& options, const std::string& list) const {
    options.faults = 0;
    for (std::size_t from = 0; list != "none" && from <= list.size();) {
      const std::size_t to = std::min(list.find(',', from), list.size());
      const std::string word = list.substr(from, to - from);
      std::uint32_t bit = 0;
      std::string known;
      for (const FaultName& entry : faults_) {
        if (word == entry.name) bit = static_cast<std::uint32_t>(entry.fault);
        known += (known.empty() ? "" : ", ") + std::string(entry.name);
      }
      if (bit == 0) {
        return fail(ErrorCode::InvalidArgument, "no fault '" + word + "'; there are: " + known);
      }
      options.faults |= bit;
      from = to + 1;
    }
    return ok();
  }

  std::vector<OptionField<Options>> fields_;
  std::vector<FaultName> faults_;
};

}  // namespace qgpu::sim
