/* Sits between a program and libc (LD_PRELOAD), and refuses what the harness wants refused.
 *
 * All it does is told by a page of memory that the harness shares with it, the file named by LOGSHIP_CHAOS_CONTROL; its
 * layout is that of tests/chaos/shim.py. While the page is all zeros, or not there, every call goes through as it is.
 *
 * Calls that change files are refused below one folder only, so that the program's other files, sockets and pipes are left
 * alone. The clock is that of CLOCK_REALTIME as the program reads it; what the kernel does by it (times of files, waits under
 * way) goes on by the true one. Waits until a time that the program has computed from our clock are given the true time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SYNC = 1, WRITE = 2, OPEN = 4, NAMES = 8, LENGTH = 16 };

struct control {
    int64_t clock;     /* nanoseconds that the clock is ahead by */
    uint32_t calls;    /* which calls are hit, of those above; 0 is none */
    int32_t error;     /* what they fail with; 0 has writes write half of what they are given */
    int32_t left;      /* how many calls it hits still; less than 0 is all of them */
    uint32_t every;    /* of those that could be hit, each so manyth is */
    uint32_t seen;     /* how many could be hit so far */
    uint32_t hits;     /* how many were */
    uint32_t delay;    /* microseconds that a hit call takes longer; where error is 0, all that is done to a sync */
    char under[PATH_MAX];
};

static struct control *control;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("LOGSHIP_CHAOS_CONTROL");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct stat status;
    if (file < 0)
        return;
    if (fstat(file, &status) == 0 && (size_t)status.st_size >= sizeof(struct control)) {
        void *page = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (page != MAP_FAILED)
            control = page;
    }
    close(file);
}

#define REAL(result, name, ...)                                      \
    static result (*real)(__VA_ARGS__);                              \
    if (!real)                                                       \
        real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static int is_under(const char *path)
{
    size_t length = strnlen(control->under, PATH_MAX);
    return length && strncmp(path, control->under, length) == 0 &&
           (path[length] == '/' || path[length] == 0);
}

static int is_file_under(int file)
{
    char link[64], path[PATH_MAX];
    ssize_t length;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return is_under(path);
}

static int is_name_under(int folder, const char *name)
{
    char link[64], path[2 * PATH_MAX];
    ssize_t length = 0;
    if (!name)
        return 0;
    if (name[0] == '/')
        return is_under(name);
    if (folder == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    length = readlink(link, path, PATH_MAX);
    if (length <= 0)
        return 0;
    snprintf(path + length, sizeof path - (size_t)length, "/%s", name);
    return is_under(path);
}

static int wants(uint32_t call)
{
    return control && (__atomic_load_n(&control->calls, __ATOMIC_ACQUIRE) & call);
}

/* Whether this call is the one; for those that `wants` and the path have let through. */
static int is_hit(void)
{
    uint32_t seen = __atomic_add_fetch(&control->seen, 1, __ATOMIC_RELAXED);
    int32_t left = __atomic_load_n(&control->left, __ATOMIC_RELAXED);
    if (control->every > 1 && seen % control->every)
        return 0;
    do {
        if (left == 0)
            return 0;
    } while (left > 0 && !__atomic_compare_exchange_n(&control->left, &left, left - 1, 0,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_RELAXED);
    if (control->delay) {
        int before = errno;
        usleep(control->delay);
        errno = before;
    }
    return 1;
}

static int fails(int hit)
{
    if (!hit || !control->error)
        return 0;
    errno = control->error;
    return 1;
}

static int refuses_file(uint32_t call, int file)
{
    return wants(call) && is_file_under(file) && fails(is_hit());
}

static int refuses_name(uint32_t call, int folder, const char *name)
{
    return wants(call) && is_name_under(folder, name) && fails(is_hit());
}

/* ---- syncing ---- */

#define SYNCING(name)                                                \
    int name(int file)                                               \
    {                                                                \
        REAL(int, name, int);                                        \
        return refuses_file(SYNC, file) ? -1 : real(file);           \
    }
SYNCING(fsync)
SYNCING(fdatasync)

/* ---- writing ---- */

/* Returns how much to write, -1 for what fails. */
static ssize_t writable(int file, size_t count)
{
    if (!wants(WRITE) || !is_file_under(file) || !is_hit())
        return (ssize_t)count;
    if (fails(1))
        return -1;
    return (ssize_t)(count > 1 ? count / 2 : count);
}

ssize_t write(int file, const void *bytes, size_t count)
{
    ssize_t some = writable(file, count);
    REAL(ssize_t, write, int, const void *, size_t);
    return some < 0 ? -1 : real(file, bytes, (size_t)some);
}

#define WRITING_AT(name, offset_type)                                                  \
    ssize_t name(int file, const void *bytes, size_t count, offset_type offset)        \
    {                                                                                  \
        ssize_t some = writable(file, count);                                          \
        REAL(ssize_t, name, int, const void *, size_t, offset_type);                   \
        return some < 0 ? -1 : real(file, bytes, (size_t)some, offset);                \
    }
WRITING_AT(pwrite, off_t)
WRITING_AT(pwrite64, off64_t)

/* A short one writes the first of its pieces, or half of an only one. */
ssize_t writev(int file, const struct iovec *pieces, int count)
{
    ssize_t some = writable(file, 2);
    REAL(ssize_t, writev, int, const struct iovec *, int);
    if (some < 0)
        return -1;
    if (some == 2 || count < 1)
        return real(file, pieces, count);
    if (count > 1)
        return real(file, pieces, 1);
    struct iovec half = {pieces->iov_base, pieces->iov_len > 1 ? pieces->iov_len / 2 : pieces->iov_len};
    return real(file, &half, 1);
}

/* ---- opening ---- */

static int changes(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
}

#define MODE_OF(flags, mode)                                         \
    mode_t mode = 0;                                                 \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                         \
        va_list rest;                                                \
        va_start(rest, flags);                                       \
        mode = va_arg(rest, mode_t);                                 \
        va_end(rest);                                                \
    }

#define OPENING(name)                                                                        \
    int name(const char *path, int flags, ...)                                               \
    {                                                                                        \
        MODE_OF(flags, mode)                                                                 \
        REAL(int, name, const char *, int, ...);                                             \
        if (changes(flags) && refuses_name(OPEN, AT_FDCWD, path))                            \
            return -1;                                                                       \
        return real(path, flags, mode);                                                      \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name)                                                                     \
    int name(int folder, const char *path, int flags, ...)                                   \
    {                                                                                        \
        MODE_OF(flags, mode)                                                                 \
        REAL(int, name, int, const char *, int, ...);                                        \
        if (changes(flags) && refuses_name(OPEN, folder, path))                              \
            return -1;                                                                       \
        return real(folder, path, flags, mode);                                              \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

/* ---- names ---- */

int rename(const char *from, const char *to)
{
    REAL(int, rename, const char *, const char *);
    return refuses_name(NAMES, AT_FDCWD, to) ? -1 : real(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    REAL(int, renameat, int, const char *, int, const char *);
    return refuses_name(NAMES, to_folder, to) ? -1 : real(from_folder, from, to_folder, to);
}

int unlink(const char *path)
{
    REAL(int, unlink, const char *);
    return refuses_name(NAMES, AT_FDCWD, path) ? -1 : real(path);
}

int unlinkat(int folder, const char *path, int flags)
{
    REAL(int, unlinkat, int, const char *, int);
    return refuses_name(NAMES, folder, path) ? -1 : real(folder, path, flags);
}

int link(const char *from, const char *to)
{
    REAL(int, link, const char *, const char *);
    return refuses_name(NAMES, AT_FDCWD, to) ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, mkdir, const char *, mode_t);
    return refuses_name(NAMES, AT_FDCWD, path) ? -1 : real(path, mode);
}

/* ---- lengths ---- */

#define LENGTH_OF(name, offset_type)                                            \
    int name(int file, offset_type length)                                      \
    {                                                                           \
        REAL(int, name, int, offset_type);                                      \
        return refuses_file(LENGTH, file) ? -1 : real(file, length);            \
    }
LENGTH_OF(ftruncate, off_t)
LENGTH_OF(ftruncate64, off64_t)

#define LENGTH_OF_NAMED(name, offset_type)                                      \
    int name(const char *path, offset_type length)                              \
    {                                                                           \
        REAL(int, name, const char *, offset_type);                             \
        return refuses_name(LENGTH, AT_FDCWD, path) ? -1 : real(path, length);  \
    }
LENGTH_OF_NAMED(truncate, off_t)
LENGTH_OF_NAMED(truncate64, off64_t)

/* ---- the clock ---- */

#define SECOND 1000000000LL

static int64_t ahead(void)
{
    return control ? __atomic_load_n(&control->clock, __ATOMIC_RELAXED) : 0;
}

static void shift(struct timespec *time, int64_t by)
{
    int64_t all = (int64_t)time->tv_sec * SECOND + time->tv_nsec + by;
    time->tv_sec = (time_t)(all / SECOND);
    time->tv_nsec = (long)(all % SECOND);
}

static int is_of_day(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int result = real(clock, time);
    if (result == 0 && ahead() && is_of_day(clock))
        shift(time, ahead());
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    REAL(int, gettimeofday, struct timeval *restrict, void *restrict);
    int result = real(time, zone);
    if (result == 0 && ahead()) {
        struct timespec precise = {time->tv_sec, time->tv_usec * 1000};
        shift(&precise, ahead());
        time->tv_sec = precise.tv_sec;
        time->tv_usec = precise.tv_nsec / 1000;
    }
    return result;
}

time_t time(time_t *result)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}

/* What counts from the machine's start is never that late: such a time is one of the day. */
#define YEARS (20LL * 365 * 24 * 3600)

static const struct timespec *true_time(const struct timespec *until, struct timespec *room)
{
    if (!until || !ahead() || until->tv_sec < YEARS)
        return until;
    *room = *until;
    shift(room, -ahead());
    return room;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until)
{
    struct timespec room;
    REAL(int, sem_timedwait, sem_t *restrict, const struct timespec *restrict);
    return real(semaphore, true_time(until, &room));
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
    struct timespec room;
    REAL(int, pthread_mutex_timedlock, pthread_mutex_t *restrict, const struct timespec *restrict);
    return real(mutex, true_time(until, &room));
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    typedef int call(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    static call *real;
    struct timespec room;
    /* dlsym alone gives the one of before 2003, whose conditions look different */
    if (!real)
        real = (call *)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real)
        real = (call *)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    return real(condition, mutex, true_time(until, &room));
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    struct timespec room;
    REAL(int, clock_nanosleep, clockid_t, int, const struct timespec *, struct timespec *);
    return real(clock, flags, flags & TIMER_ABSTIME ? true_time(until, &room) : until, left);
}
