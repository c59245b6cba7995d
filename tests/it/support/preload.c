/* For LD_PRELOAD: short and torn writes, and a wrong wall clock.
 *
 * FAULT_WRITE: "short N" or "torn N": half of the Nth write to a regular file is done; "torn" then ends the process.
 * FAULT_CLOCK: a file with the number of seconds by which the wall clock is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long writes;

ssize_t write(int fd, const void *bytes, size_t length) {
    const char *fault = getenv("FAULT_WRITE");
    struct stat file;
    if (!fault || length < 2 || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
        return syscall(SYS_write, fd, bytes, length);
    int is_torn = *fault == 't';
    if (__sync_add_and_fetch(&writes, 1) != atol(fault + (is_torn ? 5 : 6)))
        return syscall(SYS_write, fd, bytes, length);
    ssize_t done = syscall(SYS_write, fd, bytes, length / 2);
    if (is_torn)
        kill(getpid(), SIGKILL);
    return done;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    const char *path = getenv("FAULT_CLOCK");
    char text[32] = {0};
    int file = clock == CLOCK_REALTIME && path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (0 <= file) {
        if (0 < read(file, text, sizeof text - 1))
            time->tv_sec += atol(text);
        close(file);
    }
    return result;
}
