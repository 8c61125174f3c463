#pragma once
// The little that libqgpu.so needs from the kernel and from C++: clocks, futexes, locks and atomic
// access to shared words, without libstdc++ and without glibc symbols above 2.17.
//
// All times are CLOCK_MONOTONIC nanoseconds, as in the pages. Everything here that takes no Lock is
// async-signal-safe, because the freeze handler uses it.

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace qgpu::guest {

inline constexpr std::uint64_t kNsPerUs = 1'000;
inline constexpr std::uint64_t kNsPerMs = 1'000'000;
inline constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

inline std::uint64_t clockNs(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * kNsPerSecond +
         static_cast<std::uint64_t>(t.tv_nsec);
}
inline std::uint64_t nowNs() {
  return clockNs(CLOCK_MONOTONIC);
}
inline std::uint64_t coarseNs() {
  return clockNs(CLOCK_MONOTONIC_COARSE);
}

inline timespec timespecOf(std::uint64_t ns) {
  return {static_cast<time_t>(ns / kNsPerSecond), static_cast<long>(ns % kNsPerSecond)};
}

// Words of the pages are plain integers in C; these give them their memory order.
template <typename T>
inline std::atomic_ref<T> shared(T& word) {
  return std::atomic_ref<T>(word);
}
template <typename T>
inline T loadShared(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_SEQ_CST);
}
template <typename T>
inline T loadRelaxed(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}
template <typename T>
inline void storeRelaxed(T& word, T value) {
  __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}

// Waits while *word == value, at most `ns`. Shared (not FUTEX_PRIVATE): the word may lie in a page
// of another process, and a read-only map is enough. errno is preserved.
inline void futexWait(const std::uint32_t* word, std::uint32_t value, std::uint64_t ns) {
  const int saved = errno;
  timespec t = timespecOf(ns);
  syscall(SYS_futex, word, FUTEX_WAIT, value, &t, nullptr, 0);
  errno = saved;
}
inline void futexWake(const std::uint32_t* word, int count) {
  const int saved = errno;
  syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
  errno = saved;
}

inline void sleepNs(std::uint64_t ns) {
  timespec t = timespecOf(ns);
  nanosleep(&t, nullptr);
}
inline std::uint32_t threadId() {
  return static_cast<std::uint32_t>(syscall(SYS_gettid));
}

// A mutex that the child of a fork can make fresh; held for a few instructions, never at the gate.
class Mutex {
 public:
  constexpr Mutex() = default;
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }
  void renewInChild() { mutex_ = PTHREAD_MUTEX_INITIALIZER; }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class Lock {
 public:
  explicit Lock(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

// Starts a detached thread that gets no signal of the application. False: no thread.
bool startThread(void* (*body)(void*));

// One line to stderr, in one write: "qgpu: ...". Nothing where the program has closed its stderr,
// also where another file has that number since; a reader that is slow or gone harms nobody.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace qgpu::guest
