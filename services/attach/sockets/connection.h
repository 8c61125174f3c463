#pragma once
// A connection whose other end a tenant has, read and closed without ever waiting for the tenant.
//
// What comes may bring descriptors, and to close the last one of a file can take as long as its
// owner likes: a TCP socket lingers, a file system in user space is asked. The kernel closes them
// in the thread that takes or drops the record that brought them, so a record is looked at before
// it is taken, and where somebody may have to wait, that is a thread of its own (detached.h).

#include <cstddef>
#include <cstdint>

#include "runtime/fd.h"
#include "services/wire/gate_abi.h"

namespace qgpu {

struct NextRecord {
  enum class What : std::uint8_t {
    None,  // nothing has come yet
    Record,
    Over,  // the connection has ended, or says so by an empty record
  };
  What what = What::None;
  std::size_t bytes = 0;     // as many as there was room for
  bool descriptors = false;  // it brings some
};

// The next record, which stays where it is.
NextRecord peekRecord(const Fd& connection, void* room, std::size_t size);

// Takes the record that peekRecord() saw, one without descriptors.
void passRecord(const Fd& connection);

// Takes it, and the first descriptor of a file in memory that it brings, of at most `bytesMax` and
// sealed so that it can't grow; whatever else comes is closed. Empty: there is none.
Fd takeMemoryFile(const Fd& connection, std::size_t bytesMax);

// False: not all of it could be sent at once. `fds` go along.
bool sendWelcome(const Fd& connection, const qgpu_welcome& welcome, const int* fds,
                 std::size_t count);
// The same with a reason why not.
void sendRefusal(const Fd& connection, std::uint32_t incarnation, const char* reason);

// Closes it. Its peer can say no more from now on.
void letGo(Fd connection);

}  // namespace qgpu
