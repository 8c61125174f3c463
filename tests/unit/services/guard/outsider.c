/* A program without qgpu's library, and without any: it is linked statically. It tries one way to a
   device node and ends with the error, 0 where it got in:
     open PATH | ioctl FD | map FD | in-thread PATH (executes itself from a thread that leads not) */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static void *executeAnew(void *path) {
  char self[] = "/proc/self/exe", name[] = "outsider", mode[] = "open";
  char *const argv[] = {name, mode, path, NULL};
  execv(self, argv);
  _exit(99);
}

int main(int argc, char **argv) {
  if (argc != 3) return 98;
  if (strcmp(argv[1], "open") == 0) return open(argv[2], O_RDONLY) >= 0 ? 0 : errno;
  if (strcmp(argv[1], "ioctl") == 0) return ioctl(atoi(argv[2]), 1, 0) == 0 ? 0 : errno;
  if (strcmp(argv[1], "map") == 0) {
    return mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, atoi(argv[2]), 0) != MAP_FAILED ? 0 : errno;
  }
  pthread_t thread;
  if (pthread_create(&thread, NULL, executeAnew, argv[2]) != 0) return 97;
  for (;;) pause();
}
