/* LD_PRELOAD: writes and syncs of the database fail while a file says so.
 *
 * The file that FAULTY_DISK names holds a word: "fsync" or "full"; "once" behind it takes the word away after the first
 * failure. No file, or an empty one: nothing fails. Only files with "queuemanager" in their names are meant.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int meant(int fd) {
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, name, sizeof name - 1);
    if (n < 0) return 0;
    name[n] = 0;
    return strstr(name, "queuemanager") != NULL;
}

static int fails(const char *what) {
    const char *path = getenv("FAULTY_DISK");
    char word[64] = "";
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    if (!fgets(word, sizeof word, file)) word[0] = 0;
    fclose(file);
    if (strncmp(word, what, strlen(what))) return 0;
    if (strstr(word, "once")) unlink(path);
    return 1;
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    if (meant(fd) && fails("fsync")) return errno = EIO, -1;
    return real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    if (meant(fd) && fails("fsync")) return errno = EIO, -1;
    return real(fd);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    if (meant(fd) && fails("full")) return errno = ENOSPC, -1;
    return real(fd, data, length, at);
}

ssize_t write(int fd, const void *data, size_t length) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    if (meant(fd) && fails("full")) return errno = ENOSPC, -1;
    return real(fd, data, length);
}
