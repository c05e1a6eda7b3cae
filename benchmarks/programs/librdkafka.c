/* librdkafka's C API at full speed: one produce() a record with a delivery report callback for each.
 *
 * librdkafka is loaded at run time (dlopen), so that the library that confluent-kafka brings along serves; the few
 * functions that are used are declared here. Arguments: library bootstrap topic codec linger_ms pool key_bytes value_bytes
 * records. The pool is a file of key, value, key, value, ... Prints one JSON line.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef struct conf conf_t;
typedef struct client client_t;
typedef struct topic topic_t;
typedef struct {
    int err; /* the rest of rd_kafka_message_t is not looked at */
} message_t;

enum { PRODUCER = 0, COPY = 2, ANY_PARTITION = -1, QUEUE_FULL = -184, POLL_EVERY = 1000 };

static conf_t *(*conf_new)(void);
static int (*conf_set)(conf_t *, const char *, const char *, char *, size_t);
static void (*conf_set_dr_msg_cb)(conf_t *, void (*)(client_t *, const message_t *, void *));
static client_t *(*new_client)(int, conf_t *, char *, size_t);
static topic_t *(*topic_new)(client_t *, const char *, void *);
static int (*produce)(topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
static int (*last_error)(void);
static int (*poll_client)(client_t *, int);
static int (*flush)(client_t *, int);
static int (*metadata)(client_t *, int, topic_t *, const void **, int);
static const char *(*version_str)(void);

static long acked, failed;

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void *named(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) die(name, dlerror());
    return found;
}

static void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) die("dlopen", dlerror());
    *(void **)&conf_new = named(library, "rd_kafka_conf_new");
    *(void **)&conf_set = named(library, "rd_kafka_conf_set");
    *(void **)&conf_set_dr_msg_cb = named(library, "rd_kafka_conf_set_dr_msg_cb");
    *(void **)&new_client = named(library, "rd_kafka_new");
    *(void **)&topic_new = named(library, "rd_kafka_topic_new");
    *(void **)&produce = named(library, "rd_kafka_produce");
    *(void **)&last_error = named(library, "rd_kafka_last_error");
    *(void **)&poll_client = named(library, "rd_kafka_poll");
    *(void **)&flush = named(library, "rd_kafka_flush");
    *(void **)&metadata = named(library, "rd_kafka_metadata");
    *(void **)&version_str = named(library, "rd_kafka_version_str");
}

static void delivered(client_t *client, const message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) failed++;
    else acked++;
}

static void set(conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (conf_set(conf, name, value, error, sizeof error)) die(name, error);
}

static char *read_pool(const char *path, size_t record_bytes, size_t *count) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path, "can't be opened");
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(size);
    if (!data || fread(data, 1, size, file) != size) die(path, "can't be read");
    fclose(file);
    *count = size / record_bytes;
    if (!*count) die(path, "has no record");
    return data;
}

static double wall_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static double cpu_seconds(struct rusage *used) {
    getrusage(RUSAGE_SELF, used);
    return used->ru_utime.tv_sec + used->ru_stime.tv_sec + (used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
    if (argc != 10) die(argv[0], "library bootstrap topic codec linger_ms pool key_bytes value_bytes records");
    load(argv[1]);
    size_t key_bytes = strtoul(argv[7], NULL, 10), value_bytes = strtoul(argv[8], NULL, 10), pool_count;
    long records = strtol(argv[9], NULL, 10);
    char *pool = read_pool(argv[6], key_bytes + value_bytes, &pool_count), error[512];
    conf_t *conf = conf_new();
    set(conf, "bootstrap.servers", argv[2]);
    set(conf, "acks", "all");
    set(conf, "enable.idempotence", "true");
    set(conf, "linger.ms", argv[5]);
    set(conf, "compression.type", argv[4]);
    set(conf, "partitioner", "murmur2_random");
    conf_set_dr_msg_cb(conf, delivered);
    client_t *client = new_client(PRODUCER, conf, error, sizeof error);
    if (!client) die("rd_kafka_new", error);
    topic_t *topic = topic_new(client, argv[3], NULL);
    const void *found;
    if (metadata(client, 0, topic, &found, 30000)) die(argv[3], "no metadata");
    struct rusage used;
    double wall = wall_seconds(), cpu = cpu_seconds(&used);
    for (long i = 0; i < records; i++) {
        char *key = pool + (size_t)(i % (long)pool_count) * (key_bytes + value_bytes);
        while (produce(topic, ANY_PARTITION, COPY, key + key_bytes, value_bytes, key, key_bytes, NULL)) {
            if (last_error() != QUEUE_FULL) die("rd_kafka_produce", "failed");
            poll_client(client, 10);
        }
        if (i % POLL_EVERY == 0) poll_client(client, 0);
    }
    flush(client, 120000);
    cpu = cpu_seconds(&used) - cpu;
    wall = wall_seconds() - wall;
    printf("{\"acked\": %ld, \"failed\": %ld, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"peak_rss_bytes\": %ld, "
           "\"version\": \"%s\"}\n", acked, records - acked, wall, cpu, used.ru_maxrss * 1024L, version_str());
    return 0;
}
