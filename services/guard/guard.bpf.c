// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// The guard in the kernel: a process of a task has the device nodes of its own cards, once it has
// attached, and no others. docs/internals/guard.md says why it is made so.
//
// It is a BPF program of the kernel's security hooks. Of the kernel's types it names the members
// that it reads, and libbpf finds where they are in the kernel that runs (CO-RE). Whoever is
// neither labelled nor in a cgroup of a task is never judged.

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "services/guard/guard_abi.h"

#define KERNELS __attribute__((preserve_access_index))

struct inode {
  unsigned short i_mode;
  __u32 i_rdev;
} KERNELS;

struct file {
  struct inode *f_inode;
} KERNELS;

struct kernfs_node {
  __u64 id;
} KERNELS;

struct cgroup_subsys_state {
  struct cgroup *cgroup;
  struct cgroup_subsys_state *parent;
} KERNELS;

struct cgroup {
  struct cgroup_subsys_state self;
  struct kernfs_node *kn;
} KERNELS;

struct css_set {
  struct cgroup_subsys_state *subsys[1];
  struct cgroup *dfl_cgrp;
} KERNELS;

struct task_struct {
  int pid;
  int tgid;
  struct task_struct *group_leader;
  struct css_set *cgroups;
} KERNELS;

struct linux_binprm;

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
  __uint(map_flags, BPF_F_NO_PREALLOC);
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
static __always_inline __u64 taskUpwards(struct cgroup_subsys_state *css, __u64 devices) {
  struct qgpu_guard_group group = {.devices = devices};
  for (int i = 0; i < GROUPS_DEEP && css; i++) {
    group.id = css->cgroup->kn->id;
    const __u64 *task = bpf_map_lookup_elem(&groups, &group);
    if (task) return *task;
    css = css->parent;
  }
  return 0;
}

static __always_inline __u64 taskOfGroup(struct task_struct *task) {
  struct css_set *set = task->cgroups;
  const __u64 found = taskUpwards(&set->dfl_cgrp->self, 0);
  if (found || !bpf_core_enum_value_exists(enum cgroup_subsys_id, devices_cgrp_id)) return found;
  return taskUpwards(set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, devices_cgrp_id)], 1);
}

static __always_inline void refuse(__u32 card, __u32 device, __u64 task, __u32 attached,
                                   enum qgpu_guard_way way) {
  struct qgpu_guard_tally *tally = bpf_map_lookup_elem(&tallies, &card);
  if (!tally) return;
  __sync_fetch_and_add(&tally->refused, 1);
  // Two at once may both be told: the clock is not locked.
  const __u64 now = bpf_ktime_get_ns();
  if (now - tally->told_ns < TELL_EACH_NS) return;
  tally->told_ns = now;
  struct qgpu_guard_refusal *told = bpf_ringbuf_reserve(&refusals, sizeof *told, 0);
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

static __always_inline int judge(__u32 device, enum qgpu_guard_way way) {
  const __u32 *card = bpf_map_lookup_elem(&nodes, &device);
  if (!card) return 0;
  struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
  const struct qgpu_guard_process *process = bpf_task_storage_get(&processes, leader, 0, 0);
  const __u64 task = process ? process->task : taskOfGroup(leader);
  if (!task) return 0;
  const __u64 cards = process ? process->cards : 0;
  if (*card == QGPU_GUARD_SHARED ? cards != 0 : cards >> (*card & 63) & 1) return 0;
  refuse(*card, device, task, cards != 0, way);
  return REFUSED;
}

static __always_inline int judgeFile(struct file *file, enum qgpu_guard_way way) {
  struct inode *inode = file->f_inode;
  return (inode->i_mode & S_IFMT) == S_IFCHR ? judge(inode->i_rdev, way) : 0;
}

SEC("lsm/file_open")
int BPF_PROG(qgpu_open, struct file *file) { return judgeFile(file, QGPU_WAY_OPEN); }

SEC("lsm/file_receive")
int BPF_PROG(qgpu_receive, struct file *file) { return judgeFile(file, QGPU_WAY_RECEIVE); }

SEC("lsm/file_ioctl")
int BPF_PROG(qgpu_ioctl, struct file *file) { return judgeFile(file, QGPU_WAY_IOCTL); }

// Linux 6.8 and its stable relatives ask this one of programs of 32 bits; others, the one above.
SEC("lsm/file_ioctl_compat")
int BPF_PROG(qgpu_ioctl_32, struct file *file) { return judgeFile(file, QGPU_WAY_IOCTL); }

// There is no file where memory is mapped without one. Newer kernels know that of this hook and
// want the question; some before them take each pointer for valid and leave the question out, so
// the file is read in the way that survives null.
SEC("lsm/mmap_file")
int BPF_PROG(qgpu_map, struct file *file) {
  if (!file) return 0;
  struct inode *inode = BPF_CORE_READ(file, f_inode);
  if ((BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFCHR) return 0;
  return judge(BPF_CORE_READ(inode, i_rdev), QGPU_WAY_MAP);
}

// `to` is judged as `from` is, where that is, and has not attached. 0, or the hook's error.
static __always_inline int labelFrom(struct task_struct *from, struct task_struct *to) {
  const struct qgpu_guard_process *old = bpf_task_storage_get(&processes, from, 0, 0);
  if (!old) return 0;
  struct qgpu_guard_process *label =
      bpf_task_storage_get(&processes, to, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
  if (!label) return NO_MEMORY;
  label->task = old->task;
  label->cards = 0;
  return 0;
}

// A child is judged as its parent is, and has not attached: the library in it does that anew.
SEC("lsm/task_alloc")
int BPF_PROG(qgpu_fork, struct task_struct *child, unsigned long flags) {
  if (flags & CLONE_THREAD) return 0;
  struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
  return labelFrom(leader, child);
}

// A thread that executes another program becomes the leader, and takes the label with it.
SEC("lsm/bprm_check_security")
int BPF_PROG(qgpu_exec, struct linux_binprm *program) {
  struct task_struct *me = bpf_get_current_task_btf();
  if (me->pid == me->tgid) return 0;
  return labelFrom(me->group_leader, me);
}

// The program is another one now, and has not attached. One that began in a task's cgroup is judged
// wherever it goes.
SEC("lsm/bprm_committed_creds")
int BPF_PROG(qgpu_executed, struct linux_binprm *program) {
  struct task_struct *me = bpf_get_current_task_btf();
  struct qgpu_guard_process *label = bpf_task_storage_get(&processes, me, 0, 0);
  if (label) {
    label->cards = 0;
    return 0;
  }
  const __u64 task = taskOfGroup(me);
  if (!task) return 0;
  label = bpf_task_storage_get(&processes, me, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
  if (label) label->task = task;
  return 0;
}

char guardLicense[] SEC("license") = "GPL";
