#pragma once
// Flags and config file of a daemon as texts: a table of words in, each given value and where it
// stood out. It exists so that every daemon refuses a mistake the same way, with one clear line
// and exit code 2, wherever it stood: flag, file or default. Flags win over the file, the file wins
// over the defaults.
//
// The file is TOML whose keys are the flags without their dashes, but for what is said once
// (--config, --restore, --replay and theirs); what --print-config prints is such a file. The form
// that it had before, Cap'n Proto text in brackets, is read too, so that a daemon that is replaced
// by a newer one starts; --print-config writes it anew.

#include <capnp/schema.h>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// The program is to print `text` (stdout for code 0, else stderr) and exit with `code`.
struct ExitNow {
  int code = 0;
  std::string text;  // ends with a line end
};

struct FlagRow {
  const char* name;   // without dashes
  const char* value;  // as help shows it; nullptr: the flag takes none
  const char* help;
  const char* preset = nullptr;  // what is read where nobody gave a value
  const char* absent = nullptr;  // what then holds, for people, where that is computed (setDefault)

  // For help and reference; empty: nothing.
  const char* otherwise() const { return preset ? preset : absent ? absent : ""; }
};

// A value as it was written, and where: "--policy" or "FILE: line 3: policy". Empty origin: not
// given.
struct Given {
  std::string text;
  std::string origin;
  bool byDefault = false;
};

class Flags {
 public:
  // `table` is in the order of help, holds "config" and "print-config", and outlives this.
  // `example`: a line of a config file, for errors.
  Flags(const char* program, const char* purpose, const char* example,
        std::span<const FlagRow> table, const char* footer = "")
      : program_(program),
        purpose_(purpose),
        example_(example),
        footer_(footer),
        table_(table),
        values_(table.size()) {}

  // Reads argv, then the file that --config names. `config`: the struct of the older form, whose
  // fields are named as the flags are ("maxTasks" for "max-tasks") and hold texts, or true. Gives
  // something where the program is to end: help, version, a mistake.
  std::optional<ExitNow> read(int argc, const char* const* argv, capnp::StructSchema config);

  // For a flag without a preset.
  void setDefault(std::string_view name, std::string text);

  // Calls `readOne` for every value in the order of the table; its error ends that, as a line that
  // says where the value stood.
  using ReadOne = std::function<Status(std::string_view name, const Given& given)>;
  std::optional<ExitNow> each(const ReadOne& readOne) const;

  // The file that says what was read, where --print-config asks for it.
  std::optional<ExitNow> printed() const;

  const Given& at(std::string_view name) const { return values_[indexOf(name)]; }

  // Code 2 and one line, whatever bytes a value has that is shown in it.
  ExitNow refuse(std::string line) const;

 private:
  std::size_t indexOf(std::string_view name) const;
  std::optional<ExitNow> readFlags(int argc, const char* const* argv);
  Status readConfig(const std::string& path, capnp::StructSchema schema);
  Status readToml(const std::string& path, std::string_view text);
  Status readOlder(const std::string& path, const std::string& text, capnp::StructSchema schema);
  Result<std::size_t> rowOf(std::string_view key) const;
  void take(const std::string& place, std::size_t row, std::string text);

  const char* program_;
  const char* purpose_;
  const char* example_;
  const char* footer_;  // of the help
  std::span<const FlagRow> table_;
  std::vector<Given> values_;  // one for each entry of the table
};

// --- values that several daemons take ---

Error badValue(const Given& given, const std::string& accepted);
Status readRunDir(const Given& given, std::string& to);
Status readPath(const Given& given, std::string& to);
Status readAddress(const Given& given, std::string& to);  // HOST:PORT

// Copies a parsed value, or passes its error on.
template <typename T, typename To>
Status readInto(Result<T> parsed, To& to) {
  if (!parsed) return parsed.error();
  to = static_cast<To>(*parsed);
  return ok();
}

}  // namespace qgpu
