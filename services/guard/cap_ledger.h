#pragma once
// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// What tasks hold of their cards' memory, as the driver itself was seen to give it: the driver's
// objects by name, each beneath another, and the memory that they name. It follows the same rules
// as the library's ledger (services/nvidia_abi/rm_objects.h): what ends takes all beneath it along,
// memory is free when its last name ends, and a name that is made twice was freed unseen.
//
// C over the maps `objects`, `memories`, `accounts` (what a task has, with what was promised to
// calls that run) and `serials`, and over the helpers of a BPF program that reach them: cap.bpf.c
// has the kernel's, cap_ledger_test has its own, and tells ten thousand stories to this and to the
// library's.
//
// Calls run beside each other, and what the driver did is seen a moment after it did it. So all
// that ends is older than the call that ends it: each object has a serial number, and a call has
// one of the moment at which it began.

#include "services/guard/guard_abi.h"

/* Objects above one that are followed; deeper ones end with their client. */
#define QGPU_CAP_DEEP 16
#define QGPU_CAP_TRIES 64

static inline __u64 qgpu_cap_serial(void) {
  const __u32 first = 0;
  __u64* last = (__u64*)bpf_map_lookup_elem(&serials, &first);
  return last ? __sync_fetch_and_add(last, 1) + 1 : 0;
}

static inline struct qgpu_cap_account* qgpu_cap_account_of(__u64 task) {
  return (struct qgpu_cap_account*)bpf_map_lookup_elem(&accounts, &task);
}

/* Whether a quota has room for more than what is used of it; then that is taken. What others try at
   the same moment, and do not get, is never in it. */
static inline int qgpu_cap_reserve(struct qgpu_cap_account* account, __u64 quota, __u64 bytes) {
  for (int i = 0; i < QGPU_CAP_TRIES; i++) {
    const __u64 before = *(volatile __u64*)&account->used;
    if (before > quota || bytes > quota - before) return 0;
    if (__sync_val_compare_and_swap(&account->used, before, before + bytes) == before) return 1;
  }
  return 0;
}

static inline void qgpu_cap_count(__u64 task, __u64 more) {
  struct qgpu_cap_account* account = qgpu_cap_account_of(task);
  if (account) __sync_fetch_and_add(&account->used, more);
}

static inline void qgpu_cap_forget_name(__u64 id) {
  struct qgpu_cap_memory* memory = (struct qgpu_cap_memory*)bpf_map_lookup_elem(&memories, &id);
  if (!memory || __sync_fetch_and_add(&memory->names, -1ULL) != 1) return;
  qgpu_cap_count(memory->task, -memory->bytes);
  bpf_map_delete_elem(&memories, &id);
}

/* Takes one object off its parent, and forgets it. */
static inline void qgpu_cap_drop(const struct qgpu_cap_name* name,
                                 const struct qgpu_cap_object* object) {
  const struct qgpu_cap_name above = {name->space, object->parent, 0};
  const __u64 memory = object->memory, task = object->task;
  struct qgpu_cap_object* parent = (struct qgpu_cap_object*)bpf_map_lookup_elem(&objects, &above);
  if (parent && above.handle != name->handle) __sync_fetch_and_add(&parent->children, -1U);
  if (bpf_map_delete_elem(&objects, name) != 0) return;
  struct qgpu_cap_account* account = qgpu_cap_account_of(task);
  if (account) __sync_fetch_and_add(&account->objects, -1ULL);
  if (memory) qgpu_cap_forget_name(memory);
}

/* What ends: `top` with all beneath it, or all of a file. */
struct qgpu_cap_end {
  struct qgpu_cap_name top;
  __u64 file;   /* 0: of top */
  __u64 before; /* only what is older */
  __u64 ending;
};

static long qgpu_cap_mark(void* map, const void* key, void* value, void* context) {
  const struct qgpu_cap_name* name = (const struct qgpu_cap_name*)key;
  struct qgpu_cap_object* object = (struct qgpu_cap_object*)value;
  const struct qgpu_cap_end* end = (const struct qgpu_cap_end*)context;
  (void)map;
  if (object->born >= end->before) return 0;
  if (end->file) {
    if (object->file == end->file) object->ending = end->ending;
    return 0;
  }
  if (name->space != end->top.space) return 0;
  struct qgpu_cap_name above = {name->space, name->handle, 0};
  __u32 parent = object->parent;
  for (int i = 0; i < QGPU_CAP_DEEP; i++) {
    if (above.handle == end->top.handle || end->top.space == end->top.handle) {
      object->ending = end->ending;
      return 0;
    }
    if (parent == above.handle) return 0;
    above.handle = parent;
    const struct qgpu_cap_object* next =
        (const struct qgpu_cap_object*)bpf_map_lookup_elem(&objects, &above);
    if (!next) return 0;
    parent = next->parent;
  }
  return 0;
}

static long qgpu_cap_sweep(void* map, const void* key, void* value, void* context) {
  const struct qgpu_cap_object* object = (const struct qgpu_cap_object*)value;
  const struct qgpu_cap_end* end = (const struct qgpu_cap_end*)context;
  (void)map;
  if (object->ending != end->ending) return 0;
  const struct qgpu_cap_name name = *(const struct qgpu_cap_name*)key;
  const struct qgpu_cap_object copy = *object;
  qgpu_cap_drop(&name, &copy);
  return 0;
}

static inline void qgpu_cap_end_all(struct qgpu_cap_end* end) {
  end->ending = qgpu_cap_serial();
  bpf_for_each_map_elem(&objects, (void*)qgpu_cap_mark, end, 0);
  bpf_for_each_map_elem(&objects, (void*)qgpu_cap_sweep, end, 0);
}

/* The driver has ended this object, with a call that began at the serial `before`. */
static inline void qgpu_cap_ends(const struct qgpu_cap_name* name, __u64 before) {
  const struct qgpu_cap_object* object =
      (const struct qgpu_cap_object*)bpf_map_lookup_elem(&objects, name);
  if (!object || object->born >= before) return;
  if (object->children == 0 && name->space != name->handle) {
    const struct qgpu_cap_object copy = *object;
    qgpu_cap_drop(name, &copy);
    return;
  }
  struct qgpu_cap_end end = {*name, 0, before, 0};
  qgpu_cap_end_all(&end);
}

/* And all that a file held. */
static inline void qgpu_cap_closes(__u64 file, __u64 before) {
  struct qgpu_cap_end end = {{0, 0, 0}, file, before, 0};
  qgpu_cap_end_all(&end);
}

/* What the driver made. */
struct qgpu_cap_made {
  struct qgpu_cap_name name;
  __u64 task;
  __u64 file; /* that a client came by, or that holds it */
  __u32 parent;
  __u32 pad;
};

static inline int qgpu_cap_keep(const struct qgpu_cap_name* name, struct qgpu_cap_object* object) {
  struct qgpu_cap_account* account = qgpu_cap_account_of(object->task);
  if (!account || account->objects >= QGPU_CAP_OBJECTS_OF_TASK) return 0;
  object->born = qgpu_cap_serial();
  if (bpf_map_update_elem(&objects, name, object, BPF_ANY) != 0) return 0;
  __sync_fetch_and_add(&account->objects, 1);
  return 1;
}

/* Beneath its parent, or its client where that is not known. Without room for it nothing is kept,
   and what it names stays counted until the task ends. */
static inline void qgpu_cap_place(const struct qgpu_cap_made* made, __u64 memory) {
  const struct qgpu_cap_name client = {made->name.space, (__u32)made->name.space, 0};
  struct qgpu_cap_object object = {memory, 0, made->file, 0, made->task, made->name.handle, 0};
  struct qgpu_cap_object* over = 0;
  qgpu_cap_ends(&made->name, ~0ULL);
  if (made->name.space >> 32 == 0 && made->name.handle != client.handle) {
    const struct qgpu_cap_object* known =
        (const struct qgpu_cap_object*)bpf_map_lookup_elem(&objects, &client);
    if (known) {
      object.file = known->file;
    } else {
      struct qgpu_cap_object own = {0, 0, made->file, 0, made->task, client.handle, 0};
      if (!qgpu_cap_keep(&client, &own)) return;
    }
    struct qgpu_cap_name above = {made->name.space, made->parent, 0};
    over = (struct qgpu_cap_object*)bpf_map_lookup_elem(&objects, &above);
    if (!over) {
      above.handle = client.handle;
      over = (struct qgpu_cap_object*)bpf_map_lookup_elem(&objects, &above);
    }
    object.parent = above.handle;
  }
  if (qgpu_cap_keep(&made->name, &object) && over) __sync_fetch_and_add(&over->children, 1);
}

/* Memory, with its first name; `bytes` are counted already. 0: there was no room to know it. */
static inline __u64 qgpu_cap_makes(const struct qgpu_cap_made* made, __u64 bytes) {
  const struct qgpu_cap_memory memory = {made->task, bytes, 1};
  const __u64 id = qgpu_cap_serial();
  if (bpf_map_update_elem(&memories, &id, &memory, BPF_ANY) != 0) return 0;
  qgpu_cap_place(made, id);
  return id;
}

/* Memory turned out to be of another size than what was counted. */
static inline void qgpu_cap_resizes(__u64 id, __u64 bytes) {
  struct qgpu_cap_memory* memory = (struct qgpu_cap_memory*)bpf_map_lookup_elem(&memories, &id);
  if (!memory) return;
  qgpu_cap_count(memory->task, bytes - memory->bytes);
  memory->bytes = bytes;
}

/* The memory of an object, which does not end while it is held; 0: none. It is held when a call
   begins that makes another name for it, since it may lose the one that it has meanwhile. */
static inline __u64 qgpu_cap_hold(const struct qgpu_cap_name* source) {
  const struct qgpu_cap_object* object =
      (const struct qgpu_cap_object*)bpf_map_lookup_elem(&objects, source);
  const __u64 id = object ? object->memory : 0;
  struct qgpu_cap_memory* memory = 0;
  if (id) memory = (struct qgpu_cap_memory*)bpf_map_lookup_elem(&memories, &id);
  if (!memory) return 0;
  __sync_fetch_and_add(&memory->names, 1);
  return id;
}

/* What of a task's quota another name for memory takes: all of it, where another task has it. */
static inline __u64 qgpu_cap_toll(__u64 task, __u64 id) {
  const struct qgpu_cap_memory* memory = 0;
  if (id) memory = (const struct qgpu_cap_memory*)bpf_map_lookup_elem(&memories, &id);
  return memory && memory->task != task ? memory->bytes : 0;
}

/* Another name for what is held was made, and its toll is counted already. */
static inline void qgpu_cap_names(const struct qgpu_cap_made* made, __u64 held, __u64 toll) {
  if (toll) {
    qgpu_cap_makes(made, toll);
    qgpu_cap_forget_name(held);
  } else {
    qgpu_cap_place(made, held);
  }
}
