#pragma once
// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// What moves memory of a card, read from one call to NVIDIA's kernel driver: what rm_decode.h is to
// the library, for the cap in the kernel (cap.bpf.c), which can't be C++. Pure: the call's bytes
// lie in a buffer of ours already, and the parameters that it points to are read by who asks.
// cap_calls_test holds it against rm_decode, call by call.

#include <linux/types.h>

#define QGPU_CAP_TRANSFER 211      /* carries another call, by address */
#define QGPU_CAP_CALL_BYTES 184    /* of the largest call that is read */
#define QGPU_CAP_MEMORY_BYTES 72   /* of an allocation's parameters, up to the size */
#define QGPU_CAP_HEAP_NAMED 0x4000 /* of its flags: the program chose the name */
#define QGPU_CAP_PIECE (64ULL << 10)

/* The two forms of the call that makes an object, which differ between drivers. How large its
   parameters are some tell too, but the driver goes by the class, and so does this. */
struct qgpu_cap_form {
  __u32 size;      /* of the call; 0: this driver is not known */
  __u32 status_at; /* offset */
};
struct qgpu_cap_forms {
  struct qgpu_cap_form brief, full;
};

enum qgpu_cap_verb {
  QGPU_CAP_OTHER,
  QGPU_CAP_ALLOC,
  QGPU_CAP_FREE,
  QGPU_CAP_DUP,
  QGPU_CAP_EXPORT, /* one object into a control file */
  QGPU_CAP_IMPORT, /* and a name for it out of there */
  QGPU_CAP_CLOSED, /* ways to have or hand on memory that nobody counts: not with a cap */
};

struct qgpu_cap_call {
  __u32 verb;
  __u32 client, parent, object;       /* object: of an allocation as asked, see object_at */
  __u32 source_client, source_object; /* of a duplicate, and of what an object holds */
  __u32 object_at, status_at;         /* offsets in the call */
  __u32 size_at;                      /* of a heap's allocation: what the driver took; else 0 */
  __u32 is_client;                    /* the object is one */
  __u32 has_memory;                   /* its size is in `parameters`, QGPU_CAP_MEMORY_BYTES */
  __u64 bytes;                        /* of a heap's allocation, as asked */
  __u64 parameters;                   /* the program's address */
};

static inline __u32 qgpu_cap_word(const void* from, __u32 at) {
  __u32 word;
  __builtin_memcpy(&word, (const char*)from + at, sizeof word);
  return word;
}

static inline __u64 qgpu_cap_long(const void* from, __u32 at) {
  __u64 word;
  __builtin_memcpy(&word, (const char*)from + at, sizeof word);
  return word;
}

/* What the card gives for so many bytes: rm_abi.h, bytesGiven(). */
static inline __u64 qgpu_cap_given(__u64 bytes) {
  if (bytes > ~0ULL - QGPU_CAP_PIECE) return bytes;
  return (bytes + QGPU_CAP_PIECE - 1) / QGPU_CAP_PIECE * QGPU_CAP_PIECE;
}

/* Of the parameters of an allocation of memory; 0: addresses alone. */
static inline __u64 qgpu_cap_size(const void* parameters) {
  return qgpu_cap_word(parameters, 8) & 0x00080000 ? 0
                                                   : qgpu_cap_given(qgpu_cap_long(parameters, 64));
}

/* Objects that hold memory which other objects name, for other cards and other machines: exports,
   what is imported from them, addresses in a fabric and of several cards. */
static inline __u32 qgpu_cap_holds_others(__u32 object_class) {
  return object_class == 0xe0 || object_class == 0xe1 ||
         (object_class >= 0xf8 && object_class <= 0xfd);
}

/* Calls that make, free or duplicate an object begin alike. */
static inline void qgpu_cap_object_of(const void* from, struct qgpu_cap_call* call) {
  call->client = qgpu_cap_word(from, 0);
  call->parent = qgpu_cap_word(from, 4);
  call->object = qgpu_cap_word(from, 8);
}

static inline void qgpu_cap_making(const void* from, struct qgpu_cap_call* call) {
  const __u32 made = qgpu_cap_word(from, 12);
  call->verb = QGPU_CAP_ALLOC;
  qgpu_cap_object_of(from, call);
  call->object_at = 8;
  call->is_client = made == 0x0 || made == 0x1 || made == 0x41;
}

static inline void qgpu_cap_heap(const void* from, struct qgpu_cap_call* call) {
  const __u32 function = qgpu_cap_word(from, 8);
  const __u32 tiled = function == 6, range = function == 14;
  call->client = qgpu_cap_word(from, 0);
  call->parent = qgpu_cap_word(from, 4);
  call->object = qgpu_cap_word(from, 44);
  call->status_at = 20;
  if (function == 3) call->verb = QGPU_CAP_FREE;
  if (function != 2 && !tiled && !range) return;
  if (!(qgpu_cap_word(from, 52) & QGPU_CAP_HEAP_NAMED)) call->object = 0;
  const __u32 attributes = qgpu_cap_word(from, tiled ? 64 : 56);
  call->verb = QGPU_CAP_ALLOC;
  call->object_at = 44;
  if (qgpu_cap_word(from, 52) & 0x00080000 || attributes & (3u << 25)) return;
  call->size_at = range ? 80 : 88;
  call->bytes = qgpu_cap_long(from, call->size_at);
  if (tiled) {
    const long long pitch = (int)qgpu_cap_word(from, 60);
    call->bytes = qgpu_cap_word(from, 56) * (__u64)pitch;
  }
  call->bytes = qgpu_cap_given(call->bytes);
}

static inline void qgpu_cap_control(const void* from, struct qgpu_cap_call* call) {
  const __u32 command = qgpu_cap_word(from, 8), bytes = qgpu_cap_word(from, 24);
  call->client = qgpu_cap_word(from, 0);
  call->parameters = qgpu_cap_long(from, 16);
  call->status_at = 28;
  if (command == 0x3d05 && bytes == 24) call->verb = QGPU_CAP_EXPORT;
  if (command == 0x3d06 && bytes == 20) call->verb = QGPU_CAP_IMPORT;
  if (command == 0x3d0b || command == 0x3d0c) call->verb = QGPU_CAP_CLOSED;
}

/* Whether a call makes memory by a name that the driver is to choose. Others could use that before
   anybody knows of it. (NVIDIA's own libraries are taken to choose names themselves.) */
static inline __u32 qgpu_cap_unnamed(const struct qgpu_cap_call* call) {
  return call->verb == QGPU_CAP_ALLOC && (call->has_memory || call->size_at) && call->object == 0;
}

/* `from`: QGPU_CAP_CALL_BYTES of which the first `size` are the call's, and the rest 0. */
static inline void qgpu_cap_decode(const struct qgpu_cap_forms* forms, __u32 number, __u32 size,
                                   const void* from, struct qgpu_cap_call* call) {
  __builtin_memset(call, 0, sizeof *call);
  if (size == 0) return;
  if (number == 0x2b && (size == forms->full.size || size == forms->brief.size)) {
    const struct qgpu_cap_form* form = size == forms->full.size ? &forms->full : &forms->brief;
    const __u32 object_class = qgpu_cap_word(from, 12);
    qgpu_cap_making(from, call);
    call->status_at = form->status_at;
    call->parameters = qgpu_cap_long(from, 16);
    call->has_memory = object_class == 0x40 && call->parameters;
    if (qgpu_cap_holds_others(object_class)) call->verb = QGPU_CAP_CLOSED;
  } else if (number == 0x28 && size == 20) {
    qgpu_cap_making(from, call);
    call->status_at = 16;
  } else if (number == 0x29 && size == 16) {
    call->verb = QGPU_CAP_FREE;
    qgpu_cap_object_of(from, call);
    call->status_at = 12;
  } else if (number == 0x34 && size == 28) {
    call->verb = QGPU_CAP_DUP;
    qgpu_cap_object_of(from, call);
    call->source_client = qgpu_cap_word(from, 12);
    call->source_object = qgpu_cap_word(from, 16);
    call->object_at = 8;
    call->status_at = 24;
  } else if (number == 0x4a && size == 184) {
    qgpu_cap_heap(from, call);
  } else if (number == 0x2a && size == 32) {
    qgpu_cap_control(from, call);
  } else if (number == 217) {
    call->verb = QGPU_CAP_CLOSED;
  }
}
