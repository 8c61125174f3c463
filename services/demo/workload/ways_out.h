#pragma once
// What a program that means harm tries at a card's device node, past every library: each way to
// open it that was thought of. A guard in the kernel (services/guard) refuses them all to whom it
// judges. The card itself is asked for nothing.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

struct io_uring_sqe;

namespace qgpu::demo {

// What a way ends with: the error (errno) that it was refused by, or one of these.
inline constexpr int kGotIn = 0;
inline constexpr int kNoWay = 200;  // it can't be tried here: it needs root, or another kernel

struct WayOut {
  std::string_view name;
  int (*go)(const std::string& node);  // may change its process for good
};
std::span<const WayOut> waysOut();

// One of them in a process of its own.
int tryWay(const WayOut& way, const std::string& node);

// All of them, as "NAME RESULT" a line, for who reads it by parseWays().
std::string waysText(const std::string& node);
struct WayTried {
  std::string name;
  int result = kNoWay;
};
// Corrupt: it is not that.
Result<std::vector<WayTried>> parseWays(const std::string& text);

// What some of them are made of.
int tryOpen(const std::string& path);
int askByRing(const std::function<void(io_uring_sqe&)>& fill);  // of io_uring, one request
int afterFork(const std::function<int()>& body);                // what a child ends with

}  // namespace qgpu::demo
