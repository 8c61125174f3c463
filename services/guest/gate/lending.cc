#include "services/guest/gate/lending.h"

#include "services/wire/loans.h"

namespace qgpu::guest {
namespace {

bool attached() {
  return session.state.load() == State::kAttached;
}
bool isOurs(std::uint32_t generation) {
  return attached() && session.generation.load() == generation;
}
std::uint32_t ownSlot() {
  return static_cast<std::uint32_t>(session.slot - session.report->slot);
}

}  // namespace

void lends(rm::Handle client) {
  if (attached()) loans::publish(*session.slot, client);
}

void lendsNoMore(rm::Handle client) {
  if (attached()) loans::withdraw(*session.slot, client);
}

void lentNameEnds(rm::Handle client, rm::Handle object, std::uint64_t bytes,
                  std::uint32_t generation) {
  if (!isOurs(generation)) return;
  loans::mark(*session.report, ownSlot(), loans::nameOf(client, object), bytes);
}

Loan borrow(rm::Handle sourceClient, rm::Handle sourceObject) {
  if (!attached()) return kNoLoan;
  const std::uint32_t lender = loans::lenderWith(*session.report, sourceClient);
  if (lender == loans::kNone || lender == ownSlot()) return kNoLoan;
  const std::uint64_t name = loans::nameOf(sourceClient, sourceObject);
  const std::uint64_t kept = loans::load(session.gate->loans_kept);
  return loans::take(*session.report, kept, ownSlot(), lender, name) + 1;  // kNone and one more: 0
}

bool settleLoan(Loan loan, std::uint64_t bytes) {
  return loan != kNoLoan && attached() && loans::settle(*session.report, loan - 1, bytes);
}

std::uint64_t bytesOfLoan(Loan loan, std::uint32_t generation) {
  if (loan == kNoLoan || !isOurs(generation)) return 0;
  return loans::load(session.report->loan[loan - 1].bytes);
}

void giveBack(Loan loan, std::uint32_t generation) {
  if (loan != kNoLoan && isOurs(generation)) loans::end(*session.report, loan - 1);
}

}  // namespace qgpu::guest
