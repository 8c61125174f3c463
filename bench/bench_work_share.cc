// Claim: a share is work done. For kernels of 1, 2 and 5 ms and shares of 10, 30, 60 and 100 %
// under fixed-share, alone and beside a busy neighbour, a program does its share of what it does
// without qgpu in the same minutes, within 3 %. Beside it stands what the manager counted.
//
// Work is counted by the program itself, kernel by kernel and only where each item was right; the
// rate without qgpu is taken before and after each time. A row is measured --rounds times (default
// 3), for --seconds each (default 10, since a share of 10 % comes in slices some 150 ms apart), and
// tells the medians. `bare_spread` is how far the rates without qgpu of its rounds lie apart, of
// their median: what the machine alone does to a figure. Prints one JSON line.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include "services/demo/act_common.h"
#include "services/demo/workload/json_text.h"

namespace qgpu::demo {
namespace {

template <typename T>
T median(std::vector<T> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Row {
  int kernelMs = 0;
  int share = 0;
  int neighbour = 0;                         // its share; 0: alone
  std::vector<std::int64_t> workPermille{};  // one each round
  std::vector<std::int64_t> accountPermille{};
  std::vector<double> bareRates{};
  std::uint64_t wrong = 0;

  double ofWanted() const {
    return static_cast<double>(median(workPermille)) / (10.0 * static_cast<double>(share));
  }
  double bareSpread() const {
    const auto [least, most] = std::ranges::minmax(bareRates);
    return (most - least) / median(bareRates);
  }
};

struct Options {
  double seconds = 10;
  int rounds = 3;
  std::vector<int> kernels = {1, 2, 5};
  std::vector<int> shares = {10, 30, 60, 100};
};

bool parseList(const char* text, std::vector<int>& out, int most) {
  out.clear();
  for (const char* end = text + std::strlen(text); text < end;) {
    int value = 0;
    const auto [stop, error] = std::from_chars(text, end, value);
    if (error != std::errc() || value < 1 || value > most) return false;
    out.push_back(value);
    text = stop + (stop < end && *stop == ',' ? 1 : 0);
    if (stop < end && *stop != ',') return false;
  }
  return !out.empty();
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i++) {
    const std::string a = argv[i];
    bool known = false;
    if (a.starts_with("--seconds=")) {
      const auto [stop, error] =
          std::from_chars(a.data() + 10, a.data() + a.size(), options.seconds);
      known = error == std::errc() && stop == a.data() + a.size() && options.seconds >= 1;
    }
    if (a.starts_with("--rounds=")) {
      std::vector<int> rounds;
      known = parseList(a.c_str() + 9, rounds, 100) && rounds.size() == 1;
      if (known) options.rounds = rounds[0];
    }
    if (a.starts_with("--kernels=")) known = parseList(a.c_str() + 10, options.kernels, 1'000);
    if (a.starts_with("--shares=")) known = parseList(a.c_str() + 9, options.shares, 100);
    if (!known) return false;
  }
  return true;
}

// One round of a row.
Status measure(const ActSetting& setting, Row& row) {
  const std::string title =
      std::to_string(row.kernelMs) + " ms kernels, share " + std::to_string(row.share) + " %" +
      (row.neighbour == 0 ? ", alone" : ", beside a busy " + std::to_string(row.neighbour) + " %");
  if (Status status = setScene(setting, title, "fixed-share"); !status) return status;
  const std::string kernel = std::to_string(row.kernelMs);
  BareRun bare(setting.node, busyTenant("bare", 10, kernel));
  if (Status status = bare.measure(BareRun::kMeasureNs); !status) return status;
  std::vector<TenantSpec> tenants = {busyTenant("measured", row.share, kernel)};
  if (row.neighbour != 0) tenants.push_back(busyTenant("neighbour", row.neighbour, "2..8"));
  TenantGroup group(setting.node, title, tenants);
  if (Status status = group.warmUp(); !status) return status;
  group.say("mark");
  if (Status status = group.watch(setting.ns, setting.ns); !status) return status;
  group.say("mark");
  const Series& used = group.used("measured");
  const Interval all{used.front().atNs, used.back().atNs};
  row.accountPermille.push_back(shareOver(used, {all}));
  const auto reports = group.finish();
  if (!reports) return reports.error();
  if (Status status = bare.measure(BareRun::kMeasureNs); !status) return status;
  const Result<BareRates> rates = bare.finish();
  if (!rates) return rates.error();
  row.bareRates.push_back(rates->around.front());
  row.workPermille.push_back(workPermille(reports->at("measured"), rates->around));
  for (const auto& [name, report] : *reports) row.wrong += report.wrong;
  return ok();
}

// False: an item was wrong.
bool print(int file, const std::string& model, const std::vector<Row>& rows) {
  double worst = 0;
  std::uint64_t wrong = 0;
  JsonText out;
  out.object().text("bench", "work_share").text("card", model).array("rows");
  for (const Row& row : rows) {
    out.object().number("kernel_ms", row.kernelMs).number("share_percent", row.share);
    out.number("neighbour_percent", row.neighbour);
    out.number("work_permille", median(row.workPermille));
    out.number("account_permille", median(row.accountPermille));
    out.decimal("of_wanted", row.ofWanted()).decimal("bare_spread", row.bareSpread()).endObject();
    worst = std::max(worst, std::abs(row.ofWanted() - 1));
    wrong += row.wrong;
  }
  out.endArray().decimal("furthest_from_wanted", worst);
  out.number("wrong_items", static_cast<std::int64_t>(wrong)).endObject();
  dprintf(file, "%s\n", out.str().c_str());
  return wrong == 0;
}

int run(const Options& options) {
  becomeKeeper();
  // The pictures of who runs are for a person; the one line of the result goes to stdout alone.
  const int result = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  PrivateNode node(std::filesystem::read_symlink("/proc/self/exe").parent_path());
  ResultSheet sheet;
  Status status = node.open();
  std::string model;
  if (status) {
    const Result<CardCounters> card = node.client().firstCard();
    status = card ? ok() : Status(card.error());
    if (card) model = card->model;
  }
  const ActSetting setting{node, sheet, static_cast<std::int64_t>(options.seconds * 1e9)};
  std::vector<Row> rows;
  for (const int kernelMs : options.kernels) {
    for (const int share : options.shares) {
      for (const int neighbour : {0, share <= 30 ? 60 : 30}) {
        if (share + neighbour <= 100) rows.push_back({kernelMs, share, neighbour});
      }
    }
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (Row& row : rows) {
      if (status) status = measure(setting, row);
    }
  }
  if (!status) {
    std::fprintf(stderr, "bench_work_share: %s\n", status.error().message.c_str());
    return interrupted() ? 130 : 1;
  }
  if (print(result, model, rows)) return 0;
  std::fprintf(stderr, "bench_work_share: items were wrong\n");
  return 1;
}

}  // namespace
}  // namespace qgpu::demo

int main(int argc, char** argv) {
  qgpu::demo::Options options;
  if (qgpu::demo::parse(argc, argv, options)) return qgpu::demo::run(options);
  std::fprintf(stderr,
               "usage: bench_work_share [--rounds=N] [--seconds=N] [--kernels=MS,...] "
               "[--shares=PERCENT,...]\n");
  return 2;
}
