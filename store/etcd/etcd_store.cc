#include "store/etcd/etcd_store.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "runtime/planted.h"
#include "store/little_endian.h"

namespace qgpu {
namespace {

constexpr std::size_t kPage = 500;  // keys of one list
constexpr int kRoundsMax = 8;       // of a change that meets others of ours
constexpr char kMagic[] = {'q', 'g', 'p', 'u'};
constexpr const char* kFormat = "1";
constexpr std::size_t kHead = sizeof kMagic + 1;     // and whether the transaction ends here
constexpr std::size_t kRowHead = 2 + 8 + 8 + 8 + 4;  // kind, id, lsn, sum, length

// So that the order of keys is that of numbers.
std::string fixed(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

Error anotherActs() {
  return fail(ErrorCode::Conflict, "another scheduler acts");
}

std::span<const std::byte> bytesOfText(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

// --- values ---

std::string EtcdStore::encode(const std::vector<Stored>& rows, bool last) {
  std::string value(kMagic, sizeof kMagic);
  value.push_back(last ? 1 : 0);
  for (const Stored& row : rows) {
    writeNumber(value, static_cast<std::uint16_t>(row.key.kind));
    writeNumber(value, row.key.id);
    writeNumber(value, row.lsn);
    writeNumber(value, row.sum);
    writeNumber(value, static_cast<std::uint32_t>(row.bytes.size()));
    value += row.bytes;
  }
  return value;
}

// Whether the transaction ends with it; nothing for what encode() did not make.
std::optional<bool> EtcdStore::decode(std::string_view value, std::vector<Stored>& to) {
  if (value.size() < kHead || value.substr(0, sizeof kMagic) != std::string_view(kMagic, 4)) {
    return {};
  }
  const char last = value[sizeof kMagic];
  if (last != 0 && last != 1) return {};
  value.remove_prefix(kHead);
  while (!value.empty()) {
    if (value.size() < kRowHead) return {};
    Stored row;
    row.key.kind = static_cast<RowKind>(takeNumber<std::uint16_t>(value));
    row.key.id = takeNumber<std::uint64_t>(value);
    row.lsn = takeNumber<Lsn>(value);
    row.sum = takeNumber<std::int64_t>(value);
    const std::uint32_t length = takeNumber<std::uint32_t>(value);
    if (length > value.size()) return {};
    row.bytes.assign(value.substr(0, length));
    value.remove_prefix(length);
    to.push_back(std::move(row));
  }
  return last == 1;
}

Result<StoredRow> EtcdStore::checked(const Stored& row) {
  return checkedRow(row.key, row.lsn, bytesOfText(row.bytes), row.sum);
}

std::string EtcdStore::journalKey(Lsn lsn) const {
  return options_.prefix + "journal/" + fixed(static_cast<std::uint64_t>(lsn));
}

std::string EtcdStore::rowKey(RowKey key) const {
  return options_.prefix + "rows/" + std::to_string(static_cast<int>(key.kind)) + "/" +
         fixed(key.id);
}

Error EtcdStore::damaged(const std::string& what) const {
  return fail(ErrorCode::Corrupt, "the keys of etcd below " + options_.prefix +
                                      " are damaged: " + what +
                                      "; restore a snapshot of them, or choose another prefix");
}

Error EtcdStore::unusable(const Error& row) const {
  if (row.code != ErrorCode::Unsupported) return damaged(row.message);
  return fail(row.code, "below " + options_.prefix + " of etcd: " + row.message +
                            ": install that one, or choose another prefix");
}

// --- changes ---

void EtcdStore::lost(const std::string& why) {
  if (std::exchange(lost_, true)) return;
  if (options_.lost) options_.lost(why);
}

Status EtcdStore::change(std::uint64_t number, std::vector<KvChange> changes) {
  const std::string turn = options_.prefix + "turn";
  changes.push_back({KvChange::Does::Put, turn, {}, fixed(number), 0});
  for (int round = 0; round < kRoundsMax; ++round) {
    if (lost_) return anotherActs();
    KvTxn txn{{options_.guard, {turn, turn_, KvCondition::Of::Modified}}, changes};
    if (QGPU_PLANTED(ChangeUnguarded)) txn.when.clear();
    if (QGPU_PLANTED(TurnIgnored)) txn.when.pop_back();
    const auto answer = kv_.txn(txn);
    if (!answer) return answer.error();
    if (answer->done) {
      turn_ = answer->revision;
      return ok();
    }
    const Result<bool> done = wasDone(number);
    if (!done) return done.error();
    if (*done) {
      QGPU_MARK(ChangeFoundDone);
      return ok();
    }
  }
  return fail(ErrorCode::Unavailable, "other changes of ours go on to arrive");
}

// After a condition did not hold: either the seat is lost, or a change of ours arrived that had no
// answer, this one or one that was given up.
Result<bool> EtcdStore::wasDone(std::uint64_t number) {
  const auto seat = kv_.list(options_.guard.key, options_.guard.key + '\0', 1);
  if (!seat) return seat.error();
  if (seat->empty() || seat->front().created != options_.guard.revision) {
    lost(anotherActs().message);
    return anotherActs();
  }
  const std::string key = options_.prefix + "turn";
  const auto turn = kv_.list(key, key + '\0', 1);
  if (!turn) return turn.error();
  turn_ = turn->empty() ? 0 : turn->front().modified;
  return !turn->empty() && turn->front().value == fixed(number);
}

Status EtcdStore::add(const StoredRow& row) {
  if (Status good = checkOwnRow(row); !good) return undone(good.error()), good;
  Stored stored;
  stored.key = row.key;
  stored.lsn = ++addedLsn_;
  if (!isErased(row)) {
    const auto bytes = bytesOf(row);
    stored.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  stored.sum = checksum(stored.key, stored.lsn, bytesOfText(stored.bytes));
  const std::size_t size = kRowHead + stored.bytes.size();
  if (adding_.empty() || adding_.back().size + size > kPartBytes) adding_.emplace_back();
  adding_.back().size += size;
  adding_.back().rows.push_back(std::move(stored));
  return ok();
}

RowStore::Commit EtcdStore::commit() {
  while (partsPut_ < adding_.size()) {
    const Part& part = adding_[partsPut_];
    const bool last = partsPut_ + 1 == adding_.size();
    const bool again = number_ != 0;
    if (!again) number_ = ++numbers_;
    const Status done = change(
        number_,
        {{KvChange::Does::Put, journalKey(part.rows.front().lsn), {}, encode(part.rows, last), 0}});
    if (done) {
      number_ = 0;
      ++partsPut_;
      continue;
    }
    why_ = done.error();
    const bool refused = why_.code != ErrorCode::Unavailable;
    if (QGPU_PLANTED(UnsureTakenForUndone) && !refused) return undone(why_);
    if (refused && !lost_ && !again && partsPut_ == 0) return undone(why_);
    if (refused) lost("nobody can tell whether the last change is stored: " + why_.message);
    QGPU_MARK(CommitUnsure);
    return Commit::Unsure;
  }
  committed();
  return Commit::Done;
}

void EtcdStore::committed() {
  for (Part& part : std::exchange(adding_, {})) {
    unfoldedRows_ += part.rows.size();
    for (Stored& row : part.rows) {
      if (row.key.kind == RowKind::Audit) audits_.insert(row.key.id);
      unfolded_[row.key] = std::move(row);
    }
  }
  partsPut_ = 0;
  committedLsn_ = addedLsn_;
}

RowStore::Commit EtcdStore::undone(Error why) {
  adding_.clear();
  partsPut_ = 0;
  number_ = 0;
  addedLsn_ = committedLsn_;
  why_ = std::move(why);
  return Commit::Undone;
}

Status EtcdStore::probe() {
  return change({{KvChange::Does::Put, options_.prefix + "probe", {}, std::string(1024, 0), 0}});
}

// --- snapshot ---

KvChange EtcdStore::foldedRow(const Stored& row) const {
  if (row.bytes.empty()) return {KvChange::Does::Delete, rowKey(row.key), {}, {}, 0};
  return {KvChange::Does::Put, rowKey(row.key), {}, encode({row}, true), 0};
}

// Rows first, as many transactions as they take, and then, at once, how far that goes and the
// journal's end: a fold that stops anywhere is made again.
Status EtcdStore::snapshot() {
  QGPU_CHECK(adding_.empty(), "a snapshot is taken between transactions");
  std::vector<KvChange> changes;
  std::size_t size = 0;
  for (const auto& [key, row] : unfolded_) {
    if (changes.size() == kChangesMax || size + row.bytes.size() > kPartBytes) {
      if (Status done = change(std::exchange(changes, {})); !done) return done;
      size = 0;
    }
    size += row.bytes.size() + kRowHead;
    changes.push_back(foldedRow(row));
  }
  if (!changes.empty()) {
    if (Status done = change(std::move(changes)); !done) return done;
  }
  std::vector<KvChange> end = {
      {KvChange::Does::Put,
       options_.prefix + "folded",
       {},
       fixed(static_cast<std::uint64_t>(committedLsn_)),
       0},
      {KvChange::Does::Delete, journalKey(0), journalKey(committedLsn_ + 1), {}, 0}};
  const auto kept = static_cast<std::size_t>(kAuditRowsMax);
  auto oldest = audits_.begin();
  if (audits_.size() > kept) {
    std::advance(oldest, audits_.size() - kept);
    end.push_back({KvChange::Does::Delete,
                   rowKey({RowKind::Audit, 0}),
                   rowKey({RowKind::Audit, *oldest}),
                   {},
                   0});
  }
  if (Status done = change(std::move(end)); !done) return done;
  audits_.erase(audits_.begin(), oldest);
  unfolded_.clear();
  unfoldedRows_ = 0;
  return ok();
}

// --- opening ---

Result<std::unique_ptr<EtcdStore>> EtcdStore::open(Kv& kv, Options options) {
  EtcdStore store(kv, std::move(options));
  Status done = store.beginTurn();
  if (done) done = store.checkFormat();
  if (done) done = store.readAll();
  if (done) done = store.cutTail();
  if (!done) return done.error();
  return std::make_unique<EtcdStore>(std::move(store));
}

// From here on nothing arrives that an earlier one of this seat asked for: its turn is over. The
// revision makes the numbers of changes unlike those of any other store.
Status EtcdStore::beginTurn() {
  if (const auto read = wasDone(0); !read) return read.error();
  if (Status begun = change(0, {}); !begun) return begun;
  numbers_ = static_cast<std::uint64_t>(turn_) << 24U;
  return ok();
}

// Empty where there is no such key.
Result<std::string> EtcdStore::valueOf(const std::string& name) {
  const std::string key = options_.prefix + name;
  const auto found = kv_.list(key, key + '\0', 1);
  if (!found) return found.error();
  return found->empty() ? std::string() : found->front().value;
}

Status EtcdStore::checkFormat() {
  const auto format = valueOf("format"), reader = valueOf("reader");
  if (!format) return format.error();
  if (!reader) return reader.error();
  std::int64_t needs = 0;
  std::from_chars(reader->data(), reader->data() + reader->size(), needs);
  const std::size_t blank = reader->find(' ');
  const std::string since = blank == std::string::npos ? "" : reader->substr(blank + 1, 32);
  if (Status readable = checkReader(needs, since, options_.reads); !readable) {
    return fail(readable.error().code,
                "what is below " + options_.prefix + " of etcd " + readable.error().message);
  }
  std::vector<KvChange> notes;
  if (needs < kNeeds.number) {
    notes.push_back({KvChange::Does::Put,
                     options_.prefix + "reader",
                     {},
                     std::to_string(kNeeds.number) + " " + kNeeds.since,
                     0});
  }
  if (format->empty()) {
    notes.push_back({KvChange::Does::Put, options_.prefix + "format", {}, kFormat, 0});
  }
  if (format->empty() || *format == kFormat) return notes.empty() ? ok() : change(std::move(notes));
  return fail(ErrorCode::Unsupported, "the keys of etcd below " + options_.prefix +
                                          " have format " + format->substr(0, 32) +
                                          ", written by a newer qgpu; this one knows " + kFormat +
                                          ": install that one, or choose another prefix");
}

Status EtcdStore::readAll() {
  const std::string key = options_.prefix + "folded";
  const auto found = kv_.list(key, key + '\0', 1);
  if (!found) return found.error();
  std::uint64_t folded = 0;
  if (!found->empty()) {
    const std::string& text = found->front().value;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), folded, 16);
    if (text.size() != 16 || read.ptr != text.data() + text.size() || folded > INT64_MAX) {
      return damaged("`folded` is no number");
    }
  }
  committedLsn_ = static_cast<Lsn>(folded);
  if (Status read = readRows(); !read) return read;
  return readJournal();
}

// A fold that stopped left rows of the journal here already, which is redone all the same.
Status EtcdStore::readRows() {
  const std::string prefix = options_.prefix + "rows/";
  std::string from = prefix;
  for (;;) {
    const auto page = kv_.list(from, endOfPrefix(prefix), kPage);
    if (!page) return page.error();
    for (const KvPair& pair : *page) {
      std::vector<Stored> rows;
      const std::optional<bool> whole = decode(pair.value, rows);
      if (whole != true || rows.size() != 1 || rowKey(rows.front().key) != pair.key) {
        return damaged(pair.key + " holds something else");
      }
      auto row = checked(rows.front());
      if (!row) return unusable(row.error());
      if (row->key.kind == RowKind::Audit) audits_.insert(row->key.id);
      table_->redo(rows.front().lsn, std::move(*row));
    }
    if (page->size() < kPage) return ok();
    from = page->back().key + '\0';
  }
}

Status EtcdStore::readJournal() {
  std::string from = journalKey(committedLsn_ + 1);
  std::vector<Stored> pending;
  for (;;) {
    const auto page = kv_.list(from, endOfPrefix(options_.prefix + "journal/"), kPage);
    if (!page) return page.error();
    for (const KvPair& pair : *page) {
      const Lsn next = committedLsn_ + static_cast<Lsn>(pending.size()) + 1;
      if (pair.key != journalKey(next)) return damaged("there is no " + journalKey(next));
      if (Status taken = takePart(pair.value, pending); !taken) return taken;
    }
    if (page->size() < kPage) break;
    from = page->back().key + '\0';
  }
  addedLsn_ = committedLsn_;
  return ok();
}

// A transaction counts once its last part is there; what lacks it is the tail that open() cuts.
Status EtcdStore::takePart(const std::string& value, std::vector<Stored>& pending) {
  const std::size_t before = pending.size();
  const std::optional<bool> last = decode(value, pending);
  if (!last || pending.size() == before) return damaged("the journal holds something else");
  for (std::size_t i = before; i < pending.size(); ++i) {
    if (pending[i].lsn != committedLsn_ + static_cast<Lsn>(i) + 1) {
      return damaged("the journal has no row " +
                     std::to_string(committedLsn_ + static_cast<Lsn>(i) + 1));
    }
  }
  if (!*last) return ok();
  for (Stored& stored : pending) {
    auto row = checked(stored);
    if (!row) return unusable(row.error());
    if (stored.key.kind == RowKind::Audit) audits_.insert(stored.key.id);
    table_->redo(stored.lsn, std::move(*row));
    committedLsn_ = stored.lsn;
    unfolded_[stored.key] = std::move(stored);
    ++unfoldedRows_;
  }
  pending.clear();
  return ok();
}

Status EtcdStore::cutTail() {
  return change({{KvChange::Does::Delete,
                  journalKey(committedLsn_ + 1),
                  endOfPrefix(options_.prefix + "journal/"),
                  {},
                  0}});
}

Result<std::vector<StoredRow>> EtcdStore::load() {
  if (table_) return std::exchange(table_, std::nullopt)->rows();
  // Nobody else changes the keys while this one is seated, and it changes none meanwhile.
  EtcdStore reader(kv_, options_);
  if (Status read = reader.readAll(); !read) return read.error();
  if (const auto seated = wasDone(0); !seated) return seated.error();
  return reader.table_->rows();
}

}  // namespace qgpu
