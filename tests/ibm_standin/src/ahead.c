/* Read ahead: messages that a browse fetches before the program asks for them.

   "Using read ahead in a client application": each queue that is open with read ahead has a buffer in the client. One round
   trip fills it with about BUFFER_SIZE bytes of messages, and MQGETs with MQGMO_BROWSE_NEXT are served from it. A message in
   the buffer may no longer be on the queue. Only browses fill the buffer here: a destructive get takes one message at a time.

   "MQGET options and read ahead" divides the options into three groups. Those of ALTERABLE may differ between calls. Those of
   FIXED must be the same as in the first MQGET, or the call fails with MQRC_OPTIONS_CHANGED. Those of FORBIDDEN disable read
   ahead if the first MQGET has one of them, and cause MQRC_OPTIONS_ERROR later. The first MQGET also determines whether the
   handle browses or gets. */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define BROWSES (MQGMO_BROWSE_FIRST | MQGMO_BROWSE_NEXT | MQGMO_BROWSE_MSG_UNDER_CURSOR)
#define FIXED                                                                                                          \
    (MQGMO_SYNCPOINT_IF_PERSISTENT | MQGMO_NO_SYNCPOINT | MQGMO_ACCEPT_TRUNCATED_MSG | MQGMO_CONVERT |                 \
     MQGMO_LOGICAL_ORDER | MQGMO_COMPLETE_MSG | MQGMO_ALL_MSGS_AVAILABLE | MQGMO_ALL_SEGMENTS_AVAILABLE |              \
     MQGMO_MARK_BROWSE_HANDLE | MQGMO_MARK_BROWSE_CO_OP | MQGMO_UNMARK_BROWSE_CO_OP | MQGMO_UNMARK_BROWSE_HANDLE |     \
     MQGMO_UNMARKED_BROWSE_MSG | MQGMO_PROPERTIES_FORCE_MQRFH2 | MQGMO_NO_PROPERTIES | MQGMO_PROPERTIES_IN_HANDLE |    \
     MQGMO_PROPERTIES_COMPATIBILITY)
#define FORBIDDEN                                                                                                      \
    (MQGMO_SET_SIGNAL | MQGMO_SYNCPOINT | MQGMO_MARK_SKIP_BACKOUT | MQGMO_MSG_UNDER_CURSOR | MQGMO_LOCK | MQGMO_UNLOCK)
#define BUFFER_SIZE 100000

/* One message of the buffer: the rest of a reply to VERB_GET, with its completion code and reason. */
struct arrival {
    struct arrival *next;
    struct frame frame;
};

struct ahead {
    struct ahead *next;
    MQHOBJ object;
    bool decided, browses, quiesced;
    MQLONG options, encoding, ccsid; /* of the first MQGET */
    MQHMSG handle;
    struct arrival *first, *served; /* `served`: under the browse cursor */
};

struct ahead *ahead_of(struct connection *connection, MQHOBJ object)
{
    struct ahead *one = connection->aheads;
    while (one && one->object != object) one = one->next;
    return one;
}

void ahead_open(struct connection *connection, MQHOBJ object)
{
    struct ahead *made = connection->reads_ahead ? calloc(1, sizeof *made) : NULL;
    if (!made) return;
    made->object = object;
    made->next = connection->aheads;
    connection->aheads = made;
}

static void arrival_free(struct arrival *one)
{
    if (one) free(one->frame.bytes);
    free(one);
}

static void discard(struct ahead *ahead)
{
    while (ahead->first) {
        struct arrival *one = ahead->first;
        ahead->first = one->next;
        arrival_free(one);
    }
    arrival_free(ahead->served);
    ahead->served = NULL;
}

/* The queue is closed, or read ahead is disabled for it. */
void ahead_close(struct connection *connection, MQHOBJ object)
{
    for (struct ahead **link = &connection->aheads; *link; link = &(*link)->next) {
        struct ahead *one = *link;
        if (one->object != object) continue;
        discard(one);
        *link = one->next;
        free(one);
        return;
    }
}

/* After a reconnection a browse begins again. */
void ahead_discard(struct connection *connection)
{
    for (struct ahead *one = connection->aheads; one; one = one->next) discard(one);
}

void ahead_forget(struct connection *connection)
{
    while (connection->aheads) ahead_close(connection, connection->aheads->object);
}

/* MQCO_QUIESCE: true if messages are left in the buffer, so that the queue stays open. */
bool ahead_quiesce(struct ahead *ahead)
{
    ahead->quiesced = ahead->first != NULL;
    return ahead->quiesced;
}

/* Compare an MQGET with the first of its handle. MQRC_NONE and *ahead NULL: read ahead is disabled. */
MQLONG ahead_check(struct connection *connection, struct ahead **ahead, const MQMD *md, const MQGMO *gmo, MQHMSG handle)
{
    struct ahead *one = *ahead;
    bool browses = gmo->Options & BROWSES;
    if (!one->decided) {
        if (gmo->Options & FORBIDDEN) {
            ahead_close(connection, one->object);
            *ahead = NULL;
            return MQRC_NONE;
        }
        one->decided = true;
        one->browses = browses;
        one->options = gmo->Options & FIXED;
        one->encoding = md->Encoding;
        one->ccsid = md->CodedCharSetId;
        one->handle = handle;
    }
    if (gmo->Options & FORBIDDEN) return MQRC_OPTIONS_ERROR;
    /* Encoding and CodedCharSetId are output fields. They are input fields only if the message is converted. */
    bool converts = gmo->Options & MQGMO_CONVERT;
    bool same = one->browses == browses && one->options == (gmo->Options & FIXED) && one->handle == handle &&
                (!converts || (one->encoding == md->Encoding && one->ccsid == md->CodedCharSetId));
    return same ? MQRC_NONE : MQRC_OPTIONS_CHANGED;
}

/* Whether an MQGET requests more than one message. The queue manager marks messages when it sends them. A program that
   discards the buffer with MQGMO_BROWSE_FIRST does not get them again with MQGMO_UNMARKED_BROWSE_MSG. */
bool ahead_wants(const struct ahead *ahead, const MQGMO *gmo)
{
    return ahead->browses && !(gmo->Options & MQGMO_BROWSE_MSG_UNDER_CURSOR);
}

MQLONG ahead_size(void) { return BUFFER_SIZE; }

/* ---- the buffer -------------------------------------------------------------------------------------------------- */

static void keep(struct arrival **end, const char *bytes, size_t length)
{
    struct arrival *made = calloc(1, sizeof *made);
    if (!made || !(made->frame.bytes = malloc(length))) abort();
    memcpy(made->frame.bytes, bytes, made->frame.length = length);
    *end = made;
}

/* Buffer the messages of a reply to VERB_GET_AHEAD. `from` is the position of the first message. The others follow. */
void ahead_take(struct ahead *ahead, struct frame *frame, MQLONG comp_code, MQLONG reason, size_t from)
{
    size_t length = frame->position - from;
    if (reason != MQRC_TRUNCATED_MSG_FAILED) {
        MQLONG head[2] = {comp_code, reason};
        char *whole = malloc(sizeof head + length);
        if (!whole) abort();
        memcpy(whole, head, sizeof head);
        memcpy(whole + sizeof head, frame->bytes + from, length);
        arrival_free(ahead->served);
        keep(&ahead->served, whole, sizeof head + length);
        free(whole);
    }
    struct arrival **end = &ahead->first;
    while (*end) end = &(*end)->next;
    for (MQLONG count = take_long(frame); count > 0 && !frame->malformed; count--) {
        MQLONG size;
        const char *bytes = take_bytes(frame, &size);
        if (!bytes) return;
        keep(end, bytes, (size_t)size);
        end = &(*end)->next;
    }
}

static bool is_wanted(const struct arrival *one, const MQMD *md, const MQGMO *gmo)
{
    static const MQBYTE24 none;
    MQLONG match = gmo->Version >= 2 ? gmo->MatchOptions : MQMO_MATCH_MSG_ID | MQMO_MATCH_CORREL_ID, length;
    struct frame frame = one->frame;
    frame.position = 2 * sizeof(MQLONG);
    const MQMD *own = (const MQMD *)take_bytes(&frame, &length);
    if (match & MQMO_MATCH_MSG_ID && memcmp(md->MsgId, none, sizeof none) && memcmp(md->MsgId, own->MsgId, sizeof none))
        return false;
    return !(match & MQMO_MATCH_CORREL_ID) || !memcmp(md->CorrelId, none, sizeof none) ||
           !memcmp(md->CorrelId, own->CorrelId, sizeof none);
}

/* Write the output fields to the program's structures, in the program's versions. */
static void serve(const struct arrival *one, MQMD *md, size_t md_length, MQGMO *gmo, MQLONG size, void *buffer,
                  MQLONG *data_length, MQLONG *comp_code, MQLONG *reason)
{
    struct frame frame = one->frame;
    MQMD own = {0};
    MQGMO got = {0};
    frame.position = 0;
    *comp_code = take_long(&frame);
    *reason = take_long(&frame);
    take_into(&frame, &own, sizeof own);
    take_into(&frame, &got, sizeof got);
    own.Version = md->Version;
    memcpy(md, &own, md_length);
    memcpy(gmo->ResolvedQName, got.ResolvedQName, sizeof got.ResolvedQName);
    if (gmo->Version >= 2) {
        gmo->GroupStatus = got.GroupStatus;
        gmo->SegmentStatus = got.SegmentStatus;
        gmo->Segmentation = got.Segmentation;
    }
    *data_length = take_long(&frame);
    if (gmo->Version >= 3) {
        memcpy(gmo->MsgToken, got.MsgToken, sizeof got.MsgToken);
        gmo->ReturnedLength = *data_length < size ? *data_length : size;
    }
    take_into(&frame, buffer, (size_t)size);
    if (handle_is_given(gmo->Version >= 4 ? gmo->MsgHandle : MQHM_NONE)) take_properties(&frame, gmo->MsgHandle);
    if (*data_length <= size) return;
    *comp_code = MQCC_WARNING;
    *reason = gmo->Options & MQGMO_ACCEPT_TRUNCATED_MSG ? MQRC_TRUNCATED_MSG_ACCEPTED : MQRC_TRUNCATED_MSG_FAILED;
}

/* Serve an MQGET from the buffer. false: the queue manager must serve it. */
bool ahead_serve(struct ahead *ahead, MQMD *md, size_t md_length, MQGMO *gmo, MQLONG size, void *buffer,
                 MQLONG *data_length, MQRESULT)
{
    if (!ahead->browses) return false;
    if (gmo->Options & MQGMO_BROWSE_FIRST) discard(ahead);
    if (gmo->Options & MQGMO_BROWSE_MSG_UNDER_CURSOR) {
        if (!ahead->served) return false;
        serve(ahead->served, md, md_length, gmo, size, buffer, data_length, pCompCode, pReason);
        return true;
    }
    struct arrival **link = &ahead->first;
    while (*link && !is_wanted(*link, md, gmo)) link = &(*link)->next;
    struct arrival *one = *link;
    if (!one) {
        if (!ahead->quiesced) return false;
        fail(ahead->first ? MQRC_HOBJ_QUIESCED : MQRC_HOBJ_QUIESCED_NO_MSGS, pCompCode, pReason);
        return true;
    }
    serve(one, md, md_length, gmo, size, buffer, data_length, pCompCode, pReason);
    if (*pReason == MQRC_TRUNCATED_MSG_FAILED) return true;
    *link = one->next;
    arrival_free(ahead->served);
    one->next = NULL;
    ahead->served = one;
    return true;
}
