/* The words that the manager and libqgpu.so share: the attach handshake and the two pages.
 *
 * Plain C11 so that both sides, the tests and the fuzzers read one definition. Everything is
 * little-endian x86-64/aarch64, naturally aligned, and only grows: a new field takes reserved
 * space, and QGPU_ABI_VERSION moves when the meaning of an old one changes.
 *
 * Gate page: written by the manager alone. The guest holds a read-only descriptor of a memfd that
 *   is sealed FUTURE_WRITE|SHRINK|GROW|SEAL, so that no tenant opens its own gate (HAZARDS 9).
 * Report page: written by every process of the task. It may hold nonsense; the manager bounds all
 *   that it reads there (A10, C7). Sealed SHRINK|GROW|SEAL.
 *
 * The order that makes the gate sound (HAZARDS 5): a launch does a locked add on its slot's
 * `admitted` and only then loads `gate`; the manager exchanges `gate` and only then reads
 * admitted - retired. Both are sequentially consistent, so one of the two sees the other.
 */
#ifndef QGPU_SERVICES_GUEST_GATE_ABI_H
#define QGPU_SERVICES_GUEST_GATE_ABI_H

#include <stdint.h>

#define QGPU_ABI_VERSION 1u
#define QGPU_GATE_MAGIC 0x31455441474751ull     /* "QGGATE1" */
#define QGPU_REPORT_MAGIC 0x3154525045524751ull /* "QGREPRT1" */
#define QGPU_ATTACH_MAGIC 0x3148435454414751ull /* "QGATTCH1" */
#define QGPU_NOTE_MAGIC 0x3145544f4e554751ull   /* "QGUNOTE1" */

#define QGPU_SLOTS 64u          /* processes of one task that may be attached at once */
#define QGPU_DRIVER_THREADS 64u /* driver threads of one process that can be frozen */
#define QGPU_TOKEN_LEN 32u      /* hex characters of a task's token */
#define QGPU_NAME_LEN 64u       /* longest platform name, with its NUL */
#define QGPU_MODEL_LEN 64u      /* what is kept of a device's name, with its NUL */
#define QGPU_UUID_LEN 16u       /* bytes of a card's UUID */
#define QGPU_REASON_LEN 160u    /* longest refusal, with its NUL */
#define QGPU_CLIENTS 24u        /* of NVIDIA's kernel driver that one process is known to have */
#define QGPU_LOANS 165u         /* of memory between the processes of a task at once */
#define QGPU_KNOWS_PAGING 0x1u  /* of qgpu_hello.knows: it follows the gate page's `paging` */
#define QGPU_MAX_INFLIGHT (1u << 20) /* per process; more is nonsense and is read as this */

/* The gate word. A change of any bit is a new value, so a futex wait on the old one ends.
 * OPEN:    launches pass.
 * NOTIFY:  with OPEN: pass, and ring the doorbell once for this value of the word; the manager
 *          does not know yet that this task has work. Set while an open gate is idle.
 * FROZEN:  with OPEN clear: driver threads that got the freeze signal wait until it clears.
 * CONTENDED: somebody else wants the card: the launch window applies (`window_ns`), and a process
 *          whose last work in flight retires rings the doorbell once, as behind a shut gate.
 * The rest is the low bits of the epoch's counter, compared for equality only (HAZARDS 23).
 * Every store must be a new value. A store that opens the gate wakes one waiter (FUTEX_WAKE, 1);
 * launches and frozen threads wake each other on. A store that sets FROZEN is followed by
 * tgkill(pid, tid, qgpu_hello.freeze_signal) for each of qgpu_slot.tids. `closed` is stored before
 * a store that clears OPEN, since only the slow path looks at it. */
#define QGPU_GATE_OPEN 0x1u
#define QGPU_GATE_NOTIFY 0x2u
#define QGPU_GATE_FROZEN 0x4u
#define QGPU_GATE_CONTENDED 0x8u
#define QGPU_GATE_SEQ_SHIFT 4

enum qgpu_class { QGPU_ONLINE = 0, QGPU_OFFLINE = 1, QGPU_ORDINARY = 2 };
/* Where a process's memory is counted: at the calls of CUDA or OpenCL, or where NVIDIA's kernel
 * driver is asked for it. Undecided until its first allocation. */
enum qgpu_counted {
  QGPU_COUNTED_UNDECIDED = 0,
  QGPU_COUNTED_BY_CALLS = 1,
  QGPU_COUNTED_BY_DRIVER = 2
};
enum qgpu_suspend { QGPU_SUSPEND_GATE = 0, QGPU_SUSPEND_FREEZE = 1, QGPU_SUSPEND_RM = 2 };

#ifdef __cplusplus
#define QGPU_ALIGN(n) alignas(n)
#define QGPU_STATIC_ASSERT static_assert
#else
#define QGPU_ALIGN(n) _Alignas(n)
#define QGPU_STATIC_ASSERT _Static_assert
#endif

/* One page, written by the manager. All times are CLOCK_MONOTONIC nanoseconds. */
typedef struct qgpu_gate_page {
  uint64_t magic;           /* QGPU_GATE_MAGIC */
  uint32_t version;         /* QGPU_ABI_VERSION */
  uint32_t task_class;      /* enum qgpu_class */
  uint32_t suspend;         /* enum qgpu_suspend of the card */
  uint32_t incarnation;     /* of the manager; a new one hands out a new page */
  uint64_t quota_bytes;     /* over all processes of the task */
  uint64_t window_ns;       /* estimated time of launches in flight while CONTENDED; 0: no limit */
  uint64_t orphan_grace_ns; /* heartbeat older than this: the manager is lost (HAZARDS 20) */
  uint64_t timeslice_us;    /* of each group of channels of a process on an NVIDIA card; it may
                             * change at any time. 0: what the driver gives */
  uint64_t loans_kept;      /* places of the report page's loan[] that this manager looks after when
                             * a process dies; 0: it does not know them, and who holds memory of
                             * others pays. Here and not in the report page, which outlives it. */
  /* Memory that may leave the card while the task is held (services/wire/paging.h). */
  uint64_t pageable_bytes; /* of the quota, for such memory; the rest is for what stays. 0: none */
  uint64_t pageable_limit; /* of these, what the processes may have now, on the card and off it */
  uint64_t paging;         /* what they are to do with it; a futex by its upper half, the epoch */
  uint64_t need_wait_ns; /* a process whose allocation the card refused, though the quota has room,
                          * asks the driver again for so long, since others may leave; 0: not */
  uint64_t layout_seen;  /* of an NVIDIA driver that is newer than all that the manager knows: the
                          * first part of the version whose layout (services/nvidia_abi/rm_abi.h)
                          * the manager saw it to have; 0: none, so memory counts at the calls of
                          * CUDA */
  uint64_t reserved0;
  QGPU_ALIGN(128) uint32_t gate;         /* the futex word */
  uint32_t epoch;                        /* full 32-bit counter of the epoch, for the record */
  uint64_t gate_stored_ns;               /* when `gate` was last stored */
  QGPU_ALIGN(128) uint64_t heartbeat_ns; /* stored about once a second while the manager lives */
  uint64_t closed; /* not 0: unbound or evicted; launches fail as on a lost device */
  uint64_t reserved1[14];
} qgpu_gate_page;

/* What one process tells. `admitted`, `retired`, `launches`, `gpu_ns` only grow. */
typedef struct qgpu_slot {
  QGPU_ALIGN(128) uint64_t admitted; /* launches let through; taken back when the gate was shut */
  uint64_t retired;                  /* of these, known to be finished; <= admitted */
  uint64_t last_submit_ns;           /* coarse clock, stored at most every 50 us */
  uint64_t last_retire_ns;
  uint32_t waiting; /* threads that wait at the gate or at the window */
  uint32_t parked;  /* not 0: the oldest work in flight can't run (waits for the host) */
  uint64_t launches;
  uint64_t gpu_ns;                /* from profiling, where the queue has it */
  uint64_t window_used_ns;        /* sum of the estimates of what is in flight */
  QGPU_ALIGN(128) uint64_t bytes; /* accepted allocations; locked add, sum of slots, roll-back */
  uint64_t bytes_peak;
  uint64_t refused; /* allocations that failed since they would pass the quota; only grows;
                     * 0 in a guest that does not know it */
  uint32_t clients[QGPU_CLIENTS]; /* of NVIDIA's kernel driver, in which it has memory that counts
                                   * here; 0: a free place. See services/wire/loans.h */
  QGPU_ALIGN(128) uint32_t owner; /* robust futex of the helper thread: FUTEX_OWNER_DIED at death */
  uint32_t pid;                   /* as the process sees itself */
  uint64_t start_time;            /* /proc/self/stat field 22 */
  uint32_t frozen;                /* driver threads that wait in the freeze handler now */
  uint32_t driver_threads; /* entries of tids[]; 0: none identified, so the card falls to `gate` */
  uint64_t frozen_ns;      /* when the last of them stopped */
  uint32_t tids[QGPU_DRIVER_THREADS]; /* as the process sees them */
  uint32_t obeys;   /* incarnation of the gate page that the process reads now; a re-attach
                     * is complete, and holds bind again, once it is the manager's own */
  uint32_t counted; /* enum qgpu_counted, for people to read */
  /* Memory that may leave the card; none of it is in `bytes`. Each is stored before the answer to
   * which it belongs. */
  uint64_t pageable_held; /* on the card and off it; locked add, sum of slots, roll-back */
  uint64_t pageable_out;  /* of these, off the card */
  uint64_t pageable_more; /* for so much above the limit threads wait */
  uint64_t paging_answer; /* epoch << 32 | paging::Answer; 0: none */
  uint64_t need_bytes;    /* what the card refused and is asked for again; 0: nothing */
  uint64_t need_since_ns; /* when the first of it was refused */
} qgpu_slot;

/* Memory of the card that one process of the task allocated (the lender) and another one holds too
 * (the borrower). services/wire/loans.h says what `state` means and who may change it. */
typedef struct qgpu_loan {
  uint64_t state; /* 0: a free place */
  uint64_t name;  /* of the memory as its lender calls it: client << 32 | object */
  uint64_t bytes; /* 0: not known yet */
} qgpu_loan;

/* Written by the task's processes, and by the manager for those that are dead. */
typedef struct qgpu_report_page {
  uint64_t magic; /* QGPU_REPORT_MAGIC */
  uint32_t version;
  uint32_t slots;             /* QGPU_SLOTS */
  uint64_t task;              /* id of the task, so that a page brought to another is refused */
  uint32_t loans_kept_before; /* 0: guests of before that look here for the gate page's word pay */
  uint32_t loans_top;         /* no place from here on was ever taken */
  uint32_t loan_serial;       /* numbers for loans and groups of them */
  uint32_t reserved0;
  uint64_t loans_ended; /* bytes of all places that were given back; grows, and may wrap */
  uint64_t reserved[10];
  qgpu_slot slot[QGPU_SLOTS];
  qgpu_loan loan[QGPU_LOANS]; /* in what was left of the last page */
} qgpu_report_page;

QGPU_STATIC_ASSERT(sizeof(qgpu_gate_page) == 384, "the layout is shared with running guests");
QGPU_STATIC_ASSERT(sizeof(qgpu_slot) == 640, "the layout is shared with running guests");
QGPU_STATIC_ASSERT(sizeof(qgpu_report_page) == 45056, "pages of all versions have one size");

/* --- attach: one SOCK_SEQPACKET record each way, then the connection stays as a sign of life, and
 * for notes from the guest where the card needs them */

/* Guest to manager. With `reattach`, one descriptor comes along: the task's report page. */
typedef struct qgpu_hello {
  uint64_t magic;             /* QGPU_ATTACH_MAGIC */
  uint32_t version;           /* of the guest */
  uint32_t pid;               /* as the process sees itself; SO_PEERCRED is what counts */
  uint64_t start_time;        /* checked against /proc */
  char token[QGPU_TOKEN_LEN]; /* not NUL-terminated */
  uint32_t reattach;          /* not 0: brings its report page and keeps `slot` */
  uint32_t slot;
  uint32_t incarnation_seen; /* highest that this guest has met (HAZARDS 23) */
  uint32_t freeze_signal;    /* signal number for driver threads; 0: this guest can't freeze */
  uint32_t knows;            /* QGPU_KNOWS_*; 0 in a guest of before */
  uint32_t reserved0;
  uint64_t reserved[7];
} qgpu_hello;

/* Manager to guest. On success three descriptors come along: gate page (read-only), report page,
 * doorbell (eventfd; the manager never reads it, HAZARDS 1). */
typedef struct qgpu_welcome {
  uint64_t magic;
  uint32_t version; /* of the manager */
  uint32_t refused; /* not 0: `reason` says why, no descriptors */
  uint64_t task;
  uint32_t slot;
  uint32_t incarnation;
  uint32_t cards;      /* how many cards this task holds: 1, or whole cards */
  uint32_t device[16]; /* OpenCL: index within the platform's CL_DEVICE_TYPE_ALL list */
  uint32_t reserved0;
  char platform[QGPU_NAME_LEN]; /* OpenCL: CL_PLATFORM_NAME of the card */
  char reason[QGPU_REASON_LEN];
  char model[QGPU_MODEL_LEN]; /* OpenCL: CL_DEVICE_NAME of the first card, cut to fit with its NUL;
                               * a guest whose device there has another name gives no device
                               * (HAZARDS 14). Empty: not checked. */
  uint8_t uuid[16][QGPU_UUID_LEN]; /* of the cards, where they have one: a guest whose OpenCL tells
                                    * UUIDs (CL_DEVICE_UUID_KHR) goes by these, since there the
                                    * order and number of NVIDIA's devices are the program's own.
                                    * Zeros: none. A manager of before does not send them, a guest
                                    * of before does not read them. */
} qgpu_welcome;

/* Guest to manager on the same connection, any number after the welcome, and only where the gate
 * page's `suspend` is QGPU_SUSPEND_RM: the process's channels on its card, by the names that
 * NVIDIA's kernel driver has for them. The manager takes them off the hardware at a hold, so it
 * must know all; it believes a name only once the driver has said that it is the process's own. */
enum qgpu_note_what {
  QGPU_NOTE_MADE = 1,    /* a channel was made; one of the same name is no more */
  QGPU_NOTE_THERE = 2,   /* it was made before this welcome: an earlier manager may have taken it
                          * off the hardware */
  QGPU_NOTE_ENABLED = 3, /* its process put it back on; `object` may also be a group of channels,
                          * or a client: all of it */
  QGPU_NOTE_ENDED = 4    /* the same objects: they are no more */
};
typedef struct qgpu_note {
  uint64_t magic; /* QGPU_NOTE_MAGIC */
  uint32_t what;  /* enum qgpu_note_what */
  uint32_t client;
  uint32_t object; /* of that client */
  uint32_t group;  /* that the channel belongs to; 0: it stands alone */
  uint32_t engine; /* 1..8 graphics and compute, from 9 copies and video; 0: not known */
  uint32_t device; /* the card's number in the driver; ~0: not known */
  int32_t fd;      /* of the client's open file, in that process; -1: none is known */
  uint32_t reserved0;
  uint64_t reserved[3];
} qgpu_note;

QGPU_STATIC_ASSERT(sizeof(qgpu_note) == 64, "the notes are shared with old guests");
QGPU_STATIC_ASSERT(sizeof(qgpu_hello) == 136, "the handshake is shared with old guests");
#define QGPU_WELCOME_LEAST 392u /* what the first manager sent of it */
QGPU_STATIC_ASSERT(sizeof(qgpu_welcome) == 648, "the handshake is shared with old guests");

#endif
