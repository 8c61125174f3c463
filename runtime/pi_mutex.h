#pragma once
// A mutex that lends the waiter's priority to its holder, so that an ordinary thread which holds it
// can't keep the SCHED_FIFO card loop waiting behind unrelated work (HAZARDS 24).

#include <pthread.h>

#include "runtime/check.h"

namespace qgpu {

class PiMutex {
 public:
  PiMutex() {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    QGPU_CHECK(pthread_mutex_init(&mutex_, &attr) == 0, "this kernel has priority inheritance");
    pthread_mutexattr_destroy(&attr);
  }
  PiMutex(const PiMutex&) = delete;
  PiMutex& operator=(const PiMutex&) = delete;
  ~PiMutex() { pthread_mutex_destroy(&mutex_); }

  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

}  // namespace qgpu
