#pragma once
// Memory of the card that several processes of a task hold at once (CUDA's IPC), and so what the
// task holds in all. The process that allocated it, the lender, pays for it in its own slot. Each
// other process that holds it, a borrower, has a loan in the report page: it costs nothing while
// the lender pays, and counts from the moment that the lender does not, because it freed the memory
// or is dead. The driver keeps such memory until its last holder lets go.
//
// Total is a pure function of the page, so nothing has to move between two words: whoever ends a
// payment marks the loans that it was for first, and takes its own bytes off the sum afterwards. A
// reader looks at the slots first and at the loans afterwards, so it meets one of the two where a
// slot paid. Where a loan paid, its bytes are added to `loans_ended` before its place is free: what
// that word grew by while a reader looked is all that it can have missed. A total may be too large
// for a moment, never too small (A14), whoever is killed in between.
//
// A loan's place belongs to its borrower alone: it takes and ends it, and the manager does for one
// that is dead. Others only mark it. All of it is in a page that tenants write: every index and
// every loop is bounded by constants, and nonsense harms its own task alone.
//
// state: 0, the place is free; else
//   bits 0..7    the borrower's slot + 1
//   bits 8..15   the lender's slot + 1; 0: taken, and not for anything yet
//   bits 16..31  a number, so that a place that was taken anew is told from what it was
//   bits 32..63  the group; 0: the lender pays. Loans of one memory that lost their lender are one
//                group and count once. A name can't be the group: the lender may use it again.

#include <cstdint>

#include "services/wire/gate_abi.h"

namespace qgpu::loans {

inline constexpr std::uint32_t kNone = ~0u;  // no slot, or no place

template <typename T>
T load(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_SEQ_CST);
}
template <typename T>
void store(T& word, T value) {
  __atomic_store_n(&word, value, __ATOMIC_SEQ_CST);
}
template <typename T>
bool replace(T& word, T expected, T wanted) {
  return __atomic_compare_exchange_n(&word, &expected, wanted, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST);
}

constexpr std::uint32_t borrowerOf(std::uint64_t state) {
  return static_cast<std::uint32_t>(state & 0xff) - 1;
}
constexpr std::uint32_t lenderOf(std::uint64_t state) {
  return static_cast<std::uint32_t>(state >> 8 & 0xff) - 1;
}
constexpr std::uint32_t groupOf(std::uint64_t state) {
  return static_cast<std::uint32_t>(state >> 32);
}
constexpr std::uint64_t nameOf(std::uint32_t client, std::uint32_t object) {
  return std::uint64_t{client} << 32 | object;
}

inline std::uint32_t top(const qgpu_report_page& page) {
  const std::uint32_t told = load(page.loans_top);
  return told < QGPU_LOANS ? told : QGPU_LOANS;
}
inline std::uint32_t nextSerial(qgpu_report_page& page) {
  const std::uint32_t next = __atomic_add_fetch(&page.loan_serial, 1, __ATOMIC_SEQ_CST);
  return next != 0 ? next : 1;
}

// --- what a task holds ---

constexpr std::uint64_t kFull = ~0ull;  // a sum that would wrap

inline std::uint64_t plus(std::uint64_t sum, std::uint64_t more) {
  return more > kFull - sum ? kFull : sum + more;
}

inline constexpr int kLooks = 4;  // at what moves; what a tenant moves for ever is taken as it is

// Called before a reader loads a word: tests have others move there.
struct Undisturbed {
  void operator()() const {}
};

struct Place {
  std::uint64_t state, bytes;
};
// A loan that gets another group counts all the same.
template <typename Before>
Place read(const qgpu_loan& loan, Before& before) {
  before();
  Place seen{load(loan.state), 0};
  for (int look = 1; look <= kLooks && groupOf(seen.state) != 0; ++look) {
    before();
    seen.bytes = load(loan.bytes);
    before();
    const std::uint64_t now = load(loan.state);
    if (now == seen.state) break;
    seen.state = now;
  }
  return seen;
}

// Of loans that lost their lender, each memory once.
template <typename Before>
std::uint64_t ofLoans(const qgpu_report_page& page, std::uint64_t slots, Before& before) {
  std::uint32_t groups[QGPU_LOANS];
  std::uint64_t bytes[QGPU_LOANS];
  std::uint32_t found = 0;
  const std::uint32_t end = top(page);
  for (std::uint32_t i = 0; i < end; ++i) {
    const Place place = read(page.loan[i], before);
    const std::uint32_t group = groupOf(place.state), borrower = borrowerOf(place.state);
    if (group == 0 || borrower >= QGPU_SLOTS || (slots >> borrower & 1) == 0) continue;
    std::uint32_t at = 0;
    while (at < found && groups[at] != group) ++at;
    if (at == found) {
      groups[found] = group;
      bytes[found++] = 0;
    }
    if (bytes[at] < place.bytes) bytes[at] = place.bytes;
  }
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < found; ++i) sum = plus(sum, bytes[i]);
  return sum;
}

// What the processes of a mask of slots hold together, each byte of the card once; kFull: it would
// not fit. This is the one sum: quotas are kept by it, and people are shown it.
template <typename Before = Undisturbed>
std::uint64_t total(const qgpu_report_page& page, std::uint64_t slots, Before before = {}) {
  for (int look = 1;; ++look) {
    const std::uint64_t ended = load(page.loans_ended);
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < QGPU_SLOTS; ++i) {
      before();
      if (slots >> i & 1) sum = plus(sum, load(page.slot[i].bytes));
    }
    sum = plus(sum, ofLoans(page, slots, before));  // after the slots
    const std::uint64_t missed = load(page.loans_ended) - ended;
    if (missed == 0 || look == kLooks) return plus(sum, missed);
  }
}

// --- the lender ---

// Says that memory under this client counts in this slot; without a free place it stays unsaid, and
// whoever borrows pays itself. One thread at a time.
inline void publish(qgpu_slot& slot, std::uint32_t client) {
  std::uint32_t* place = nullptr;
  for (std::uint32_t& each : slot.clients) {
    const std::uint32_t there = load(each);
    if (there == client) return;
    if (there == 0 && !place) place = &each;
  }
  if (place) store(*place, client);
}
// After the loans of its last memory were marked.
inline void withdraw(qgpu_slot& slot, std::uint32_t client) {
  for (std::uint32_t& each : slot.clients) {
    if (load(each) == client) store(each, 0u);
  }
}
inline bool publishes(const qgpu_slot& slot, std::uint32_t client) {
  for (const std::uint32_t& each : slot.clients) {
    if (client != 0 && load(each) == client) return true;
  }
  return false;
}

// The lender's name for a memory of so many bytes ended, and it is about to pay no more.
inline void mark(qgpu_report_page& page, std::uint32_t lender, std::uint64_t name,
                 std::uint64_t bytes) {
  std::uint32_t group = 0;
  const std::uint32_t end = top(page);
  for (std::uint32_t i = 0; i < end; ++i) {
    qgpu_loan& loan = page.loan[i];
    const std::uint64_t state = load(loan.state);
    const bool its = lenderOf(state) == lender && groupOf(state) == 0;
    if (!its || load(loan.name) != name) continue;
    if (group == 0) group = nextSerial(page);
    replace(loan.bytes, std::uint64_t{0}, bytes);  // its borrower does not know them yet
    replace(loan.state, state, state | std::uint64_t{group} << 32);
  }
}

// --- the borrower ---

// Which slot pays for memory under this client; kNone: none that is known.
inline std::uint32_t lenderWith(const qgpu_report_page& page, std::uint32_t client) {
  for (std::uint32_t i = 0; i < QGPU_SLOTS; ++i) {
    if (publishes(page.slot[i], client)) return i;
  }
  return kNone;
}

// A place for what `borrower` is about to take from `lender`; kNone: there is none, it must pay.
// It is there before the driver is asked: who ends the memory after the driver gave it sees it.
// `kept` is what the gate page says.
inline std::uint32_t take(qgpu_report_page& page, std::uint64_t kept, std::uint32_t borrower,
                          std::uint32_t lender, std::uint64_t name) {
  if (kept == 0) return kNone;
  const std::uint64_t taken = std::uint64_t{nextSerial(page) & 0xffff} << 16 | (borrower + 1);
  for (std::uint32_t i = 0; i < QGPU_LOANS && i < kept; ++i) {
    qgpu_loan& loan = page.loan[i];
    if (!replace(loan.state, std::uint64_t{0}, taken)) continue;
    for (std::uint32_t seen = load(page.loans_top);
         seen <= i && !replace(page.loans_top, seen, i + 1); seen = load(page.loans_top)) {
    }
    store(loan.name, name);
    store(loan.bytes, std::uint64_t{0});
    store(loan.state, taken | std::uint64_t{lender + 1} << 8);
    return i;
  }
  return kNone;
}
// After the loans of its own name were marked.
inline void end(qgpu_report_page& page, std::uint32_t place) {
  if (place >= QGPU_LOANS) return;
  __atomic_add_fetch(&page.loans_ended, load(page.loan[place].bytes), __ATOMIC_SEQ_CST);
  store(page.loan[place].state, std::uint64_t{0});
}

// A manager came that keeps so many places: what this borrower has in others counts at once, since
// nobody would see its lender's death.
inline void countUnkept(qgpu_report_page& page, std::uint64_t kept, std::uint32_t borrower) {
  const std::uint32_t end = top(page);
  for (std::uint64_t i = kept; i < end; ++i) {
    std::uint64_t& word = page.loan[i].state;
    const std::uint64_t state = load(word);
    if (borrowerOf(state) != borrower || groupOf(state) != 0) continue;
    replace(word, state, state | std::uint64_t{nextSerial(page)} << 32);
  }
}

// The driver gave the memory, and told its size. True: it is paid for, by its lender or as a loan
// that lost it; false: the lender ended unseen, and the borrower must pay. A loan that is marked by
// now counts by itself: the mark may have been for an earlier memory of that name.
inline bool settle(qgpu_report_page& page, std::uint32_t place, std::uint64_t bytes) {
  if (place >= QGPU_LOANS) return false;
  qgpu_loan& loan = page.loan[place];
  store(loan.bytes, bytes);
  const std::uint64_t state = load(loan.state);
  if (groupOf(state) != 0) {
    store(loan.state, (state & 0xffffffff) | std::uint64_t{nextSerial(page)} << 32);
    return true;
  }
  const std::uint32_t lender = lenderOf(state);
  const auto client = static_cast<std::uint32_t>(load(loan.name) >> 32);
  if (lender < QGPU_SLOTS && publishes(page.slot[lender], client)) return true;
  return groupOf(load(loan.state)) != 0;
}

// --- the manager ---

// A process died, and its bytes are about to be zeroed: what others hold of it counts with them
// from now on, and what it held of others does not. Where a borrower does not know the size yet,
// all that the lender held is taken for it.
inline void slotEnds(qgpu_report_page& page, std::uint32_t slot) {
  for (std::uint32_t& client : page.slot[slot].clients) store(client, 0u);
  std::uint64_t most = load(page.slot[slot].bytes);
  for (const qgpu_loan& loan : page.loan) {
    if (borrowerOf(load(loan.state)) == slot) most = plus(most, load(loan.bytes));
  }
  for (std::uint32_t i = 0; i < QGPU_LOANS; ++i) {
    const std::uint64_t state = load(page.loan[i].state);
    const bool its = lenderOf(state) == slot && groupOf(state) == 0;
    if (its && borrowerOf(state) != slot) mark(page, slot, load(page.loan[i].name), most);
  }
  for (std::uint32_t i = 0; i < QGPU_LOANS; ++i) {
    if (borrowerOf(load(page.loan[i].state)) == slot) end(page, i);
  }
}

}  // namespace qgpu::loans
