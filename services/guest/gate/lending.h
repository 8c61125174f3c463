#pragma once
// What this process lends the others of its task of its memory on the card, and borrows of theirs:
// loans.h's rules with this process's slot, as the driver's calls are seen (rm_ioctl.cc). Nothing
// is done in a process that is not attached, nor with what a fork's parent has.
//
// lends() and lendsNoMore() are called with one lock held; the others from anywhere.

#include "services/guest/gate/attach.h"
#include "services/nvidia_abi/rm_abi.h"

namespace qgpu::guest {

// A loan that this process took, by its place and one more; none: nobody lends, or no place is
// free, so that what is taken must be reserved.
using Loan = std::uint32_t;
inline constexpr Loan kNoLoan = 0;

// Memory under this client counts in this process; and it has none any more.
void lends(rm::Handle client);
void lendsNoMore(rm::Handle client);

// This process's name for memory ended. What others hold under it counts as theirs from now on:
// before release() or giveBack().
void lentNameEnds(rm::Handle client, rm::Handle object, std::uint64_t bytes,
                  std::uint32_t generation);

// Before the driver is asked for a name of our own for another process's memory.
Loan borrow(rm::Handle sourceClient, rm::Handle sourceObject);
// The driver gave it. False: its lender is gone unseen, so it must be reserved.
bool settleLoan(Loan loan, std::uint64_t bytes);
// What a loan is for; 0: not known.
std::uint64_t bytesOfLoan(Loan loan, std::uint32_t generation);
void giveBack(Loan loan, std::uint32_t generation);

}  // namespace qgpu::guest
