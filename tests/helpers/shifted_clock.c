/* LD_PRELOAD library: shifts the system clock of a process by the seconds in the file SHIFTED_CLOCK (8 bytes, native order). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile const long *seconds;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("SHIFTED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED) seconds = mapped;
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (!result && seconds && clock == CLOCK_REALTIME) now->tv_sec += *seconds;
    return result;
}
