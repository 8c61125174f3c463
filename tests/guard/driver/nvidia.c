// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// A character device in the kernel that stands where NVIDIA's driver would: it takes the calls that
// move memory of the card, in the layout of 535 and later, and gives nothing but numbers. It has
// the functions by which the driver's two halves call each other, under their own names, for the cap
// of memory (services/guard/cap.bpf.c) to be tried on. Written from the open kernel module's public
// headers (nvos.h, nv-ioctl.h, ctrl0000unix.h) with literal numbers.
//
// Beside these calls, of type 'Q', for tests: 1 tells the bytes that are given now; 2 has the next
// call wait before it reads what the program wrote; 3 waits until one does; 4 lets it go on; 5 has
// memory held as the module of unified memory does it, and 6 lets go of it.

#include <linux/completion.h>
#include <linux/device.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#define KEPT noinline __attribute__((noipa))
#define OK 0x0
#define INVALID_ARGUMENT 0x1f
#define NO_MEMORY 0x51
#define NOT_SUPPORTED 0x56
#define NOT_FOUND 0x57
#define CARD_BYTES (16ULL << 30)

struct memory {
  u64 bytes;
  int names;
};

struct object {
  struct list_head in;
  u32 client, handle, parent, class;
  struct memory *memory;
  void *file;  // of a client
};

typedef struct {
  struct memory *held;
} nv_file_private_t;

struct file_state {
  int other;  // so that what the driver's core is given is not the file's own address
  nv_file_private_t nvfp;
};

static LIST_HEAD(objects);
static DEFINE_MUTEX(lock);
static u64 given;
static u32 last_client = 0xc1d00000, last_handle = 0x5c000000;
static bool waits;
static DECLARE_COMPLETION(arrived);
static DECLARE_COMPLETION(go_on);
static const struct file_operations operations;

u32 os_memcpy_from_user(void *to, const void *from, u32 size);
u32 os_memcpy_to_user(void *to, const void *from, u32 size);
nv_file_private_t *nv_get_file_private(s32 fd, bool control, void **keep);
u32 rm_ioctl(void *stack, void *card, nv_file_private_t *file, u32 number, void *data, u32 size);
void rm_cleanup_file_private(void *stack, void *card, nv_file_private_t *file);
u32 nv_dma_buf_export(void *card, void *call);
u32 nvUvmInterfaceDupMemory(void *card, u32 client, u32 handle, u32 *name, void *facts);
u32 nvUvmInterfaceFreeDupedHandle(void *card, u32 name);

KEPT u32 os_memcpy_from_user(void *to, const void *from, u32 size) {
  return copy_from_user(to, (const void __user *)from, size) ? 0x1e : OK;
}

KEPT u32 os_memcpy_to_user(void *to, const void *from, u32 size) {
  return copy_to_user((void __user *)to, from, size) ? 0x1e : OK;
}

KEPT nv_file_private_t *nv_get_file_private(s32 fd, bool control, void **keep) {
  struct file *file = fget(fd);
  if (!file) return NULL;
  if (file->f_op != &operations) {
    fput(file);
    return NULL;
  }
  *keep = file;
  return &((struct file_state *)file->private_data)->nvfp;
}

static struct object *find(u32 client, u32 handle) {
  struct object *object;
  list_for_each_entry(object, &objects, in) {
    if (object->client == client && object->handle == handle) return object;
  }
  return NULL;
}

static void forget(struct memory *memory) {
  if (!memory || --memory->names != 0) return;
  given -= memory->bytes;
  kfree(memory);
}

static void end(struct object *top) {
  struct object *object;
again:
  list_for_each_entry(object, &objects, in) {
    if (object == top || object->client != top->client) continue;
    if (object->parent == top->handle && object->handle != object->client) {
      end(object);
      goto again;
    }
  }
  list_del(&top->in);
  forget(top->memory);
  kfree(top);
}

static struct object *make(u32 client, u32 parent, u32 handle, u32 class) {
  struct object *object;
  if (find(client, handle)) return NULL;
  object = kzalloc(sizeof *object, GFP_KERNEL);
  if (!object) return NULL;
  object->client = client;
  object->parent = parent;
  object->handle = handle;
  object->class = class;
  list_add(&object->in, &objects);
  return object;
}

static struct memory *take(u64 bytes) {
  struct memory *memory;
  bytes = (bytes + 0xffff) & ~0xffffULL;
  if (bytes == 0 || bytes > CARD_BYTES - given) return NULL;
  memory = kzalloc(sizeof *memory, GFP_KERNEL);
  if (!memory) return NULL;
  memory->bytes = bytes;
  memory->names = 1;
  given += bytes;
  return memory;
}

static bool owns(nv_file_private_t *file, u32 client) {
  const struct object *root = find(client, client);
  return root && root->file == file;
}

// u32 root, parent, new, class; u64 parameters; u32 size of them, status (in the long form another
// pointer before these two, and flags between).
static u32 alloc(nv_file_private_t *file, u32 *call, void *parameters) {
  u8 words[128] = {};
  u32 status = OK;
  struct object *object;
  if (call[3] == 0x0 || call[3] == 0x1 || call[3] == 0x41) {
    if (call[2] == 0) call[2] = call[0] ? call[0] : ++last_client;
    object = make(call[2], call[2], call[2], 0x41);
    if (!object) return INVALID_ARGUMENT;
    object->file = file;
    return OK;
  }
  if (!owns(file, call[0]) || !find(call[0], call[1])) return NOT_FOUND;
  if (call[2] == 0) call[2] = ++last_handle;
  if (find(call[0], call[2])) return INVALID_ARGUMENT;
  if (call[3] != 0x40) return make(call[0], call[1], call[2], call[3]) ? OK : NO_MEMORY;
  if (!parameters || os_memcpy_from_user(words, parameters, 128) != OK) return INVALID_ARGUMENT;
  if (!(*(u32 *)(words + 8) & 0x80000)) {
    struct memory *memory = take(*(u64 *)(words + 64));
    if (!memory) return NO_MEMORY;
    *(u64 *)(words + 64) = memory->bytes;
    object = make(call[0], call[1], call[2], 0x40);
    if (object) object->memory = memory;
    if (!object) forget(memory), status = NO_MEMORY;
  } else if (!make(call[0], call[1], call[2], 0x40)) {
    status = NO_MEMORY;
  }
  // What could not be told is an error, and is done all the same.
  if (status == OK) status = os_memcpy_to_user(parameters, words, 128);
  return status;
}

static u32 duplicate(nv_file_private_t *file, u32 client, u32 parent, u32 *handle,
                     struct memory *memory) {
  struct object *object;
  if (!owns(file, client) || !find(client, parent)) return NOT_FOUND;
  if (*handle == 0) *handle = ++last_handle;
  object = make(client, parent, *handle, 0x40);
  if (!object) return INVALID_ARGUMENT;
  object->memory = memory;
  if (memory) memory->names++;
  return OK;
}

static u32 free_object(nv_file_private_t *file, u32 client, u32 handle) {
  struct object *object = find(client, handle);
  if (!object || !owns(file, client)) return NOT_FOUND;
  end(object);
  return OK;
}

static u32 heap(nv_file_private_t *file, u32 *call) {
  const u32 function = call[2];
  u64 *const size = (u64 *)(call + (function == 14 ? 20 : 22));
  const u32 attributes = call[function == 6 ? 16 : 14];
  struct object *object;
  struct memory *memory = NULL;
  if (function == 3) return free_object(file, call[0], call[11]);
  if (function != 2 && function != 6 && function != 14) return NOT_SUPPORTED;
  if (!owns(file, call[0]) || !find(call[0], call[1])) return NOT_FOUND;
  if (!(call[13] & 0x4000) || call[11] == 0) call[11] = ++last_handle;  // no name was given
  if (find(call[0], call[11])) return INVALID_ARGUMENT;
  if (!(call[13] & 0x80000) && !(attributes & (3u << 25))) {
    if (function == 6) *size = (u64)call[14] * (s64)(s32)call[15];
    memory = take(*size);
    if (!memory) return NO_MEMORY;
    *size = memory->bytes;
  }
  object = make(call[0], call[1], call[11], 0x40);
  if (!object) return forget(memory), NO_MEMORY;
  object->memory = memory;
  return OK;
}

static u32 pass(nv_file_private_t *file, u32 client, u32 command, void *parameters) {
  u32 words[6] = {};
  const u32 size = command == 0x3d05 ? 24 : 20;
  void *keep = NULL;
  nv_file_private_t *other;
  u32 status = OK;
  if (os_memcpy_from_user(words, parameters, size) != OK) return INVALID_ARGUMENT;
  other = nv_get_file_private((s32)(command == 0x3d05 ? words[4] : words[0]), true, &keep);
  if (!other) return INVALID_ARGUMENT;
  if (command == 0x3d05) {
    struct object *object = find(client, words[3]);
    if (!object || !owns(file, client) || !object->memory || other->held) status = NOT_FOUND;
    if (status == OK) {
      other->held = object->memory;
      other->held->names++;
    }
  } else {
    status = other->held ? duplicate(file, client, words[3], &words[4], other->held) : NOT_FOUND;
  }
  if (status == OK) status = os_memcpy_to_user(parameters, words, size);
  fput(keep);
  return status;
}

KEPT u32 rm_ioctl(void *stack, void *card, nv_file_private_t *file, u32 number, void *data,
                  u32 size) {
  u32 *const call = data;
  mutex_lock(&lock);
  if (number == 0x2b && size == 32) {
    call[7] = alloc(file, call, (void *)*(u64 *)(call + 4));
  } else if (number == 0x2b && size == 48) {
    call[10] = alloc(file, call, (void *)*(u64 *)(call + 4));
  } else if (number == 0x28 && size == 20) {
    call[4] = alloc(file, call, NULL);
  } else if (number == 0x29 && size == 16) {
    call[3] = free_object(file, call[0], call[2]);
  } else if (number == 0x34 && size == 28) {
    const struct object *source = find(call[3], call[4]);
    call[6] = source ? duplicate(file, call[0], call[1], &call[2], source->memory) : NOT_FOUND;
  } else if (number == 0x4a && size == 184) {
    call[5] = heap(file, call);
  } else if (number == 0x2a && size == 32 && (call[2] == 0x3d05 || call[2] == 0x3d06)) {
    call[7] = pass(file, call[0], call[2], (void *)*(u64 *)(call + 4));
  } else {
    mutex_unlock(&lock);
    return INVALID_ARGUMENT;
  }
  mutex_unlock(&lock);
  return OK;
}

KEPT void rm_cleanup_file_private(void *stack, void *card, nv_file_private_t *file) {
  struct object *object;
  mutex_lock(&lock);
again:
  list_for_each_entry(object, &objects, in) {
    if (object->file == file) {
      end(object);
      goto again;
    }
  }
  forget(file->held);
  mutex_unlock(&lock);
}

KEPT u32 nv_dma_buf_export(void *card, void *call) {
  return NOT_SUPPORTED;
}

// Under a client of the kernel's own, which no file ends.
KEPT u32 nvUvmInterfaceDupMemory(void *card, u32 client, u32 handle, u32 *name, void *facts) {
  const struct object *source;
  struct object *object = NULL;
  mutex_lock(&lock);
  source = find(client, handle);
  if (source && source->memory) object = make(0xf0000000, 0xf0000000, ++last_handle, 0x40);
  if (object) {
    object->memory = source->memory;
    object->memory->names++;
    *name = object->handle;
  }
  mutex_unlock(&lock);
  return object ? OK : NOT_FOUND;
}

KEPT u32 nvUvmInterfaceFreeDupedHandle(void *card, u32 name) {
  struct object *object;
  mutex_lock(&lock);
  object = find(0xf0000000, name);
  if (object) end(object);
  mutex_unlock(&lock);
  return object ? OK : NOT_FOUND;
}

static int open_file(struct inode *inode, struct file *file) {
  file->private_data = kzalloc(sizeof(struct file_state), GFP_KERNEL);
  return file->private_data ? 0 : -ENOMEM;
}

static int close_file(struct inode *inode, struct file *file) {
  struct file_state *state = file->private_data;
  rm_cleanup_file_private(NULL, NULL, &state->nvfp);
  kfree(state);
  return 0;
}

static long for_tests(unsigned int command, void __user *argument) {
  static u64 card;
  u32 words[3] = {};
  switch (_IOC_NR(command)) {
    case 1:
      return copy_to_user(argument, &given, sizeof given) ? -EFAULT : 0;
    case 2:
      reinit_completion(&arrived);
      reinit_completion(&go_on);
      waits = true;
      return 0;
    case 3:
      wait_for_completion(&arrived);
      return 0;
    case 4:
      complete(&go_on);
      return 0;
    case 5:  // client, object; its name there
      if (copy_from_user(words, argument, sizeof words)) return -EFAULT;
      if (nvUvmInterfaceDupMemory(&card, words[0], words[1], &words[2], NULL) != OK) return -ENOENT;
      return copy_to_user(argument, words, sizeof words) ? -EFAULT : 0;
    case 6:
      if (copy_from_user(words, argument, sizeof words)) return -EFAULT;
      return nvUvmInterfaceFreeDupedHandle(&card, words[2]) == OK ? 0 : -ENOENT;
    default:
      return -ENOTTY;
  }
}

static long do_call(struct file *file, unsigned int command, unsigned long argument) {
  struct file_state *state = file->private_data;
  struct {
    u32 number, size;
    u64 argument;
  } carried = {_IOC_NR(command), _IOC_SIZE(command), argument};
  u32 status;
  long rc = 0;
  void *copy;
  if (_IOC_TYPE(command) == 'Q') return for_tests(command, (void __user *)argument);
  if (waits) {
    waits = false;
    complete(&arrived);
    wait_for_completion(&go_on);
  }
  if (carried.number == 211) {
    if (carried.size != sizeof carried) return -EINVAL;
    if (copy_from_user(&carried, (void __user *)argument, sizeof carried)) return -EFAULT;
  }
  if (carried.size == 0 || carried.size > 16384) return -EINVAL;
  copy = kmalloc(carried.size, GFP_KERNEL);
  if (!copy) return -ENOMEM;
  if (copy_from_user(copy, (void __user *)carried.argument, carried.size)) {
    rc = -EFAULT;
  } else {
    // This one is the kernel's half's own.
    status = carried.number == 217
                 ? nv_dma_buf_export(NULL, copy)
                 : rm_ioctl(NULL, NULL, &state->nvfp, carried.number, copy, carried.size);
    if (status != OK) rc = -EINVAL;
    if (copy_to_user((void __user *)carried.argument, copy, carried.size)) rc = -EFAULT;
  }
  kfree(copy);
  return rc;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 0, 0)
// A command by a ring. NVIDIA's driver takes none; this one takes each, and does nothing.
static int command_by_ring(struct io_uring_cmd *command, unsigned int flags) {
  return 0;
}
#endif

static const struct file_operations operations = {
    .owner = THIS_MODULE,
    .open = open_file,
    .release = close_file,
    .unlocked_ioctl = do_call,
    .compat_ioctl = do_call,
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 0, 0)
    .uring_cmd = command_by_ring,
#endif
};

static struct class *devices;
static int major_number;

static int __init begin(void) {
  major_number = register_chrdev(0, "standin", &operations);
  if (major_number < 0) return major_number;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
  devices = class_create("standin");
#else
  devices = class_create(THIS_MODULE, "standin");
#endif
  if (IS_ERR(devices)) return PTR_ERR(devices);
  device_create(devices, NULL, MKDEV(major_number, 0), NULL, "standin");
  return 0;
}

static void __exit finish(void) {
  device_destroy(devices, MKDEV(major_number, 0));
  class_destroy(devices);
  unregister_chrdev(major_number, "standin");
}

module_init(begin);
module_exit(finish);
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("580.0");
MODULE_DESCRIPTION("Stands where a card's driver would, for tests");
