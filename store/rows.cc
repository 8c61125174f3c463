#include "store/rows.h"

#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <cstring>
#include <kj/exception.h>
#include <string>
#include <utility>

#include "schema/rows.capnp.h"
#include "store/crc32c.h"

namespace qgpu {
namespace {

const char* kindName(RowKind kind) {
  switch (kind) {
    case RowKind::Node:
      return "node";
    case RowKind::Card:
      return "card";
    case RowKind::Task:
      return "task";
    case RowKind::Audit:
      return "audit";
    case RowKind::Cluster:
      return "cluster";
    case RowKind::ClusterNode:
      return "cluster node";
    case RowKind::ClusterTask:
      return "cluster task";
  }
  return nullptr;
}

// A row under a kind that is known here may hold one that is not: a newer qgpu wrote it.
bool isKnown(schema::Row::Which which) {
  return which <= schema::Row::CLUSTER_TASK;
}

// The union member that a row under `kind` must hold.
bool holdsKind(schema::Row::Which which, RowKind kind) {
  switch (which) {
    case schema::Row::ERASED:
      return true;
    case schema::Row::NODE:
      return kind == RowKind::Node;
    case schema::Row::CARD:
      return kind == RowKind::Card;
    case schema::Row::TASK:
      return kind == RowKind::Task;
    case schema::Row::AUDIT:
      return kind == RowKind::Audit;
    case schema::Row::CLUSTER:
      return kind == RowKind::Cluster;
    case schema::Row::CLUSTER_NODE:
      return kind == RowKind::ClusterNode;
    case schema::Row::CLUSTER_TASK:
      return kind == RowKind::ClusterTask;
  }
  return false;
}

schema::Row::Which whichOf(const StoredRow& row) {
  return capnp::readMessageUnchecked<schema::Row>(row.words.data()).which();
}

// Reads every pointer as its field's type says; throws where it is of another one.
void readAll(capnp::DynamicStruct::Reader reader);

void readAll(capnp::DynamicList::Reader list) {
  switch (list.getSchema().whichElementType()) {
    case capnp::schema::Type::STRUCT:
      for (const auto element : list) readAll(element.as<capnp::DynamicStruct>());
      return;
    case capnp::schema::Type::LIST:
      for (const auto element : list) readAll(element.as<capnp::DynamicList>());
      return;
    case capnp::schema::Type::TEXT:
    case capnp::schema::Type::DATA:
      for (const auto element : list) static_cast<void>(element);
      return;
    default:
      return;
  }
}

void readField(capnp::DynamicStruct::Reader reader, capnp::StructSchema::Field field) {
  const auto proto = field.getProto();
  if (proto.isGroup()) return readAll(reader.get(field).as<capnp::DynamicStruct>());
  const auto type = proto.getSlot().getType().which();
  const bool points = type == capnp::schema::Type::STRUCT || type == capnp::schema::Type::LIST ||
                      type == capnp::schema::Type::TEXT || type == capnp::schema::Type::DATA;
  if (!points || !reader.has(field)) return;
  const auto value = reader.get(field);
  if (type == capnp::schema::Type::STRUCT) return readAll(value.as<capnp::DynamicStruct>());
  if (type == capnp::schema::Type::LIST) return readAll(value.as<capnp::DynamicList>());
}

void readAll(capnp::DynamicStruct::Reader reader) {
  KJ_IF_MAYBE (chosen, reader.which()) readField(reader, *chosen);
  for (const auto field : reader.getSchema().getNonUnionFields()) readField(reader, field);
}

Error corrupt(RowKey key, const char* why) {
  return fail(ErrorCode::Corrupt, describe(key) + " " + why);
}

Error newer(RowKey key) {
  return fail(ErrorCode::Unsupported, describe(key) + " was written by a newer qgpu");
}

}  // namespace

std::span<const std::byte> bytesOf(const StoredRow& row) {
  return std::as_bytes(std::span(row.words));
}

Error needsNewer(const std::string& since) {
  return fail(ErrorCode::Unsupported,
              "needs qgpu " + (since.empty() ? "that is newer" : since + " or newer"));
}

Status checkReader(std::int64_t number, const std::string& since, std::int64_t reads) {
  return number <= reads ? ok() : Status(needsNewer(since));
}

std::string describe(RowKey key) {
  const char* name = kindName(key.kind);
  const std::string kind =
      name != nullptr ? name : "kind " + std::to_string(static_cast<unsigned>(key.kind));
  return kind + " " + std::to_string(key.id);
}

std::int64_t checksum(RowKey key, Lsn lsn, std::span<const std::byte> bytes) {
  const std::uint64_t head[] = {static_cast<std::uint64_t>(key.kind), key.id,
                                static_cast<std::uint64_t>(lsn)};
  return crc32c(crc32c(0, head, sizeof head), bytes.data(), bytes.size());
}

bool isErased(const StoredRow& row) {
  return whichOf(row) == schema::Row::ERASED;
}

Status checkOwnRow(const StoredRow& row) {
  const std::size_t size = row.words.size() * sizeof(capnp::word);
  if (size == 0 || size > kRowBytesMax) {
    return fail(ErrorCode::InvalidArgument,
                "row " + describe(row.key) + " has " + std::to_string(size) +
                    " bytes; it must have 8 to " + std::to_string(kRowBytesMax));
  }
  if (kindName(row.key.kind) == nullptr || !holdsKind(whichOf(row), row.key.kind)) {
    return fail(ErrorCode::InvalidArgument, "row " + describe(row.key) + " is of another kind");
  }
  return ok();
}

Result<StoredRow> decodeRow(RowKey key, std::span<const std::byte> bytes) {
  if (kindName(key.kind) == nullptr) return newer(key);
  if (bytes.empty() || bytes.size() > kRowBytesMax || bytes.size() % sizeof(capnp::word) != 0) {
    return corrupt(key, "has an impossible length");
  }
  StoredRow stored{key, Words(bytes.size() / sizeof(capnp::word))};
  std::memcpy(stored.words.data(), bytes.data(), bytes.size());

  // The deep copy visits every pointer once. A message that points at the same words twice costs
  // more than its own length, runs out of traversal, and is refused.
  capnp::ReaderOptions limits;
  limits.traversalLimitInWords = stored.words.size() + 8;
  limits.nestingLimit = kRowNestingMax;
  StoredRow copy{key, {}};
  bool rightKind = false, known = true;
  const auto failure = kj::runCatchingExceptions([&] {
    const kj::ArrayPtr<const capnp::word> segment(stored.words.data(), stored.words.size());
    const kj::ArrayPtr<const capnp::word> segments[] = {segment};
    capnp::SegmentArrayMessageReader reader(kj::arrayPtr(segments, 1), limits);
    const auto root = reader.getRoot<schema::Row>();
    // Nothing is stored for a key that is gone, so a row that says so, as zeros do, is damaged.
    known = isKnown(root.which());
    rightKind = root.which() != schema::Row::ERASED && holdsKind(root.which(), key.kind);
    capnp::MallocMessageBuilder message(static_cast<kj::uint>(stored.words.size() + 8));
    message.setRoot(root);
    const auto built = message.getSegmentsForOutput();
    KJ_REQUIRE(built.size() == 1);
    // What is accepted must be accepted again once it is stored: within the limits of its own size.
    capnp::ReaderOptions own = limits;
    own.traversalLimitInWords = built[0].size() + 8;
    capnp::SegmentArrayMessageReader canonical(built, own);
    capnp::MallocMessageBuilder twice(static_cast<kj::uint>(built[0].size() + 8));
    twice.setRoot(canonical.getRoot<schema::Row>());
    // The copy has sound pointers, yet each may be of another type than its field says. A reader
    // looks, since a builder would move a root that an older schema made smaller.
    capnp::SegmentArrayMessageReader copied(built);
    readAll(capnp::toDynamic(copied.getRoot<schema::Row>()));
    copy.words = Words(built[0].begin(), built[0].end());
  });
  if (!known) return newer(key);
  if (failure != nullptr) return corrupt(key, "does not decode");
  if (!rightKind) return corrupt(key, "holds a row of another kind");
  return copy;
}

Result<StoredRow> checkedRow(RowKey key, Lsn lsn, std::span<const std::byte> bytes,
                             std::int64_t sum) {
  if (checksum(key, lsn, bytes) != sum) {
    return fail(ErrorCode::Corrupt, describe(key) + " fails its checksum");
  }
  if (bytes.empty()) return StoredRow{key, {}};
  return decodeRow(key, bytes);
}

void RowTable::redo(Lsn lsn, StoredRow row) {
  Entry& entry = newest_[row.key];
  if (lsn <= entry.lsn) return;
  entry.lsn = lsn;
  entry.words = std::move(row.words);
}

std::vector<StoredRow> RowTable::rows() const {
  std::vector<StoredRow> result;
  result.reserve(newest_.size());
  for (const auto& [key, entry] : newest_) {
    if (!entry.words.empty()) result.push_back(StoredRow{key, entry.words});
  }
  return result;
}

std::uint64_t RowTable::digest() const {
  // Two sums over the same bytes in opposite roles: enough to tell states apart in a test.
  std::uint32_t low = 0;
  std::uint64_t high = 0;
  for (const auto& [key, entry] : newest_) {
    if (entry.words.empty()) continue;
    const auto bytes = std::as_bytes(std::span(entry.words));
    const auto one = static_cast<std::uint64_t>(checksum(key, 0, bytes));
    low = crc32c(low, &one, sizeof one);
    high = high * 0x9e3779b97f4a7c15ULL + one;
  }
  return (high << 32) ^ low;
}

}  // namespace qgpu
