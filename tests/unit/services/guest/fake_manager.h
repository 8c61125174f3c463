#pragma once
// The manager's side of the attach socket for the guest's tests: serves handshakes with real,
// sealed memfds (HAZARDS 9) on a thread of its own, and lets a test drive gate, quota and death.
//
// One task with one report page; a slot per process. The heartbeat is stored by beat() and, unless
// stopBeating() was called, by the serving thread.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "services/wire/gate_abi.h"
#include "services/wire/paging.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::testing {

class FakeManager {
 public:
  struct Options {
    std::uint32_t taskClass = QGPU_OFFLINE;
    std::uint32_t suspend = QGPU_SUSPEND_GATE;
    std::uint64_t quotaBytes = 1ull << 30;
    std::uint64_t windowNs = 0;
    std::uint64_t orphanGraceNs = 5'000'000'000;
    std::uint64_t timesliceUs = 0;
    std::uint64_t loansKept = QGPU_LOANS;
    std::uint64_t pageableBytes = 0;  // of the quota
    std::uint64_t pageableLimit = UINT64_MAX;
    std::uint64_t needWaitNs = 0;
    std::uint64_t layoutSeen = 0;
    std::uint32_t gate = QGPU_GATE_OPEN;
    std::vector<std::uint32_t> devices = {0};
    std::string platform = "Portable Computing Language";
    std::string model;                     // empty: the guest does not check it
    std::vector<unsigned char> uuidBytes;  // each fills the UUID of the device at its place
    std::size_t welcomeBytes = sizeof(qgpu_welcome);  // less: as a manager of before sends
    std::string refusal;                              // not empty: every process is refused with it
  };

  explicit FakeManager(Options options);
  ~FakeManager();
  FakeManager(const FakeManager&) = delete;
  FakeManager& operator=(const FakeManager&) = delete;

  // QGPU_SOCKET and QGPU_TOKEN of a tenant.
  const std::string& socketPath() const { return path_; }
  static std::string token() { return std::string(QGPU_TOKEN_LEN, 'a'); }

  // Exchanges the gate word for `bits` with a new epoch, wakes one waiter, returns the new word.
  std::uint32_t setGate(std::uint32_t bits);
  // Shut and FROZEN, and the freeze signal to every driver thread of every slot.
  void freeze();
  void sendFreezeSignals();
  void close();  // the task is gone; wakes one waiter
  void setQuota(std::uint64_t bytes);
  void setWindow(std::uint64_t ns);
  void setSuspend(std::uint32_t suspend) { options_.suspend = suspend; }  // of the next restart()
  void setTimeslice(std::uint64_t us);                                    // of the next too
  // What its memory that may leave is to do; the epoch of the word.
  std::uint32_t setPaging(paging::Phase phase, std::uint32_t permille = 0);
  void setPageableLimit(std::uint64_t bytes);
  paging::Answer answerTo(std::uint32_t epoch, std::uint32_t slot = 0);  // None: there is none yet
  void stopBeating() { beating_ = false; }
  void goOnBeating() { beating_ = true; }
  std::int64_t heartbeatNs() const;

  // Ends every connection and the socket, and with a new gate page of the next incarnation serves
  // again. The report page stays, as its guests bring it back.
  void die();
  void restart(std::uint32_t gate);
  // From the next hello on: why everybody is refused; empty: nobody is.
  void refuse(const std::string& reason);

  qgpu_slot& slot(std::uint32_t index) { return report_->slot[index]; }
  std::uint64_t inFlight() const;  // over all slots, read after the gate was exchanged
  std::uint32_t waiting() const;
  std::uint64_t bytes() const;  // that count
  // Does what the manager does once the process of a slot is dead. Its slot is not given out again.
  void reap(std::uint32_t index);
  // As a manager that does not know them, at once and after a restart.
  void keepNoLoans() { gate_->loans_kept = options_.loansKept = 0; }
  std::uint32_t frozen() const;
  std::uint32_t driverThreads() const;
  std::uint32_t attaches() const { return attaches_.load(); }
  std::uint32_t reattaches() const { return reattaches_.load(); }
  std::vector<std::uint64_t> refusals();  // when each was, by monotonicNs()
  // What guests told of their channels so far, on whichever connection.
  struct Note {
    std::uint32_t slot;
    std::uint32_t connection;  // the how manieth that was accepted, from 1
    qgpu_note said;
  };
  std::vector<Note> notes();
  // Notes stay where they are until readNotes().
  void stopReadingNotes() { reading_ = false; }
  void readNotes() { reading_ = true; }
  // Rings so far; the doorbell is read here because no guest of a test is hostile.
  std::uint64_t rings();
  qgpu_hello lastHello();

 private:
  struct Guest {
    int fd;
    std::uint32_t slot, connection;
  };
  void makeGatePage(std::uint32_t gate);
  void serve();
  void welcome(int fd);
  bool take(const Guest& guest);

  Options options_;
  const TempFolder folder_{"fake"};
  const std::string path_ = folder_ / "attach.sock";
  int listener_ = -1, wake_ = -1, doorbell_ = -1, gateFd_ = -1, gateReadFd_ = -1, reportFd_ = -1;
  qgpu_gate_page* gate_ = nullptr;
  std::vector<qgpu_gate_page*> oldGates_;
  qgpu_report_page* report_ = nullptr;
  std::uint32_t incarnation_ = 0, epoch_ = 0, nextSlot_ = 0, pagingEpoch_ = 0;
  std::uint64_t rings_ = 0;
  std::atomic<bool> beating_{true}, reading_{true}, stop_{false};
  std::atomic<std::uint32_t> attaches_{0}, reattaches_{0};
  std::mutex mutex_;
  std::vector<Guest> guests_;
  std::vector<Note> notes_;
  qgpu_hello lastHello_{};
  std::vector<std::uint64_t> refusals_;
  std::thread thread_;
};

}  // namespace qgpu::testing
