/* The load of `tests.benchmarks.against`: MQTT 3.1.1 or 5 publishers and subscribers on one thread, by epoll.
 *
 * A publisher has at most WINDOW messages in flight. A message is in flight until its publisher has the acknowledgement and all its
 * subscribers have the message, so that a window means the same for each QoS. Each payload begins with the number of the publisher
 * and the sequence number of the message, from which lost and repeated messages are counted.
 *
 * usage: generator PORT PUBLISHERS SUBSCRIBERS PAIRS QOS WINDOW PAYLOAD DURABLE SECONDS LEVEL PROPERTIES TRANSPORT
 * LEVEL 4 is MQTT 3.1.1. LEVEL 5 is MQTT 5, with PROPERTIES user properties in each message. TRANSPORT is tcp, tls (without
 * verification of certificates) or websocket (one frame per packet).
 * PAIRS 1: subscriber n receives from publisher n only. 0: each subscriber receives from all. Prints one line of JSON.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#ifdef TLS
#include <openssl/ssl.h>
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 1 << 18, HEADER = 8, STALL_SECONDS = 5 };

struct client {
    int fd, subscriber, number, writing;
#ifdef TLS
    SSL *tls;
#endif
    /* WebSocket: bytes left in the current frame, and the received part of the next header */
    size_t frame_left, header_length;
    unsigned char header[10];
    unsigned char *in, *out;
    size_t in_length, out_start, out_length, out_room;
    uint32_t sent, acknowledged;
    uint64_t delivered;
    uint32_t *next; /* of a subscriber: the expected sequence number of each publisher */
};

static int port, publishers, subscribers, pairs, qos, window, payload_length, durable, level, properties;
static uint64_t received, duplicates;
static struct client *all, *sending, *receiving;
static int epoll, websocket, tls;

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    printf("{\"failure\": \"%s\"}\n", what);
    exit(0);
}

/* Send or receive like send() and recv(), with TLS if requested. */
static ssize_t send_some(struct client *c, const void *data, size_t length) {
#ifdef TLS
    if (tls) {
        int n = SSL_write(c->tls, data, length);
        if (n > 0) return n;
        int why = SSL_get_error(c->tls, n);
        errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : EPIPE;
        return -1;
    }
#endif
    return send(c->fd, data, length, MSG_NOSIGNAL);
}

static ssize_t receive_raw(struct client *c, void *at, size_t length) {
#ifdef TLS
    if (tls) {
        int n = SSL_read(c->tls, at, length);
        if (n > 0) return n;
        int why = SSL_get_error(c->tls, n);
        if (why == SSL_ERROR_ZERO_RETURN) return 0;
        errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : EPIPE;
        return -1;
    }
#endif
    return recv(c->fd, at, length, 0);
}

/* Receive MQTT bytes. -1 with EAGAIN if only headers of frames arrived. */
static ssize_t receive_some(struct client *c, unsigned char *at, size_t length) {
    if (!websocket) return receive_raw(c, at, length);
    ssize_t n = receive_raw(c, at, length);
    if (n <= 0) return n;
    size_t kept = 0, from = 0;
    while (from < (size_t)n) {
        if (c->frame_left) {
            size_t part = c->frame_left < n - from ? c->frame_left : n - from;
            memmove(at + kept, at + from, part);
            kept += part, from += part, c->frame_left -= part;
            continue;
        }
        c->header[c->header_length++] = at[from++];
        unsigned said = c->header_length > 1 ? c->header[1] : 0;
        if (c->header_length == (said < 126 ? 2u : said == 126 ? 4u : 10u)) {
            c->frame_left = said;
            if (said >= 126) c->frame_left = 0;
            for (size_t i = 2; said >= 126 && i < c->header_length; i++) c->frame_left = c->frame_left << 8 | c->header[i];
            c->header_length = 0;
        }
    }
    if (kept) return kept;
    errno = EAGAIN;
    return -1;
}

/* The header of a binary frame of this length. The mask is zero, so the bytes do not change. */
static size_t frame_header(unsigned char *at, size_t length) {
    size_t n = 0;
    if (!websocket) return 0;
    at[n++] = 0x82;
    if (length < 126) at[n++] = 0x80 | length;
    else at[n++] = 0x80 | 126, at[n++] = length >> 8, at[n++] = length & 255;
    memset(at + n, 0, 4);
    return n + 4;
}

static void put(struct client *c, const void *data, size_t length) {
    if (c->out_start + c->out_length + length > c->out_room) {
        memmove(c->out, c->out + c->out_start, c->out_length);
        c->out_start = 0;
        while (c->out_length + length > c->out_room) c->out_room *= 2;
        c->out = realloc(c->out, c->out_room);
        if (!c->out) fail("no memory");
    }
    memcpy(c->out + c->out_start + c->out_length, data, length);
    c->out_length += length;
}

static void flush(struct client *c) {
    while (c->out_length) {
        ssize_t n = send_some(c, c->out + c->out_start, c->out_length);
        if (n < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) fail("a connection broke");
            break;
        }
        c->out_start += n;
        c->out_length -= n;
    }
    if (!c->out_length) c->out_start = 0;
    int wanted = c->out_length > 0;
    if (wanted != c->writing) {
        struct epoll_event e = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
        c->writing = wanted;
    }
}

static void answer(struct client *c, int kind, unsigned id) {
    unsigned char header[8], packet[4] = {kind, 2, id >> 8, id & 255};
    put(c, header, frame_header(header, 4));
    put(c, packet, 4);
}

static size_t text(unsigned char *at, const char *value) {
    size_t n = strlen(value);
    at[0] = n >> 8;
    at[1] = n & 255;
    memcpy(at + 2, value, n);
    return n + 2;
}

static void read_exactly(struct client *c, unsigned char *at, size_t length) {
    while (length) {
        ssize_t n = receive_some(c, at, length);
        if (n < 0 && errno == EAGAIN) continue;
        if (n <= 0) fail("the broker closed a connection");
        at += n;
        length -= n;
    }
}

static void send_whole(struct client *c, const unsigned char *packet, size_t length) {
    unsigned char whole[160];
    size_t n = frame_header(whole, length);
    memcpy(whole + n, packet, length);
    if (send_some(c, whole, n + length) != (ssize_t)(n + length)) fail("cannot send");
}

/* The handshakes of TLS and of the WebSocket. */
static void shake_hands(struct client *c) {
#ifdef TLS
    static SSL_CTX *context;
    if (tls) {
        if (!context) context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        c->tls = SSL_new(context);
        SSL_set_fd(c->tls, c->fd);
        if (SSL_connect(c->tls) != 1) fail("the TLS handshake fails");
    }
#endif
    if (websocket) {
        static const char request[] = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
        if (send_some(c, request, sizeof request - 1) != (ssize_t)sizeof request - 1) fail("cannot send");
        unsigned char last[4] = {0};
        while (memcmp(last, "\r\n\r\n", 4)) {
            memmove(last, last + 1, 3);
            if (receive_raw(c, last + 3, 1) != 1) fail("the WebSocket handshake fails");
        }
    }
}

static void connected(struct client *c, const char *id, int clean) {
    unsigned char packet[128], reply[130];
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval patience = {.tv_sec = 30};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) fail("cannot connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->fd = fd;
    shake_hands(c);
    size_t n = 2 + text(packet + 2, "MQTT");
    packet[n++] = level;
    packet[n++] = clean ? 2 : 0;
    packet[n++] = 600 >> 8;
    packet[n++] = 600 & 255;
    if (level == 5) {
        /* Session Expiry Interval */
        static const unsigned char lasting[] = {5, 0x11, 0, 0, 255, 255};
        if (clean) packet[n++] = 0;
        else memcpy(packet + n, lasting, sizeof lasting), n += sizeof lasting;
    }
    n += text(packet + n, id);
    packet[0] = 0x10;
    packet[1] = n - 2;
    send_whole(c, packet, n);
    read_exactly(c, reply, 4);
    if (reply[1] > 127) fail("a long CONNACK");
    read_exactly(c, reply + 4, reply[1] - 2);
    if (reply[0] != 0x20 || reply[3]) fail("CONNECT is refused");
}

static void subscribe(struct client *c, const char *filter) {
    unsigned char packet[128], reply[8];
    packet[2] = 0;
    packet[3] = 1;
    packet[4] = 0; /* no properties */
    size_t n = 4 + (level == 5);
    n += text(packet + n, filter);
    packet[n++] = qos;
    packet[0] = 0x82;
    packet[1] = n - 2;
    send_whole(c, packet, n);
    read_exactly(c, reply, 5 + (level == 5));
    if (reply[0] != 0x90 || reply[4 + (level == 5)] != qos) fail("SUBSCRIBE is refused");
}

static void watch(struct client *c) {
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->in = malloc(ROOM);
    c->out = malloc(c->out_room = 4096);
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
}

static void count(struct client *c, const unsigned char *data) {
    uint32_t numbers[2];
    memcpy(numbers, data, HEADER);
    if (numbers[0] >= (uint32_t)publishers) fail("a message nobody sent");
    uint32_t *due = &c->next[numbers[0]];
    if (numbers[1] < *due) {
        duplicates++;
        return;
    }
    *due = numbers[1] + 1;
    received++;
    if (qos < 2) sending[numbers[0]].delivered++;
}

/* Publisher of the message by packet identifier of a subscriber, for QoS 2 messages, which PUBREL delivers. */
static uint32_t *held;

static void packet(struct client *c, const unsigned char *p, const unsigned char *body, size_t length) {
    unsigned id = length >= 2 ? body[0] << 8 | body[1] : 0;
    switch (p[0] & 0xF0) {
    case 0x30: {
        size_t topic = 2 + (body[0] << 8 | body[1]);
        if (p[0] & 6) {
            id = body[topic] << 8 | body[topic + 1];
            topic += 2;
            answer(c, (p[0] & 6) == 2 ? 0x40 : 0x50, id);
        }
        if (level == 5) {
            size_t said = body[topic++];
            if (said > 127) said = (said & 127) | body[topic++] << 7;
            topic += said;
        }
        count(c, body + topic);
        if ((p[0] & 6) == 4) memcpy(&held[c->number * 65536 + id], body + topic, 4);
        break;
    }
    case 0x40: case 0x70: c->acknowledged++; break;
    case 0x50: answer(c, 0x62, id); break;
    case 0x60:
        answer(c, 0x70, id);
        sending[held[c->number * 65536 + id]].delivered++;
        break;
    default: fail("an unexpected packet");
    }
}

static void take(struct client *c) {
    for (;;) {
        ssize_t n = receive_some(c, c->in + c->in_length, ROOM - c->in_length);
        if (n == 0) fail("the broker closed a connection");
        if (n < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK) return;
            fail("a connection broke");
        }
        int full = tls || c->in_length + n == ROOM;
        c->in_length += n;
        size_t at = 0;
        while (c->in_length - at >= 2) {
            size_t length = 0, header = 1;
            int shift = 0, done = 0;
            while (at + header < c->in_length && header < 5) {
                unsigned char digit = c->in[at + header++];
                length |= (size_t)(digit & 127) << shift;
                shift += 7;
                if (!(digit & 128)) { done = 1; break; }
            }
            if (!done || at + header + length > c->in_length) break;
            packet(c, c->in + at, c->in + at + header, length);
            at += header + length;
        }
        memmove(c->in, c->in + at, c->in_length -= at);
        if (!full) return;
    }
}

/* Properties of each message, after their length. None before MQTT 5. */
static unsigned char said[1024];
static size_t said_length;

static void say(void) {
    if (level != 5) return;
    size_t n = 2;
    for (int i = 0; i < properties; i++) {
        char name[16];
        snprintf(name, sizeof name, "name-%d", i % 10);
        said[n++] = 0x26;
        n += text(said + n, name);
        n += text(said + n, "some value");
    }
    size_t length = n - 2;
    if (length > 127) said[0] = (length & 127) | 128, said[1] = length >> 7;
    else said[0] = length, memmove(said + 1, said + 2, length);
    said_length = length + 1 + (length > 127);
}

static int fan(void) { return pairs ? 1 : subscribers; }

static void publish(struct client *c, const unsigned char *head, size_t head_length, unsigned char *body) {
    uint64_t complete = c->delivered / fan();
    if (qos && c->acknowledged < complete) complete = c->acknowledged;
    while (c->sent - complete < (uint32_t)window && c->out_length < 1 << 16) {
        uint32_t numbers[2] = {c->number, c->sent};
        memcpy(body, numbers, HEADER);
        unsigned char header[8];
        put(c, header, frame_header(header, head_length + (qos ? 2 : 0) + said_length + payload_length));
        put(c, head, head_length);
        if (qos) {
            unsigned id = c->sent % 65535 + 1;
            unsigned char raw[2] = {id >> 8, id & 255};
            put(c, raw, 2);
        }
        put(c, said, said_length);
        put(c, body, payload_length);
        c->sent++;
    }
}

int main(int count_of, char **given) {
    if (count_of != 13) fail("usage");
    tls = !strcmp(given[12], "tls"), websocket = !strcmp(given[12], "websocket");
#ifndef TLS
    if (tls) fail("this generator has no TLS");
#endif
    int numbers[9];
    for (int i = 0; i < 8; i++) numbers[i] = atoi(given[i + 1]);
    port = numbers[0], publishers = numbers[1], subscribers = numbers[2], pairs = numbers[3], qos = numbers[4];
    window = numbers[5], payload_length = numbers[6], durable = numbers[7];
    double limit = atof(given[9]);
    level = atoi(given[10]), properties = atoi(given[11]);
    if (properties > 30) fail("usage");
    say();
    if (publishers < 1 || subscribers < 1 || payload_length < HEADER || payload_length > 1000 || (pairs && publishers != subscribers)) fail("usage");
    epoll = epoll_create1(0);
    all = calloc(publishers + subscribers, sizeof *all);
    sending = all, receiving = all + publishers;
    held = calloc((size_t)subscribers * 65536, qos == 2 ? 4 : 0);
    char name[64];
    for (int i = 0; i < subscribers; i++) {
        struct client *c = &receiving[i];
        snprintf(name, sizeof name, "load-s%d", i);
        c->subscriber = 1, c->number = i, connected(c, name, !durable);
        c->next = calloc(publishers, sizeof *c->next);
        if (pairs) snprintf(name, sizeof name, "load/%05d", i);
        else snprintf(name, sizeof name, "load/#");
        subscribe(c, name);
        watch(c);
    }
    size_t head_length = 0;
    unsigned char *heads = calloc(publishers, 32), body[1024];
    memset(body, 'x', sizeof body);
    for (int i = 0; i < publishers; i++) {
        struct client *c = &sending[i];
        snprintf(name, sizeof name, "load-p%d", i);
        c->number = i, connected(c, name, 1);
        watch(c);
        unsigned char *at = heads + 32 * i;
        size_t remaining = 2 + 10 + (qos ? 2 : 0) + said_length + payload_length, n = 0;
        at[n++] = 0x30 | qos << 1;
        if (remaining > 127) at[n++] = (remaining & 127) | 128, at[n++] = remaining >> 7;
        else at[n++] = remaining;
        snprintf(name, sizeof name, "load/%05d", i);
        n += text(at + n, name);
        head_length = n;
    }
    double start = seconds_now(), last = start;
    int stopping = 0;
    for (int i = 0; i < publishers; i++) publish(&sending[i], heads + 32 * i, head_length, body), flush(&sending[i]);
    for (;;) {
        struct epoll_event ready[256];
        int n = epoll_wait(epoll, ready, 256, 100);
        double now = seconds_now();
        uint64_t before = received;
        for (int i = 0; i < n; i++) {
            struct client *c = ready[i].data.ptr;
            if (ready[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) take(c);
            flush(c);
        }
        if (received != before) last = now;
        stopping = stopping || now - start > limit;
        uint64_t sent = 0, complete = 0;
        for (int i = 0; i < publishers; i++) {
            struct client *c = &sending[i];
            if (!stopping) publish(c, heads + 32 * i, head_length, body);
            if (c->out_length && !c->writing) flush(c);
            sent += c->sent;
            complete += c->delivered / fan() < c->acknowledged || !qos ? c->delivered / fan() : c->acknowledged;
        }
        if ((stopping && complete >= sent) || now - last > STALL_SECONDS) {
            double took = last - start;
            printf("{\"failure\": \"%s\", \"rate\": %.1f, \"seconds\": %.4f, \"sent\": %llu, \"received\": %llu, \"lost\": %llu, \"duplicates\": %llu}\n",
                   complete < sent && qos ? "not all was acknowledged and delivered" : "", received / (took > 1e-9 ? took : 1e-9), took,
                   (unsigned long long)sent, (unsigned long long)received, (unsigned long long)(sent * fan() - received),
                   (unsigned long long)duplicates);
            break;
        }
    }
    for (int i = 0; i < publishers + subscribers; i++) {
        send_whole(&all[i], (const unsigned char *)"\xe0\0", 2);
        close(all[i].fd);
    }
    if (durable)
        for (int i = 0; i < subscribers; i++) {
            snprintf(name, sizeof name, "load-s%d", i);
            struct client last = {0};
            connected(&last, name, 1);
            close(last.fd);
        }
    return 0;
}
