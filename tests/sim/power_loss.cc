#include "tests/sim/power_loss.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "runtime/message.h"
#include "schema/rows.capnp.h"
#include "store/journal_writer.h"
#include "store/sqlite_store.h"
#include "store/testing/memory_disk.h"
#include "tests/sim/host.h"

namespace qgpu::sim {
namespace {

constexpr const char* kFile = "meta.db";
constexpr int kCutsMax = 3;     // of one history
constexpr int kGroupsMax = 25;  // of one life
constexpr std::uint64_t kKeys = 12;
constexpr std::uint64_t kIosMax = 120;  // of one life: about as many as its groups make

// Key and a value that stands for the content; 0: the row is gone.
using Content = std::map<RowKey, std::uint64_t>;
using Change = std::pair<RowKey, std::uint64_t>;
using Batch = std::vector<Change>;

StoredRow rowOf(const Change& change) {
  ScratchBuilder scratch;
  auto row = scratch.begin()->initRoot<schema::Row>();
  const auto [key, value] = change;
  if (value == 0) {
    row.setErased();
  } else if (key.kind == RowKind::Task) {
    auto task = row.initTask();
    task.setId(key.id);
    task.setBoundUnixMs(value);
    task.setToken(std::string(value % 3000, 't'));  // some rows fill pages
  } else {
    row.initAudit().setSeq(key.id);
    row.getAudit().setUnixMs(value);
  }
  return {key, scratch.finish<schema::Row>()};
}

Content contentOf(const std::vector<StoredRow>& rows) {
  Content content;
  for (const StoredRow& stored : rows) {
    const auto row = capnp::readMessageUnchecked<schema::Row>(stored.words.data());
    content[stored.key] =
        row.isTask() ? row.getTask().getBoundUnixMs() : row.getAudit().getUnixMs();
  }
  return content;
}

void changeBy(Content& content, const Batch& batch) {
  for (const auto& [key, value] : batch) {
    if (value == 0)
      content.erase(key);
    else
      content[key] = value;
  }
}

std::string difference(const Content& wanted, const Content& found) {
  std::string text;
  Content all = wanted;
  all.insert(found.begin(), found.end());
  const auto in = [](const Content& content, RowKey key) {
    const auto at = content.find(key);
    return at == content.end() ? 0 : at->second;
  };
  for (const auto& [key, value] : all) {
    if (in(wanted, key) == in(found, key)) continue;
    text += " kind " + std::to_string(static_cast<int>(key.kind)) + " id " +
            std::to_string(key.id) + " is " + std::to_string(in(found, key)) + ", was " +
            std::to_string(in(wanted, key)) + ";";
  }
  return text;
}

// One database through a few power cuts.
class History {
 public:
  History(Dice dice, PowerLossSummary& summary)
      : dice_(dice), summary_(summary), disk_("qgpu-power") {}

  // Runs `cuts` lives, each ended by a power cut. False: something acknowledged was missing.
  bool run(std::uint64_t cuts) {
    for (std::uint64_t cut = 0; cut < cuts; ++cut) {
      disk_.crashAt(disk_.ioCount() + 1 + dice_.below(kIosMax));
      const bool opened = live();
      summary_.inRecovery += opened ? 0 : 1;
      disk_.powerCut(dice_.word());
      ++summary_.points;
      if (!recovers()) return false;
    }
    return true;
  }

 private:
  // Opens and commits until the disk fails. False: it failed while opening.
  bool live() {
    Result<SqliteStore> store = SqliteStore::open(kFile, {.vfs = disk_.vfs()});
    if (!store) return false;
    JournalLimits limits;
    limits.groupRows = 1 + dice_.below(12);
    limits.snapshotRows = 5 + dice_.below(40);
    JournalQueue queue(limits);
    JournalWriter writer(std::make_unique<SqliteStore>(std::move(*store)), limits);
    for (int group = 0; group < kGroupsMax && !disk_.crashed(); ++group) {
      for (std::uint64_t n = 1 + dice_.below(4); n > 0; --n) issue(queue);
      while (!queue.empty() && !disk_.crashed()) serve(queue, writer);
      if (dice_.percent(20)) writer.idle();
    }
    disk_.crashNow();  // before the store closes, as the power does
    return true;
  }

  void issue(JournalQueue& queue) {
    Batch batch;
    std::vector<StoredRow> rows;
    for (std::uint64_t n = 1 + dice_.below(3); n > 0; --n) {
      const bool audit = dice_.percent(30);
      const RowKey key{audit ? RowKind::Audit : RowKind::Task, 1 + dice_.below(kKeys)};
      const bool erased = !audit && dice_.percent(25);
      batch.emplace_back(key, erased ? 0 : 1 + dice_.below(1'000'000));
      rows.push_back(rowOf(batch.back()));
    }
    issued_.push_back(std::move(batch));
    queue.add(batchOf(std::move(rows), nullptr));
  }

  // The power may fail between "on disk" and "told".
  void serve(JournalQueue& queue, JournalWriter& writer) {
    std::vector<JournalBatch> group = queue.takeGroup();
    QGPU_CHECK(writer.commit(group), "a file is never unsure");
    if (dice_.percent(5)) disk_.crashNow();
    if (disk_.crashed()) return;
    for (JournalBatch& batch : group) {
      if (batch.status.ok()) {
        changeBy(acknowledged_, issued_.front());
        ++summary_.batches;
      }
      issued_.pop_front();
    }
    writer.shorten();
  }

  bool recovers() {
    Result<SqliteStore> store = SqliteStore::open(kFile, {.vfs = disk_.vfs()});
    if (!store) return failed("does not open: " + store.error().message);
    auto rows = store->load();
    auto again = rows ? store->load() : rows;
    if (!rows || !again) return failed("is not read");
    const Content found = contentOf(*rows);
    if (contentOf(*again) != found) return failed("reads otherwise the second time");
    const Content acknowledged = acknowledged_;
    const std::size_t issued = issued_.size();
    while (found != acknowledged_) {
      if (issued_.empty()) {
        return failed("is no state between acknowledged and issued (" + std::to_string(issued) +
                      " batches more):" + difference(acknowledged, found));
      }
      changeBy(acknowledged_, issued_.front());
      issued_.pop_front();
      ++summary_.unacknowledged;
    }
    issued_.clear();
    return true;
  }

  bool failed(const std::string& what) {
    summary_.failure = "the database " + what;
    summary_.failedPoint = summary_.points;
    return false;
  }

  Dice dice_;
  PowerLossSummary& summary_;
  MemoryDisk disk_;
  Content acknowledged_;
  std::deque<Batch> issued_;  // not acknowledged, oldest first
};

}  // namespace

PowerLossSummary cutPower(std::uint64_t seed, std::uint64_t points) {
  PowerLossSummary summary;
  for (std::uint64_t number = 0; summary.points < points; ++number) {
    const std::uint64_t cuts =
        std::min<std::uint64_t>(1 + number % kCutsMax, points - summary.points);
    if (!History(Dice(seed * 0x9e3779b97f4a7c15ULL + number), summary).run(cuts)) break;
  }
  return summary;
}

}  // namespace qgpu::sim
