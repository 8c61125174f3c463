#pragma once
// The guest's side of the attach protocol in its plainest form, for tests and for the simulated
// tenants of bench/load: handshake, admit, retire, waiting at the gate, and the robust futex of a
// helper thread. It keeps the same order of steps as libqgpu.so (HAZARDS 5), and nothing of its
// drivers. One object per attached process; its threads may share it.

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/fd.h"
#include "runtime/result.h"
#include "services/attach/pages/task_pages.h"
#include "services/wire/gate_abi.h"

namespace qgpu {

class GuestClient {
 public:
  // A hello of this process with `token` (32 characters), to be changed at will before begin().
  static qgpu_hello hello(const std::string& token);
  // Connects and says hello. `page` (or -1) comes along.
  static Result<GuestClient> begin(const std::string& socket, const qgpu_hello& hello, int page);
  // From now on finish() leaves `obeys` alone: the process goes on by an earlier page until obey().
  void obeyLater() { obeysAtOnce_ = false; }
  // Says that the gate page of the welcome is the one that is read, and rings, as libqgpu.so does.
  void obey();
  // Waits for the answer (at most `timeoutMs`) and maps the pages. Denied: the refusal's reason.
  Status finish(int timeoutMs);
  // Both at once, for a process other than the manager's.
  static Result<GuestClient> attach(const std::string& socket, const std::string& token);

  GuestClient(GuestClient&& other) noexcept;
  GuestClient& operator=(GuestClient&&) = delete;

  // Starts a thread that holds the robust futex until the process dies.
  void holdOwner();

  // A launch: false once the task is closed. Waits while the gate is shut, at most `timeoutMs`
  // (-1: for ever).
  bool admit(int timeoutMs = -1);
  // Its end.
  void retire();
  void ring();

  // Waits while the epoch of `paging` is this one, at most `timeoutMs` (-1: for ever).
  void awaitPaging(std::uint32_t epoch, int timeoutMs) const;
  std::uint32_t gateWord() const;
  const qgpu_gate_page& gatePage() const { return *gate_.as<const qgpu_gate_page>(); }
  qgpu_report_page& reportPage() { return *report_.as<qgpu_report_page>(); }
  qgpu_slot& slot() { return reportPage().slot[welcome_.slot]; }
  const qgpu_welcome& welcome() const { return welcome_; }
  int gateFd() const { return gateFd_.get(); }
  int reportFd() const { return reportFd_.get(); }
  int doorbellFd() const { return doorbell_.get(); }
  int connectionFd() const { return connection_.get(); }
  void disconnect() { connection_.reset(); }

 private:
  GuestClient() = default;
  bool waitAtGate(std::uint32_t word, int timeoutMs);

  Fd connection_;
  Fd gateFd_;
  Fd reportFd_;
  Fd doorbell_;
  Mapping gate_;
  Mapping report_;
  qgpu_welcome welcome_{};
  bool obeysAtOnce_ = true;
  std::atomic<std::uint32_t> rungFor_{~0u};  // the gate word that was answered with a ring
};

}  // namespace qgpu
