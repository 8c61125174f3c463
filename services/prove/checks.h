#pragma once
// The checks: each starts programs of its own as tasks on the card, and gives figures or why there
// are none. They reuse the demo's tenants and its workload, which knows nothing of qgpu and checks
// every item of every result.

#include <cstdint>
#include <string>
#include <vector>

#include "services/demo/tenants/bare_run.h"
#include "services/prove/judge.h"

namespace qgpu::prove {

// The card that is looked at, of a manager that runs.
class CardHost final : public demo::TenantHost {
 public:
  // Programs print below `outputs`. Every task of ours is called with kOurs before its name.
  static constexpr std::string_view kOurs = "prove-";
  CardHost(std::string binDir, std::string socket, std::string outputs, demo::CardCounters card);

  const demo::CardCounters& card() const { return found_; }  // as it was at the start
  Result<demo::CardCounters> now();
  Status choosePolicy(const std::string& policy);
  // Waits until the tasks of the check before are gone.
  Status awaitEmpty();
  // Tasks on this card that are none of ours, each as "7 (train)", joined by commas; empty: none.
  Result<std::string> others();
  // Waits until each of these programs has had a result.
  static Status awaitReady(const std::vector<demo::Child*>& programs);

 private:
  const demo::CardCounters found_;
};

struct Bench {
  CardHost& host;
  std::int64_t onlineIdleNs = 0;
  bool quick = false;

  std::int64_t seconds(std::int64_t whole, std::int64_t few) const {
    return (quick ? few : whole) * demo::kSecond;
  }
};

Result<QuotaFigures> measureQuota(const Bench& bench);
Result<EscapeFigures> measureEscape(const Bench& bench);
// At this device node, which leads to the card.
Result<WaysFigures> measureWays(const Bench& bench, const std::string& node);

// Of one group of busy tasks with these shares, in their order.
Result<std::vector<ShareFigures>> measureShares(const Bench& bench,
                                                const std::vector<std::int64_t>& permille);

// Online's bursts over an offline program with kernels of one length.
struct OnlineRun {
  OnlineFigures online;
  std::vector<std::int64_t> releasesUs;
  ResumeFigures resume;
  std::string clock;
};
Result<OnlineRun> measureOnline(const Bench& bench, std::int64_t kernelMs);

Result<KillFigures> measureKill(const Bench& bench, KillAt at);

}  // namespace qgpu::prove
