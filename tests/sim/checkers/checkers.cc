#include "tests/sim/checkers/checkers.h"

#include "tests/sim/checkers/check_arbiter.h"
#include "tests/sim/checkers/check_guests.h"
#include "tests/sim/checkers/check_ledger.h"
#include "tests/sim/checkers/check_mail.h"
#include "tests/sim/checkers/check_memory.h"
#include "tests/sim/checkers/check_replay.h"
#include "tests/sim/checkers/check_storage.h"

namespace qgpu::sim {

struct Checkers::All {
  explicit All(Verdict& verdict)
      : mail(verdict),
        storage(verdict),
        ledger(verdict),
        arbiter(verdict),
        guests(verdict),
        memory(verdict),
        replay(verdict),
        rates(verdict) {}

  MailCheck mail;
  StorageCheck storage;
  LedgerCheck ledger;
  ArbiterCheck arbiter;
  GuestCheck guests;
  MemoryCheck memory;
  ReplayCheck replay;
  RateCheck rates;
};

Checkers::Checkers() = default;
Checkers::~Checkers() = default;

void Checkers::join(Crowd& crowd, Verdict& verdict) {
  all_ = std::make_unique<All>(verdict);
  crowd.add(all_->mail);
  crowd.add(all_->storage);
  crowd.add(all_->ledger);
  crowd.add(all_->arbiter);
  crowd.add(all_->guests);
  crowd.add(all_->memory);
  crowd.add(all_->replay);
  crowd.add(all_->rates);
}

}  // namespace qgpu::sim
