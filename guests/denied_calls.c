/* Interfaces that programs probe and do without: io_uring, perf events, bpf. Bare kernels and containers differ in what they
 * answer, so the numbers go to the sink; what counts is that the program goes on. */
#include "guest.h"
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>

int main(void) {
    struct io_uring_params p = {0};
    puts("before");
    fflush(stdout);
    long r[3] = {syscall(SYS_io_uring_setup, 4, &p)};
    if (r[0] >= 0) close(r[0]);
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_CPU_CLOCK};
    r[1] = syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
    if (r[1] >= 0) close(r[1]);
    sink(r, sizeof r);
    check("went on", getppid() > 0);
    return done();
}
