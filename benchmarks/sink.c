/* A Kafka broker that stores nothing: it reads Produce requests, counts what their batch headers promise, and answers.
 *
 * So little work a record that the client, not the server, is what a benchmark on two cores measures. One thread, poll(2),
 * one node, every topic exists with --partitions partitions. It prints one JSON line {"port": N} once it listens. It ends when
 * its standard input ends (so it never outlives the benchmark) and then prints a second line with the counts. With
 * --answer-delay-ms each answer leaves so much later, as from a distant cluster; requests are read at once all the same.
 *
 * It speaks ApiVersions 0-4, Metadata 0-13, InitProducerId 0-5 and Produce 3-13; with --metrics-interval-ms also what clients
 * need to push their metrics (KIP-714), which it counts. Fetch and FindCoordinator are only
 * advertised: librdkafka writes record batches of format 2 only to a server that offers Fetch 4, lz4 only to one that offers
 * FindCoordinator, and says nothing when it falls back.
 *
 * Bytes off the wire are checked against the frame's end before they are believed; a broken frame ends its connection.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_CONNECTIONS = 256,
    MAX_TOPICS = 16384,
    PLACES = 4 * MAX_TOPICS, /* a power of two */
    MAX_PARTITIONS = 1024,
    MAX_NAME = 249,
    MAX_FRAME = 256 * 1024 * 1024,
    FIRST_BUFFER = 1024 * 1024,
    RECEIVE_BUFFER = 100 * 1024, /* socket.receive.buffer.bytes of a broker; the system's own would take megabytes */
    BATCH_HEADER = 61,
    CODECS = 8,
};

enum {
    PRODUCE = 0, FETCH = 1, METADATA = 3, FIND_COORDINATOR = 10, API_VERSIONS = 18, INIT_PRODUCER_ID = 22,
    GET_TELEMETRY_SUBSCRIPTIONS = 71, PUSH_TELEMETRY = 72
};

typedef struct {
    int16_t key, min, max, flexible_from;
} Api;

/* Produce is advertised from 0, as Kafka 4 does for librdkafka, and refused below 3. */
static const Api APIS[] = {
    {PRODUCE, 0, 13, 9},   {FETCH, 4, 17, 12},        {METADATA, 0, 13, 9}, {FIND_COORDINATOR, 0, 6, 3},
    {API_VERSIONS, 0, 4, 3}, {INIT_PRODUCER_ID, 0, 5, 2},
    {GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, 0}, {PUSH_TELEMETRY, 0, 0, 0},
};
enum { API_COUNT = sizeof APIS / sizeof APIS[0], TELEMETRY_APIS = 2 };
static int metrics_interval_ms; /* how often clients shall push their metrics; 0: the two last APIs are not offered */
static int api_count(void) { return metrics_interval_ms ? API_COUNT : API_COUNT - TELEMETRY_APIS; }

typedef struct {
    int64_t producer_id, next_offset;
    int32_t next_sequence;
} Partition;

typedef struct {
    char name[MAX_NAME + 1];
    int name_size;
    Partition *partitions;
} Topic;

typedef struct {
    uint8_t *data;
    size_t used, capacity;
} Buffer;

static Topic topics[MAX_TOPICS];
static int topic_at[PLACES]; /* by the hash of the name: number of the topic + 1, 0 where there is none */
static int topic_count;
static int partition_count = 6;
static int port;
static int64_t last_producer_id = 1000;

static struct {
    uint64_t connections, requests, broken_frames, batches, records, record_bytes, old_format, sequence_errors, pushes;
    uint64_t records_by_codec[CODECS];
} counts;

/* ---- reading: a cursor that goes bad instead of past the end ---- */

typedef struct {
    const uint8_t *at, *end;
    bool bad;
} Reader;

static const uint8_t *take(Reader *r, size_t size) {
    if (r->bad || (size_t)(r->end - r->at) < size) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *start = r->at;
    r->at += size;
    return start;
}

static uint64_t big_endian(const uint8_t *p, int size) {
    uint64_t n = 0;
    for (int i = 0; i < size; i++) n = n << 8 | p[i];
    return n;
}

static int64_t read_int(Reader *r, int size) {
    const uint8_t *p = take(r, size);
    if (!p) return 0;
    uint64_t n = big_endian(p, size);
    int shift = 64 - 8 * size;
    return (int64_t)(n << shift) >> shift;
}

static uint32_t read_uvarint(Reader *r) {
    uint32_t n = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        const uint8_t *p = take(r, 1);
        if (!p) return 0;
        n |= (uint32_t)(*p & 0x7f) << shift;
        if (!(*p & 0x80)) return n;
    }
    r->bad = true;
    return 0;
}

/* Length of a string, bytes or array that follows; -1 is null. `width` is that of the length before flexible versions. */
static int64_t read_length(Reader *r, bool flexible, int width) {
    return flexible ? (int64_t)read_uvarint(r) - 1 : read_int(r, width);
}

static const uint8_t *read_string(Reader *r, bool flexible, int64_t *size) {
    *size = read_length(r, flexible, 2);
    return *size > 0 ? take(r, *size) : NULL;
}

static void skip_tags(Reader *r, bool flexible) {
    if (!flexible) return;
    for (uint32_t n = read_uvarint(r); n > 0 && !r->bad; n--) {
        read_uvarint(r);
        take(r, read_uvarint(r));
    }
}

/* ---- writing: one growing answer, its size filled in at the end ---- */

static Buffer answer;

static uint8_t *grow(Buffer *b, size_t size) {
    if (b->used + size > b->capacity) {
        b->capacity = (b->used + size) * 2;
        b->data = realloc(b->data, b->capacity);
        if (!b->data) {
            perror("sink: no memory");
            exit(1);
        }
    }
    return b->data + b->used;
}

static void put_bytes(const void *bytes, size_t size) {
    uint8_t *to = grow(&answer, size);
    if (size) memcpy(to, bytes, size);
    answer.used += size;
}

static void put_int(int64_t value, int size) {
    uint8_t bytes[8];
    for (int i = 0; i < size; i++) bytes[i] = (uint8_t)((uint64_t)value >> 8 * (size - 1 - i));
    put_bytes(bytes, size);
}

static void put_uvarint(uint32_t n) {
    for (; n >= 0x80; n >>= 7) put_int(n | 0x80, 1);
    put_int(n, 1);
}

static void put_length(int64_t length, bool flexible, int width) {
    if (flexible) put_uvarint((uint32_t)(length + 1));
    else put_int(length, width);
}

/* A size of -1 is null. */
static void put_string(const char *text, int size, bool flexible) {
    put_length(size, flexible, 2);
    if (size > 0) put_bytes(text, size);
}

static void put_tags(bool flexible) {
    if (flexible) put_uvarint(0);
}

/* ---- topics ---- */

static Topic *topic_by_name(const uint8_t *name, int64_t size) {
    if (!name || size < 1 || size > MAX_NAME) return NULL;
    uint32_t place = 2166136261u; /* FNV-1a */
    for (int64_t i = 0; i < size; i++) place = (place ^ name[i]) * 16777619u;
    for (place &= PLACES - 1; topic_at[place]; place = (place + 1) & (PLACES - 1)) {
        Topic *known = &topics[topic_at[place] - 1];
        if (known->name_size == size && !memcmp(known->name, name, size)) return known;
    }
    if (topic_count == MAX_TOPICS) return NULL;
    Topic *topic = &topics[topic_count++];
    topic_at[place] = topic_count;
    memcpy(topic->name, name, size);
    topic->name_size = (int)size;
    topic->partitions = calloc(partition_count, sizeof(Partition));
    if (!topic->partitions) {
        perror("sink: no memory");
        exit(1);
    }
    return topic;
}

static void put_topic_id(const Topic *topic) {
    put_int(0x73696e6b00000000, 8);
    put_int(topic - topics + 1, 8);
}

static Topic *topic_by_id(const uint8_t *id) {
    uint64_t index = id && big_endian(id, 8) == 0x73696e6b00000000 ? big_endian(id + 8, 8) : 0;
    return index >= 1 && index <= (uint64_t)topic_count ? &topics[index - 1] : NULL;
}

/* ---- answers; each returns false when the request was broken ---- */

static bool answer_api_versions(int version) {
    bool known = version <= 4, flexible = known && version >= 3;
    int shown = known ? api_count() : 1;
    put_int(known ? 0 : 35, 2); /* an unknown version is answered in the layout of version 0, with the range to retry in */
    put_length(shown, flexible, 4);
    for (int i = 0; i < api_count(); i++) {
        if (!known && APIS[i].key != API_VERSIONS) continue;
        put_int(APIS[i].key, 2);
        put_int(APIS[i].min, 2);
        put_int(APIS[i].max, 2);
        put_tags(flexible);
    }
    if (known && version >= 1) put_int(0, 4);
    put_tags(flexible);
    return true;
}

static void put_metadata_topic(const Topic *topic, const uint8_t *name, int64_t name_size, int version, bool flexible) {
    static const char zero_id[16];
    put_int(topic ? 0 : 3, 2);
    if (topic) put_string(topic->name, topic->name_size, flexible);
    else if (name_size < 0 && version < 12) put_string("", 0, flexible);
    else put_string((const char *)name, (int)name_size, flexible);
    if (version >= 10) {
        if (topic) put_topic_id(topic);
        else put_bytes(zero_id, sizeof zero_id);
    }
    if (version >= 1) put_int(0, 1);
    int shown = topic ? partition_count : 0;
    put_length(shown, flexible, 4);
    for (int i = 0; i < shown; i++) {
        put_int(0, 2);
        put_int(i, 4);
        put_int(1, 4);
        if (version >= 7) put_int(0, 4);
        for (int list = 0; list < 2; list++) {
            put_length(1, flexible, 4);
            put_int(1, 4);
        }
        if (version >= 5) put_length(0, flexible, 4);
        put_tags(flexible);
    }
    if (version >= 8) put_int(INT32_MIN, 4);
    put_tags(flexible);
}

static bool answer_metadata(Reader *r, int version) {
    bool flexible = version >= 9;
    if (version >= 3) put_int(0, 4);
    put_length(1, flexible, 4);
    put_int(1, 4);
    put_string("127.0.0.1", 9, flexible);
    put_int(port, 4);
    if (version >= 1) put_length(-1, flexible, 2);
    put_tags(flexible);
    if (version >= 2) put_string("sink", 4, flexible);
    if (version >= 1) put_int(1, 4);

    int64_t asked = read_length(r, flexible, 4);
    bool all = asked < 0 || (version == 0 && asked == 0);
    if (r->bad || asked > r->end - r->at) return false;
    put_length(all ? topic_count : asked, flexible, 4);
    for (int i = 0; all && i < topic_count; i++) put_metadata_topic(&topics[i], NULL, -1, version, flexible);
    for (int64_t i = 0; i < asked; i++) {
        const uint8_t *id = version >= 10 ? take(r, 16) : NULL;
        int64_t size;
        const uint8_t *name = read_string(r, flexible, &size);
        skip_tags(r, flexible);
        if (r->bad) return false;
        put_metadata_topic(name ? topic_by_name(name, size) : topic_by_id(id), name, size, version, flexible);
    }
    if (version >= 8 && version <= 10) put_int(INT32_MIN, 4);
    if (version >= 13) put_int(0, 2);
    put_tags(flexible);
    return true;
}

static bool answer_init_producer_id(int version) {
    put_int(0, 4);
    put_int(0, 2);
    put_int(++last_producer_id, 8);
    put_int(0, 2);
    put_tags(version >= 2);
    return true;
}

/* Count the batches of one partition; returns the base offset of the first. */
static int64_t count_batches(Partition *partition, const uint8_t *at, const uint8_t *end) {
    int64_t base_offset = partition->next_offset;
    while (end - at >= BATCH_HEADER && at[16] == 2) {
        uint64_t size = 12 + big_endian(at + 8, 4);
        if (size > (uint64_t)(end - at)) break;
        uint32_t records = (uint32_t)big_endian(at + 57, 4);
        int64_t producer_id = (int64_t)big_endian(at + 43, 8);
        int32_t sequence = (int32_t)big_endian(at + 53, 4);
        counts.batches++;
        counts.records += records;
        counts.record_bytes += size;
        counts.records_by_codec[at[22] & 7] += records;
        if (producer_id >= 0) {
            int32_t expected = partition->producer_id == producer_id ? partition->next_sequence : 0;
            counts.sequence_errors += sequence != expected;
            partition->producer_id = producer_id;
            partition->next_sequence = (int32_t)(((uint32_t)sequence + records) & INT32_MAX);
        }
        partition->next_offset += records;
        at += size;
    }
    counts.old_format += at != end; /* what is left is a message set of format 0 or 1, or broken */
    return base_offset;
}

static void put_partition_result(int index, int error, int64_t base_offset, int version, bool flexible) {
    put_int(index, 4);
    put_int(error, 2);
    put_int(base_offset, 8);
    put_int(-1, 8);
    if (version >= 5) put_int(0, 8);
    if (version >= 8) {
        put_length(0, flexible, 4);
        put_length(-1, flexible, 2);
    }
    put_tags(flexible);
}

static bool answer_produce_topic(Reader *r, int version, bool flexible) {
    Topic *topic;
    if (version >= 13) {
        const uint8_t *id = take(r, 16);
        if (!id) return false;
        topic = topic_by_id(id);
        put_bytes(id, 16);
    } else {
        int64_t size;
        const uint8_t *name = read_string(r, flexible, &size);
        if (!name) return false;
        topic = topic_by_name(name, size);
        put_string((const char *)name, (int)size, flexible);
    }
    int64_t partitions = read_length(r, flexible, 4);
    if (r->bad || partitions > r->end - r->at) return false;
    put_length(partitions, flexible, 4);
    for (int64_t i = 0; i < partitions; i++) {
        int64_t index = read_int(r, 4);
        int64_t size = read_length(r, flexible, 4);
        const uint8_t *records = size > 0 ? take(r, size) : NULL;
        skip_tags(r, flexible);
        if (r->bad) return false;
        bool known = topic && index >= 0 && index < partition_count;
        int64_t offset = known && records ? count_batches(&topic->partitions[index], records, records + size) : -1;
        put_partition_result((int)index, known ? 0 : 3, offset, version, flexible);
    }
    skip_tags(r, flexible);
    put_tags(flexible);
    return true;
}

/* Sets *silent for acks=0, which has no answer. */
static bool answer_produce(Reader *r, int version, bool *silent) {
    bool flexible = version >= 9;
    int64_t size;
    read_string(r, flexible, &size);
    *silent = read_int(r, 2) == 0;
    read_int(r, 4);
    int64_t asked = read_length(r, flexible, 4);
    if (r->bad || asked > r->end - r->at) return false;
    put_length(asked, flexible, 4);
    for (int64_t i = 0; i < asked; i++)
        if (!answer_produce_topic(r, version, flexible)) return false;
    put_int(0, 4);
    put_tags(flexible);
    return true;
}

/* Every client has the same id, and shall push everything, compressed with zstd. */
static bool answer_telemetry_subscriptions(void) {
    put_int(0, 4);
    put_int(0, 2);
    put_int(0x73696e6b00000000, 8);
    put_int(1, 8);
    put_int(1, 4);
    put_length(1, true, 4);
    put_int(4, 1);
    put_int(metrics_interval_ms, 4);
    put_int(1 << 20, 4);
    put_int(1, 1);
    put_length(1, true, 4);
    put_string("*", 1, true);
    put_tags(true);
    return true;
}

static bool answer_push_telemetry(void) {
    counts.pushes++;
    put_int(0, 4);
    put_int(0, 2);
    put_tags(true);
    return true;
}

static const Api *api_of(int key, int version) {
    for (int i = 0; i < api_count(); i++)
        if (APIS[i].key == key && (key == API_VERSIONS || (version >= APIS[i].min && version <= APIS[i].max))) return &APIS[i];
    return NULL;
}

static bool write_all(int fd, const uint8_t *data, size_t size) {
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        size -= n;
    }
    return true;
}

typedef enum { ANSWERED, BROKEN, LEFT } Outcome; /* LEFT: the client has gone before its answer, as one that ends does */

/* One frame without its size; its answer, if it gets one, is in `answer`. If not ANSWERED, the connection has to end. */
static Outcome answer_frame(const uint8_t *frame, size_t size) {
    Reader r = {frame, frame + size, false};
    int key = (int)read_int(&r, 2), version = (int)read_int(&r, 2);
    int64_t correlation_id = read_int(&r, 4), client_id_size;
    const Api *api = r.bad ? NULL : api_of(key, version);
    if (!api || (key == PRODUCE && version < 3)) {
        fprintf(stderr, "sink: API %d version %d is not spoken here\n", key, version);
        return BROKEN;
    }
    counts.requests++;
    bool flexible = version >= api->flexible_from, silent = false, good = false;
    read_string(&r, false, &client_id_size);
    if (!(key == API_VERSIONS && version > api->max)) skip_tags(&r, flexible);
    answer.used = 0;
    put_int(0, 4);
    put_int(correlation_id, 4);
    if (key != API_VERSIONS) put_tags(flexible); /* an ApiVersions answer never has the flexible header */
    switch (key) {
    case PRODUCE: good = answer_produce(&r, version, &silent); break;
    case METADATA: good = answer_metadata(&r, version); break;
    case API_VERSIONS: good = answer_api_versions(version); break;
    case INIT_PRODUCER_ID: good = answer_init_producer_id(version); break;
    case GET_TELEMETRY_SUBSCRIPTIONS: good = answer_telemetry_subscriptions(); break;
    case PUSH_TELEMETRY: good = answer_push_telemetry(); break;
    default: fprintf(stderr, "sink: API %d is advertised but not answered\n", key);
    }
    if (!good) return BROKEN;
    size_t total = answer.used;
    answer.used = 0;
    if (silent) return ANSWERED;
    put_int((int64_t)total - 4, 4);
    answer.used = total;
    return ANSWERED;
}

/* ---- connections ---- */

static struct pollfd polls[MAX_CONNECTIONS + 2]; /* 0: standard input, 1: the listener, then connections */
static Buffer inputs[MAX_CONNECTIONS + 2];
static uint64_t numbers[MAX_CONNECTIONS + 2]; /* of the connections, in the order in which they came */
static int poll_count = 2;

/* ---- late answers: a queue, as all are equally late ---- */

typedef struct Late {
    struct Late *next;
    uint64_t connection;
    int64_t due_ns;
    size_t size;
    uint8_t data[];
} Late;

static int answer_delay_ms;
static Late *first_late, *last_late;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Send what is in `answer`, or keep it until it is due. False: the client has gone. */
static bool send_answer(int i) {
    if (!answer.used) return true;
    if (!answer_delay_ms) return write_all(polls[i].fd, answer.data, answer.used);
    Late *late = malloc(sizeof *late + answer.used);
    if (!late) return false;
    *late = (Late){.connection = numbers[i], .due_ns = now_ns() + answer_delay_ms * 1000000LL, .size = answer.used};
    memcpy(late->data, answer.data, answer.used);
    if (first_late) last_late->next = late;
    else first_late = late;
    last_late = late;
    return true;
}

/* Send what is due. Returns how long poll may wait: until the next one is due, or forever (-1). */
static int send_late(void) {
    for (Late *late; (late = first_late); free(late)) {
        int64_t left_ns = late->due_ns - now_ns();
        if (left_ns > 0) return (int)(left_ns / 1000000) + 1;
        first_late = late->next;
        for (int i = 2; i < poll_count; i++)
            if (numbers[i] == late->connection) write_all(polls[i].fd, late->data, late->size);
    }
    return -1;
}

static void accept_connection(void) {
    int fd = accept(polls[1].fd, NULL, NULL), on = 1;
    if (fd < 0) return;
    if (poll_count == MAX_CONNECTIONS + 2) {
        fprintf(stderr, "sink: more than %d connections\n", MAX_CONNECTIONS);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    polls[poll_count] = (struct pollfd){.fd = fd, .events = POLLIN};
    inputs[poll_count] = (Buffer){0};
    numbers[poll_count++] = ++counts.connections;
}

static void drop_connection(int i) {
    close(polls[i].fd);
    free(inputs[i].data);
    polls[i] = polls[--poll_count];
    inputs[i] = inputs[poll_count];
    numbers[i] = numbers[poll_count];
}

/* Read once and answer every whole frame. False: the connection has to end. */
static bool serve(int i) {
    Buffer *in = &inputs[i];
    size_t missing = FIRST_BUFFER / 2;
    if (in->used >= 4) missing = big_endian(in->data, 4) + 4 - in->used;
    grow(in, missing);
    ssize_t n = recv(polls[i].fd, in->data + in->used, in->capacity - in->used, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    in->used += n;
    size_t at = 0;
    while (in->used - at >= 4) {
        size_t size = big_endian(in->data + at, 4);
        bool believable = size <= MAX_FRAME;
        if (believable && in->used - at - 4 < size) break;
        Outcome outcome = believable ? answer_frame(in->data + at + 4, size) : BROKEN;
        if (outcome == ANSWERED && !send_answer(i)) outcome = LEFT;
        counts.broken_frames += outcome == BROKEN;
        if (outcome != ANSWERED) return false;
        at += 4 + size;
    }
    in->used -= at;
    if (at && in->used) memmove(in->data, in->data + at, in->used);
    return true;
}

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int receive_buffer = RECEIVE_BUFFER;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 64) || getsockname(fd, (struct sockaddr *)&address, &size)) {
        perror("sink: cannot listen on 127.0.0.1");
        exit(1);
    }
    port = ntohs(address.sin_port);
    return fd;
}

static void print_counts(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"connections\": %llu, \"requests\": %llu, \"broken_frames\": %llu, \"batches\": %llu, \"records\": %llu, "
           "\"record_bytes\": %llu, \"old_format\": %llu, \"sequence_errors\": %llu, \"pushes\": %llu, \"cpu_seconds\": %.6f, \"records_by_codec\": [",
           (unsigned long long)counts.connections, (unsigned long long)counts.requests, (unsigned long long)counts.broken_frames,
           (unsigned long long)counts.batches, (unsigned long long)counts.records, (unsigned long long)counts.record_bytes,
           (unsigned long long)counts.old_format, (unsigned long long)counts.sequence_errors, (unsigned long long)counts.pushes, cpu);
    for (int i = 0; i < CODECS; i++) printf("%s%llu", i ? ", " : "", (unsigned long long)counts.records_by_codec[i]);
    printf("]}\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    bool good = true;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && !strcmp(argv[i], "--partitions")) partition_count = atoi(argv[i + 1]);
        else if (i + 1 < argc && !strcmp(argv[i], "--metrics-interval-ms")) metrics_interval_ms = atoi(argv[i + 1]);
        else if (i + 1 < argc && !strcmp(argv[i], "--answer-delay-ms")) answer_delay_ms = atoi(argv[i + 1]);
        else good = false;
    }
    if (!good || partition_count < 1 || partition_count > MAX_PARTITIONS || metrics_interval_ms < 0 || answer_delay_ms < 0) {
        fprintf(stderr, "usage: sink [--partitions 1..%d] [--metrics-interval-ms N] [--answer-delay-ms N]\n", MAX_PARTITIONS);
        return 2;
    }
    signal(SIGINT, SIG_IGN); /* Ctrl-C reaches the whole group; the end of standard input is what ends us */
    polls[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = listen_on_loopback(), .events = POLLIN};
    printf("{\"port\": %d}\n", port);
    fflush(stdout);
    while (true) {
        if (poll(polls, poll_count, send_late()) < 0) {
            if (errno == EINTR) continue;
            break;
        }
        char ignored[256];
        if (polls[0].revents && read(STDIN_FILENO, ignored, sizeof ignored) <= 0) break;
        /* Downwards, so that the connection moved into a dropped one's place has had its turn. */
        for (int i = poll_count - 1; i >= 2; i--)
            if (polls[i].revents && !serve(i)) drop_connection(i);
        if (polls[1].revents) accept_connection();
    }
    print_counts();
    return 0;
}
