/* A driver (libcuda.so.1) with one simulated device, for streams and events. By cuda.h. */
#define _GNU_SOURCE
#include "device_clock.h"
#include <stdlib.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_READY = 600 };

struct stream {
    uint64_t free; /* when its work has ended */
    int capturing;
};

struct event {
    uint64_t at; /* 0: not recorded */
};

static struct stream default_stream;
static int live;
static __thread void *context;
static __thread int mode = 1; /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */

/* For the tests. */

void tool_set_context(uintptr_t number) { context = (void *)number; }

/* Streams and events that exist. */
int tool_live(void) { return __atomic_load_n(&live, __ATOMIC_SEQ_CST); }

static struct stream *of(struct stream *stream) { return stream ? stream : &default_stream; }

/* Work of this length; gives true start and end. */
void tool_work(struct stream *stream, uint64_t ns, uint64_t truth[2]) {
    stream = of(stream);
    uint64_t now = true_now();
    truth[0] = stream->free > now ? stream->free : now;
    truth[1] = stream->free = truth[0] + ns;
}

void tool_capture(struct stream *stream, int on) { of(stream)->capturing = on; }

void tool_synchronize(struct stream *stream) { wait_until(of(stream)->free); }

/* The driver's API. */

int cuGetErrorName(int error, const char **name) {
    switch (error) {
    case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return SUCCESS;
    case INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; return SUCCESS;
    case NOT_READY: *name = "CUDA_ERROR_NOT_READY"; return SUCCESS;
    default: *name = NULL; return INVALID_VALUE;
    }
}

int cuCtxGetCurrent(void **current) {
    *current = context;
    return SUCCESS;
}

static __thread void *stack[8];
static __thread int depth;

int cuCtxPushCurrent_v2(void *pushed) {
    if (!pushed || depth == 8)
        return INVALID_CONTEXT;
    stack[depth++] = context;
    context = pushed;
    return SUCCESS;
}

int cuCtxPopCurrent_v2(void **popped) {
    if (!depth)
        return INVALID_CONTEXT;
    *popped = context;
    context = stack[--depth];
    return SUCCESS;
}

int cuCtxGetDevice(int *device) {
    *device = 0;
    return context ? SUCCESS : INVALID_CONTEXT;
}

int cuThreadExchangeStreamCaptureMode(int *exchanged) {
    int before = mode;
    mode = *exchanged;
    *exchanged = before;
    return SUCCESS;
}

int cuStreamIsCapturing(struct stream *stream, int *status) {
    *status = of(stream)->capturing;
    return SUCCESS;
}

int cuStreamCreate(struct stream **stream, unsigned flags) {
    (void)flags;
    if (!context)
        return INVALID_CONTEXT;
    *stream = calloc(1, sizeof **stream);
    __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

int cuStreamDestroy_v2(struct stream *stream) {
    free(stream);
    __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

int cuEventCreate(struct event **event, unsigned flags) {
    (void)flags;
    if (!context)
        return INVALID_CONTEXT;
    *event = calloc(1, sizeof **event);
    __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

int cuEventRecord(struct event *event, struct stream *stream) {
    if (!context)
        return INVALID_CONTEXT;
    uint64_t now = true_now();
    event->at = of(stream)->free > now ? of(stream)->free : now;
    return SUCCESS;
}

int cuEventQuery(struct event *event) {
    if (!context)
        return INVALID_CONTEXT;
    return event->at <= true_now() ? SUCCESS : NOT_READY;
}

int cuEventElapsedTime(float *ms, struct event *start, struct event *end) {
    uint64_t now = true_now();
    if (!context)
        return INVALID_CONTEXT;
    if (!start->at || !end->at)
        return INVALID_HANDLE;
    if (start->at > now || end->at > now)
        return NOT_READY;
    *ms = (float)(((double)device_time(end->at) - (double)device_time(start->at)) / 1e6);
    return SUCCESS;
}

int cuEventDestroy_v2(struct event *event) {
    free(event);
    __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}
