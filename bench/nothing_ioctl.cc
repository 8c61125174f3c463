// An ioctl() and an fcntl() that do nothing and succeed: what is left of the time of a call is what
// stands in front of it. For bench_cuda_hook.

extern "C" {
int nothingIoctl(int, unsigned long, void*) __asm__("ioctl");
int nothingFcntl(int, int, long) __asm__("fcntl");
}

int nothingIoctl(int, unsigned long, void*) {
  return 0;
}
int nothingFcntl(int, int, long) {
  return 0;
}
