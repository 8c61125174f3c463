#pragma once
// Figures to verdicts, pure. Every judge takes what was measured or why it could not be: without
// figures a promise is not proven, and says the reason. The bounds are what the documents promise
// (docs/concepts.md, docs/operate/prove.md).

#include <cstdint>
#include <string>
#include <vector>

#include "services/demo/workload/ways_out.h"
#include "services/prove/report.h"

namespace qgpu::prove {

// Work done may be this far from the share that is wanted, of it; and below it by so much where the
// task had the card for its share of the time: changes between tasks cost the rest.
inline constexpr std::int64_t kShareErrorPermille = 30;
inline constexpr std::int64_t kShareLostPermille = 100;
// How long offline's kernels are that online is measured behind.
inline constexpr std::int64_t kKernelsMs[] = {1, 10, 100};
// From online's submit to its kernel running, where offline is stopped for it.
inline constexpr std::int64_t kStartP50UsMax = 1'000;
inline constexpr std::int64_t kStartP99UsMax = 3'000;
// Kernels that a program has on their way, which gates alone let run out, and what they may take
// longer than alone.
inline constexpr std::int64_t kKernelsInFlight = 2;
inline constexpr std::int64_t kKernelSlowerPermille = 100;
// The release may be this far from online's idle time, of it. A program sees it once a group of its
// kernel's items has ended, so its p99 has more.
inline constexpr std::int64_t kReleaseErrorPermille = 50;
inline constexpr std::int64_t kReleaseP99ErrorPermille = 100;
// Fewer make no distribution.
inline constexpr std::size_t kBurstsMin = 10;
// From a kill to the end of the task.
inline constexpr std::int64_t kGoneMsMax = 1'000;

// Why a promise that was kept is weaker than it says, by how the card holds ("gate", "freeze",
// "rm") and by what keeps its tasks to their part ("library", "guarded"). Empty: it is not.
std::string weakerHeldBy(const std::string& suspend);
std::string weakerContainedBy(const std::string& isolation);

struct QuotaFigures {
  std::int64_t quotaBytes = 0;
  std::int64_t takenBytes = 0;    // by the program
  std::int64_t refusedBytes = 0;  // the least in all that was refused; 0: nothing was
  std::int64_t againBytes = 0;    // after everything was given back
};
Promise judgeQuota(const Result<QuotaFigures>& measured);

struct ShareFigures {
  std::int64_t wantedPermille = 0;
  std::int64_t workPermille = 0;       // done, of a bare run in the same minutes
  std::int64_t accountPermille = 0;    // as the manager counted time
  std::int64_t bareApartPermille = 0;  // how far the bare runs lay apart themselves
  std::int64_t wrongItems = 0;
};
Promise judgeShare(std::int64_t wantedPermille, const Result<ShareFigures>& measured);

struct OnlineFigures {
  std::string suspend;  // how the card holds: "gate", "freeze", "rm"
  std::int64_t kernelMs = 0;
  std::vector<std::int64_t> startUs;  // of each burst
};
Promise judgeLatency(std::int64_t kernelMs, const Result<OnlineFigures>& measured);
// Of these; none of fewer than kBurstsMin.
std::vector<Curve> curvesOf(const std::vector<OnlineFigures>& measured);

struct ReleaseFigures {
  std::int64_t idleUs = 0;           // that online must have been
  std::vector<std::int64_t> seenUs;  // by the programs' own stamps; empty: they can't see it
  std::int64_t accountP50Us = 0;     // of the manager
  std::int64_t accountP99Us = 0;
  std::int64_t accountCount = 0;
};
Promise judgeRelease(const Result<ReleaseFigures>& measured);

struct ResumeFigures {
  std::string suspend;
  std::int64_t holds = 0;        // that the manager made
  std::int64_t standstills = 0;  // that the program saw
  std::int64_t itemsChecked = 0;
  std::int64_t wrongItems = 0;
};
Promise judgeResume(const Result<ResumeFigures>& measured);

enum class KillAt : std::uint8_t { Holds, Held };  // it has the card, or waits for it
struct KillFigures {
  std::string state;             // of the task just before
  std::int64_t goneMs = 0;       // until its task was no more
  std::int64_t othersLoops = 0;  // each other program's, of the one that did least, afterwards
  std::int64_t othersWrong = 0;
  std::string cardState;
};
Promise judgeKill(KillAt at, const Result<KillFigures>& measured);

struct EscapeFigures {
  std::string isolation;         // what the manager calls it: "library", "guarded"
  std::int64_t kernels = 0;      // that a program without the library computed on the card
  std::int64_t beyondBytes = 0;  // of memory that it had above its task's quota
  std::int64_t exit = 0;
};
Promise judgeEscape(const Result<EscapeFigures>& measured);

struct WaysFigures {
  std::string isolation;
  // What each way to the card's device node ended with, for a process of no task and for one of a
  // task that left the library out.
  std::vector<demo::WayTried> alone, inTask;
};
Promise judgeWays(const Result<WaysFigures>& measured);

// Whatever it was found to be: the card was not this run's alone.
void disturb(Promise& promise, const std::string& by);

}  // namespace qgpu::prove
