// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// The guard in the kernel: a process of a task has the device nodes of its own cards, once it has
// attached, and no others. docs/internals/guard.md says why it is made so.
//
// It is a BPF program of the kernel's security hooks. Whoever is neither labelled nor in a cgroup of
// a task is never judged.

#include "services/guard/judged.bpf.h"

struct linux_binprm;

static __always_inline int judge(__u32 device, enum qgpu_guard_way way) {
  const __u32 *card = bpf_map_lookup_elem(&nodes, &device);
  if (!card) return 0;
  const struct qgpu_guard_process *process = 0;
  const __u64 task = taskOfCurrent(&process);
  if (!task) return 0;
  const __u64 cards = process ? process->cards : 0;
  if (*card == QGPU_GUARD_SHARED ? cards != 0 : cards >> (*card & 63) & 1) return 0;
  refuse(*card, device, task, cards != 0, way);
  return REFUSED;
}

static __always_inline int judgeFile(struct file *file, enum qgpu_guard_way way) {
  const __u32 device = deviceOf(file);
  return device ? judge(device, way) : 0;
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

// A ring (io_uring) takes commands to a driver as well, and none of them passes the one above.
// Linux 6.0 and later ask this one, also in a thread of the kernel's that serves a process's ring.
SEC("lsm/uring_cmd")
int BPF_PROG(qgpu_command, struct io_uring_cmd *command) {
  return judgeFile(command->file, QGPU_WAY_IOCTL);
}

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
