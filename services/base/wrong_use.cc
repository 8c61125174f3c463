#include "services/base/wrong_use.h"

#include <algorithm>

namespace qgpu {
namespace {

constexpr std::size_t kWordMax = 64;  // a longer one is no slip of the finger

// How many letters were left out, added, changed or swapped with their neighbour.
std::size_t slips(std::string_view a, std::string_view b) {
  using Row = std::vector<std::size_t>;
  Row before, last, now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) now[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::move(last);
    last = now;
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, changed});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
  }
  return now.back();
}

// A third of the letters may be wrong, and a beginning is near to what it begins.
bool isNear(std::string_view word, std::string_view known, std::size_t slips) {
  constexpr std::size_t kBeginning = 3;
  if (word.size() >= kBeginning && known.starts_with(word)) return true;
  return slips * 3 <= std::max(word.size(), known.size());
}

}  // namespace

std::string didYouMean(std::string_view word, const std::vector<std::string>& known) {
  if (word.empty() || word.size() > kWordMax) return "";
  const std::string* nearest = nullptr;
  std::size_t least = 0;
  for (const std::string& one : known) {
    const std::size_t distance = slips(word, one);
    if (!isNear(word, one, distance) || (nearest != nullptr && distance >= least)) continue;
    nearest = &one;
    least = distance;
  }
  return nearest == nullptr ? "" : ": did you mean " + *nearest + "?";
}

std::string shortNumbers(std::string_view text) {
  std::string out;
  std::size_t digits = 0;
  for (const char c : text) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits <= kDigitsShown) out += c;
    if (digits == kDigitsShown + 1) out += "...";
  }
  return out;
}

}  // namespace qgpu
