#include "tests/chaos/linearize.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/check.h"

namespace qgpu::chaos {
namespace {

constexpr std::size_t kUnderWayMax = 64;
constexpr std::size_t kKindsMax = 4;  // of effects among those whose outcome is unknown

// A way in which all could have happened until now.
struct Way {
  std::int8_t state = 0;
  std::uint64_t done = 0;                        // of those under way, by their slots
  std::array<std::uint32_t, kKindsMax> spent{};  // of unknown ones, by their kinds
};

class Sweep {
 public:
  Sweep(const std::vector<Step>& steps, std::int8_t initial, std::uint64_t& work)
      : steps_(steps), ways_{Way{initial, 0, {}}}, work_(work) {}

  std::optional<std::size_t> run() {
    struct Event {
      Time at;
      bool answer;  // a question at the same time comes first: then they may overlap
      std::size_t step;
    };
    std::vector<Event> events;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      events.push_back({steps_[i].at.invoked, false, i});
      if (steps_[i].at.completed != kOpen) events.push_back({steps_[i].at.completed, true, i});
    }
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::tie(a.at, a.answer, a.step) < std::tie(b.at, b.answer, b.step);
    });
    for (const Event& event : events) {
      if (!event.answer) {
        begins(event.step);
      } else if (!answered(event.step)) {
        return event.step;
      }
    }
    return {};
  }

 private:
  void begins(std::size_t step) {
    if (steps_[step].at.completed == kOpen) {
      const auto kind = std::find(kinds_.begin(), kinds_.end(), steps_[step].effect);
      QGPU_CHECK(kind != kinds_.end() || kinds_.size() < kKindsMax, "too many kinds of effects");
      ++begun_[static_cast<std::size_t>(kind - kinds_.begin())];
      if (kind == kinds_.end()) kinds_.push_back(steps_[step].effect);
      return;
    }
    auto free = std::find(slots_.begin(), slots_.end(), std::nullopt);
    if (free == slots_.end()) free = slots_.insert(free, std::nullopt);
    QGPU_CHECK(slots_.size() <= kUnderWayMax, "too many operations are under way");
    *free = step;
  }

  // Of all ways those in which it has happened; whether there is one.
  bool answered(std::size_t step) {
    const auto slot =
        static_cast<std::size_t>(std::find(slots_.begin(), slots_.end(), step) - slots_.begin());
    const std::uint64_t bit = std::uint64_t{1} << slot;
    std::vector<Way> all = std::exchange(ways_, {});  // in the order in which they were found
    for (std::size_t i = 0; i < all.size(); ++i) {
      ++work_;
      if ((all[i].done & bit) == 0) {
        goOn(Way(all[i]), all);
        continue;
      }
      Way rest = all[i];
      rest.done &= ~bit;
      keep(rest);
    }
    slots_[slot].reset();
    return !ways_.empty();
  }

  void goOn(const Way& way, std::vector<Way>& all) const {
    const auto from = static_cast<std::size_t>(way.state);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i] || (way.done >> i & 1) != 0) continue;
      const std::int8_t to = steps_[*slots_[i]].effect[from];
      if (to != kNo) found({to, way.done | std::uint64_t{1} << i, way.spent}, all);
    }
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      const std::int8_t to = kinds_[kind][from];
      if (to == kNo || to == way.state || way.spent[kind] == begun_[kind]) continue;
      Way next{to, way.done, way.spent};
      ++next.spent[kind];
      found(next, all);
    }
  }

  // Whether the first left everything open that the second did.
  static bool covers(const Way& one, const Way& other) {
    if (one.state != other.state || one.done != other.done) return false;
    for (std::size_t i = 0; i < kKindsMax; ++i) {
      if (one.spent[i] > other.spent[i]) return false;
    }
    return true;
  }
  static void found(const Way& way, std::vector<Way>& all) {
    const auto covered = [&](const Way& one) { return covers(one, way); };
    if (std::none_of(all.begin(), all.end(), covered)) all.push_back(way);
  }
  void keep(const Way& way) {
    const auto covered = [&](const Way& one) { return covers(one, way); };
    if (std::any_of(ways_.begin(), ways_.end(), covered)) return;
    std::erase_if(ways_, [&](const Way& one) { return covers(way, one); });
    ways_.push_back(way);
  }

  const std::vector<Step>& steps_;
  std::vector<Way> ways_;
  std::vector<std::optional<std::size_t>> slots_;  // steps under way
  std::vector<Effect> kinds_;
  std::array<std::uint32_t, kKindsMax + 1> begun_{};
  std::uint64_t& work_;
};

}  // namespace

std::optional<std::size_t> firstImpossible(const std::vector<Step>& steps, std::int8_t initial,
                                           std::uint64_t& work) {
  return Sweep(steps, initial, work).run();
}

}  // namespace qgpu::chaos
