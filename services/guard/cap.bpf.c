// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// The cap in the kernel: a task has no more memory of its card than its quota, whatever its
// programs do. It counts at NVIDIA's own driver. docs/internals/guard.md says why it is made so.
//
// Each call is looked at four times. The door is a security hook: it reads what a program asks for,
// takes that from the quota or refuses. But what lies in a program's memory, the program may change
// once it was read. So the driver's copy is read as well: when the driver begins (the call), when it
// tells what it gave (its parameters), and when it returns (the status). That is what counts. Who
// asked for one thing at the door and had another one behind it is ended.
//
// The names that are probed are the functions of NVIDIA's modules, open and closed, by which the
// kernel's half (nv.c, os-interface.c) and the driver's core call each other.

#include <asm/ptrace.h>

#include "services/guard/cap_calls.h"
#include "services/guard/judged.bpf.h"

#define KILLED 9
#define MODESET (195u << 20 | 254) /* the node of NVIDIA's display half */
#define MORE_IS_ROUNDING (2ULL << 20) /* beyond the 64 KiB that are counted at the door */

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
  __type(key, __u64);  // the task
  __type(value, struct qgpu_cap_account);
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
  __u64 placed;    // the memory that it makes, known from the beginning
  __u64 taken;     // and its size, as the driver told it
  __u32 told;      // the driver told what it did, whether or not the program could hear it
  __u64 held;      // the memory that it makes another name for
  __u32 expected;  // what an export names at the door
  __u32 passed;    // and what it, or an import, named
  __u32 beneath;
  struct qgpu_cap_call asked;
  __u8 words[QGPU_CAP_CALL_BYTES];  // to decode from: too large for the stack
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

// What the module of unified memory is about to hold.
struct holding {
  __u64 task, device, handle, held;
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 1024);
  __type(key, __u64);  // the thread
  __type(value, struct holding);
} holdings SEC(".maps");

// Files that are being closed, by thread.
struct closing {
  __u64 file, began;
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
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
  const struct qgpu_guard_process *process = 0;
  *task = taskOfCurrent(&process);
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

// What was promised to a call that the driver never began. One that it began and that was not seen
// to end stays counted: the kernel sees no more returns at a time than it has room for.
static __always_inline void takeBack(struct call *call) {
  if (call->promised && !call->began) qgpu_cap_count(call->task, -call->promised);
  call->promised = call->began = 0;
}

// Whoever had the driver read another call than it showed at the door is ended, and its task has no
// quota any more: what another process of it holds by the same file stays with that.
static __always_inline void altered(__u64 task) {
  struct qgpu_cap_quota *quota = bpf_map_lookup_elem(&quotas, &task);
  struct qgpu_guard_tally *tally = quota ? bpf_map_lookup_elem(&tallies, &quota->card) : 0;
  if (!quota) return;
  if (tally) tally->told_ns = 0;  // this one is told, whatever was a moment ago
  refuse(quota->card, 0, task, 1, QGPU_WAY_ALTERED);
  quota->bytes = 0;
  quota->altered = 1;
  bpf_send_signal(KILLED);
}

// What a call makes another name for: by an export as the door read it, by an import what lies in
// the file that the driver found.
static __always_inline struct qgpu_cap_name sourceOf(const struct call *call) {
  struct qgpu_cap_name source = {call->asked.source_client, call->asked.source_object, 0};
  if (call->asked.verb == QGPU_CAP_EXPORT) {
    source.space = call->asked.client;
    source.handle = call->expected;
  } else if (call->asked.verb == QGPU_CAP_IMPORT) {
    source.space = call->holder;
    source.handle = 1;
  }
  return source;
}

// What a call asks of the quota, by what lies in the program's memory.
static __always_inline __u64 wanted(struct call *call) {
  const struct qgpu_cap_call *asked = &call->asked;
  if (asked->verb == QGPU_CAP_ALLOC && asked->has_memory) {
    __u8 parameters[QGPU_CAP_MEMORY_BYTES] = {};
    if (bpf_copy_from_user(parameters, sizeof parameters, (const void *)asked->parameters) != 0) {
      return 0;
    }
    return qgpu_cap_size(parameters);
  }
  if (asked->verb == QGPU_CAP_DUP) {
    const struct qgpu_cap_name source = sourceOf(call);
    const __u64 held = qgpu_cap_hold(&source), toll = qgpu_cap_toll(call->task, held);
    if (held) qgpu_cap_forget_name(held);
    return toll;
  }
  if (asked->verb == QGPU_CAP_EXPORT) {
    __u32 object = 0;
    bpf_copy_from_user(&object, sizeof object, (const void *)(asked->parameters + 12));
    call->expected = object;
  }
  return asked->bytes;
}

static __always_inline int closed(const struct qgpu_cap_quota *quota, __u32 device, __u64 task) {
  refuse(quota->card, device, task, 1, QGPU_WAY_CLOSED);
  return REFUSED;
}

// The display half gives memory of the card too, and holds what it is handed: of nvidia-drm, memory
// made and imported, and what DRM makes for plain pictures.
static __always_inline int isOfDisplay(__u32 device, __u32 type, __u32 number) {
  return device == MODESET ||
         (type == 'd' && (number == 0x41 || number == 0x4b || number == 0xb2));
}

// The driver looks at the number of a call and at its size, and not at its type.
SEC("lsm.s/file_ioctl")
int BPF_PROG(qgpu_cap_door, struct file *file, unsigned int command, unsigned long argument) {
  const struct qgpu_cap_choice *now = inForce();
  if (!now) return 0;
  const __u32 device = deviceOf(file);
  if (!device || !bpf_map_lookup_elem(&nodes, &device)) return 0;
  __u64 task = 0;
  const struct qgpu_cap_quota *quota = quotaOfCurrent(&task);
  if (!quota) return 0;
  struct call *call = callOfCurrent(BPF_LOCAL_STORAGE_GET_F_CREATE);
  if (!call) return NO_MEMORY;
  takeBack(call);
  call->task = task;
  __u32 number = command & 0xff, size = command >> 16 & 0x3fff;
  if (isOfDisplay(device, command >> 8 & 0xff, number)) return closed(quota, device, task);
  if (number == QGPU_CAP_TRANSFER) {
    __u64 carried[2] = {};
    if (bpf_copy_from_user(carried, sizeof carried, (const void *)argument) != 0) return 0;
    number = (__u32)carried[0];
    size = carried[0] >> 32;
    argument = carried[1];
  }
  __builtin_memset(call->words, 0, sizeof call->words);
  if (bpf_copy_from_user(call->words, readable(size), (const void *)argument) != 0) return 0;
  qgpu_cap_decode(&now->forms, number, size, call->words, &call->asked);
  if (call->asked.verb == QGPU_CAP_CLOSED || qgpu_cap_unnamed(&call->asked)) {
    return closed(quota, device, task);
  }
  const __u64 promised = wanted(call);
  if (promised == 0) return 0;
  struct qgpu_cap_account *account = qgpu_cap_account_of(task);
  if (!account || !qgpu_cap_reserve(account, quota->bytes, promised)) {
    refuse(quota->card, device, task, 1, QGPU_WAY_QUOTA);
    return NO_MEMORY;
  }
  call->promised = promised;
  return 0;
}

// A way to a card's driver past the door, which who has a quota does not have.
static __always_inline int pastTheDoor(struct file *file) {
  const __u32 device = deviceOf(file);
  if (!inForce() || !device || !bpf_map_lookup_elem(&nodes, &device)) return 0;
  __u64 task = 0;
  const struct qgpu_cap_quota *quota = quotaOfCurrent(&task);
  return quota ? closed(quota, device, task) : 0;
}

// Linux 6.8 and later ask this one of programs of 32 bits, and it may not sleep.
SEC("lsm/file_ioctl_compat")
int BPF_PROG(qgpu_cap_door_32, struct file *file) { return pastTheDoor(file); }

// A ring takes commands as the driver likes to read them. NVIDIA's takes none today.
SEC("lsm/uring_cmd")
int BPF_PROG(qgpu_cap_command, struct io_uring_cmd *command) { return pastTheDoor(command->file); }

static __always_inline void endsWith(__u64 file) {
  const __u64 yes = 1;
  bpf_map_update_elem(&files, &file, &yes, BPF_ANY);
}

static __always_inline struct qgpu_cap_made madeBy(const struct call *call, __u32 handle) {
  const struct qgpu_cap_made made = {
      {call->asked.client, handle, 0}, call->task, call->file, call->asked.parent, 0};
  return made;
}

// The driver gave `taken` where another size was counted. Whoever asked for less than that and is
// over its quota now is ended; what the driver rounds up is not asked for.
static __always_inline void settle(const struct call *call, __u64 counted, __u64 taken) {
  const struct qgpu_cap_quota *quota = bpf_map_lookup_elem(&quotas, &call->task);
  const struct qgpu_cap_account *account = qgpu_cap_account_of(call->task);
  const __u64 rounded = counted ? MORE_IS_ROUNDING : 0;
  if (!quota || !account || taken <= counted + rounded || account->used <= quota->bytes) return;
  altered(call->task);
}

static __always_inline void sized(const struct call *call, __u64 taken) {
  const __u64 id = call->placed;
  const struct qgpu_cap_memory *memory = id ? bpf_map_lookup_elem(&memories, &id) : 0;
  if (!memory) return;
  const __u64 counted = memory->bytes;
  qgpu_cap_resizes(id, taken);
  settle(call, counted, taken);
}

// Memory is known from before the driver makes it: then nobody can have another name for it first.
static __always_inline void placeMemory(struct call *call) {
  const struct qgpu_cap_made made = madeBy(call, call->asked.object);
  const __u64 asked = call->asked.bytes, promised = call->promised;
  if (asked > promised) {  // a heap's call tells its size itself
    qgpu_cap_count(call->task, asked - promised);
    call->promised = asked;
    settle(call, promised, asked);
  }
  if (bpf_map_lookup_elem(&objects, &made.name)) return;  // the driver will refuse it
  call->placed = qgpu_cap_makes(&made, call->promised);
  endsWith(call->file);
  if (call->placed) call->promised = 0;
}

// NV_STATUS rm_ioctl(stack, card, file, number, copy of the call, its size)
SEC("kprobe/rm_ioctl")
int qgpu_cap_call_begins(struct pt_regs *registers) {
  const struct qgpu_cap_choice *now = inForce();
  if (!now) return 0;
  __u64 task = 0;
  if (!quotaOfCurrent(&task)) return 0;
  struct call *call = callOfCurrent(BPF_LOCAL_STORAGE_GET_F_CREATE);
  if (!call) return altered(task), 0;
  const __u32 size = (__u32)SIXTH(registers);
  if (call->began) takeBack(call);
  __builtin_memset(call->words, 0, sizeof call->words);
  call->task = task;
  call->at = PT_REGS_PARM5(registers);
  call->file = PT_REGS_PARM3(registers);
  call->holder = call->placed = call->held = 0;
  call->taken = call->told = call->passed = call->beneath = 0;
  bpf_probe_read_kernel(call->words, readable(size), (const void *)call->at);
  qgpu_cap_decode(&now->forms, (__u32)PT_REGS_PARM4(registers), size, call->words, &call->asked);
  call->began = qgpu_cap_serial();
  const struct qgpu_cap_call *asked = &call->asked;
  if (asked->verb == QGPU_CAP_CLOSED || qgpu_cap_unnamed(asked)) return altered(task), 0;
  if (asked->verb == QGPU_CAP_ALLOC && (asked->has_memory || asked->size_at)) placeMemory(call);
  if (asked->verb == QGPU_CAP_DUP || asked->verb == QGPU_CAP_EXPORT) {
    const struct qgpu_cap_name source = sourceOf(call);
    call->held = qgpu_cap_hold(&source);
  }
  return 0;
}

// NV_STATUS nv_dma_buf_export(card, the call): of a program that the door did not see asking.
SEC("kprobe/nv_dma_buf_export")
int qgpu_cap_dma_buf(struct pt_regs *registers) {
  __u64 task = 0;
  if (inForce() && quotaOfCurrent(&task)) altered(task);
  return 0;
}

// The driver's own of the file that a call names by a descriptor.
SEC("kretprobe/nv_get_file_private")
int qgpu_cap_file_found(struct pt_regs *registers) {
  if (!inForce()) return 0;
  struct call *call = callOfCurrent(0);
  if (!call || !call->began) return 0;
  call->holder = PT_REGS_RC(registers);
  if (call->asked.verb != QGPU_CAP_IMPORT || call->held) return 0;
  const struct qgpu_cap_name source = sourceOf(call);
  call->held = qgpu_cap_hold(&source);
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
    sized(call, call->taken);
  } else if (asked->verb == QGPU_CAP_EXPORT && size >= 24) {
    call->passed = kernelWord(from + 12);
    call->told = 1;
  } else if (asked->verb == QGPU_CAP_IMPORT && size >= 20) {
    call->beneath = kernelWord(from + 12);
    call->passed = kernelWord(from + 16);
    call->told = 1;
  }
  return 0;
}

// Memory whose name was not free when the driver began, or was another's meanwhile, or for which
// there was no room. Without a name it stays counted.
static __always_inline void namedLate(struct call *call, const struct qgpu_cap_made *made) {
  const __u64 promised = call->promised, taken = call->taken ? call->taken : promised;
  qgpu_cap_count(call->task, taken - promised);
  qgpu_cap_makes(made, taken);
  call->promised = 0;
  settle(call, promised, taken);
}

static __always_inline void allocated(struct call *call) {
  const struct qgpu_cap_call *asked = &call->asked;
  if (asked->size_at) {
    call->taken = qgpu_cap_given(kernelLong(call->at + asked->size_at));
    sized(call, call->taken);
  }
  const __u32 handle = kernelWord(call->at + asked->object_at);
  const __u64 id = call->placed;
  if (id && handle != asked->object) return altered(call->task);
  if (id && bpf_map_lookup_elem(&memories, &id)) return;
  struct qgpu_cap_made made = madeBy(call, handle);
  if (asked->is_client) {
    if (made.name.handle == 0) made.name.handle = asked->client;
    made.name.space = made.name.handle;
  }
  endsWith(call->file);
  if (asked->has_memory || asked->size_at) return namedLate(call, &made);
  qgpu_cap_place(&made, 0);
}

static __always_inline void duplicated(struct call *call) {
  const struct qgpu_cap_made made = madeBy(call, kernelWord(call->at + call->asked.object_at));
  const struct qgpu_cap_name source = sourceOf(call);
  if (!call->held) call->held = qgpu_cap_hold(&source);  // that was being made as this began
  const __u64 toll = qgpu_cap_toll(call->task, call->held), promised = call->promised;
  qgpu_cap_count(call->task, toll - promised);
  call->promised = 0;
  endsWith(call->file);
  qgpu_cap_names(&made, call->held, toll);
  call->held = 0;
  settle(call, promised, toll);
}

static __always_inline void handedOn(struct call *call) {
  const int out = call->asked.verb == QGPU_CAP_EXPORT;
  if (!call->holder || !call->passed) return altered(call->task);
  if (out && call->passed != call->expected) return altered(call->task);
  const struct qgpu_cap_name source = sourceOf(call);
  if (!call->held) call->held = qgpu_cap_hold(&source);
  if (out) {
    const struct qgpu_cap_made there = {{call->holder, 1, 0}, call->task, call->holder, 1, 0};
    endsWith(call->holder);
    qgpu_cap_names(&there, call->held, 0);
  } else {
    const __u64 toll = qgpu_cap_toll(call->task, call->held);
    struct qgpu_cap_made here = madeBy(call, call->passed);
    here.parent = call->beneath;
    qgpu_cap_count(call->task, toll);
    qgpu_cap_names(&here, call->held, toll);
    settle(call, 0, toll);
  }
  call->held = 0;
}

// The driver did not do it.
static __always_inline void undone(struct call *call) {
  const struct qgpu_cap_name name = {call->asked.client, call->asked.object, 0};
  const struct qgpu_cap_object *object = bpf_map_lookup_elem(&objects, &name);
  if (call->placed && object && object->memory == call->placed) qgpu_cap_ends(&name, ~0ULL);
}

SEC("kretprobe/rm_ioctl")
int qgpu_cap_call_ends(struct pt_regs *registers) {
  if (!inForce()) return 0;
  struct call *call = callOfCurrent(0);
  if (!call || !call->began) return 0;
  const struct qgpu_cap_call *asked = &call->asked;
  const __u64 began = call->began;
  // What the driver tells it has done, and it stays done where the program's memory could not take
  // that: then the status says only so.
  const int done = call->told || kernelWord(call->at + asked->status_at) == 0;
  if (asked->verb != QGPU_CAP_OTHER && done) {
    if (asked->verb == QGPU_CAP_ALLOC) allocated(call);
    if (asked->verb == QGPU_CAP_DUP) duplicated(call);
    if (asked->verb == QGPU_CAP_EXPORT || asked->verb == QGPU_CAP_IMPORT) handedOn(call);
    if (asked->verb == QGPU_CAP_FREE) {
      const struct qgpu_cap_name freed = {asked->client, asked->object, 0};
      qgpu_cap_ends(&freed, began);
    }
  } else {
    undone(call);
    call->began = 0;  // what was promised to it goes back
  }
  if (call->held) qgpu_cap_forget_name(call->held);
  call->held = 0;
  takeBack(call);
  return 0;
}

// NV_STATUS nvUvmInterfaceDupMemory(card, client, object, name of its own, ...): the module of
// unified memory maps it, and holds it until it says so.
SEC("kprobe/nvUvmInterfaceDupMemory")
int qgpu_cap_holding(struct pt_regs *registers) {
  struct holding begun = {};
  if (!inForce() || !quotaOfCurrent(&begun.task)) return 0;
  const struct qgpu_cap_name source = {(__u32)PT_REGS_PARM2(registers),
                                       (__u32)PT_REGS_PARM3(registers), 0};
  const __u64 thread = bpf_get_current_pid_tgid();
  begun.device = PT_REGS_PARM1(registers);
  begun.handle = PT_REGS_PARM4(registers);
  begun.held = qgpu_cap_hold(&source);
  if (begun.held) bpf_map_update_elem(&holdings, &thread, &begun, BPF_ANY);
  return 0;
}

SEC("kretprobe/nvUvmInterfaceDupMemory")
int qgpu_cap_held(struct pt_regs *registers) {
  const __u64 thread = bpf_get_current_pid_tgid();
  const struct holding *found = inForce() ? bpf_map_lookup_elem(&holdings, &thread) : 0;
  if (!found) return 0;
  const struct holding held = *found;
  bpf_map_delete_elem(&holdings, &thread);
  if ((__u32)PT_REGS_RC(registers) != 0) {
    qgpu_cap_forget_name(held.held);
    return 0;
  }
  const struct qgpu_cap_made made = {{held.device, kernelWord(held.handle), 0}, held.task, 0, 0, 0};
  qgpu_cap_names(&made, held.held, 0);
  return 0;
}

// NV_STATUS nvUvmInterfaceFreeDupedHandle(card, that name)
SEC("kprobe/nvUvmInterfaceFreeDupedHandle")
int qgpu_cap_let_go(struct pt_regs *registers) {
  const struct qgpu_cap_name name = {PT_REGS_PARM1(registers), (__u32)PT_REGS_PARM2(registers), 0};
  if (inForce()) qgpu_cap_ends(&name, ~0ULL);
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
