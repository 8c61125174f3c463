#pragma once
// What the programs in the kernel (guard.bpf.c, cap.bpf.c) and their loader (guard.h) share: the
// values of their maps. C, since both sides read it. The maps outlive a manager: a change of what
// stands here raises QGPU_GUARD_LAYOUT, and a manager with another one begins with empty maps.

#include <linux/types.h>

#include "services/guard/cap_calls.h"

#define QGPU_GUARD_LAYOUT 2
#define QGPU_GUARD_CARDS 64    /* a bit each in qgpu_guard_process; see QGPU_GUARD_SHARED */
#define QGPU_GUARD_SHARED 64   /* in place of a card: a node that all cards have in common */
#define QGPU_GUARD_NODES 1024  /* device numbers */
#define QGPU_GUARD_GROUPS 4096 /* cgroups */
#define QGPU_CAP_ACCOUNTS 4096 /* tasks with a cap */
#define QGPU_CAP_OBJECTS 65536 /* of the driver, of all such tasks */
#define QGPU_CAP_OBJECTS_OF_TASK 16384
#define QGPU_GUARD_NAME 16 /* of a program, as the kernel keeps it */

/* A process that is judged: of a task, or come from such a one. */
struct qgpu_guard_process {
  __u64 task;
  __u64 cards; /* that it may use now; 0: it has not attached */
};

/* A cgroup whose processes are judged, with all below it. */
struct qgpu_guard_group {
  __u64 id;      /* of the folder: its inode */
  __u64 devices; /* 1: in version 1's hierarchy of the controller devices; 0: of version 2 */
};

enum qgpu_guard_way {
  QGPU_WAY_OPEN,
  QGPU_WAY_RECEIVE,
  QGPU_WAY_IOCTL,
  QGPU_WAY_MAP,
  /* of the cap */
  QGPU_WAY_QUOTA,   /* more memory than is left of the quota */
  QGPU_WAY_CLOSED,  /* memory by a way that nobody counts */
  QGPU_WAY_ALTERED, /* a call that was another one when the driver read it: the process is ended */
};

/* Of a card, and of the shared nodes. */
struct qgpu_guard_tally {
  __u64 refused;
  __u64 told_ns; /* when a refusal of it was told last, by the clock of the kernel's boot */
};

struct qgpu_guard_refusal {
  __u64 task;
  __u32 pid;  /* in the first pid namespace */
  __u32 card; /* or QGPU_GUARD_SHARED */
  __u32 device;
  __u32 way;
  __u32 attached; /* 1: to a task without this card */
  char name[QGPU_GUARD_NAME];
};

/* Which of the cap's programs acts, and how the driver's calls are laid out. */
struct qgpu_cap_choice {
  __u64 generation; /* 0: none */
  struct qgpu_cap_forms forms;
};

/* Of a task, on its card. */
struct qgpu_cap_quota {
  __u64 bytes;
  __u32 card;
  __u32 altered; /* 1: a process of it altered a call; it has no quota any more */
};

struct qgpu_cap_account {
  __u64 used;    /* bytes, with what was promised to calls that run */
  __u64 objects; /* that have a name in `objects` */
};

/* The name of one of the driver's objects. `space` is the number of its client, or the address of
   what else holds it: a control file, or a card for the module of unified memory. */
struct qgpu_cap_name {
  __u64 space;
  __u32 handle;
  __u32 pad;
};

struct qgpu_cap_object {
  __u64 memory; /* in `memories`; 0: none */
  __u64 born;   /* serial */
  __u64 file;   /* ends with it */
  __u64 ending; /* serial of the call that ends it */
  __u64 task;
  __u32 parent;
  __u32 children;
};

struct qgpu_cap_memory {
  __u64 task;
  __u64 bytes;
  __u64 names;
};
