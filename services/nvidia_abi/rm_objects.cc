#include "services/nvidia_abi/rm_objects.h"

#include <cstdlib>

namespace qgpu::rm {
namespace {

std::size_t hashOf(Handle client, Handle handle) {
  std::uint32_t mixed = client * 0x9E3779B1u ^ handle * 0x85EBCA77u;
  mixed ^= mixed >> 15;
  return mixed * 0xC2B2AE3Du >> 8;
}

bool isClientObject(const Object& object) {
  return object.handle == object.client;
}

// The trees are walked without recursion: their depth is the program's to choose.
template <typename O>
O* deepest(O* object) {
  while (object->child) object = object->child;
  return object;
}
template <typename O>
O* nextUpwards(O* object, const Object* top) {
  if (object == top) return nullptr;
  return object->after ? deepest<O>(object->after) : object->parent;
}

}  // namespace

Object** Objects::link(Handle client, Handle handle) {
  Object** at = &buckets_[hashOf(client, handle) % kBuckets];
  while (*at && !((*at)->client == client && (*at)->handle == handle)) at = &(*at)->inBucket;
  return at;
}

Object* Objects::find(Handle client, Handle handle) const {
  return *const_cast<Objects*>(this)->link(client, handle);
}

void Objects::put(Object* object) {
  Object*& bucket = buckets_[hashOf(object->client, object->handle) % kBuckets];
  object->inBucket = bucket;
  bucket = object;
}

// Beneath its parent, or its client where the parent is not known; a client stands alone.
void Objects::hang(Object* object) {
  object->parent = object->before = object->after = nullptr;
  if (isClientObject(*object)) return;
  Object* parent = find(object->client, object->parentHandle);
  if (!parent) parent = find(object->client, object->client);
  if (!parent) return;
  object->parent = parent;
  object->parentHandle = parent->handle;
  object->after = parent->child;
  if (parent->child) parent->child->before = object;
  parent->child = object;
}

void Objects::unhang(Object* object) {
  if (object->before) {
    object->before->after = object->after;
  } else if (object->parent) {
    object->parent->child = object->after;
  }
  if (object->after) object->after->before = object->before;
  object->parent = object->before = object->after = nullptr;
}

// Takes a tree out of its parent and out of the buckets.
Object* Objects::detach(Object* top) {
  unhang(top);
  for (Object* each = deepest(top); each; each = nextUpwards(each, top)) {
    Object** at = link(each->client, each->handle);
    if (*at == each) *at = each->inBucket;
    each->inBucket = nullptr;
  }
  return top;
}

Object* Objects::place(const Made& made, OnEnd onEnd, void* context) {
  if (Object* older = takeOut(made.client, made.handle)) end(older, onEnd, context);
  const bool ofClient = made.handle != made.client && !find(made.client, made.client);
  if (ofClient) {
    Made client;
    client.client = client.handle = made.client;
    client.objectClass = kRootClient;
    client.file = made.file;
    if (!place(client, onEnd, context)) return nullptr;
  }
  auto* object = static_cast<Object*>(calloc(1, sizeof(Object)));
  if (!object) return nullptr;
  object->client = made.client;
  object->handle = made.handle;
  object->parentHandle = made.parent;
  object->objectClass = made.objectClass;
  object->detail = made.detail;
  object->file = made.file;
  hang(object);
  put(object);
  return object;
}

Object* Objects::add(const Made& made, OnEnd onEnd, void* context) {
  Memory* memory = nullptr;
  if (made.bytes || made.loan) {
    memory = static_cast<Memory*>(malloc(sizeof(Memory)));
    if (!memory) return nullptr;
    *memory = {made.bytes, made.generation, 1, made.loan};
  }
  Object* object = place(made, onEnd, context);
  if (!object) {
    free(memory);
    return nullptr;
  }
  object->memory = memory;
  return object;
}

Object* Objects::duplicate(const Made& made, Handle sourceClient, Handle sourceHandle, OnEnd onEnd,
                           void* context) {
  // An older object of the new name may be what is duplicated, or lie above it: the memory is held
  // before that one ends.
  Object* source = find(sourceClient, sourceHandle);
  Memory* memory = source ? source->memory : nullptr;
  Made copy = made;
  if (source) {
    copy.objectClass = source->objectClass;
    copy.detail = source->detail;
  }
  if (memory) ++memory->references;
  Object* object = place(copy, onEnd, context);
  if (object) {
    object->memory = memory;
  } else if (memory) {
    --memory->references;
  }
  return object;
}

Object* Objects::takeOut(Handle client, Handle handle) {
  Object* object = find(client, handle);
  return object ? detach(object) : nullptr;
}

Object* Objects::takeClientOf(std::uint32_t file) {
  for (Object* bucket : buckets_) {
    for (Object* each = bucket; each; each = each->inBucket) {
      if (isClientObject(*each) && each->file == file) return detach(each);
    }
  }
  return nullptr;
}

void Objects::putBack(Object* top, OnEnd onEnd, void* context) {
  for (Object* each = deepest(top); each; each = nextUpwards(each, top)) {
    if (Object* newer = takeOut(each->client, each->handle)) end(newer, onEnd, context);
  }
  hang(top);  // while its own tree is not to be found: no object is beneath itself
  for (Object* each = deepest(top); each; each = nextUpwards(each, top)) put(each);
}

void Objects::end(Object* top, OnEnd onEnd, void* context) {
  for (Object* each = deepest(top); each;) {
    Object* next = nextUpwards(each, top);
    Memory* freed = each->memory && --each->memory->references == 0 ? each->memory : nullptr;
    onEnd(*each, freed, context);
    free(freed);
    free(each);
    each = next;
  }
}

void Objects::eachBeneath(const Object& top, void (*visit)(const Object&, void*), void* context) {
  for (const Object* each = deepest(&top); each; each = nextUpwards(each, &top)) {
    visit(*each, context);
  }
}

void Objects::each(void (*visit)(const Object&, void*), void* context) const {
  for (const Object* bucket : buckets_) {
    for (const Object* each = bucket; each; each = each->inBucket) visit(*each, context);
  }
}

std::uint32_t Objects::deviceOf(const Object& object) {
  for (const Object* each = &object; each; each = each->parent) {
    if (each->objectClass == kDevice) return each->detail;
  }
  return ~0u;
}

void Objects::forget() {
  for (Object*& bucket : buckets_) bucket = nullptr;
}

}  // namespace qgpu::rm
