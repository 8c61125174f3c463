#pragma once
// An offline program beside an online one that never rests, so that the first stays held: what the
// checks on holds begin with. What it did so far is its last "made N".

#include <functional>

#include "tests/gpu/checks.h"

namespace qgpu::gpu {

// The online program: a kernel each `everyMs` until `end` exists.
Arguments busyOnline(const CheckContext& context, int everyMs, const std::string& end);

// The last "made N" of a program, or of another word; 0: it told none yet.
std::uint64_t made(const Child& child, const std::string& word = "made");

// It wants the card and does not have it; of a manager that never gave it a turn it is "ready".
bool held(Scene& scene, const std::string& name);

double msSince(std::int64_t fromNs);

struct HeldTenant {
  // `program` ends once the file exists that it is given the name of.
  using Program = std::function<Arguments(const std::string& end)>;

  // Ready when "batch" is held.
  HeldTenant(CheckContext& context, Arguments flags, const Program& program, int everyMs = 1);
  // With an offline program that burns.
  HeldTenant(CheckContext& context, Arguments flags);

  // Whether the offline program makes nothing while `meanwhile` is done and in this time after it;
  // one that ended before may be told in it.
  bool standsStill(
      milliseconds time, const std::function<void()>& meanwhile = [] {}) const;
  // Online comes to its end, and the offline program goes on and to its own.
  Json restOnline();
  Json endOffline();

  Scene scene;
  std::string end, rest;
  std::unique_ptr<Child> offline, online;
};

}  // namespace qgpu::gpu
