#include "services/cards/nvidia/suspend_trial.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <unistd.h>

#include "runtime/whole_file.h"
#include "services/base/child_probe.h"
#include "services/cards/nvidia/suspend_answers.h"
#include "services/cards/suspend/self_test.h"

namespace qgpu {
namespace {

constexpr int kPtraceCapability = 19;  // CAP_SYS_PTRACE

std::string contentOf(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool isNvidia(const Card& card) {
  return card.backend == "nvidia";
}

std::vector<SuspendAnswer> answersKept(const SuspendTrial& trial, Log& log) {
  const auto text = readKept(trial.kept);
  if (!text && text.error().code == ErrorCode::NotFound) return {};
  const auto answers = text ? parseSuspendAnswers(*text, trial.version) : text.error();
  if (answers) return *answers;
  log.info("suspends-tested-anew", {{"file", trial.kept}, {"why", answers.error().message}});
  return {};
}

SuspendAnswer tested(const Card& card, const SuspendTrial& trial) {
  SuspendAnswer answer{card.id, card.driver, std::nullopt, ""};
  const auto body = [&](int out) {
    suspend::SelfTestOptions options;
    options.uuid = card.id;
    options.driverVersion = card.layoutVersion();
    options.minor = card.minor;
    options.probe = trial.probe;
    options.patience = trial.patience;
    const suspend::SelfTest found = suspend::testSuspend(options);
    answer.method = found.method;
    answer.why = found.why;
    // What was not seen for certain holds for no driver.
    if (!found.method && !found.sure) answer.driver.clear();
    const std::string text = writeSuspendAnswers({answer}, trial.version);
    if (::write(out, text.data(), text.size()) < 0) ::_exit(1);
  };
  const auto text = askInChild("NVIDIA's driver", "nvidia-smi", trial.timeout, body);
  const auto answers = text ? parseSuspendAnswers(*text, trial.version) : text.error();
  if (answers && answers->size() == 1) return answers->front();
  answer.driver.clear();
  answer.why = answers ? "the self-test gave no answer" : answers.error().message;
  return answer;
}

void apply(const SuspendAnswer& answer, Card& card) {
  card.method = answer.method;
  card.suspend = answer.method ? schema::Suspend::RM : schema::Suspend::GATE;
  card.suspendWhy = answer.why;
}

// One card after the other, each told of as it is done.
class Choosing {
 public:
  Choosing(const SuspendTrial& trial, Log& log)
      : trial_(trial), log_(log), kept_(answersKept(trial, log)) {}

  void choose(Card& card) {
    const auto known = std::find_if(kept_.begin(), kept_.end(), [&](const SuspendAnswer& one) {
      return one.card == card.id && one.driver == card.driver;
    });
    const bool again = trial_.choice == SuspendChoice::Rm;
    if (known != kept_.end() && (known->method || !again)) {
      answers_.push_back(*known);
    } else {
      log_.info("suspend-test", {{"card", card.id}, {"driver", card.driver}});
      answers_.push_back(tested(card, trial_));
      new_ = true;
    }
    apply(answers_.back(), card);
  }
  void keep() const {
    if (!new_) return;
    std::vector<SuspendAnswer> holding;
    std::copy_if(answers_.begin(), answers_.end(), std::back_inserter(holding),
                 [](const SuspendAnswer& one) { return !one.driver.empty(); });
    const std::string text = writeSuspendAnswers(holding, trial_.version);
    const Status kept = writeAnew(trial_.kept, text, 0600);
    if (!kept) log_.warn("suspends-not-kept", {{"why", kept.error().message}});
  }

 private:
  const SuspendTrial& trial_;
  Log& log_;
  const std::vector<SuspendAnswer> kept_;
  std::vector<SuspendAnswer> answers_;
  bool new_ = false;
};

// Empty: the cards are to be tested.
std::string whyNotTested(const SuspendTrial& trial) {
  if (trial.choice == SuspendChoice::Gate) return "asked for by --suspend=gate";
  if (trial.choice == SuspendChoice::Freeze) return "no thread of a program runs its kernels";
  return whyNoDescriptors(contentOf("/proc/self/status"),
                          contentOf("/proc/sys/kernel/yama/ptrace_scope"));
}

}  // namespace

std::string whyNoDescriptors(std::string_view self, std::string_view yama) {
  if (yama.starts_with('3')) {
    return "nobody may take descriptors of other processes here: kernel.yama.ptrace_scope is 3, "
           "until the next boot";
  }
  constexpr std::string_view kName = "\nCapEff:\t";
  const std::size_t at = self.find(kName);
  const std::string digits(at == std::string_view::npos ? "" : self.substr(at + kName.size(), 16));
  const std::uint64_t capabilities = std::strtoull(digits.c_str(), nullptr, 16);
  if ((capabilities >> kPtraceCapability & 1) != 0) return "";
  return "the manager may not take descriptors of its tenants: it needs CAP_SYS_PTRACE";
}

void tryNvidiaSuspends(std::vector<Card>& cards, const SuspendTrial& trial, Log& log) {
  const std::string why = whyNotTested(trial);
  Choosing choosing(trial, log);
  for (Card& card : cards) {
    if (!isNvidia(card)) continue;
    if (why.empty()) choosing.choose(card);
    if (!why.empty()) card.suspendWhy = why;
    const bool rm = card.method.has_value();
    log.info("card-suspends",
             {{"card", card.id},
              {"by", rm ? "rm" : "gate"},
              {"how", rm ? suspend::nameOf(*card.method) : card.suspendWhy.c_str()}});
  }
  choosing.keep();
}

}  // namespace qgpu
