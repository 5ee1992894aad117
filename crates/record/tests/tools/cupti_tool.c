/* CUPTI's activity API (libcupti.so) over simulated devices: records of version 28, by cupti_activity.h. Buffers are returned by a thread of its own.
   TOOL_VERSION: the version that it states. TOOL_RECORD: bytes from one kernel's record to the next, so that buffers are full sooner.
   TOOL_REFUSE: a status with which no kind of record can be enabled. TOOL_LATE: ids of launches come in the buffer after that of the work. */
#define _GNU_SOURCE
#include "device_clock.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MEMCPY = 1, RUNTIME = 5, KERNEL = 10, EXTERNAL = 39, KINDS = 64 };
enum { SUCCESS = 0, INVALID_PARAMETER = 1, INVALID_OPERATION = 7, MAX_LIMIT_REACHED = 12, QUEUE_EMPTY = 18 };
enum { KERNEL_BYTES = 208, COPY_BYTES = 96, RUNTIME_BYTES = 48, EXTERNAL_BYTES = 24, WORK_MAX = 1 << 16, BUFFERS_MAX = 64, STREAMS = 16, IDS_MAX = 64 };

struct work {
    uint32_t kind, device, context, stream, correlation;
    const char *name;
    uint64_t bytes, start, end; /* true times */
    uint64_t id; /* of its launch, if it is late */
};

struct buffer {
    uint8_t *place;
    size_t size, valid;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void (*requested)(uint8_t **, size_t *, size_t *);
static void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t);
static int enabled[KINDS], running, held;
static struct work *works;
static size_t work_count;
static uint64_t stream_free[STREAMS];
static struct late {
    uint32_t correlation;
    uint64_t id;
} *late;
static size_t late_count;
static struct buffer current, done[BUFFERS_MAX];
static size_t done_count, returning;
static size_t dropped;
static uint32_t correlations;
static __thread uint64_t ids[IDS_MAX];
static __thread size_t id_count;

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* Returns buffers. */
static void *device(void *unused) {
    (void)unused;
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (!done_count || held)
            pthread_cond_wait(&changed, &mutex);
        struct buffer full = done[0];
        memmove(done, done + 1, --done_count * sizeof *done);
        returning++;
        pthread_mutex_unlock(&mutex);
        completed(NULL, 0, full.place, full.size, full.valid);
        pthread_mutex_lock(&mutex);
        returning--;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static void hand_over(void) {
    if (current.place && done_count < BUFFERS_MAX)
        done[done_count++] = current;
    current = (struct buffer){0};
    pthread_cond_broadcast(&changed);
}

/* Room for a record; NULL if there is no buffer. */
static uint8_t *put(uint32_t kind, size_t bytes) {
    if (current.place && current.size - current.valid < bytes)
        hand_over();
    if (!current.place) {
        size_t most = 0;
        requested(&current.place, &current.size, &most);
        current.valid = 0;
    }
    if (!current.place) {
        dropped++;
        return NULL;
    }
    uint8_t *record = current.place + current.valid;
    current.valid += bytes;
    memset(record, 0, bytes);
    memcpy(record, &kind, 4);
    return record;
}

static void put4(uint8_t *record, size_t at, uint32_t value) { memcpy(record + at, &value, 4); }
static void put8(uint8_t *record, size_t at, uint64_t value) { memcpy(record + at, &value, 8); }

static void put_id(uint32_t correlation, uint64_t id) {
    uint8_t *record = put(EXTERNAL, EXTERNAL_BYTES);
    if (!record)
        return;
    put4(record, 4, 5);
    put8(record, 8, id);
    put4(record, 16, correlation);
}

/* Ids go into a new buffer. */
static void put_late(void) {
    hand_over();
    for (size_t k = 0; k < late_count; k++)
        put_id(late[k].correlation, late[k].id);
    late_count = 0;
}

static void put_work(const struct work *work, int complete) {
    int kernel = work->kind == KERNEL;
    uint8_t *record = put(work->kind, kernel ? setting("TOOL_RECORD", KERNEL_BYTES) : COPY_BYTES);
    if (!record)
        return;
    size_t where = kernel ? 40 : 32;
    put8(record, 16, device_time(work->start));
    put8(record, 24, complete ? device_time(work->end) : 0);
    put4(record, where, work->device);
    put4(record, where + 4, work->context);
    put4(record, where + 8, work->stream);
    if (kernel) {
        for (uint32_t k = 0; k < 6; k++)
            put4(record, 52 + 4 * k, k + 1);
        put4(record, 92, work->correlation);
        put8(record, 104, (uint64_t)(uintptr_t)work->name);
    } else {
        record[4] = 1; /* host to device */
        put8(record, 8, work->bytes);
        put4(record, 44, work->correlation);
    }
}

/* Work that has ended gets its record. */
static void settle(int all) {
    uint64_t now = true_now();
    size_t kept = 0;
    for (size_t k = 0; k < work_count; k++) {
        if (works[k].end > now && !all) {
            works[kept++] = works[k];
            continue;
        }
        put_work(&works[k], works[k].end <= now);
        if (works[k].id && late_count < WORK_MAX)
            late[late_count++] = (struct late){works[k].correlation, works[k].id};
    }
    work_count = kept;
}

/* For the tests. */

/* Launches a kernel of this length, or a copy if there is no name; gives true start and end. */
void tool_launch(uint32_t on, uint32_t context, uint32_t stream, const char *name, uint64_t length, uint64_t truth[2]) {
    pthread_mutex_lock(&mutex);
    uint64_t now = true_now(), *end = &stream_free[(on * 4 + stream) % STREAMS];
    uint32_t correlation = ++correlations;
    uint64_t id = id_count && enabled[EXTERNAL] ? ids[id_count - 1] : 0;
    int is_late = getenv("TOOL_LATE") != NULL;
    uint8_t *record;
    if (!works) {
        works = calloc(WORK_MAX, sizeof *works);
        late = calloc(WORK_MAX, sizeof *late);
    }
    if (id && !is_late)
        put_id(correlation, id);
    if (enabled[RUNTIME] && (record = put(RUNTIME, RUNTIME_BYTES)))
        put4(record, 40, correlation);
    truth[0] = *end > now + 10000 ? *end : now + 10000;
    truth[1] = *end = truth[0] + length;
    if (enabled[name ? KERNEL : MEMCPY] && work_count < WORK_MAX)
        works[work_count++] = (struct work){name ? KERNEL : MEMCPY, on, context, stream, correlation, name ? strdup(name) : NULL, length, truth[0], truth[1], is_late ? id : 0};
    pthread_mutex_unlock(&mutex);
}

/* Waits until a true time, as for work that ends then. */
void tool_wait(uint64_t truth) { wait_until(truth); }

/* While held, no buffer is returned, not even by a flush. Work that has ended gets its record first. Without: waits until all are returned. */
void tool_hold(int on) {
    pthread_mutex_lock(&mutex);
    settle(0);
    held = on;
    pthread_cond_broadcast(&changed);
    while (!held && (done_count || returning))
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

int tool_enabled(void) {
    int sum = 0;
    for (int k = 0; k < KINDS; k++)
        sum += enabled[k];
    return sum;
}

/* Ids that this thread has pushed. */
int tool_ids(void) { return (int)id_count; }

/* CUPTI's API. */

int cuptiGetVersion(uint32_t *version) {
    *version = (uint32_t)setting("TOOL_VERSION", 28);
    return SUCCESS;
}

int cuptiGetResultString(int status, const char **text) {
    *text = status == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : status == 15 ? "CUPTI_ERROR_NOT_INITIALIZED" : NULL;
    return *text ? SUCCESS : INVALID_PARAMETER;
}

int cuptiGetTimestamp(uint64_t *ns) {
    *ns = device_time(true_now());
    return SUCCESS;
}

int cuptiActivityRegisterCallbacks(void (*request)(uint8_t **, size_t *, size_t *), void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t)) {
    pthread_t thread;
    pthread_mutex_lock(&mutex);
    requested = request, completed = complete;
    if (!running++)
        pthread_create(&thread, NULL, device, NULL);
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

int cuptiActivityEnable(int kind) {
    if (getenv("TOOL_REFUSE"))
        return (int)setting("TOOL_REFUSE", 0);
    pthread_mutex_lock(&mutex);
    enabled[kind] = 1;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

int cuptiActivityDisable(int kind) {
    pthread_mutex_lock(&mutex);
    enabled[kind] = 0;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

int cuptiActivityFlushAll(uint32_t forced) {
    if (!completed)
        return INVALID_OPERATION;
    pthread_mutex_lock(&mutex);
    settle(forced != 0);
    put_late();
    if (forced)
        hand_over();
    while (!held && (done_count || returning))
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    if (*record) {
        uint32_t kind;
        memcpy(&kind, *record, 4);
        *record += kind == KERNEL ? setting("TOOL_RECORD", KERNEL_BYTES) : kind == MEMCPY ? COPY_BYTES : kind == RUNTIME ? RUNTIME_BYTES : EXTERNAL_BYTES;
    } else {
        *record = buffer;
    }
    return *record < buffer + valid ? SUCCESS : MAX_LIMIT_REACHED;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
    (void)context, (void)stream;
    pthread_mutex_lock(&mutex);
    *count = dropped;
    dropped = 0;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

int cuptiActivityPushExternalCorrelationId(int kind, uint64_t id) {
    if (kind != 5 || id_count == IDS_MAX)
        return INVALID_PARAMETER;
    ids[id_count++] = id;
    return SUCCESS;
}

int cuptiActivityPopExternalCorrelationId(int kind, uint64_t *last) {
    if (kind != 5)
        return INVALID_PARAMETER;
    if (!id_count)
        return QUEUE_EMPTY;
    *last = ids[--id_count];
    return SUCCESS;
}
