#pragma once
// What the guard's program in the kernel (guard.bpf.c) and its loader (guard.h) share: the values
// of its maps. C, since both sides read it. The maps outlive a manager: a change of what stands
// here raises QGPU_GUARD_LAYOUT, and a manager with another one begins with empty maps.

#include <linux/types.h>

#define QGPU_GUARD_LAYOUT 1
#define QGPU_GUARD_CARDS 64    /* a bit each in qgpu_guard_process; see QGPU_GUARD_SHARED */
#define QGPU_GUARD_SHARED 64   /* in place of a card: a node that all cards have in common */
#define QGPU_GUARD_NODES 1024  /* device numbers */
#define QGPU_GUARD_GROUPS 4096 /* cgroups */
#define QGPU_GUARD_NAME 16     /* of a program, as the kernel keeps it */

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

enum qgpu_guard_way { QGPU_WAY_OPEN, QGPU_WAY_RECEIVE, QGPU_WAY_IOCTL, QGPU_WAY_MAP };

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
