/* Linked into a guard with -Wl,--wrap=clock_gettime: a wall clock that is wrong by the seconds in the file CLOCK_FILE. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int __real_clock_gettime(clockid_t clock, struct timespec *into);

int __wrap_clock_gettime(clockid_t clock, struct timespec *into) {
    char text[32] = "";
    int failed = __real_clock_gettime(clock, into), fd = clock == CLOCK_REALTIME ? open(CLOCK_FILE, O_RDONLY) : -1;
    if (fd < 0) return failed;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n > 0) into->tv_sec += strtol(text, NULL, 10);
    return failed;
}
