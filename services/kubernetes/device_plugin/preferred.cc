#include "services/kubernetes/device_plugin/preferred.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "services/kubernetes/device_plugin/device_ids.h"

namespace qgpu {
namespace {

struct FreeCard {
  std::string_view card;
  std::vector<std::string_view> devices;
  bool included = false;  // a device of it must be taken
};

FreeCard& cardNamed(std::vector<FreeCard>& cards, std::string_view name) {
  for (FreeCard& card : cards) {
    if (card.card == name) return card;
  }
  cards.push_back({name, {}, false});
  return cards.back();
}

// The card to take `left` more devices from; nullptr: there is none with a free device.
FreeCard* nextCard(std::vector<FreeCard>& cards, std::size_t left) {
  const auto better = [left](const FreeCard& a, const FreeCard& b) {
    if (a.included != b.included) return a.included;
    const bool aSuffices = a.devices.size() >= left;
    const bool bSuffices = b.devices.size() >= left;
    if (aSuffices != bSuffices) return aSuffices;
    return aSuffices ? a.devices.size() < b.devices.size() : a.devices.size() > b.devices.size();
  };
  FreeCard* best = nullptr;
  for (FreeCard& card : cards) {
    if (card.devices.empty()) continue;
    if (best == nullptr || better(card, *best)) best = &card;
  }
  return best;
}

}  // namespace

Result<std::vector<std::string>> preferredDevices(const std::vector<std::string>& available,
                                                  const std::vector<std::string>& mustInclude,
                                                  std::size_t size) {
  std::vector<std::string> chosen = mustInclude;
  const std::set<std::string_view> taken(mustInclude.begin(), mustInclude.end());
  if (taken.size() > size) {
    return fail(ErrorCode::InvalidArgument,
                std::to_string(taken.size()) + " devices must be among " + std::to_string(size));
  }
  std::vector<FreeCard> cards;
  for (const std::string& device : mustInclude) {
    cardNamed(cards, cardOfDevice(device)).included = true;
  }
  for (const std::string& device : available) {
    if (!taken.contains(device)) cardNamed(cards, cardOfDevice(device)).devices.push_back(device);
  }
  while (chosen.size() < size) {
    FreeCard* card = nextCard(cards, size - chosen.size());
    if (card == nullptr) {
      return fail(ErrorCode::InvalidArgument, std::to_string(size) + " devices are wanted and " +
                                                  std::to_string(chosen.size()) + " are free");
    }
    const std::size_t count = std::min(size - chosen.size(), card->devices.size());
    chosen.insert(chosen.end(), card->devices.begin(),
                  card->devices.begin() + static_cast<std::ptrdiff_t>(count));
    card->devices.clear();
  }
  return chosen;
}

}  // namespace qgpu
