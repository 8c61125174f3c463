// An OpenCL program that knows nothing of qgpu and does what its standard input says, one command
// and one answer per line, so that a test decides what happens when. argv[1] is a file of 64
// 32-bit words in which kernels count their progress while they run.

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace {

const char* const kSource = R"(
kernel void work(global volatile uint* progress, ulong iterations, global float* out) {
  float x = (float)get_global_id(0);
  for (ulong i = 0; i < iterations; i++) {
    x = x * 0.5f + 1.0f;
    if ((i & 4095) == 0) progress[get_global_id(0) & 63]++;
  }
  out[get_global_id(0)] = x;
}
kernel void touch(global float* out) { out[0] += 1.0f; }
)";
constexpr size_t kItems = 2;  // as many groups as this machine's driver has threads, or more

struct Program {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  cl_kernel work = nullptr, touch = nullptr;
  cl_mem progress = nullptr, out = nullptr;
  double iterationsPerMs = 0;
  std::map<int, cl_mem> buffers;
  std::map<int, void*> svm;
  cl_event user = nullptr;
  cl_event last = nullptr;
  std::atomic<int> callbacks{0}, callbackLaunch{1};
  std::atomic<int> signals{0};
  std::thread behindUser;  // a blocking call that waits for the user event
  std::atomic<cl_int> behindUserRc{1};
} p;

double nowMs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

cl_int launch(double ms, const cl_event* wait, cl_event* event) {
  auto iterations = static_cast<cl_ulong>(ms * p.iterationsPerMs) + 1;
  clSetKernelArg(p.work, 0, sizeof p.progress, &p.progress);
  clSetKernelArg(p.work, 1, sizeof iterations, &iterations);
  clSetKernelArg(p.work, 2, sizeof p.out, &p.out);
  const size_t local = 1;
  return clEnqueueNDRangeKernel(p.queue, p.work, 1, nullptr, &kItems, &local, wait ? 1 : 0, wait,
                                event);
}

cl_int launchTouch(const cl_event* wait = nullptr) {
  clSetKernelArg(p.touch, 0, sizeof p.out, &p.out);
  const size_t one = 1;
  return clEnqueueNDRangeKernel(p.queue, p.touch, 1, nullptr, &one, nullptr, wait ? 1 : 0, wait,
                                nullptr);
}

std::string devices() {
  cl_uint platforms = 0, count = 0;
  cl_int rc = clGetPlatformIDs(1, &p.platform, &platforms);
  if (rc != CL_SUCCESS) return "no-platform " + std::to_string(rc);
  rc = clGetDeviceIDs(p.platform, CL_DEVICE_TYPE_ALL, 1, &p.device, &count);
  if (rc != CL_SUCCESS) return "no-device " + std::to_string(rc);
  return std::to_string(platforms) + " " + std::to_string(count);
}

std::string deviceName() {
  char name[1024] = {};
  devices();
  clGetDeviceInfo(p.device, CL_DEVICE_NAME, sizeof name - 1, name, nullptr);
  return name;
}

std::string init(const char* progressFile, bool profiling, bool outOfOrder) {
  std::string found = devices();
  if (!p.device) return found;
  cl_int rc = CL_SUCCESS;
  p.context = clCreateContext(nullptr, 1, &p.device, nullptr, nullptr, &rc);
  if (!p.context) return "no-context " + std::to_string(rc);
  cl_queue_properties bits = (profiling ? CL_QUEUE_PROFILING_ENABLE : 0) |
                             (outOfOrder ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
  cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, bits, 0};
  p.queue = clCreateCommandQueueWithProperties(p.context, p.device, properties, &rc);
  const char* source = kSource;
  cl_program program = clCreateProgramWithSource(p.context, 1, &source, nullptr, &rc);
  clBuildProgram(program, 1, &p.device, "", nullptr, nullptr);
  p.work = clCreateKernel(program, "work", &rc);
  p.touch = clCreateKernel(program, "touch", &rc);
  int fd = open(progressFile, O_RDWR | O_CLOEXEC);
  void* map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return "no-progress-file";
  p.progress = clCreateBuffer(p.context, CL_MEM_USE_HOST_PTR, 256, map, &rc);
  p.out = clCreateBuffer(p.context, CL_MEM_READ_WRITE, 256, nullptr, &rc);
  // The shortest of three, so that a busy machine does not make kernels too short.
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    p.iterationsPerMs = 1;
    double start = nowMs();
    launch(4e6, nullptr, nullptr);
    clFinish(p.queue);
    if (i && nowMs() - start < best) best = nowMs() - start;
  }
  p.iterationsPerMs = 4e6 / best;
  return rc == CL_SUCCESS ? "ok" : "rc " + std::to_string(rc);
}

void CL_CALLBACK onComplete(cl_event, cl_int, void*) {
  p.callbackLaunch = launchTouch();
  p.callbacks.fetch_add(1);
}

void CL_CALLBACK onNotice(const char*, const void*, size_t, void* data) {
  static_cast<Program*>(data)->callbackLaunch = launchTouch();
  p.callbacks.fetch_add(1);
}

std::string notifyingContext() {
  cl_int rc = CL_SUCCESS;
  clCreateContext(nullptr, 1, &p.device, onNotice, &p, &rc);
  return std::to_string(rc);
}

// x = x/2 + 1 tends to 2 whatever it began with, if every step was done.
std::string check() {
  float values[kItems];
  cl_int rc =
      clEnqueueReadBuffer(p.queue, p.out, CL_TRUE, 0, sizeof values, values, 0, nullptr, nullptr);
  if (rc != CL_SUCCESS) return "rc " + std::to_string(rc);
  for (float v : values) {
    if (std::fabs(v - 2.0f) > 1e-4f) return "wrong " + std::to_string(v);
  }
  return "ok";
}

// A blocking call behind the user event, from a thread of its own.
std::string behindUser(std::istringstream& in) {
  std::string call;
  in >> call;
  p.behindUser = std::thread([call] {
    float value = 0;
    cl_int rc = CL_SUCCESS;
    if (call == "map") {
      clEnqueueMapBuffer(p.queue, p.out, CL_TRUE, CL_MAP_READ, 0, 4, 1, &p.user, nullptr, &rc);
    } else if (call == "write") {
      rc = clEnqueueWriteBuffer(p.queue, p.out, CL_TRUE, 128, 4, &value, 1, &p.user, nullptr);
    } else if (call == "finish") {
      rc = clFinish(p.queue);
    } else {
      rc = clEnqueueReadBuffer(p.queue, p.out, CL_TRUE, 0, 4, &value, 1, &p.user, nullptr);
    }
    p.behindUserRc = rc;
  });
  return "ok";
}

// What becomes of descriptor 2.
std::string standardError(const std::string& verb) {
  if (verb == "size2") return std::to_string(lseek(STDERR_FILENO, 0, SEEK_END));
  close(STDERR_FILENO);
  if (verb == "data2") return std::to_string(memfd_create("data", 0) - STDERR_FILENO);
  int ends[2];  // reading is 2, and then writing
  if (pipe(ends) != 0 || ends[0] != STDERR_FILENO) return "no pipe";
  const int reading = dup(ends[0]);
  dup2(ends[1], STDERR_FILENO);
  fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK | O_APPEND);
  const std::string page(4096, 'x');
  while (verb == "full2" && write(STDERR_FILENO, page.data(), page.size()) > 0) {
  }
  fcntl(STDERR_FILENO, F_SETFL, O_APPEND);
  if (verb == "broken2") close(reading);
  return "0";
}

std::string allocate(int name, size_t bytes) {
  cl_int rc = CL_SUCCESS;
  cl_mem mem = clCreateBuffer(p.context, CL_MEM_READ_WRITE, bytes, nullptr, &rc);
  if (mem) p.buffers[name] = mem;
  return std::to_string(rc);
}

std::string image(int name, size_t side) {
  cl_int rc = CL_SUCCESS;
  cl_image_format format{CL_RGBA, CL_FLOAT};
  cl_image_desc desc{};
  desc.image_type = CL_MEM_OBJECT_IMAGE2D;
  desc.image_width = desc.image_height = side;
  cl_mem mem = clCreateImage(p.context, CL_MEM_READ_WRITE, &format, &desc, nullptr, &rc);
  if (mem) p.buffers[name] = mem;
  return std::to_string(rc);
}

// Every other call that makes a buffer or an image, each of `side` x `side` pixels of 16 bytes.
std::string allocateBy(std::istringstream& in) {
  std::string call;
  int name = 0;
  size_t side = 0;
  in >> call >> name >> side;
  cl_int rc = CL_SUCCESS;
  cl_image_format format{CL_RGBA, CL_FLOAT};
  cl_image_desc desc{};
  desc.image_type = CL_MEM_OBJECT_IMAGE2D;
  desc.image_width = desc.image_height = side;
  const cl_mem_flags flags = CL_MEM_READ_WRITE;
  cl_mem mem = nullptr;
  if (call == "buffer") {
    mem = clCreateBufferWithProperties(p.context, nullptr, flags, side * side * 16, nullptr, &rc);
  } else if (call == "image") {
    mem = clCreateImageWithProperties(p.context, nullptr, flags, &format, &desc, nullptr, &rc);
  } else if (call == "image2d") {
    mem = clCreateImage2D(p.context, flags, &format, side, side, 0, nullptr, &rc);
  } else if (call == "image3d") {
    mem = clCreateImage3D(p.context, flags, &format, side, side / 4, 4, 0, 0, nullptr, &rc);
  } else {
    return "unknown " + call;
  }
  if (mem) p.buffers[name] = mem;
  return std::to_string(rc);
}

// What a native kernel is handed: the driver puts the address of `out` where `memory` is.
struct NativeArguments {
  std::atomic<int>* calls;
  void* memory;
};

void CL_CALLBACK fillNatively(void* data) {
  auto* arguments = static_cast<NativeArguments*>(data);
  auto* values = static_cast<float*>(arguments->memory);
  for (size_t i = 0; i < kItems; ++i) values[i] = 2.0f;
  arguments->calls->fetch_add(1);
}

// The other calls that put a kernel into a queue.
std::string launchBy(std::istringstream& in) {
  std::string call;
  in >> call;
  cl_int rc = clSetKernelArg(p.touch, 0, sizeof p.out, &p.out);
  const size_t one = 1;
  if (call == "task") {
    rc = clEnqueueTask(p.queue, p.touch, 0, nullptr, nullptr);
  } else if (call == "clone") {
    cl_kernel twin = clCloneKernel(p.touch, &rc);
    if (twin) {
      rc = clEnqueueNDRangeKernel(p.queue, twin, 1, nullptr, &one, nullptr, 0, nullptr, nullptr);
      clReleaseKernel(twin);
    }
  } else if (call == "native") {
    NativeArguments arguments{&p.callbacks, nullptr};
    const void* place = &arguments.memory;
    rc = clEnqueueNativeKernel(p.queue, fillNatively, &arguments, sizeof arguments, 1, &p.out,
                               &place, 0, nullptr, nullptr);
  }
  return std::to_string(rc);
}

// A kernel that is waited for by its event alone, on a queue with a second reference.
std::string launchAndWait(double ms) {
  cl_event done = nullptr;
  clRetainCommandQueue(p.queue);
  cl_int rc = launch(ms, nullptr, &done);
  clReleaseCommandQueue(p.queue);
  if (rc == CL_SUCCESS) rc = clWaitForEvents(1, &done);
  clReleaseEvent(done);
  return std::to_string(rc);
}

// Views of buffer 1: the same bytes under another name.
std::string subBuffer(int name, size_t bytes) {
  cl_int rc = CL_SUCCESS;
  cl_buffer_region region{0, bytes};
  cl_mem mem = clCreateSubBuffer(p.buffers[1], CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                 &region, &rc);
  if (mem) p.buffers[name] = mem;
  return std::to_string(rc);
}

std::string imageOfBuffer(int name, size_t width) {
  cl_int rc = CL_SUCCESS;
  cl_image_format format{CL_RGBA, CL_FLOAT};
  cl_image_desc desc{};
  desc.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER;
  desc.image_width = width;
  desc.mem_object = p.buffers[1];
  cl_mem mem = clCreateImage(p.context, CL_MEM_READ_WRITE, &format, &desc, nullptr, &rc);
  if (mem) p.buffers[name] = mem;
  return std::to_string(rc);
}

std::string pipe(int name, cl_uint packets) {
  cl_int rc = CL_SUCCESS;
  cl_mem mem = clCreatePipe(p.context, CL_MEM_READ_WRITE, 16, packets, nullptr, &rc);
  if (mem) p.buffers[name] = mem;
  return std::to_string(rc);
}

// Allocates and frees as fast as it can; the answer says how many succeeded.
std::string churn(int times, size_t bytes) {
  int got = 0;
  for (int i = 0; i < times; ++i) {
    cl_mem mem = clCreateBuffer(p.context, CL_MEM_READ_WRITE, bytes, nullptr, nullptr);
    if (!mem) continue;
    ++got;
    clReleaseMemObject(mem);
  }
  return std::to_string(got);
}

// Allocates `times` buffers where they fit and keeps them; the answer is how many bytes it got.
std::string keep(int times, size_t bytes) {
  size_t got = 0;
  for (int i = 0; i < times; ++i) {
    if (clCreateBuffer(p.context, CL_MEM_READ_WRITE, bytes, nullptr, nullptr)) got += bytes;
  }
  return std::to_string(got);
}

std::string forkAndUse() {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    // The driver does not survive a fork; what must survive is the library's own state.
    cl_platform_id platform = nullptr;
    _exit(clGetPlatformIDs(1, &platform, nullptr) == CL_SUCCESS && platform ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return std::to_string(WEXITSTATUS(status));
}

std::string extensions() {
  char list[4096] = {};
  clGetDeviceInfo(p.device, CL_DEVICE_EXTENSIONS, sizeof list - 1, list, nullptr);
  bool command = strstr(list, "cl_khr_command_buffer") != nullptr;
  bool fp64 = strstr(list, "cl_khr_fp64") != nullptr;
  void* hidden = clGetExtensionFunctionAddressForPlatform(p.platform, "clCommandNDRangeKernelKHR");
  return std::string(command ? "listed" : "hidden") + (fp64 ? " fp64" : " -") +
         (hidden ? " address" : " none");
}

std::string sizes() {
  cl_ulong global = 0, most = 0;
  clGetDeviceInfo(p.device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof global, &global, nullptr);
  clGetDeviceInfo(p.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, nullptr);
  return std::to_string(global) + " " + std::to_string(most);
}

std::string fromType() {
  cl_context context =
      clCreateContextFromType(nullptr, CL_DEVICE_TYPE_ALL, nullptr, nullptr, nullptr);
  cl_uint count = 0;
  if (!context) return "none";
  clGetContextInfo(context, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, nullptr);
  clReleaseContext(context);
  return std::to_string(count);
}

// Contexts over lists of devices: a part of the own device, and a device that the driver itself,
// not the loader, gave out.
std::string contextOver(cl_device_id device) {
  cl_int rc = CL_SUCCESS;
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &rc);
  if (context) clReleaseContext(context);
  return std::to_string(rc);
}

std::string partContext() {
  cl_device_partition_property parts[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
  cl_uint count = 0;
  cl_device_id all[64];
  cl_int rc = clCreateSubDevices(p.device, parts, 64, all, &count);
  if (rc != CL_SUCCESS || count == 0) return "no-part " + std::to_string(rc);
  return contextOver(all[0]);
}

// The driver's file is the first line of what the loader reads.
std::string driverFile() {
  std::ifstream in("/etc/OpenCL/vendors/pocl.icd");
  std::string name;
  std::getline(in, name);
  return name;
}

std::string foreignContext(cl_uint index) {
  void* driver = dlopen(driverFile().c_str(), RTLD_NOW);
  if (!driver) return "no-driver";
  using Find = void* (*)(const char*);
  auto find = reinterpret_cast<Find>(dlsym(driver, "clGetExtensionFunctionAddress"));
  if (!find) return "no-find";
  auto platforms = reinterpret_cast<decltype(&clGetPlatformIDs)>(find("clIcdGetPlatformIDsKHR"));
  cl_platform_id platform = nullptr;
  if (!platforms || platforms(1, &platform, nullptr) != CL_SUCCESS) return "no-platform";
  const cl_icd_dispatch* table = *reinterpret_cast<const cl_icd_dispatch**>(platform);
  cl_device_id all[8];
  cl_uint count = 0;
  table->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 8, all, &count);
  return index < count ? contextOver(all[index]) : "no-device";
}

// Launches touch kernels from `threads` threads, `times` each, finishing after each `every`.
std::string hammer(int threads, int times, int every) {
  std::vector<std::thread> all;
  std::atomic<int> failed{0};
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, times, every] {
      cl_command_queue queue =
          clCreateCommandQueueWithProperties(p.context, p.device, nullptr, nullptr);
      for (int i = 0; i < times; ++i) {
        float zero = 0;
        if (clEnqueueFillBuffer(queue, p.out, &zero, sizeof zero, 128, 4, 0, nullptr, nullptr)) {
          ++failed;
        }
        if (i % every == every - 1) clFinish(queue);
      }
      clFinish(queue);
      clReleaseCommandQueue(queue);
    });
  }
  for (std::thread& t : all) t.join();
  return std::to_string(failed.load());
}

std::string pace(int count, double ms) {
  double start = nowMs();
  for (int i = 0; i < count; ++i) {
    launch(ms, nullptr, nullptr);
    clFinish(p.queue);
  }
  return std::to_string(nowMs() - start);
}

// "count": from now on; else how many came since.
std::string signals(std::istringstream& in) {
  std::string what;
  if (in >> what; what != "count") return std::to_string(p.signals.load());
  return signal(SIGUSR1, [](int) { p.signals.fetch_add(1); }) != SIG_ERR ? "ok" : "failed";
}

std::string burst(int count, double ms) {
  cl_int rc = CL_SUCCESS;
  for (int i = 0; i < count && rc == CL_SUCCESS; ++i) rc = launch(ms, nullptr, nullptr);
  return std::to_string(rc);
}

std::string obey(const std::string& verb, std::istringstream& in, const char* progressFile) {
  double a = 0, b = 0, c = 0;
  if (verb == "behinduser") return behindUser(in);
  if (verb == "signals") return signals(in);
  if (verb == "allocby") return allocateBy(in);
  if (verb == "launchby") return launchBy(in);
  in >> a >> b >> c;
  const int name = static_cast<int>(a);
  if (verb == "init") return init(progressFile, static_cast<int>(a) & 1, static_cast<int>(a) & 2);
  if (verb == "devices") return devices();
  if (verb == "launch") return std::to_string(launch(a, nullptr, nullptr));
  if (verb == "launchwait") return launchAndWait(a);
  if (verb == "touch") return std::to_string(launchTouch());
  if (verb == "finish") return std::to_string(clFinish(p.queue));
  if (verb == "flush") return std::to_string(clFlush(p.queue));
  if (verb == "check") return check();
  if (verb.ends_with('2')) return standardError(verb);
  if (verb == "alloc") return allocate(name, static_cast<size_t>(b));
  if (verb == "image") return image(name, static_cast<size_t>(b));
  if (verb == "sub") return subBuffer(name, static_cast<size_t>(b));
  if (verb == "view") return imageOfBuffer(name, static_cast<size_t>(b));
  if (verb == "pipe") return pipe(name, static_cast<cl_uint>(b));
  if (verb == "free") return std::to_string(clReleaseMemObject(p.buffers[name]));
  if (verb == "svm") {
    p.svm[name] = clSVMAlloc(p.context, CL_MEM_READ_WRITE, static_cast<size_t>(b), 0);
    return p.svm[name] ? "ok" : "null";
  }
  if (verb == "svmfree") return clSVMFree(p.context, p.svm[name]), "ok";
  if (verb == "svmqueue") {
    cl_int rc = clEnqueueSVMFree(p.queue, 1, &p.svm[name], nullptr, nullptr, 0, nullptr, nullptr);
    return std::to_string(rc);
  }
  if (verb == "churn") return churn(name, static_cast<size_t>(b));
  if (verb == "keep") return keep(name, static_cast<size_t>(b));
  if (verb == "dropout") return std::to_string(clReleaseMemObject(p.out));
  if (verb == "user") return p.user = clCreateUserEvent(p.context, nullptr), "ok";
  if (verb == "launchuser") return std::to_string(launch(a, &p.user, nullptr));
  if (verb == "touchuser") return std::to_string(launchTouch(&p.user));
  if (verb == "setuser") return std::to_string(clSetUserEventStatus(p.user, CL_COMPLETE));
  if (verb == "failuser") return std::to_string(clSetUserEventStatus(p.user, -77));
  if (verb == "join") return p.behindUser.join(), std::to_string(p.behindUserRc.load());
  if (verb == "callback") {
    cl_int rc = launch(a, p.user ? &p.user : nullptr, &p.last);
    clSetEventCallback(p.last, CL_COMPLETE, onComplete, nullptr);
    clFlush(p.queue);
    return std::to_string(rc);
  }
  if (verb == "callbacks") {
    return std::to_string(p.callbacks.load()) + " " + std::to_string(p.callbackLaunch.load());
  }
  if (verb == "notify") return notifyingContext();
  if (verb == "takesignal") return signal(SIGRTMAX - 3, [](int) {}) != SIG_ERR ? "ok" : "failed";
  if (verb == "fork") return forkAndUse();
  if (verb == "extensions") return extensions();
  if (verb == "sizes") return sizes();
  if (verb == "fromtype") return fromType();
  if (verb == "name") return deviceName();
  if (verb == "partcontext") return partContext();
  if (verb == "foreigncontext") return foreignContext(static_cast<cl_uint>(a));
  if (verb == "hammer") return hammer(name, static_cast<int>(b), static_cast<int>(c));
  if (verb == "pace") return pace(name, b);
  if (verb == "rate") {  // iterations of a kernel's loop per ms; 0 asks only
    if (a > 0) p.iterationsPerMs = a;
    return std::to_string(p.iterationsPerMs);
  }
  if (verb == "burst") return burst(name, b);
  return "unknown " + verb;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string verb;
    in >> verb;
    if (verb == "exec") execv(argv[0], argv);
    std::cout << obey(verb, in, argv[1]) << std::endl;
  }
  return 0;
}
