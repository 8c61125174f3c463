#pragma once
// What a person is told who mistyped something on a command line: the word that was probably meant,
// and no number longer than it says something. Pure: texts in, text out.

#include <string>
#include <string_view>
#include <vector>

namespace qgpu {

// ": did you mean submit?", for the end of a sentence; empty where nothing in `known` is near.
std::string didYouMean(std::string_view word, const std::vector<std::string>& known);

// `text` with every run of more than kDigitsShown digits cut short.
std::string shortNumbers(std::string_view text);
inline constexpr std::size_t kDigitsShown = 20;  // what 64 bits have at most

}  // namespace qgpu
