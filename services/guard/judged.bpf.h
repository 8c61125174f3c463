#pragma once
// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// What the programs in the kernel have in common: the members of the kernel's types that they read,
// which libbpf finds where they are in the kernel that runs (CO-RE), the maps, who is judged, and
// how a refusal is told. guard.bpf.c is the guard, cap.bpf.c the cap of memory; both are loaded
// over the same maps.

// In this order: libbpf's headers go by the kernel's types.
// clang-format off
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
// clang-format on

#include "services/guard/guard_abi.h"

#define KERNELS __attribute__((preserve_access_index))

struct inode {
  unsigned short i_mode;
  __u32 i_rdev;
} KERNELS;

struct file {
  struct inode* f_inode;
} KERNELS;

struct io_uring_cmd {
  struct file* file;
} KERNELS;

struct kernfs_node {
  __u64 id;
} KERNELS;

struct cgroup_subsys_state {
  struct cgroup* cgroup;
  struct cgroup_subsys_state* parent;
} KERNELS;

struct cgroup {
  struct cgroup_subsys_state self;
  struct kernfs_node* kn;
} KERNELS;

struct css_set {
  struct cgroup_subsys_state* subsys[1];
  struct cgroup* dfl_cgrp;
} KERNELS;

struct task_struct {
  int pid;
  int tgid;
  struct task_struct* group_leader;
  struct css_set* cgroups;
} KERNELS;

enum cgroup_subsys_id { devices_cgrp_id = 1 };

#define S_IFMT 0170000
#define S_IFCHR 0020000
#define CLONE_THREAD 0x10000
#define REFUSED -1 /* EPERM */
#define NO_MEMORY -12
#define GROUPS_DEEP 16
#define TELL_EACH_NS 10000000

struct {
  __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct qgpu_guard_process);
} processes SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, QGPU_GUARD_GROUPS);
  __type(key, struct qgpu_guard_group);
  __type(value, __u64);  // the task
} groups SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, QGPU_GUARD_NODES);
  __type(key, __u32);    // as the kernel has it: major << 20 | minor
  __type(value, __u32);  // the card
} nodes SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, QGPU_GUARD_CARDS + 1);
  __type(key, __u32);
  __type(value, struct qgpu_guard_tally);
} tallies SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 64 * 1024);
} refusals SEC(".maps");

// The task of the nearest cgroup that is judged, from this one upwards; 0: none is. The kernel's
// structures are read in place: a pointer that leads nowhere reads as 0.
static __always_inline __u64 taskUpwards(struct cgroup_subsys_state* css, __u64 devices) {
  struct qgpu_guard_group group = {.devices = devices};
  for (int i = 0; i < GROUPS_DEEP && css; i++) {
    group.id = css->cgroup->kn->id;
    const __u64* task = bpf_map_lookup_elem(&groups, &group);
    if (task) return *task;
    css = css->parent;
  }
  return 0;
}

static __always_inline __u64 taskOfGroup(struct task_struct* task) {
  struct css_set* set = task->cgroups;
  const __u64 found = taskUpwards(&set->dfl_cgrp->self, 0);
  if (found || !bpf_core_enum_value_exists(enum cgroup_subsys_id, devices_cgrp_id)) return found;
  return taskUpwards(set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, devices_cgrp_id)], 1);
}

// Whose a process is, by its label or else by its cgroup; 0: nobody's, and it is never judged.
// `process` is its label, or null.
static __always_inline __u64 taskOfCurrent(const struct qgpu_guard_process** process) {
  struct task_struct* leader = bpf_get_current_task_btf()->group_leader;
  *process = bpf_task_storage_get(&processes, leader, 0, 0);
  return *process ? (*process)->task : taskOfGroup(leader);
}

// The device whose node a file is, as the kernel has it; 0: it is none.
static __always_inline __u32 deviceOf(struct file* file) {
  struct inode* inode = file->f_inode;
  return (inode->i_mode & S_IFMT) == S_IFCHR ? inode->i_rdev : 0;
}

static __always_inline void refuse(__u32 card, __u32 device, __u64 task, __u32 attached,
                                   enum qgpu_guard_way way) {
  struct qgpu_guard_tally* tally = bpf_map_lookup_elem(&tallies, &card);
  if (!tally) return;
  __sync_fetch_and_add(&tally->refused, 1);
  // Two at once may both be told: the clock is not locked.
  const __u64 now = bpf_ktime_get_ns();
  if (now - tally->told_ns < TELL_EACH_NS) return;
  tally->told_ns = now;
  struct qgpu_guard_refusal* told = bpf_ringbuf_reserve(&refusals, sizeof *told, 0);
  if (!told) return;
  told->task = task;
  told->pid = bpf_get_current_pid_tgid() >> 32;
  told->card = card;
  told->device = device;
  told->way = way;
  told->attached = attached;
  bpf_get_current_comm(told->name, sizeof told->name);
  bpf_ringbuf_submit(told, 0);
}
