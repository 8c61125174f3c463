#pragma once
// libqgpu.so in front of libc's ioctl(): memory of NVIDIA cards is counted where the driver is
// asked for it, so contexts, modules, pools, graphs and arrays count alike, whichever interface
// asked. It is reserved before the call, returned when the driver refuses or frees it (with its
// whole tree: rm_objects.h), and over the quota the call is answered with the driver's own "no
// memory" without being made. close(), and what copies a descriptor (dup(), fcntl()), are watched
// for the files that clients belong to.
//
// Memory that another process allocated costs nothing while that one, of the same task, pays for it
// (lending.h). Who else takes some pays for it: out of another task, out of a file that objects
// were exported to, since who did that can't be known, or where no loan is to be had; but in a task
// of several cards, which has them to itself, nobody pays for such. What it takes
// is what the driver tells of the new name (SURFACE_INFO); where the driver tells nothing, or the
// quota has no room, the name is freed and the call answered with "no memory". What this process
// exports to a file, be it a dma-buf, counts for it until its own last descriptor of that is
// closed.
//
// An ioctl that is not NVIDIA's costs one comparison. One that is, is looked at only in an attached
// process, on a descriptor that fstat() says is the driver's control file or a card's (never by
// name), and in a layout that the driver's version is known to have (rm_abi.h), or that the manager
// saw a newer driver to have, as the gate page tells. For that version the driver is asked before
// the first call is passed on to it. Otherwise memory counts at the
// interfaces' calls, as it does on other cards: one of the two for each process, decided at its
// first allocation.
//
// The child of a fork counts nothing of its parent's, and a child of vfork() touches nothing: both
// are told by the process id.

namespace qgpu::guest {

// Whether this process's memory is counted at the driver. The first question decides it for the
// process's life, and tells it in the report page; the process is attached.
bool countedByDriver();

// Memory that this thread asks of the driver meanwhile counts elsewhere: what may leave the card.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
};

}  // namespace qgpu::guest
