// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// The cap in the kernel: a task has no more memory of its card than its quota, whatever its
// programs do. It counts at NVIDIA's own driver. docs/internals/guard.md says why it is made so.
//
// Three looks at each call. The door is a security hook: it reads what a program asks for, takes
// that from the quota or refuses. But what lies in a program's memory, the program may change once
// it was read. So the driver's copy is read as well, when the driver begins (the call) and when it
// tells what it gave (its parameters): that is what counts. Who asked for one thing at the door and
// had another one behind it is ended, and what the driver gave it ends with it.
//
// The names that are probed are the functions of NVIDIA's modules, open and closed, by which the
// kernel's half (nv.c, os-interface.c) and the driver's core call each other.

#include <asm/ptrace.h>

#include "services/guard/cap_calls.h"
#include "services/guard/judged.bpf.h"

#define NO_MORE_MEMORY -12 /* ENOMEM */
#define KILLED 9
#define MORE_IS_ROUNDING (2ULL << 20) /* the driver's largest piece that programs are given */

#ifdef __TARGET_ARCH_x86
#define SIXTH(registers) ((registers)->r9)
#else
#define SIXTH(registers) (((const struct user_pt_regs *)(registers))->regs[5])
#endif

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, QGPU_CAP_ACCOUNTS);
  __type(key, __u64);  // the task
  __type(value, struct qgpu_cap_quota);
} quotas SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, QGPU_CAP_ACCOUNTS);
  __type(key, __u64);    // the task
  __type(value, __u64);  // bytes
} accounts SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, QGPU_CAP_OBJECTS);
  __type(key, struct qgpu_cap_name);
  __type(value, struct qgpu_cap_object);
} objects SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, QGPU_CAP_OBJECTS);
  __type(key, __u64);
  __type(value, struct qgpu_cap_memory);
} memories SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} serials SEC(".maps");

#include "services/guard/cap_ledger.h"

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct qgpu_cap_choice);
} choice SEC(".maps");

// A call of a thread that runs. It is kept beside the thread, and so goes with it.
struct call {
  __u64 task;      // whose quota
  __u64 promised;  // taken from it at the door
  __u64 began;     // serial; 0: the driver has not begun
  __u64 at;        // the driver's copy of the call
  __u64 file;      // the driver's own of the file that it came by
  __u64 holder;    // and of the one that it names
  __u64 taken;     // what the driver gave
  __u32 told;      // the driver told that
  __u32 passed;    // the object that an export or import names
  __u32 beneath;
  struct qgpu_cap_call asked;
};

struct {
  __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct call);
} calls SEC(".maps");

// The files, as the driver has them, that objects of ours end with.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, QGPU_CAP_OBJECTS);
  __type(key, __u64);
  __type(value, __u64);
} files SEC(".maps");

// Files that are being closed, by thread.
struct closing {
  __u64 file, began;
};
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1024);
  __type(key, __u64);
  __type(value, struct closing);
} closings SEC(".maps");

// Set by the loader: two of these programs are there while one takes over, and one of them acts.
const volatile __u64 generation = 0;

static __always_inline const struct qgpu_cap_choice *inForce(void) {
  const __u32 first = 0;
  const struct qgpu_cap_choice *now = bpf_map_lookup_elem(&choice, &first);
  return now && now->generation == generation ? now : 0;
}

// Of the task of the process that runs, if it has a cap; else 0.
static __always_inline const struct qgpu_cap_quota *quotaOfCurrent(__u64 *task) {
  struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
  const struct qgpu_guard_process *process = bpf_task_storage_get(&processes, leader, 0, 0);
  *task = process ? process->task : taskOfGroup(leader);
  return *task ? bpf_map_lookup_elem(&quotas, task) : 0;
}

static __always_inline struct call *callOfCurrent(__u64 flags) {
  return bpf_task_storage_get(&calls, bpf_get_current_task_btf(), 0, flags);
}

static __always_inline __u32 kernelWord(__u64 at) {
  __u32 word = 0;
  bpf_probe_read_kernel(&word, sizeof word, (const void *)at);
  return word;
}

static __always_inline __u64 kernelLong(__u64 at) {
  __u64 word = 0;
  bpf_probe_read_kernel(&word, sizeof word, (const void *)at);
  return word;
}

// How much of a call is read, in a way that the verifier can follow.
static __always_inline __u64 readable(__u64 size) {
  asm volatile("" : "+r"(size));
  return size < QGPU_CAP_CALL_BYTES ? size : QGPU_CAP_CALL_BYTES;
}

static __always_inline void takeBack(struct call *call) {
  if (call->promised) qgpu_cap_count(call->task, -call->promised);
  call->promised = 0;
}

// What a call asks of the quota, by what lies in the program's memory.
static __always_inline __u64 wanted(const struct call *call) {
  const struct qgpu_cap_call *asked = &call->asked;
  if (asked->verb == QGPU_CAP_ALLOC && asked->has_memory) {
    __u8 parameters[QGPU_CAP_MEMORY_BYTES] = {};
    if (bpf_copy_from_user(parameters, sizeof parameters, (const void *)asked->parameters) != 0) {
      return 0;
    }
    return qgpu_cap_size(parameters);
  }
  if (asked->verb == QGPU_CAP_DUP) {
    const struct qgpu_cap_name source = {asked->source_client, asked->source_object, 0};
    return qgpu_cap_toll(call->task, &source);
  }
  return asked->bytes;
}

SEC("lsm.s/file_ioctl")
int BPF_PROG(qgpu_cap_door, struct file *file, unsigned int command, unsigned long argument) {
  const struct qgpu_cap_choice *now = inForce();
  if (!now || (command >> 8 & 0xff) != QGPU_CAP_IOCTL_TYPE) return 0;
  struct inode *inode = file->f_inode;
  const __u32 device = inode->i_rdev;
  if ((inode->i_mode & S_IFMT) != S_IFCHR || !bpf_map_lookup_elem(&nodes, &device)) return 0;
  __u64 task = 0;
  const struct qgpu_cap_quota *quota = quotaOfCurrent(&task);
  if (!quota) return 0;
  struct call *call = callOfCurrent(BPF_LOCAL_STORAGE_GET_F_CREATE);
  if (!call) return NO_MORE_MEMORY;
  takeBack(call);  // of a call that the driver never began
  call->began = 0;
  call->task = task;
  __u32 number = command & 0xff, size = command >> 16 & 0x3fff;
  if (number == QGPU_CAP_TRANSFER) {
    __u64 carried[2] = {};
    if (bpf_copy_from_user(carried, sizeof carried, (const void *)argument) != 0) return 0;
    number = (__u32)carried[0];
    size = carried[0] >> 32;
    argument = carried[1];
  }
  __u8 bytes[QGPU_CAP_CALL_BYTES] = {};
  if (bpf_copy_from_user(bytes, readable(size), (const void *)argument) != 0) return 0;
  qgpu_cap_decode(&now->forms, number, size, bytes, &call->asked);
  if (call->asked.verb == QGPU_CAP_CLOSED) {
    refuse(quota->card, device, task, 1, QGPU_WAY_HAND_ON);
    return REFUSED;
  }
  const __u64 promised = wanted(call);
  if (promised == 0) return 0;
  __u64 *used = bpf_map_lookup_elem(&accounts, &task);
  if (!used || !qgpu_cap_reserve(used, quota->bytes, promised)) {
    refuse(quota->card, device, task, 1, QGPU_WAY_QUOTA);
    return NO_MORE_MEMORY;
  }
  call->promised = promised;
  return 0;
}

// NV_STATUS rm_ioctl(stack, card, file, number, copy of the call, its size)
SEC("kprobe/rm_ioctl")
int qgpu_cap_call_begins(struct pt_regs *registers) {
  const struct qgpu_cap_choice *now = inForce();
  if (!now) return 0;
  __u64 task = 0;
  const struct qgpu_cap_quota *quota = quotaOfCurrent(&task);
  if (!quota) return 0;
  struct call *call = callOfCurrent(BPF_LOCAL_STORAGE_GET_F_CREATE);
  if (!call) return 0;
  const __u32 size = (__u32)SIXTH(registers);
  __u8 bytes[QGPU_CAP_CALL_BYTES] = {};
  call->task = task;
  call->at = PT_REGS_PARM5(registers);
  call->file = PT_REGS_PARM3(registers);
  call->holder = call->taken = 0;
  call->told = call->passed = call->beneath = 0;
  if (bpf_probe_read_kernel(bytes, readable(size), (const void *)call->at) != 0) return 0;
  qgpu_cap_decode(&now->forms, (__u32)PT_REGS_PARM4(registers), size, bytes, &call->asked);
  call->began = qgpu_cap_serial();
  if (call->asked.verb == QGPU_CAP_CLOSED) {
    refuse(quota->card, 0, task, 1, QGPU_WAY_ALTERED);
    bpf_send_signal(KILLED);
  }
  return 0;
}

// The driver's own of the file that a call names by a descriptor.
SEC("kretprobe/nv_get_file_private")
int qgpu_cap_file_found(struct pt_regs *registers) {
  if (!inForce()) return 0;
  struct call *call = callOfCurrent(0);
  if (call && call->began) call->holder = PT_REGS_RC(registers);
  return 0;
}

// NV_STATUS os_memcpy_to_user(the program's, the driver's, bytes): what the driver tells.
SEC("kprobe/os_memcpy_to_user")
int qgpu_cap_answers(struct pt_regs *registers) {
  if (!inForce()) return 0;
  struct call *call = callOfCurrent(0);
  if (!call || !call->began || PT_REGS_PARM1(registers) != call->asked.parameters) return 0;
  const __u64 from = PT_REGS_PARM2(registers), size = (__u32)PT_REGS_PARM3(registers);
  const struct qgpu_cap_call *asked = &call->asked;
  if (asked->verb == QGPU_CAP_ALLOC && asked->has_memory && size >= QGPU_CAP_MEMORY_BYTES) {
    __u8 parameters[QGPU_CAP_MEMORY_BYTES] = {};
    bpf_probe_read_kernel(parameters, sizeof parameters, (const void *)from);
    call->taken = qgpu_cap_size(parameters);
    call->told = 1;
  } else if (asked->verb == QGPU_CAP_EXPORT && size >= 24) {
    call->passed = kernelWord(from + 12);
  } else if (asked->verb == QGPU_CAP_IMPORT && size >= 20) {
    call->beneath = kernelWord(from + 12);
    call->passed = kernelWord(from + 16);
  }
  return 0;
}

// The driver gave `taken` where `promised` was counted. Whoever asked for less than that and is
// over its quota now is ended; what the driver rounds up is not asked for.
static __always_inline void settle(struct call *call, __u64 taken) {
  const __u64 promised = call->promised;
  call->promised = 0;
  const struct qgpu_cap_quota *quota = bpf_map_lookup_elem(&quotas, &call->task);
  const __u64 *used = bpf_map_lookup_elem(&accounts, &call->task);
  qgpu_cap_count(call->task, taken - promised);
  if (!quota || !used || taken < promised + MORE_IS_ROUNDING || *used <= quota->bytes) return;
  refuse(quota->card, 0, call->task, 1, QGPU_WAY_ALTERED);
  bpf_send_signal(KILLED);
}

static __always_inline void endsWith(__u64 file) {
  const __u64 yes = 1;
  bpf_map_update_elem(&files, &file, &yes, BPF_ANY);
}

static __always_inline struct qgpu_cap_made madeBy(const struct call *call) {
  const struct qgpu_cap_made made = {
      {call->asked.client, kernelWord(call->at + call->asked.object_at), 0},
      call->file,
      call->asked.parent,
      0};
  return made;
}

static __always_inline void allocated(struct call *call) {
  const struct qgpu_cap_call *asked = &call->asked;
  __u64 taken = asked->has_memory ? call->promised : 0;
  if (call->told) taken = call->taken;
  if (asked->size_at) taken = qgpu_cap_given(kernelLong(call->at + asked->size_at));
  settle(call, taken);
  struct qgpu_cap_made made = madeBy(call);
  if (asked->is_client) {
    if (made.name.handle == 0) made.name.handle = asked->client;
    made.name.space = made.name.handle;
    endsWith(call->file);
  }
  qgpu_cap_makes(call->task, &made, taken);
}

static __always_inline void duplicated(struct call *call) {
  const struct qgpu_cap_call *asked = &call->asked;
  const struct qgpu_cap_made made = madeBy(call);
  const struct qgpu_cap_name source = {asked->source_client, asked->source_object, 0};
  const __u64 toll = qgpu_cap_toll(call->task, &source);
  settle(call, toll);
  qgpu_cap_names(call->task, &made, &source, toll);
}

static __always_inline void handedOn(struct call *call) {
  const struct qgpu_cap_call *asked = &call->asked;
  const struct qgpu_cap_name here = {asked->client, call->passed, 0};
  const struct qgpu_cap_name there = {call->holder, 1, 0};
  if (!call->holder || !call->passed) return;
  if (asked->verb == QGPU_CAP_EXPORT) {
    endsWith(call->holder);
    const struct qgpu_cap_made held = {there, call->holder, 1, 0};
    qgpu_cap_names(call->task, &held, &here, 0);
    return;
  }
  const struct qgpu_cap_made made = {here, call->file, call->beneath, 0};
  const __u64 toll = qgpu_cap_toll(call->task, &there);
  settle(call, toll);
  qgpu_cap_names(call->task, &made, &there, toll);
}

SEC("kretprobe/rm_ioctl")
int qgpu_cap_call_ends(struct pt_regs *registers) {
  if (!inForce()) return 0;
  struct call *call = callOfCurrent(0);
  if (!call || !call->began) return 0;
  const struct qgpu_cap_call *asked = &call->asked;
  const __u64 began = call->began;
  call->began = 0;
  if (asked->verb != QGPU_CAP_OTHER && kernelWord(call->at + asked->status_at) == 0) {
    if (asked->verb == QGPU_CAP_ALLOC) allocated(call);
    if (asked->verb == QGPU_CAP_DUP) duplicated(call);
    if (asked->verb == QGPU_CAP_EXPORT || asked->verb == QGPU_CAP_IMPORT) handedOn(call);
    if (asked->verb == QGPU_CAP_FREE) {
      const struct qgpu_cap_name freed = {asked->client, asked->object, 0};
      qgpu_cap_ends(&freed, began);
    }
  }
  takeBack(call);
  return 0;
}

// void rm_cleanup_file_private(stack, card, file): of whichever thread closes it.
SEC("kprobe/rm_cleanup_file_private")
int qgpu_cap_close_begins(struct pt_regs *registers) {
  if (!inForce()) return 0;
  const struct closing begun = {PT_REGS_PARM3(registers), qgpu_cap_serial()};
  const __u64 thread = bpf_get_current_pid_tgid();
  if (!bpf_map_lookup_elem(&files, &begun.file)) return 0;
  bpf_map_update_elem(&closings, &thread, &begun, BPF_ANY);
  return 0;
}

SEC("kretprobe/rm_cleanup_file_private")
int qgpu_cap_close_ends(struct pt_regs *registers) {
  const __u64 thread = bpf_get_current_pid_tgid();
  const struct closing *found = inForce() ? bpf_map_lookup_elem(&closings, &thread) : 0;
  if (!found) return 0;
  const struct closing begun = *found;
  bpf_map_delete_elem(&closings, &thread);
  bpf_map_delete_elem(&files, &begun.file);
  qgpu_cap_closes(begun.file, begun.began);
  return 0;
}

// What was promised to a call that the driver never began.
SEC("tp_btf/sched_process_exit")
int BPF_PROG(qgpu_cap_thread_ends, struct task_struct *thread) {
  struct call *call = inForce() ? bpf_task_storage_get(&calls, thread, 0, 0) : 0;
  if (call) takeBack(call);
  return 0;
}

char guardLicense[] SEC("license") = "GPL";
