#include "services/cards/nvidia/layout_trial.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <unistd.h>

#include "runtime/whole_file.h"
#include "services/base/child_probe.h"
#include "services/cards/nvidia/suspend_answers.h"
#include "services/nvidia_abi/rm_abi.h"

namespace qgpu {
namespace {

constexpr std::string_view kAgrees = "agrees\n";  // the program's word (suspend/layout_program.h)

// Whose layout is tried.
std::string newestKnown() {
  return std::to_string(rm::kNewestKnown);
}

bool isNewer(const Card& card) {
  return card.backend == "nvidia" && rm::isNewer(card.driver.c_str(), card.driver.size() + 1);
}

// A file has a line for what holds, and one for each card and driver that agreed.
std::string headOf(const SuspendTrial& trial) {
  return "qgpu-layouts 1 " + newestKnown() + " " + trial.version;
}
std::string lineOf(const Card& card) {
  return card.id + "\t" + card.driver;
}

std::set<std::string> agreedBefore(const SuspendTrial& trial, Log& log) {
  const auto text = readKept(trial.layouts);
  if (!text && text.error().code == ErrorCode::NotFound) return {};
  std::set<std::string> lines;
  std::string_view left = text ? *text : std::string_view();
  for (std::size_t end; (end = left.find('\n')) != left.npos; left.remove_prefix(end + 1)) {
    lines.emplace(left.substr(0, end));
  }
  if (lines.contains(headOf(trial))) return lines;
  const std::string why = text ? "it is of another version" : text.error().message;
  log.info("layouts-tried-anew", {{"file", trial.layouts}, {"why", why}});
  return {};
}

// Empty; or why it is not to be believed.
std::string tried(const Card& card, const SuspendTrial& trial) {
  const auto body = [&](int out) {
    const std::string as = newestKnown();
    if (::dup2(out, STDOUT_FILENO) < 0) ::_exit(1);
    ::setenv("CUDA_VISIBLE_DEVICES", card.id.c_str(), 1);
    ::unsetenv("QGPU_TOKEN_FILE");
    ::execl(trial.probe.c_str(), trial.probe.c_str(), "layout", card.driver.c_str(), as.c_str(),
            card.id.c_str(), nullptr);
    ::_exit(127);
  };
  const auto answer = askInChild("NVIDIA's driver", "nvidia-smi", trial.patience, body);
  if (!answer) return answer.error().message;
  if (*answer == kAgrees) return "";
  const std::string why = answer->substr(0, answer->find('\n'));
  return why.empty() ? "the probe " + trial.probe + " said nothing" : why;
}

// What else is said of the card's memory stays.
void apply(const std::string& why, Card& card) {
  const std::string said = card.memoryCounted.substr(0, card.memoryCounted.find(';'));
  const std::string rest = card.memoryCounted.substr(said.size());
  if (why.empty()) {
    card.layoutSeen = rm::kNewestKnown;
    card.counting = schema::Counting::DRIVER;
    card.memoryCounted = "where driver " + card.driver + " is asked for it, in the layout of " +
                         newestKnown() + ", which was tried on this card" + rest;
  } else {
    card.memoryCounted =
        said + ", and the layout of " + newestKnown() + " is not its: " + why + rest;
    card.memoryCounted.resize(std::min(card.memoryCounted.size(), kCardTextMax));
  }
}

}  // namespace

void tryNvidiaLayouts(std::vector<Card>& cards, const SuspendTrial& trial, Log& log) {
  if (std::none_of(cards.begin(), cards.end(), isNewer)) return;
  const std::set<std::string> before = agreedBefore(trial, log);
  std::string agreed = headOf(trial) + "\n";
  bool changed = false;
  for (Card& card : cards) {
    if (!isNewer(card)) continue;
    const bool known = before.contains(lineOf(card));
    const std::string why = known ? "" : tried(card, trial);
    apply(why, card);
    changed = changed || (!known && why.empty());
    if (why.empty()) agreed += lineOf(card) + "\n";
    log.info("card-layout", {{"card", card.id},
                             {"driver", card.driver},
                             {"as", why.empty() ? newestKnown() : "none"},
                             {"why", known ? "it agreed before" : why}});
  }
  if (!changed) return;
  const Status kept = writeAnew(trial.layouts, agreed, 0600);
  if (!kept) log.warn("layouts-not-kept", {{"why", kept.error().message}});
}

}  // namespace qgpu
