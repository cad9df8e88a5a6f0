/* Faults of a disk for a process that is started with LD_PRELOAD: writes, syncs, truncations and
 * opens of files below $HUSHGRID_FAULTS_FOLDER fail as the plan in the file $HUSHGRID_FAULTS says.
 * The plan is shared memory: tests/faults/shim.py changes it while the process runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct plan {
    atomic_int calls;  /* WRITE | SYNC | TRUNCATE | OPEN */
    atomic_int error;  /* errno; 0: half of the bytes are written */
    atomic_int skip;   /* calls that go well before */
    atomic_int times;  /* calls that fail; 0: none */
    atomic_int met;    /* calls that matched */
    atomic_int fired;  /* calls that failed */
    atomic_int clock;  /* [ms] that the service's clock is set forward */
    char file[36];     /* a part of the path */
};
enum { WRITE = 1, SYNC = 2, TRUNCATE = 4, OPEN = 8 };
static struct plan *plan;
static const char *folder;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HUSHGRID_FAULTS");
    folder = getenv("HUSHGRID_FAULTS_FOLDER");
    int file = path && folder ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *made = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (made != MAP_FAILED) plan = made;
    close(file);
}

static int fails_at(const char *path) {
    size_t size = strlen(folder);
    if (strncmp(path, folder, size) != 0 || !strstr(path + size, plan->file)) return 0;
    int n = atomic_fetch_add(&plan->met, 1) - atomic_load(&plan->skip);
    if (n < 0 || n >= atomic_load(&plan->times)) return 0;
    atomic_fetch_add(&plan->fired, 1);
    return 1;
}

static int armed(int call) {
    return plan && atomic_load(&plan->times) > 0 && (atomic_load(&plan->calls) & call);
}

static int fails(int call, int file) {
    char name[64], path[4096];
    if (!armed(call)) return 0;
    int before = errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t size = readlink(name, path, sizeof path - 1);
    errno = before;
    if (size < 0) return 0;
    path[size] = 0;
    return fails_at(path);
}

static int failed(void) {
    errno = atomic_load(&plan->error);
    return -1;
}

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t write(int file, const void *bytes, size_t size) {
    NEXT(write);
    if (!fails(WRITE, file)) return next(file, bytes, size);
    return atomic_load(&plan->error) ? failed() : next(file, bytes, size > 1 ? size / 2 : size);
}

#define PWRITE(name, offset) \
    ssize_t name(int file, const void *bytes, size_t size, offset at) { \
        NEXT(name); \
        if (!fails(WRITE, file)) return next(file, bytes, size, at); \
        if (atomic_load(&plan->error)) return failed(); \
        return next(file, bytes, size > 1 ? size / 2 : size, at); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define SYNCS(name) \
    int name(int file) { \
        NEXT(name); \
        return fails(SYNC, file) ? failed() : next(file); \
    }
SYNCS(fsync)
SYNCS(fdatasync)

#define TRUNCATES(name, offset) \
    int name(int file, offset size) { \
        NEXT(name); \
        return fails(TRUNCATE, file) ? failed() : next(file, size); \
    }
TRUNCATES(ftruncate, off_t)
TRUNCATES(ftruncate64, off64_t)

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }
#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        NEXT(name); \
        MODE(flags) \
        int writes = flags & (O_WRONLY | O_RDWR | O_CREAT); \
        return writes && armed(OPEN) && fails_at(path) ? failed() : next(path, flags, mode); \
    }
OPENS(open)
OPENS(open64)
