#pragma once
// What qgpu costs a program, as a difference of two programs: processes differ by more than what is
// looked for, so there are several pairs, and they decide only where most of them agree.

#include <functional>
#include <string>
#include <vector>

#include "tests/gpu/record.h"

namespace qgpu::gpu {

struct Pairs {
  std::vector<double> bare, under;  // a figure of each, pair by pair

  // Which of the two runs first alternates, so that a card that warms up favours neither.
  static Pairs run(int count, const std::function<double(bool under)>& figure);
};

// Judges differences of pairs by their median, and tells that and the quartiles under this name.
// Where the median is too much and a quarter of the pairs is not, nothing is decided.
void judgePairs(Finding& finding, const std::string& name, std::vector<double> differences,
                double most);

}  // namespace qgpu::gpu
