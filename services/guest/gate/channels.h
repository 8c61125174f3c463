#pragma once
// What a manager that takes channels off the hardware (suspend `rm`) must know of this process, and
// what this process does when it is lost. Each channel is told in a note on the attach connection
// (gate_abi.h) as it is made, asked to run and ended, and after each attach all that are there are.
// A group of channels gets its timeslice on the way, whoever holds it, and another one when the
// gate page says so. A manager that is lost may have left them off: then the process puts its own
// back on, as holds by the gate end too (HAZARDS 20).
//
// It keeps: a channel that is there is told on each connection at least once, whatever is made or
// refused to be freed meanwhile; a thread of the program is kept waiting by a manager that does not
// read for about a second on a connection, which is shut then, and all is told on the next;
// what a lost manager may have left off is tried to be put back, ever more seldom, until the driver
// took it, and again while that one may still do so; a channel whose card is not known, by each
// card, and is left out where none takes it. Where the manager holds by the gate alone nobody is
// told anything.

#include "services/guest/gate/attach.h"

namespace qgpu::guest {

// By the thread that attached: on this connection the manager is told from now on, beginning with
// what is there. `again`: it may be off the hardware, by an earlier manager.
void tellChannels(int connection, bool again);

// Nothing more is told on it: it is about to be closed. False: it ended since the manager did not
// read what it was told.
bool stopTelling();

// By the link thread, at each of its ticks.
void keepChannels(bool managerIsLost);

}  // namespace qgpu::guest
