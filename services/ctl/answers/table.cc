#include "services/ctl/answers/table.h"

#include <algorithm>
#include <cstdio>

#include "runtime/check.h"
#include "services/base/json.h"

namespace qgpu::ctl {
namespace {

// `value`/`unit` with one decimal where that says something.
std::string scaled(std::uint64_t value, std::uint64_t unit, const char* name) {
  char text[48];
  const std::uint64_t whole = value / unit;
  const std::uint64_t tenth = value % unit * 10 / unit;
  if (whole < 100 && tenth != 0) {
    std::snprintf(text, sizeof text, "%llu.%llu%s", static_cast<unsigned long long>(whole),
                  static_cast<unsigned long long>(tenth), name);
  } else {
    std::snprintf(text, sizeof text, "%llu%s", static_cast<unsigned long long>(whole), name);
  }
  return text;
}

}  // namespace

std::string printable(std::string_view text) {
  const auto isPlain = [](char c) { return c >= 0x20 && c < 0x7F; };
  if (std::all_of(text.begin(), text.end(), isPlain)) return std::string(text);
  std::string out = toUtf8(text);
  std::replace_if(
      out.begin(), out.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  // The control characters of C1 (U+0080 to U+009F) are 0xC2 and a byte below 0xA0.
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    if (out[i] == '\xC2' && static_cast<unsigned char>(out[i + 1]) < 0xA0) {
      out.replace(i, 2, "?");
    }
  }
  return out;
}

std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

void Table::add(const std::vector<std::string>& cells) {
  QGPU_CHECK(cells.size() == columns_.size(), "a row has a cell for each column");
  for (const std::string& cell : cells) {
    cells_ += cell.empty() ? "-" : printable(cell);
    ends_.push_back(cells_.size());
  }
}

std::string_view Table::cell(std::size_t at) const {
  const std::size_t begin = at == 0 ? 0 : ends_[at - 1];
  return std::string_view(cells_).substr(begin, ends_[at] - begin);
}

std::string Table::text() const {
  const std::size_t columns = columns_.size();
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(width(column.title));
  for (std::size_t at = 0; at < ends_.size(); ++at) {
    widths[at % columns] = std::max(widths[at % columns], width(cell(at)));
  }
  std::string out;
  const auto put = [&](std::size_t i, std::string_view text) {
    const std::size_t blanks = widths[i] - width(text);
    const bool right = columns_[i].align == Align::Right;
    if (i > 0) out += "  ";
    if (right) out.append(blanks, ' ');
    out += text;
    if (!right) out.append(blanks, ' ');
    if (i + 1 == columns) out.erase(out.find_last_not_of(' ') + 1) += '\n';
  };
  for (std::size_t i = 0; i < columns; ++i) put(i, columns_[i].title);
  for (std::size_t at = 0; at < ends_.size(); ++at) put(at % columns, cell(at));
  return out;
}

std::string humanBytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  std::size_t unit = 0;
  std::uint64_t size = 1;
  while (unit + 1 < std::size(kUnits) && bytes / size >= 1024) {
    size *= 1024;
    ++unit;
  }
  // Exactly where four digits can say it: what a task asked for, it shows as it was asked.
  const std::uint64_t smaller = size / 1024;
  const bool tenths = (bytes % size * 10) % size == 0 && bytes / size < 100;
  if (unit > 1 && !tenths && bytes % smaller == 0 && bytes / smaller < 10'000) {
    return scaled(bytes, smaller, kUnits[unit - 1]);
  }
  return scaled(bytes, size, kUnits[unit]);
}

std::string humanTime(std::uint64_t ns) {
  constexpr std::uint64_t kMicro = 1000;
  constexpr std::uint64_t kMilli = 1000 * kMicro;
  constexpr std::uint64_t kSecond = 1000 * kMilli;
  if (ns == 0) return "0";
  if (ns < kMicro) return scaled(ns, 1, " ns");
  if (ns < kMilli) return scaled(ns, kMicro, " us");
  if (ns < kSecond) return scaled(ns, kMilli, " ms");
  const std::uint64_t s = ns / kSecond;
  if (s < 100) return scaled(ns, kSecond, " s");
  char text[48];
  if (s < 3600) {
    std::snprintf(text, sizeof text, "%um%02us", static_cast<unsigned>(s / 60),
                  static_cast<unsigned>(s % 60));
  } else {
    std::snprintf(text, sizeof text, "%lluh%02um", static_cast<unsigned long long>(s / 3600),
                  static_cast<unsigned>(s / 60 % 60));
  }
  return text;
}

std::string humanPermille(std::uint64_t permille) {
  return scaled(permille, 10, "%");
}

std::string humanCount(std::uint64_t n) {
  constexpr std::uint64_t kThousand = 1000;
  if (n < 10 * kThousand) return std::to_string(n);
  if (n < 10 * kThousand * kThousand) return scaled(n, kThousand, "k");
  return scaled(n, kThousand * kThousand, "M");
}

}  // namespace qgpu::ctl
