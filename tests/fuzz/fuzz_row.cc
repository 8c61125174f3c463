// One stored row, as a damaged disk may give it back. Layout: KIND (2 bytes), ID (8 bytes), then
// the row's own.
//
// Promises: D3 (redo is idempotent) and D5 (what is damaged is told as such, what is accepted reads
// in full without checks and back as the same row).

#include <capnp/message.h>
#include <kj/exception.h>

#include "schema/rows.capnp.h"
#include "store/rows.h"
#include "tests/fuzz/target.h"

namespace qgpu::fuzz {
namespace {

std::span<const std::byte> asBytes(std::span<const std::uint8_t> bytes) {
  return std::as_bytes(bytes);
}

// Every field of a row that was accepted, without the checks that its decoder made.
void readAll(const StoredRow& row) {
  const auto failed = kj::runCatchingExceptions([&] {
    static_cast<void>(capnp::readMessageUnchecked<schema::Row>(row.words.data()).toString());
  });
  require(failed == nullptr, "D5: an accepted row reads in full");
}

void checkAccepted(const StoredRow& row, std::size_t size) {
  readAll(row);
  require(row.words.size() * sizeof(capnp::word) <= size + 64, "a row does not grow as it is read");
  const Result<StoredRow> again = decodeRow(row.key, bytesOf(row));
  if (bytesOf(row).size() <= kRowBytesMax) {
    require(again.ok() && again->words.size() == row.words.size() &&
                std::memcmp(again->words.data(), row.words.data(), bytesOf(row).size()) == 0,
            "D5: an accepted row stays the same row");
    require(checkOwnRow(row).ok(), "an accepted row may be stored again");
  }
  RowTable table;
  table.redo(2, row);
  const std::uint64_t digest = table.digest();
  table.redo(2, row);
  table.redo(1, StoredRow{row.key, {}});
  require(table.digest() == digest, "D3: redo of what is known changes nothing");
}

void oneRow(Input in) {
  const auto kind = static_cast<RowKind>(in.number<std::uint16_t>());
  const RowKey key{kind, in.number<std::uint64_t>()};
  const auto bytes = asBytes(in.bytes(in.left()));
  const Result<StoredRow> row = decodeRow(key, bytes);
  if (!row) {
    const ErrorCode code = row.error().code;
    require((code == ErrorCode::Corrupt || code == ErrorCode::Unsupported) &&
                !row.error().message.empty(),
            "D5, D6: a row that can't be read is told as corrupt, or as of a newer qgpu");
    return;
  }
  checkAccepted(*row, bytes.size());
}

}  // namespace
}  // namespace qgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qgpu::fuzz;
  oneRow(Input(data, size));
  return 0;
}
