/* LD_PRELOAD library: makes writes and syncs of the database fail, as a file specifies, or at a numbered call.
 *
 * The file named by FAULTY_DISK contains "fsync" or "full". With "once" after it, the word is removed after the first failure.
 * "full while PATH" ends when the file PATH does not exist, and fails to allocate files until then. With "every N", only each Nth
 * call fails. Without the file, or if it is empty, nothing fails. Only files with "queuemanager" in their paths are affected.
 * FAULTY_DISK_NAME replaces this word.
 *
 * FAULTY_DISK_SIZE=BYTES: the space for all such files of a directory.
 *
 * FAULTY_DISK_DELAY=MILLISECONDS: the duration of a sync.
 *
 * FAULTY_DISK_AT=KIND:N:COUNT: calls number N to N + COUNT - 1 of a process fail. KIND full: writes. KIND fsync: syncs. KIND torn:
 * the process writes half of the data and ends as by kill -9. A write of one sector is never torn.
 *
 * FAULTY_DISK_SYNCED=DIRECTORY: each file is copied to the directory after a sync. After a kill, the directory contains the data
 * that certainly survives a power failure.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int meant(int fd) {
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, name, sizeof name - 1);
    if (n < 0) return 0;
    name[n] = 0;
    const char *part = getenv("FAULTY_DISK_NAME");
    return strstr(name, part ? part : "queuemanager") != NULL;
}

/* FAULTY_DISK_TOLD: a file to which a line is added for each injected fault. */
static void tell(void) {
    const char *told = getenv("FAULTY_DISK_TOLD");
    int fd = told ? open(told, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (fd >= 0) syscall(SYS_write, fd, "fault\n", 6), close(fd);
}

/* Return the fault of a counted call. 0: none. 1: the call fails. 2: the write is torn. */
static int counted(const char *what) {
    static atomic_int writes, syncs;
    const char *at = getenv("FAULTY_DISK_AT");
    char kind[8] = "";
    int first = 0, count = 1, torn = 0;
    if (!at || sscanf(at, "%7[a-z]:%d:%d", kind, &first, &count) < 2) return 0;
    torn = !strcmp(kind, "torn");
    if (strcmp(torn ? "full" : kind, what)) return 0;
    int number = atomic_fetch_add(strcmp(what, "full") ? &syncs : &writes, 1) + 1;
    if (number < first || number >= first + count) return 0;
    tell();
    return torn ? 2 : 1;
}

/* Return whether the files of a directory exceed its space if a file grows to this length. */
static int is_over(int fd, off64_t end) {
    const char *size = getenv("FAULTY_DISK_SIZE");
    char link[64], name[4096], other[8192];
    struct stat64 file;
    if (!size || fstat64(fd, &file) || end <= file.st_size) return 0;
    long long total = end - file.st_size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, name, sizeof name - 1);
    if (n < 0) return 0;
    name[n] = 0;
    *strrchr(name, '/') = 0;
    const char *each[] = {"queuemanager.db", "queuemanager.db-wal", "queuemanager.db-shm", "queuemanager.reserve"};
    for (int i = 0; i < 4; i++) {
        snprintf(other, sizeof other, "%s/%s", name, each[i]);
        if (!stat64(other, &file)) total += file.st_size;
    }
    return total > atoll(size);
}

static int fails(const char *what) {
    int at = counted(what);
    if (at) return at;
    const char *path = getenv("FAULTY_DISK");
    char word[512] = "";
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    if (!fgets(word, sizeof word, file)) word[0] = 0;
    fclose(file);
    if (strncmp(word, what, strlen(what))) return 0;
    word[strcspn(word, "\n")] = 0;
    if (!strncmp(word, "full while ", 11) && access(word + 11, F_OK)) return 0;
    if (strstr(word, "once")) unlink(path);
    char *every = strstr(word, "every ");
    if (every) {
        static atomic_int calls;
        if ((atomic_fetch_add(&calls, 1) + 1) % atoi(every + 6)) return 0;
        tell();
    }
    return 1;
}

static void delay(void) {
    const char *milliseconds = getenv("FAULTY_DISK_DELAY");
    if (milliseconds) usleep(1000 * atoi(milliseconds));
}

/* Copy a file after a sync. */
static void keep(int fd) {
    const char *directory = getenv("FAULTY_DISK_SYNCED");
    char link[64], name[4096], new[8192], kept[8192];
    struct stat64 file;
    off_t at = 0;
    if (!directory || fstat64(fd, &file) || !S_ISREG(file.st_mode)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, name, sizeof name - 1);
    if (n < 0) return;
    name[n] = 0;
    snprintf(kept, sizeof kept, "%s/%s", directory, strrchr(name, '/') + 1);
    snprintf(new, sizeof new, "%s.new", kept);
    int to = open(new, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    while (sendfile(to, fd, &at, file.st_size - at) > 0) ;
    close(to), rename(new, kept);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    if (meant(fd)) delay();
    if (meant(fd) && fails("fsync")) return errno = EIO, -1;
    int result = real(fd);
    if (meant(fd)) keep(fd);
    return result;
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    if (meant(fd)) delay();
    if (meant(fd) && fails("fsync")) return errno = EIO, -1;
    int result = real(fd);
    if (meant(fd)) keep(fd);
    return result;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    int fault = meant(fd) ? fails("full") : 0;
    if (fault == 2) real(fd, data, length > 512 ? length / 2 : 0, at), kill(getpid(), SIGKILL);
    if (fault || (meant(fd) && is_over(fd, at + length))) return errno = ENOSPC, -1;
    return real(fd, data, length, at);
}

int posix_fallocate64(int fd, off64_t at, off64_t length) {
    static int (*real)(int, off64_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "posix_fallocate64");
    const char *path = getenv("FAULTY_DISK");
    if (meant(fd) && ((path && !access(path, F_OK)) || is_over(fd, at + length))) return ENOSPC;
    return real(fd, at, length);
}

int posix_fallocate(int fd, off_t at, off_t length) { return posix_fallocate64(fd, at, length); }

ssize_t write(int fd, const void *data, size_t length) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    int fault = meant(fd) ? fails("full") : 0;
    if (fault == 2) real(fd, data, length / 2), kill(getpid(), SIGKILL);
    if (fault) return errno = ENOSPC, -1;
    return real(fd, data, length);
}
