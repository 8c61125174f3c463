// An ioctl() that does nothing and succeeds: what is left of the time of a call is what stands in
// front of it. For bench_cuda_hook.

extern "C" int nothingIoctl(int, unsigned long, void*) __asm__("ioctl");
int nothingIoctl(int, unsigned long, void*) {
  return 0;
}
