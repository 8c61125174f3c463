#pragma once
// What the clients of a manager asked for and were promised, and whether the manager's list agrees.
// It shares nothing with the product: names and answers are all it knows. Several clients write at
// once, and ask on while somebody compares, so a verdict takes what was known before the list was
// asked for and what is known after it came: what changed in between may stand on either side.
//
// Checked here: D1 (last acknowledged <= stored <= last issued), P6 (one request, one task), P9
// (what has ended stays ended), C9 (a task keeps its id over a restart).

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace qgpu::crash {

enum class Phase : std::uint8_t { Asked, Bound, EndAsked, Ended };

// What is asked for; the name is the request id as well.
struct Wish {
  std::string name;
  std::string taskClass = "ordinary";
  std::uint32_t memoryGib = 1;
  std::uint32_t corePercent = 5;
  std::string card;  // empty: the node chooses
};

struct Entry {
  Wish wish;
  Phase phase = Phase::Asked;
  std::uint64_t task = 0;  // known once bound
  std::string token;
};

// One task as the manager lists it.
struct Listed {
  std::uint64_t task = 0;
  std::string name;
  std::string taskClass;
  std::string card;
  std::uint64_t memoryBytes = 0;
  std::uint32_t sharePermille = 0;
};

class Bindings {
 public:
  using Entries = std::map<std::string, Entry>;  // by name

  // Each is told before the request leaves, or after its answer came.
  void asked(const Wish& wish);
  void bound(const std::string& name, std::uint64_t task, const std::string& token);
  void refused(const std::string& name);  // for good: nothing of it may be there, now or later
  void endAsked(const std::string& name);
  void ended(const std::string& name);

  Entries entries() const;
  std::size_t acknowledged() const;  // binds and ends

  // What is wrong with `list`, asked for after `before` and answered before `after` was taken.
  static std::optional<std::string> compare(const Entries& before, const Entries& after,
                                            const std::vector<Listed>& list);

 private:
  mutable std::mutex mutex_;
  Entries entries_;
  std::size_t acknowledged_ = 0;
};

}  // namespace qgpu::crash
