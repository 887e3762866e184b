/* Automatic client reconnection: MQCNO_RECONNECT and MQCNO_RECONNECT_Q_MGR.

   A call on a broken connection waits until there is a new connection with all objects and subscriptions ("Automatic client
   reconnection"). An open unit of work is backed out, and the next call within it returns MQRC_BACKED_OUT. A commit, and a put outside
   of a unit of work, return MQRC_CALL_INTERRUPTED, because their result is unknown. The event handler is called for each event. A
   browse starts again.

   The program keeps its handles. The handles of the queue manager change. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

/* "MQReconnectTimeout" and "ReconDelay" of mqclient.ini: total seconds, and milliseconds before each attempt. */
#define TIMEOUT_SECONDS 1800
static const int DELAYS[] = {1000, 2000, 4000, 8000, 16000, 25000};
#define JITTER_MS 200
/* Different from the queue manager's handles, with the same number of digits: ibmmq compares prefixes. */
#define FIRST_HANDLE 50000001
/* Positions of fields in requests and replies that are read or changed here. See frame.c and verbs.c. */
enum { REQUEST_FIRST = 8, REQUEST_STRUCTURE = 16, REPLY_FIRST = 8, REPLY_SECOND = 12, REPLY_STRUCTURE = 16 };

struct object {
    struct object *next;
    MQHOBJ given, now;                 /* the handle of the program (0: closed), and that of the queue manager */
    MQHOBJ managed_given, managed_now; /* of the queue of a managed subscription */
    char *request;                     /* the MQOPEN or MQSUB request */
    size_t length;
    MQCHAR48 dynamic_queue; /* the name of the queue created from a model queue */
};

struct reconnection {
    bool same_queue_manager;
    char *introduction; /* the first request of a connection */
    size_t introduction_length;
    MQBYTE24 connection_id;
    struct object *objects;
    MQHOBJ last_given;
    char *request; /* of the current call */
    size_t length, capacity;
    bool in_unit, backed_out, gave_up;
};

/* ---- handles ----------------------------------------------------------------------------------------------------- */

static MQLONG long_at(const char *bytes)
{
    MQLONG value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void set_long(char *bytes, MQLONG value) { memcpy(bytes, &value, sizeof value); }

static MQHOBJ now_of(const struct reconnection *reconnection, MQHOBJ given)
{
    for (const struct object *one = given ? reconnection->objects : NULL; one; one = one->next) {
        if (one->given == given) return one->now;
        if (one->managed_given == given) return one->managed_now;
    }
    return given;
}

static bool names_an_object(enum verb verb)
{
    return verb == VERB_CLOSE || verb == VERB_PUT || verb == VERB_PUT_ASYNC || verb == VERB_GET || verb == VERB_GET_AHEAD ||
           verb == VERB_INQ || verb == VERB_SET || verb == VERB_SUB || verb == VERB_SUBRQ;
}

static void forget(struct reconnection *reconnection, MQHOBJ given)
{
    for (struct object **link = &reconnection->objects; *link; link = &(*link)->next) {
        struct object *one = *link;
        if (one->managed_given == given) one->managed_given = 0;
        else if (one->given == given) one->given = 0;
        else continue;
        if (one->given || one->managed_given) return; /* a subscription, or its queue, which is still open */
        *link = one->next;
        free(one->request);
        free(one);
        return;
    }
}

static struct object *remember(struct reconnection *reconnection)
{
    struct object **end = &reconnection->objects, *made = calloc(1, sizeof *made);
    while (*end) end = &(*end)->next;
    if (!made || !(made->request = malloc(reconnection->length))) abort();
    memcpy(made->request, reconnection->request, made->length = reconnection->length);
    made->given = ++reconnection->last_given;
    return *end = made;
}

struct reconnection *reconnection_make(MQLONG options, const struct frame *introduction)
{
    struct reconnection *made = calloc(1, sizeof *made);
    if (!made || !(made->introduction = malloc(introduction->length))) abort();
    made->same_queue_manager = options & MQCNO_RECONNECT_Q_MGR;
    memcpy(made->introduction, introduction->bytes, made->introduction_length = introduction->length);
    made->last_given = FIRST_HANDLE - 1;
    return made;
}

void reconnection_free(struct reconnection *reconnection)
{
    if (!reconnection) return;
    while (reconnection->objects) {
        struct object *one = reconnection->objects;
        forget(reconnection, one->given ? one->given : one->managed_given);
    }
    free(reconnection->introduction);
    free(reconnection->request);
    free(reconnection);
}

/* "2547 (MQRC_RECONNECT_INCOMPATIBLE)", "2555 (MQRC_RECONNECT_Q_MGR_REQD)" */
MQLONG reconnection_forbids(const struct reconnection *reconnection, bool relies_on_state, bool relies_on_queue_manager)
{
    if (!reconnection) return MQRC_NONE;
    if (relies_on_state) return MQRC_RECONNECT_INCOMPATIBLE;
    return relies_on_queue_manager && !reconnection->same_queue_manager ? MQRC_RECONNECT_Q_MGR_REQD : MQRC_NONE;
}

void reconnection_remember_id(struct reconnection *reconnection, const MQBYTE24 connection_id)
{
    memcpy(reconnection->connection_id, connection_id, sizeof(MQBYTE24));
}

/* Before a request is sent: copy it for a repetition, and replace the program's handles by those of the queue manager. */
static void prepare(struct reconnection *reconnection, struct call *call)
{
    struct frame *frame = call->frame;
    if (frame->length > reconnection->capacity) {
        reconnection->request = realloc(reconnection->request, reconnection->capacity = frame->length);
        if (!reconnection->request) abort();
    }
    memcpy(reconnection->request, frame->bytes, reconnection->length = frame->length);
    if (names_an_object(call->verb))
        set_long(frame->bytes + REQUEST_FIRST, now_of(reconnection, long_at(frame->bytes + REQUEST_FIRST)));
}

static void send_again(struct reconnection *reconnection, struct call *call)
{
    frame_replace(call->frame, reconnection->request, reconnection->length);
    if (names_an_object(call->verb))
        set_long(call->frame->bytes + REQUEST_FIRST, now_of(reconnection, long_at(reconnection->request + REQUEST_FIRST)));
}

static void remember_open(struct reconnection *reconnection, char *reply)
{
    struct object *one = remember(reconnection);
    const MQOD *sent = (const MQOD *)(one->request + REQUEST_STRUCTURE), *got = (const MQOD *)(reply + REPLY_STRUCTURE);
    one->now = long_at(reply + REPLY_FIRST);
    if (memcmp(sent->ObjectName, got->ObjectName, sizeof got->ObjectName))
        memcpy(one->dynamic_queue, got->ObjectName, sizeof got->ObjectName);
    set_long(reply + REPLY_FIRST, one->given);
}

static void remember_subscription(struct reconnection *reconnection, char *reply)
{
    MQHOBJ queue = long_at(reconnection->request + REQUEST_FIRST);
    struct object *one = remember(reconnection);
    const MQSD *sent = (const MQSD *)(one->request + REQUEST_STRUCTURE);
    one->now = long_at(reply + REPLY_SECOND);
    set_long(reply + REPLY_SECOND, one->given);
    if (sent->Options & MQSO_MANAGED) {
        one->managed_now = long_at(reply + REPLY_FIRST);
        queue = one->managed_given = ++reconnection->last_given;
    }
    set_long(reply + REPLY_FIRST, queue);
}

/* After a reply: replace the queue manager's handles by those of the program, and record the changes. */
static void follow(struct reconnection *reconnection, struct call *call)
{
    char *reply = call->frame->bytes;
    bool done = long_at(reply) != MQCC_FAILED;
    if (call->verb == VERB_CMIT || call->verb == VERB_BACK)
        reconnection->in_unit = reconnection->backed_out = false;
    else if (call->syncpoint && done)
        reconnection->in_unit = true;
    if (!done || call->frame->length < REPLY_STRUCTURE) {
        if (done && call->verb == VERB_CLOSE) forget(reconnection, long_at(reconnection->request + REQUEST_FIRST));
        return;
    }
    if (call->verb == VERB_OPEN) remember_open(reconnection, reply);
    if (call->verb == VERB_SUB) remember_subscription(reconnection, reply);
}

/* ---- another connection ------------------------------------------------------------------------------------------ */

/* Send a request and receive its reply. Return the reason of the reply, or MQRC_CONNECTION_BROKEN. */
static MQLONG ask(struct connection *connection, const char *request, size_t length)
{
    frame_replace(&connection->frame, request, length);
    if (!frame_travel(&connection->frame, connection->socket, (enum verb)long_at(request + 4), connection->patience))
        return MQRC_CONNECTION_BROKEN;
    return long_at(connection->frame.bytes) == MQCC_FAILED ? long_at(connection->frame.bytes + 4) : MQRC_NONE;
}

/* The request that opens an object again may differ from the first one: a durable subscription exists already, and so does the
   queue that was created from a model. */
static MQLONG make_again(struct connection *connection, struct object *one)
{
    struct reconnection *reconnection = connection->reconnection;
    char *request = malloc(one->length);
    if (!request) abort();
    memcpy(request, one->request, one->length);
    bool subscribes = long_at(request + 4) == VERB_SUB;
    MQOD *od = (MQOD *)(request + REQUEST_STRUCTURE);
    MQSD *sd = (MQSD *)(request + REQUEST_STRUCTURE);
    if (subscribes) {
        set_long(request + REQUEST_FIRST, now_of(reconnection, long_at(request + REQUEST_FIRST)));
        if (sd->Options & MQSO_DURABLE)
            sd->Options = (sd->Options & ~(MQSO_CREATE | MQSO_ALTER)) | MQSO_RESUME;
    } else if (one->dynamic_queue[0]) {
        memcpy(od->ObjectName, one->dynamic_queue, sizeof od->ObjectName);
    }
    MQLONG reason = ask(connection, request, one->length);
    if (reason == MQRC_UNKNOWN_OBJECT_NAME && one->dynamic_queue[0]) {
        memcpy(request, one->request, one->length);
        memcpy(od->DynamicQName, one->dynamic_queue, sizeof od->DynamicQName);
        reason = ask(connection, request, one->length);
    }
    free(request);
    if (reason) return reason;
    one->now = long_at(connection->frame.bytes + (subscribes ? REPLY_SECOND : REPLY_FIRST));
    if (one->managed_given) one->managed_now = long_at(connection->frame.bytes + REPLY_FIRST);
    return MQRC_NONE;
}

/* Connect, and open all objects again. */
static MQLONG attempt(struct connection *connection)
{
    struct reconnection *reconnection = connection->reconnection;
    enum { NAME = 4, NAME_LENGTH = 12 }; /* of the queue manager, in an MQBYTE24 of a connection */
    MQBYTE24 connection_id;
    if (!connection_dial(connection)) return MQRC_CONNECTION_BROKEN;
    MQLONG reason = ask(connection, reconnection->introduction, reconnection->introduction_length);
    if (reason) return reason;
    connection->frame.position = REPLY_FIRST;
    take_into(&connection->frame, connection_id, sizeof connection_id);
    connection_take_channel(connection);
    if (reconnection->same_queue_manager && memcmp(connection_id + NAME, reconnection->connection_id + NAME, NAME_LENGTH))
        return MQRC_RECONNECT_QMID_MISMATCH;
    for (struct object *one = reconnection->objects; one && !reason; one = one->next)
        if (one->given) reason = make_again(connection, one);
    return reason;
}

/* The queue manager may return soon, or may not yet have noticed that the previous connection broke. */
static bool passes(MQLONG reason)
{
    return reason == MQRC_CONNECTION_BROKEN || reason == MQRC_OBJECT_IN_USE || reason == MQRC_SUBSCRIPTION_IN_USE ||
           reason == MQRC_Q_MGR_NOT_AVAILABLE || reason == MQRC_Q_MGR_QUIESCING || reason == MQRC_Q_MGR_STOPPING ||
           reason == MQRC_CONNECTION_QUIESCING || reason == MQRC_CONNECTION_STOPPING;
}

static MQLONG reconnect(struct connection *connection)
{
    const char *wanted = getenv("MQI_STANDIN_RECONNECT_TIMEOUT");
    time_t end = time(NULL) + (wanted ? atol(wanted) : TIMEOUT_SECONDS);
    MQLONG reason;
    connection->reconnecting = true;
    ahead_discard(connection);
    connection->reconnector = pthread_self();
    consumers_tell(connection, MQRC_RECONNECTING);
    for (size_t number = 0;; number++) {
        int last = sizeof DELAYS / sizeof *DELAYS - 1;
        usleep((useconds_t)(DELAYS[number < (size_t)last ? number : (size_t)last] + rand() % JITTER_MS) * 1000);
        reason = attempt(connection);
        if (!reason) break;
        connection_drop(connection);
        if (!passes(reason)) {
            if (reason != MQRC_RECONNECT_QMID_MISMATCH) reason = MQRC_RECONNECT_FAILED;
            break;
        }
        if (time(NULL) >= end) {
            reason = MQRC_RECONNECT_TIMED_OUT;
            break;
        }
    }
    consumers_tell(connection, reason ? MQRC_RECONNECT_FAILED : MQRC_RECONNECTED);
    connection->reconnecting = false;
    return reason;
}

/* Return the reason of a call whose connection broke and was restored. MQRC_NONE: the call is repeated. */
static MQLONG interruption(struct reconnection *reconnection, const struct call *call)
{
    bool was_in_unit = reconnection->in_unit;
    bool puts = call->verb == VERB_PUT || call->verb == VERB_PUT1 || call_is_unanswered(call);
    reconnection->in_unit = false;
    if (call->verb == VERB_CMIT) return was_in_unit ? MQRC_CALL_INTERRUPTED : MQRC_NONE;
    if (call->verb == VERB_BACK) return MQRC_NONE;
    reconnection->backed_out = was_in_unit;
    if (was_in_unit && call->syncpoint) return MQRC_BACKED_OUT;
    return puts && !call->syncpoint ? MQRC_CALL_INTERRUPTED : MQRC_NONE;
}

/* ---- every call of a connection that reconnects ------------------------------------------------------------------- */

MQLONG reconnection_travel(struct call *call, bool (*travel)(struct call *))
{
    struct connection *connection = call->connection;
    struct reconnection *reconnection = connection->reconnection;
    if (reconnection->gave_up) return MQRC_CONNECTION_BROKEN;
    if (reconnection->backed_out && (call->syncpoint || call->verb == VERB_CMIT)) {
        if (call->verb == VERB_CMIT) reconnection->backed_out = false;
        return MQRC_BACKED_OUT;
    }
    prepare(reconnection, call);
    while (!travel(call)) {
        connection_drop(connection);
        if (call->verb == VERB_DISC) return MQRC_CONNECTION_BROKEN;
        MQLONG reason = reconnect(connection);
        reconnection->gave_up = reason != MQRC_NONE;
        if (!reason) reason = interruption(reconnection, call);
        if (reason) return reason;
        send_again(reconnection, call);
    }
    if (!call_is_unanswered(call)) follow(reconnection, call);
    else if (call->syncpoint) reconnection->in_unit = true;
    return MQRC_NONE;
}
