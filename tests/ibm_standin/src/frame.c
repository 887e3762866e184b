/* Frames of the protocol: a request is filled, sent, and overwritten by its reply. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "standin.h"

#define LENGTH_SIZE 4
#define MAX_REPLY (104857600 + 1048576) /* the largest message of MQ, and space for structures */

static void reserve(struct frame *frame, size_t more)
{
    if (frame->length + more <= frame->capacity) return;
    frame->capacity = (frame->length + more) * 2 + 1024;
    frame->bytes = realloc(frame->bytes, frame->capacity);
    if (!frame->bytes) abort(); /* out of memory: only tests use this library */
}

static void append(struct frame *frame, const void *bytes, size_t length)
{
    reserve(frame, length);
    if (length) memcpy(frame->bytes + frame->length, bytes, length);
    frame->length += length;
}

void frame_start(struct frame *frame, enum verb verb)
{
    frame->length = frame->position = 0;
    frame->malformed = false;
    put_long(frame, 0); /* the length, which is set later */
    put_long(frame, verb);
}

/* Copy an earlier request. */
void frame_replace(struct frame *frame, const char *bytes, size_t length)
{
    frame->length = frame->position = 0;
    frame->malformed = false;
    append(frame, bytes, length);
}

void put_long(struct frame *frame, MQLONG value) { append(frame, &value, sizeof value); }

void put_bytes(struct frame *frame, const void *bytes, MQLONG length)
{
    put_long(frame, bytes ? length : -1);
    if (bytes) append(frame, bytes, (size_t)length);
}

static char *string_start(const void *structure, const MQCHARV *string)
{
    if (string->VSPtr) return string->VSPtr;
    return string->VSOffset ? (char *)structure + string->VSOffset : NULL;
}

/* A string outside its structure. The structure contains a pointer to it, or its offset. */
void put_string(struct frame *frame, const void *structure, const MQCHARV *string)
{
    const char *start = string_start(structure, string);
    MQLONG length = string->VSLength;
    if (start && length == MQVS_NULL_TERMINATED) length = (MQLONG)strlen(start);
    if (!start) return put_bytes(frame, NULL, 0);
    char *text = charset_to_utf8(start, &length, string->VSCCSID);
    put_bytes(frame, text, length);
    free(text);
}

static const char *take(struct frame *frame, size_t length)
{
    if (length > frame->length - frame->position) {
        frame->malformed = true;
        return NULL;
    }
    const char *bytes = frame->bytes + frame->position;
    frame->position += length;
    return bytes;
}

MQLONG take_long(struct frame *frame)
{
    MQLONG value = 0;
    const char *bytes = take(frame, sizeof value);
    if (bytes) memcpy(&value, bytes, sizeof value);
    return value;
}

/* NULL, and a length of 0 or -1, if there are no bytes. */
const char *take_bytes(struct frame *frame, MQLONG *length)
{
    *length = take_long(frame);
    const char *bytes = *length > 0 ? take(frame, (size_t)*length) : NULL;
    if (!bytes && *length > 0) *length = 0;
    return bytes;
}

void take_into(struct frame *frame, void *target, size_t size)
{
    MQLONG length;
    const char *bytes = take_bytes(frame, &length);
    if (bytes) memcpy(target, bytes, (size_t)length < size ? (size_t)length : size);
}

/* Copy a string from the queue manager to the caller's buffer, if it has one. A ResObjectString that is too long is cut on the
   left ("MQOD - ResObjectString"), other strings on the right. */
void take_string(struct frame *frame, void *structure, MQCHARV *string, bool rightmost)
{
    MQLONG length;
    const char *bytes = take_bytes(frame, &length);
    char *buffer = string_start(structure, string);
    if (length < 0 || string->VSBufSize <= 0 || !buffer) return;
    char *text = charset_from_utf8(bytes ? bytes : "", &length, string->VSCCSID);
    MQLONG fits = length < string->VSBufSize ? length : string->VSBufSize;
    memcpy(buffer, rightmost ? text + length - fits : text, (size_t)fits);
    free(text);
    if (fits < string->VSBufSize) buffer[fits] = 0;
    string->VSLength = length;
}

bool frame_has_more(const struct frame *frame) { return frame->position < frame->length; }

/* Send bytes, or receive them. `patience` is the time-out of each receive in milliseconds. Negative: no limit. */
static bool transfer(int descriptor, char *bytes, size_t length, bool sends, int patience)
{
    while (length) {
        struct pollfd arrival = {.fd = descriptor, .events = POLLIN};
        if (!sends && patience >= 0 && !stream_has_more(descriptor) && poll(&arrival, 1, patience) == 0) return false;
        ssize_t done = sends ? stream_send(descriptor, bytes, length) : stream_receive(descriptor, bytes, length);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        bytes += done;
        length -= (size_t)done;
    }
    return true;
}

static bool frame_send(struct frame *frame, int descriptor)
{
    uint32_t length = (uint32_t)(frame->length - LENGTH_SIZE);
    memcpy(frame->bytes, &length, LENGTH_SIZE);
    return transfer(descriptor, frame->bytes, frame->length, true, -1);
}

/* Send a request without waiting for a reply, for an asynchronous put. false: the connection is broken, or a test breaks it. */
bool frame_leave(struct frame *frame, int descriptor)
{
    enum cut cut = fault_of(VERB_PUT);
    if (descriptor < 0 || cut == CUT_BEFORE || !frame_send(frame, descriptor)) return false;
    if (cut == CUT_NONE) return true;
    /* The queue manager closes its side after it has executed all earlier requests. */
    char byte;
    shutdown(descriptor, SHUT_WR);
    while (stream_receive(descriptor, &byte, 1) > 0) {}
    return false;
}

/* Send a request and receive its reply. false: the connection is broken, a test breaks it, or no reply arrived in time. */
bool frame_travel(struct frame *frame, int descriptor, enum verb verb, int patience)
{
    enum cut cut = fault_of(verb);
    uint32_t length;
    fault_delay();
    if (descriptor < 0 || cut == CUT_BEFORE || !frame_send(frame, descriptor)) return false;
    if (!transfer(descriptor, (char *)&length, LENGTH_SIZE, false, patience) || length < 8 || length > MAX_REPLY) return false;
    frame->length = frame->position = 0;
    reserve(frame, length);
    if (!transfer(descriptor, frame->bytes, length, false, patience)) return false;
    frame->length = length;
    return cut != CUT_AFTER;
}
