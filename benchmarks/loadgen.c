/* loadgen: load for servers that speak RocketMQ's remoting protocol. One thread, epoll, Linux.
 *
 *   cc -O2 -o loadgen loadgen.c
 *
 * Closed loop: every connection keeps `-w` requests in flight and sends the next one when an answer arrives.
 *
 *   -m MODE     route    GET_ROUTEINFO_BY_TOPIC of a random one of -N topics called PREFIX000000, PREFIX000001, ...
 *               send     SEND_MESSAGE_V2 of -b bytes to -T, -q queues in turn
 *               pull     PULL_MESSAGE of up to -n messages from -T, starting again after -R messages per queue
 *               replay   the frames of file -f in turn; their opaque is replaced. With -k each connection keeps
 *                        to every c-th frame, as a broker does that always says the same thing about itself
 *               respond  not a client: a server that answers any request with -b bytes, to find loadgen's own limit
 *   -P PORTS    ports, comma separated; connections are spread over them        -H HOST  (127.0.0.1)
 *   -c N        connections (1)            -w N  requests in flight on each (1)
 *   -t SECONDS  measured time (5)          -u SECONDS  warm-up before it (1)
 *   -C MS       measure until the server has used so much CPU time, and -t seconds at most
 *   -s FORM     header form, json or bin   -T TEXT  topic, or prefix of topics
 *   -p PIDS     processes of the server, for its CPU time                       -L TEXT  label
 *
 * One line of key=value. Times are µs. cpu_us is the server's CPU time per request, over all its threads: it stays
 * comparable when other programs share the machine. gen_pct is loadgen's own load: near 100 it was the bottleneck.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_BUFFER = 64 * 1024, FIRST_OPAQUE = 1000000, MAX_LIST = 64, MAX_REQUEST_HEADER = 2048 };
enum mode { ROUTE, SEND, PULL, REPLAY, RESPOND };

struct connection {
    int fd, number, wants_out, queue;
    uint8_t *in;
    size_t in_length;
    uint64_t body_left; /* bytes of the current answer's body still to come */
    uint8_t *out;
    size_t out_length, out_sent, out_capacity;
    uint64_t *sent_at; /* one per request in flight */
    uint64_t pull_offset;
    size_t next_frame;
};

static enum mode mode = ROUTE;
static const char *mode_name = "route", *host = "127.0.0.1", *topic = "topic-", *label = "", *replay_file;
static int connections = 1, window = 1, seconds = 5, warm_up = 1, binary, sticky;
static uint64_t cpu_limit_ns;
static int body_size = 100, pull_batch = 32, queues = 4, topics = 1;
static uint64_t pull_wrap = 1000000;
static int ports[MAX_LIST], port_count;
static pid_t pids[MAX_LIST];
static int pid_count;

static uint8_t **frames; /* replay */
static size_t *frame_lengths, *opaque_at, frame_count, longest_frame;

static uint8_t *send_frame;
static size_t send_length;
static int send_opaque_at, send_queue_at, send_key_at, send_time_at;

static uint64_t histogram[64 * 64], slowest;
static uint64_t answers, messages, bytes, errors, sequence, random_state = 88172645463325252ull;
static int measuring, poll_fd;

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t cpu_ns(pid_t pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
        return 0;
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t server_cpu_ns(void) {
    uint64_t sum = 0;
    for (int i = 0; i < pid_count; i++)
        sum += cpu_ns(pids[i]);
    return sum;
}

/* Buckets of 1/32 of a power of two: a percentile is within 3 % of the truth. */
static void note_latency(uint64_t ns) {
    if (ns > slowest)
        slowest = ns;
    int exponent = ns < 64 ? 0 : 63 - __builtin_clzll(ns) - 5;
    histogram[exponent * 64 + (ns >> exponent)]++;
}

static double percentile_us(double share) {
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < 4096; i++)
        total += histogram[i];
    uint64_t wanted = (uint64_t)(total * share);
    for (int i = 0; i < 4096; i++) {
        seen += histogram[i];
        if (seen > wanted)
            return (double)(((uint64_t)(i & 63)) << (i >> 6)) / 1000.0;
    }
    return slowest / 1000.0;
}

static void put32(uint8_t *p, uint32_t v) {
    p[0] = v >> 24;
    p[1] = v >> 16;
    p[2] = v >> 8;
    p[3] = v;
}

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

static void put_digits(uint8_t *p, int count, uint64_t v) {
    while (count--) {
        p[count] = '0' + v % 10;
        v /= 10;
    }
}

/* Where the text after `name` starts, or -1. */
static int after(const uint8_t *header, int length, const char *name) {
    const uint8_t *p = memmem(header, length, name, strlen(name));
    return p ? (int)(p - header) + (int)strlen(name) : -1;
}

/* --------------------------------------------------------------------------------- building requests */

static uint8_t *binary_field(uint8_t *w, const char *key, const char *value) {
    size_t key_length = strlen(key), value_length = strlen(value);
    *w++ = key_length >> 8;
    *w++ = key_length;
    w = (uint8_t *)mempcpy(w, key, key_length);
    put32(w, value_length);
    return (uint8_t *)mempcpy(w + 4, value, value_length);
}

static uint8_t *binary_start(uint8_t *w, int code, uint32_t opaque) {
    *w++ = code >> 8;
    *w++ = code;
    *w++ = 0; /* JAVA */
    *w++ = 401 >> 8;
    *w++ = 401 & 255;
    put32(w, opaque);
    put32(w + 4, 0);
    put32(w + 8, 0);
    return w + 12;
}

static size_t finish_frame(uint8_t *frame, size_t header_length, size_t body_length) {
    put32(frame, 4 + header_length + body_length);
    put32(frame + 4, header_length | (uint32_t)binary << 24);
    return 8 + header_length + body_length;
}

static size_t build_route(uint8_t *frame, uint32_t number, uint32_t opaque) {
    uint8_t *header = frame + 8;
    char name[256];
    if (topics > 1)
        snprintf(name, sizeof name, "%s%06u", topic, number);
    else
        snprintf(name, sizeof name, "%s", topic);
    if (!binary)
        return finish_frame(frame, sprintf((char *)header, "{\"code\":105,\"extFields\":{\"topic\":\"%s\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}", name, opaque), 0);
    uint8_t *ext = binary_start(header, 105, opaque), *end = binary_field(ext + 4, "topic", name);
    put32(ext, end - ext - 4);
    return finish_frame(frame, end - header, 0);
}

static size_t build_pull(uint8_t *frame, int queue, uint64_t offset, uint32_t opaque) {
    uint8_t *header = frame + 8;
    if (!binary)
        return finish_frame(frame, sprintf((char *)header, "{\"code\":11,\"extFields\":{\"queueId\":\"%d\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"4\",\"suspendTimeoutMillis\":\"15000\",\"commitOffset\":\"0\",\"topic\":\"%s\",\"queueOffset\":\"%llu\",\"consumerGroup\":\"group\",\"subVersion\":\"1700000000000\",\"expressionType\":\"TAG\",\"subscription\":\"*\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}", queue, pull_batch, topic, (unsigned long long)offset, opaque), 0);
    char queue_text[16], count_text[16], offset_text[24];
    sprintf(queue_text, "%d", queue);
    sprintf(count_text, "%d", pull_batch);
    sprintf(offset_text, "%llu", (unsigned long long)offset);
    uint8_t *ext = binary_start(header, 11, opaque), *w = ext + 4;
    w = binary_field(w, "queueId", queue_text);
    w = binary_field(w, "maxMsgNums", count_text);
    w = binary_field(w, "sysFlag", "4");
    w = binary_field(w, "suspendTimeoutMillis", "15000");
    w = binary_field(w, "commitOffset", "0");
    w = binary_field(w, "topic", topic);
    w = binary_field(w, "queueOffset", offset_text);
    w = binary_field(w, "consumerGroup", "group");
    w = binary_field(w, "subVersion", "1700000000000");
    w = binary_field(w, "expressionType", "TAG");
    w = binary_field(w, "subscription", "*");
    put32(ext, w - ext - 4);
    return finish_frame(frame, w - header, 0);
}

#define UNIQ_KEY "7F0000010B2A18B4AAC20B5F00000000"

/* One template; each request patches opaque, queue, unique key and time into a copy. */
static void build_send_template(void) {
    send_frame = calloc(1, MAX_REQUEST_HEADER * 2 + body_size);
    uint8_t *header = send_frame + 8;
    size_t length;
    if (!binary) {
        length = sprintf((char *)header,
            "{\"code\":310,\"extFields\":{\"a\":\"group\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"2\",\"f\":\"0\",\"g\":\"1700000000000\",\"h\":\"0\","
            "\"i\":\"KEYS\\u0001k1\\u0002UNIQ_KEY\\u0001" UNIQ_KEY "\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA\\u0002\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"},"
            "\"flag\":0,\"language\":\"JAVA\",\"opaque\":1000000,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}", topic);
        send_opaque_at = 8 + after(header, length, "\"opaque\":");
        send_queue_at = 8 + after(header, length, "\"e\":\"");
        send_time_at = 8 + after(header, length, "\"g\":\"");
    } else {
        uint8_t *ext = binary_start(header, 310, 0), *w = ext + 4;
        send_opaque_at = 13;
        w = binary_field(w, "a", "group");
        w = binary_field(w, "b", topic);
        w = binary_field(w, "c", "TBW102");
        w = binary_field(w, "d", "4");
        w = binary_field(w, "e", "2");
        send_queue_at = w - send_frame - 1;
        w = binary_field(w, "f", "0");
        w = binary_field(w, "g", "1700000000000");
        send_time_at = w - send_frame - 13;
        w = binary_field(w, "h", "0");
        w = binary_field(w, "i", "KEYS\001k1\002UNIQ_KEY\001" UNIQ_KEY "\002WAIT\001true\002TAGS\001TagA\002");
        w = binary_field(w, "j", "0");
        w = binary_field(w, "k", "false");
        w = binary_field(w, "m", "false");
        put32(ext, w - ext - 4);
        length = w - header;
    }
    send_key_at = 8 + after(header, length, "7F0000010B2A18B4AAC20B5F");
    for (int i = 0; i < body_size; i++)
        send_frame[8 + length + i] = 'a' + (i * 7 + i / 26) % 26;
    send_length = finish_frame(send_frame, length, body_size);
}

static size_t build_send(uint8_t *frame, uint32_t opaque, uint64_t now) {
    memcpy(frame, send_frame, send_length);
    if (binary)
        put32(frame + send_opaque_at, opaque);
    else
        put_digits(frame + send_opaque_at, 7, opaque);
    frame[send_queue_at] = '0' + sequence % queues;
    uint64_t rest = sequence++;
    for (int i = 7; i >= 0; i--, rest >>= 4)
        frame[send_key_at + i] = "0123456789ABCDEF"[rest & 15];
    put_digits(frame + send_time_at + 4, 9, now / 1000000 % 1000000000);
    return send_length;
}

/* A JSON frame to replay must carry a seven-digit opaque, so that another fits in its place. */
static void load_frames(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file)
        fail(path);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size);
    if (fread(data, 1, size, file) != size)
        fail(path);
    fclose(file);
    for (size_t at = 0; at + 8 < size; at += 4 + get32(data + at))
        frame_count++;
    frames = calloc(frame_count, sizeof *frames);
    frame_lengths = calloc(frame_count, sizeof *frame_lengths);
    opaque_at = calloc(frame_count, sizeof *opaque_at);
    size_t at = 0;
    for (size_t i = 0; i < frame_count; i++) {
        frames[i] = data + at;
        frame_lengths[i] = 4 + get32(data + at);
        opaque_at[i] = data[at + 4] ? 13 : 8 + after(data + at + 8, get32(data + at + 4) & 0xffffff, "\"opaque\":");
        if (frame_lengths[i] > longest_frame)
            longest_frame = frame_lengths[i];
        at += frame_lengths[i];
    }
    if (!frame_count) {
        fprintf(stderr, "%s holds no frames\n", path);
        exit(2);
    }
}

static size_t build_replay(struct connection *c, uint8_t *frame, uint32_t opaque) {
    size_t i = c->next_frame;
    if (sticky) {
        c->next_frame += connections;
        if (c->next_frame >= frame_count)
            c->next_frame = c->number % frame_count;
    } else {
        i = sequence++ % frame_count;
    }
    memcpy(frame, frames[i], frame_lengths[i]);
    if (frame[4])
        put32(frame + opaque_at[i], opaque);
    else
        put_digits(frame + opaque_at[i], 7, opaque);
    return frame_lengths[i];
}

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void queue_request(struct connection *c, int slot, uint64_t now) {
    uint32_t opaque = FIRST_OPAQUE + c->number * window + slot;
    size_t room = MAX_REQUEST_HEADER + (mode == SEND ? send_length : mode == REPLAY ? longest_frame : 0);
    c->sent_at[slot] = now;
    if (c->out_capacity - c->out_length < room) {
        c->out_capacity = c->out_capacity * 2 + room;
        c->out = realloc(c->out, c->out_capacity);
    }
    uint8_t *frame = c->out + c->out_length;
    switch (mode) {
    case ROUTE:
        c->out_length += build_route(frame, next_random() % topics, opaque);
        break;
    case SEND:
        c->out_length += build_send(frame, opaque, now);
        break;
    case PULL:
        c->out_length += build_pull(frame, c->queue, c->pull_offset, opaque);
        c->pull_offset += pull_batch;
        if (c->pull_offset + pull_batch > pull_wrap)
            c->pull_offset = 0;
        break;
    case REPLAY:
        c->out_length += build_replay(c, frame, opaque);
        break;
    case RESPOND:
        break;
    }
}

/* --------------------------------------------------------------------------------- the event loop */

static void flush_out(struct connection *c) {
    while (c->out_sent < c->out_length) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN)
                break;
            fail("send");
        }
        c->out_sent += n;
    }
    int wants_out = c->out_sent < c->out_length;
    if (!wants_out)
        c->out_sent = c->out_length = 0;
    if (wants_out != c->wants_out) {
        struct epoll_event e = {.events = EPOLLIN | (wants_out ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &e);
        c->wants_out = wants_out;
    }
}

/* One answer's header: which request it belongs to and whether it succeeded. */
static int read_answer(const uint8_t *p, uint32_t marked, uint32_t *opaque) {
    int length = marked & 0xffffff;
    if (marked >> 24) {
        *opaque = get32(p + 5);
        return p[0] == 0 && p[1] == 0;
    }
    int at = after(p, length, "\"opaque\":"), code = after(p, length, "\"code\":");
    *opaque = at < 0 ? 0 : strtoul((const char *)p + at, 0, 10);
    return code >= 0 && p[code] == '0';
}

static void on_answers(struct connection *c) {
    ssize_t n = recv(c->fd, c->in + c->in_length, READ_BUFFER - c->in_length, 0);
    if (n == 0) {
        fprintf(stderr, "the server closed connection %d\n", c->number);
        exit(3);
    }
    if (n < 0) {
        if (errno == EAGAIN)
            return;
        fail("recv");
    }
    uint64_t now = now_ns();
    c->in_length += n;
    uint8_t *p = c->in, *end = p + c->in_length;
    if (measuring)
        bytes += n;
    for (;;) {
        uint64_t skipped = (uint64_t)(end - p) < c->body_left ? (uint64_t)(end - p) : c->body_left;
        p += skipped;
        c->body_left -= skipped;
        if (c->body_left || end - p < 8)
            break;
        uint32_t marked = get32(p + 4), header_length = marked & 0xffffff;
        uint32_t body_length = get32(p) - 4 - header_length;
        if ((size_t)(end - p) < 8 + header_length + (body_length ? 4 : 0))
            break;
        uint32_t opaque;
        int ok = read_answer(p + 8, marked, &opaque);
        uint32_t slot = opaque - FIRST_OPAQUE - c->number * window;
        if (slot >= (uint32_t)window) {
            fprintf(stderr, "answer to an unknown request %u\n", opaque);
            exit(4);
        }
        if (measuring) {
            answers++;
            errors += !ok;
            note_latency(now - c->sent_at[slot]);
            if (mode == PULL && body_length)
                messages += body_length / get32(p + 8 + header_length); /* all of one size */
        }
        p += 8 + header_length;
        c->body_left = body_length;
        queue_request(c, slot, now);
    }
    c->in_length = end - p;
    if (c->in_length && p != c->in)
        memmove(c->in, p, c->in_length);
    if (c->out_length && !c->wants_out)
        flush_out(c);
}

static void respond_to(struct connection *c) {
    ssize_t n = recv(c->fd, c->in + c->in_length, READ_BUFFER - c->in_length, 0);
    if (n <= 0) {
        if (n < 0 && errno == EAGAIN)
            return;
        close(c->fd);
        free(c->in);
        free(c->out);
        free(c);
        return;
    }
    c->in_length += n;
    uint8_t *p = c->in, *end = p + c->in_length;
    for (;;) {
        uint64_t skipped = (uint64_t)(end - p) < c->body_left ? (uint64_t)(end - p) : c->body_left;
        p += skipped;
        c->body_left -= skipped;
        if (c->body_left || end - p < 8)
            break;
        uint32_t marked = get32(p + 4), header_length = marked & 0xffffff, opaque;
        if ((size_t)(end - p) < 8 + header_length)
            break;
        read_answer(p + 8, marked, &opaque);
        size_t room = 256 + body_size;
        if (c->out_capacity - c->out_length < room) {
            c->out_capacity = c->out_capacity * 2 + room;
            c->out = realloc(c->out, c->out_capacity);
        }
        uint8_t *frame = c->out + c->out_length, *header = frame + 8;
        binary = marked >> 24;
        size_t length;
        if (binary) {
            uint8_t *ext = binary_start(header, 0, opaque);
            header[12] = 1; /* flag: an answer */
            put32(ext, 0);
            length = ext + 4 - header;
        } else {
            length = sprintf((char *)header, "{\"code\":0,\"flag\":1,\"language\":\"OTHER\",\"opaque\":%u,\"version\":401}", opaque);
        }
        memset(header + length, ' ', body_size);
        c->out_length += finish_frame(frame, length, body_size);
        c->body_left = get32(p) - 4 - header_length;
        p += 8 + header_length;
    }
    c->in_length = end - p;
    if (c->in_length && p != c->in)
        memmove(c->in, p, c->in_length);
    if (c->out_length && !c->wants_out)
        flush_out(c);
}

static void watch(struct connection *c) {
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &e);
}

static void respond(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(ports[0])};
    inet_pton(AF_INET, host, &address.sin_addr);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1024))
        fail("bind");
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, ready[256];
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &e);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(poll_fd, ready, 256, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = ready[i].data.ptr;
            if (!c) {
                c = calloc(1, sizeof *c);
                c->fd = accept(listener, NULL, NULL);
                c->in = malloc(READ_BUFFER);
                watch(c);
                continue;
            }
            if (ready[i].events & EPOLLOUT)
                flush_out(c);
            if (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                respond_to(c);
        }
    }
}

static struct connection *connect_all(void) {
    struct connection *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        struct connection *c = all + i;
        c->number = i;
        c->queue = i % queues;
        c->in = malloc(READ_BUFFER);
        c->sent_at = calloc(window, sizeof *c->sent_at);
        c->next_frame = frame_count ? i % frame_count : 0;
        c->pull_offset = (uint64_t)i * 997 % (pull_wrap > (uint64_t)pull_batch ? pull_wrap - pull_batch : 1);
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(ports[i % port_count])};
        inet_pton(AF_INET, host, &address.sin_addr);
        if (connect(c->fd, (void *)&address, sizeof address))
            fail("connect");
        watch(c);
    }
    return all;
}

static void load(void) {
    struct connection *all = connect_all();
    struct epoll_event ready[256];
    uint64_t begin = now_ns();
    for (int i = 0; i < connections; i++) {
        for (int slot = 0; slot < window; slot++)
            queue_request(all + i, slot, begin);
        flush_out(all + i);
    }
    uint64_t start = begin + warm_up * 1000000000ull, end = start + seconds * 1000000000ull;
    uint64_t measured_from = 0, server_from = 0, own_from = 0, cpu_seen_at = 0;
    for (;;) {
        int n = epoll_wait(poll_fd, ready, 256, 100);
        uint64_t now = now_ns();
        if (!measuring && now >= start) {
            measuring = 1;
            measured_from = now;
            server_from = server_cpu_ns();
            own_from = cpu_ns(0);
        }
        if (now >= end)
            break;
        if (measuring && cpu_limit_ns && now - cpu_seen_at > 1000000) { /* asking costs something: once in a millisecond */
            cpu_seen_at = now;
            if (server_cpu_ns() - server_from >= cpu_limit_ns)
                break;
        }
        for (int i = 0; i < n; i++) {
            struct connection *c = ready[i].data.ptr;
            if (ready[i].events & EPOLLOUT)
                flush_out(c);
            if (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                on_answers(c);
        }
    }
    double elapsed = (now_ns() - measured_from) / 1e9;
    double server_us = (server_cpu_ns() - server_from) / 1e3, own_us = (cpu_ns(0) - own_from) / 1e3;
    if (*label)
        printf("label=%s ", label);
    printf("mode=%s form=%s connections=%d window=%d rate=%.0f", mode_name, binary ? "bin" : "json", connections, window, answers / elapsed);
    if (mode == PULL)
        printf(" messages=%.0f", messages / elapsed);
    printf(" MBps=%.1f p50=%.1f p90=%.1f p99=%.1f p999=%.1f max=%.1f", bytes / elapsed / 1e6,
           percentile_us(.5), percentile_us(.9), percentile_us(.99), percentile_us(.999), slowest / 1e3);
    printf(" seconds=%.2f cpu_us=%.2f cpu_pct=%.0f gen_us=%.2f gen_pct=%.0f errors=%llu\n", elapsed, answers ? server_us / answers : 0, server_us / elapsed / 1e4,
           answers ? own_us / answers : 0, own_us / elapsed / 1e4, (unsigned long long)errors);
}

static int numbers(char *text, int *into) {
    int count = 0;
    for (char *s = strtok(text, ","); s && count < MAX_LIST; s = strtok(0, ","))
        into[count++] = atoi(s);
    return count;
}

static void set_mode(const char *name) {
    static const char *names[] = {"route", "send", "pull", "replay", "respond"};
    for (int i = 0; i < 5; i++)
        if (!strcmp(name, names[i])) {
            mode = i;
            mode_name = names[i];
            return;
        }
    fprintf(stderr, "unknown mode %s\n", name);
    exit(1);
}

int main(int count, char **arguments) {
    int option;
    signal(SIGPIPE, SIG_IGN);
    while ((option = getopt(count, arguments, "P:H:m:c:w:b:t:u:C:s:n:N:q:T:p:R:L:f:k")) != -1)
        switch (option) {
        case 'P': port_count = numbers(optarg, ports); break;
        case 'H': host = optarg; break;
        case 'm': set_mode(optarg); break;
        case 'c': connections = atoi(optarg); break;
        case 'w': window = atoi(optarg); break;
        case 'b': body_size = atoi(optarg); break;
        case 't': seconds = atoi(optarg); break;
        case 'u': warm_up = atoi(optarg); break;
        case 'C': cpu_limit_ns = strtoull(optarg, 0, 10) * 1000000; break;
        case 's': binary = !strcmp(optarg, "bin"); break;
        case 'n': pull_batch = atoi(optarg); break;
        case 'N': topics = atoi(optarg); break;
        case 'q': queues = atoi(optarg); break;
        case 'T': topic = optarg; break;
        case 'p': pid_count = numbers(optarg, pids); break;
        case 'R': pull_wrap = strtoull(optarg, 0, 10); break;
        case 'L': label = optarg; break;
        case 'f': replay_file = optarg; break;
        case 'k': sticky = 1; break;
        default: return 1;
        }
    if (!port_count || connections < 1 || window < 1 || topics < 1 || queues < 1 || queues > 10 || (mode == REPLAY && !replay_file)) {
        fprintf(stderr, "usage: loadgen -P PORT -m route|send|pull|replay|respond ...; see the top of loadgen.c\n");
        return 1;
    }
    poll_fd = epoll_create1(0);
    if (mode == RESPOND)
        respond();
    if (mode == SEND)
        build_send_template();
    if (mode == REPLAY)
        load_frames(replay_file);
    load();
    return 0;
}
