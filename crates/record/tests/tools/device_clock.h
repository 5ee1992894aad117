/* The clock of a simulated device: its own epoch, and half as fast again as CLOCK_MONOTONIC_RAW,
   which is the true time. */
#include <errno.h>
#include <stdint.h>
#include <time.h>

static uint64_t true_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t device_time(uint64_t truth) { return 5000000000000 + truth + truth / 2; }

/* Returns once the true time is reached: the device has done its work. */
static void wait_until(uint64_t truth) {
    uint64_t now;
    while ((now = true_now()) < truth) {
        struct timespec rest = {(time_t)((truth - now) / 1000000000), (long)((truth - now) % 1000000000)};
        nanosleep(&rest, NULL);
    }
}
