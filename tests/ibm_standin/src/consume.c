/* Asynchronous consume: MQCB and MQCTL.

   The dispatcher, a separate thread, gets messages for the consumers of a connection and calls them, one at a time. As in IBM's
   client, other threads cannot use the connection then: they get MQRC_HCONN_ASYNC_ACTIVE, except for MQCTL and MQDISC
   (connection.c). The dispatcher polls the queues of the consumers in turn, and waits briefly on one of them if all are empty.
   MQCTL to stop or suspend returns after the current get and its callback ("MQCTL - Control callbacks"). */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

#define MOMENT_MS 20
/* Seconds after which a temporarily suspended consumer is served again. */
#define RETRY_SECONDS 1.0
#define FIRST_BUFFER 65536
#define BROWSE_ANY (MQGMO_BROWSE_FIRST | MQGMO_BROWSE_NEXT)

typedef void (*callback)(MQHCONN, PMQMD, PMQGMO, PMQBYTE, PMQCBC);

struct consumer {
    struct consumer *next;
    MQHOBJ object; /* MQHO_NONE: an event handler */
    MQCBD descriptor;
    MQMD md;
    MQGMO gmo;
    bool gone; /* deregistered. The memory is freed with the connection, because the dispatcher may be reading it */
    bool suspended;
    double again; /* when a temporarily suspended consumer is served again. 0.0: not suspended */
    bool has_been_told; /* it was called for an empty queue since the last message */
    double since;       /* time of the last message, or of the start */
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static struct consumer *consumer_of(struct connection *connection, MQHOBJ object)
{
    struct consumer *one = connection->consumers;
    while (one && (one->gone || one->object != object)) one = one->next;
    return one;
}

/* ---- callbacks ----------------------------------------------------------------------------------------------------- */

static void call(struct connection *connection, struct consumer *one, MQCBC context, MQMD *md, MQGMO *gmo, char *bytes)
{
    callback function;
    memcpy(&function, &one->descriptor.CallbackFunction, sizeof function);
    memcpy(context.StrucId, "CBC ", sizeof context.StrucId);
    context.Version = MQCBC_CURRENT_VERSION;
    context.Hobj = one->object;
    context.CallbackArea = one->descriptor.CallbackArea;
    context.ConnectionArea = connection->connection_area;
    function(connection->handle, md, gmo, (PMQBYTE)bytes, &context);
}

static void deregister(struct connection *connection, struct consumer *one)
{
    one->gone = true;
    if (!(one->descriptor.Options & MQCBDO_DEREGISTER_CALL)) return;
    MQMD md = one->md;
    MQGMO gmo = one->gmo;
    call(connection, one, (MQCBC){.CallType = MQCBCT_DEREGISTER_CALL}, &md, &gmo, NULL);
}

/* MQCLOSE deregisters the consumer of an object, MQDISC (MQHO_NONE) all consumers. Callbacks may make MQI calls. */
void consumers_forget(struct connection *connection, MQHOBJ Hobj)
{
    for (struct consumer *one = connection->consumers; one; one = one->next)
        if (!one->gone && (Hobj == MQHO_NONE || one->object == Hobj)) deregister(connection, one);
}

static void call_those_that_ask(struct connection *connection, MQLONG option, MQLONG call_type)
{
    for (struct consumer *one = connection->consumers; one; one = one->next) {
        if (one->gone || !(one->descriptor.Options & option)) continue;
        MQMD md = one->md;
        MQGMO gmo = one->gmo;
        call(connection, one,
             (MQCBC){.CallType = call_type, .State = call_type == MQCBCT_STOP_CALL ? MQCS_STOPPED : MQCS_NONE}, &md,
             &gmo, NULL);
    }
}

/* No message: call the consumer once (MQGMO_NO_WAIT), or after each WaitInterval (MQGMO_WAIT). */
static bool is_to_be_told(struct consumer *one)
{
    if (!(one->gmo.Options & MQGMO_WAIT)) return !one->has_been_told;
    return one->gmo.WaitInterval >= 0 && now() - one->since >= one->gmo.WaitInterval / 1000.0;
}

/* Reasons that concern the connection: the event handler and all consumers are called. */
static bool is_of_connection(MQLONG reason)
{
    return reason == MQRC_CONNECTION_BROKEN || reason == MQRC_Q_MGR_QUIESCING || reason == MQRC_Q_MGR_STOPPING ||
           reason == MQRC_CONNECTION_QUIESCING || reason == MQRC_CONNECTION_STOPPING || reason == MQRC_HCONN_ERROR ||
           reason == MQRC_RECONNECT_FAILED || reason == MQRC_RECONNECT_TIMED_OUT ||
           reason == MQRC_RECONNECT_QMID_MISMATCH;
}

/* Temporary reasons: the consumer is suspended, and called again later (MQCS_SUSPENDED_TEMPORARY). */
static bool is_temporary(MQLONG reason)
{
    return reason == MQRC_GET_INHIBITED || reason == MQRC_STORAGE_NOT_AVAILABLE || reason == MQRC_RESOURCE_PROBLEM;
}

/* MQGET failed: call the consumer, or the event handler if the reason concerns the connection. */
static void call_event(struct connection *connection, struct consumer *one, MQLONG comp_code, MQLONG reason)
{
    MQCBC context = {.CallType = MQCBCT_EVENT_CALL, .CompCode = comp_code, .Reason = reason};
    MQMD md = one->md;
    MQGMO gmo = one->gmo;
    struct consumer *handler = consumer_of(connection, MQHO_NONE);
    if (is_of_connection(reason)) {
        context.State = MQCS_STOPPED;
        one->suspended = true;
        if (handler) call(connection, handler, context, &md, &gmo, NULL);
    } else if (is_temporary(reason)) {
        context.State = MQCS_SUSPENDED_TEMPORARY;
        one->again = now() + RETRY_SECONDS;
    } else {
        context.State = MQCS_SUSPENDED;
        one->suspended = true;
    }
    call(connection, one, context, &md, &gmo, NULL);
}

void consumers_tell(struct connection *connection, MQLONG reason)
{
    struct consumer *handler = consumer_of(connection, MQHO_NONE);
    if (!handler) return;
    MQMD md = handler->md;
    MQGMO gmo = handler->gmo;
    MQLONG comp_code = reason == MQRC_RECONNECTING || reason == MQRC_RECONNECTED ? MQCC_WARNING : MQCC_FAILED;
    call(connection, handler, (MQCBC){.CallType = MQCBCT_EVENT_CALL, .CompCode = comp_code, .Reason = reason}, &md, &gmo,
         NULL);
}

/* ---- the dispatcher ---------------------------------------------------------------------------------------------- */

struct buffer {
    char *bytes;
    MQLONG size;
};

/* MQGET for a consumer, with a buffer for the whole message or for MaxMsgLength of the consumer. */
static void get(struct connection *connection, struct consumer *one, MQLONG wait, struct buffer *buffer, MQMD *md,
                MQGMO *gmo, MQLONG *length, MQRESULT)
{
    MQLONG most = one->descriptor.MaxMsgLength;
    for (;;) {
        *md = one->md;
        *gmo = one->gmo;
        gmo->Options = (gmo->Options & ~MQGMO_WAIT) | (wait ? MQGMO_WAIT : 0);
        gmo->WaitInterval = wait;
        MQLONG size = most == MQCBD_FULL_MSG_LENGTH || most > buffer->size ? buffer->size : most;
        if (most == MQCBD_FULL_MSG_LENGTH || most > size) gmo->Options &= ~MQGMO_ACCEPT_TRUNCATED_MSG;
        /* "Limiting the size of a message in a client application": MAXMSGL of the channel does not apply to MQCB. */
        connection->consumes = true;
        MQGET(connection->handle, one->object, md, gmo, size, buffer->bytes, length, pCompCode, pReason);
        connection->consumes = false;
        if (*pReason != MQRC_TRUNCATED_MSG_FAILED || *length <= buffer->size || (most >= 0 && most <= buffer->size))
            return;
        buffer->size = most < 0 || most > *length ? *length : most;
        buffer->bytes = realloc(buffer->bytes, (size_t)buffer->size);
        if (!buffer->bytes) abort();
    }
}

/* Return true if the consumer was called, for a message or for another event. */
static bool serve(struct connection *connection, struct consumer *one, MQLONG wait, struct buffer *buffer)
{
    MQLONG comp_code, reason, length = 0;
    MQMD md;
    MQGMO gmo;
    get(connection, one, wait, buffer, &md, &gmo, &length, &comp_code, &reason);
    if (comp_code == MQCC_FAILED && reason == MQRC_NO_MSG_AVAILABLE) {
        if (!is_to_be_told(one)) return false;
        one->has_been_told = true;
        one->since = now();
        call(connection, one, (MQCBC){.CallType = MQCBCT_EVENT_CALL, .CompCode = comp_code, .Reason = reason}, &md,
             &gmo, NULL);
        return true;
    }
    if (comp_code == MQCC_FAILED && reason != MQRC_TRUNCATED_MSG_FAILED) {
        call_event(connection, one, comp_code, reason);
        return true;
    }
    one->has_been_told = false;
    one->since = now();
    bool browses = one->gmo.Options & BROWSE_ANY;
    bool cut = reason == MQRC_TRUNCATED_MSG_FAILED;
    if (browses && !cut) one->gmo.Options = (one->gmo.Options & ~MQGMO_BROWSE_FIRST) | MQGMO_BROWSE_NEXT;
    bool removed = !browses && !cut;
    if (cut) one->suspended = true; /* it would get the same message again and again */
    MQLONG available = length < buffer->size ? length : buffer->size;
    if (one->descriptor.MaxMsgLength >= 0 && available > one->descriptor.MaxMsgLength)
        available = one->descriptor.MaxMsgLength;
    call(connection, one,
         (MQCBC){.CallType = removed ? MQCBCT_MSG_REMOVED : MQCBCT_MSG_NOT_REMOVED,
                 .CompCode = comp_code,
                 .Reason = reason,
                 .State = cut ? MQCS_SUSPENDED_USER_ACTION : MQCS_NONE,
                 .DataLength = length,
                 .BufferLength = available},
         &md, &gmo, buffer->bytes);
    return true;
}

static bool is_served(const struct connection *connection, const struct consumer *one)
{
    return connection->started && !connection->suspended && !one->gone && !one->suspended && now() >= one->again &&
           one->object != MQHO_NONE;
}

/* Serve a consumer unless it or the connection is suspended. Return whether it was called. */
static bool serve_if_wanted(struct connection *connection, struct consumer *one, MQLONG wait, struct buffer *buffer)
{
    pthread_mutex_lock(&connection->consuming);
    bool called = is_served(connection, one) && serve(connection, one, wait, buffer);
    pthread_mutex_unlock(&connection->consuming);
    return called;
}

static void *dispatch(void *argument)
{
    struct connection *connection = argument;
    struct buffer buffer = {malloc(FIRST_BUFFER), FIRST_BUFFER};
    unsigned turn = 0;
    connection->dispatcher = pthread_self();
    connection->dispatcher_made = true;
    call_those_that_ask(connection, MQCBDO_START_CALL, MQCBCT_START_CALL);
    while (connection->started) {
        bool any = false;
        unsigned count = 0;
        for (struct consumer *one = connection->consumers; one; one = one->next) {
            if (!is_served(connection, one)) continue;
            any = serve_if_wanted(connection, one, 0, &buffer) || any;
            count++;
        }
        if (any) continue;
        if (!count) {
            usleep(MOMENT_MS * 1000);
            continue;
        }
        unsigned wanted = turn++ % count;
        for (struct consumer *one = connection->consumers; one; one = one->next)
            if (is_served(connection, one) && !wanted--) {
                serve_if_wanted(connection, one, MOMENT_MS, &buffer);
                break;
            }
    }
    call_those_that_ask(connection, MQCBDO_STOP_CALL, MQCBCT_STOP_CALL);
    free(buffer.bytes);
    return NULL;
}

static void dispatcher_join(struct connection *connection)
{
    if (!connection->dispatcher_made || pthread_equal(connection->dispatcher, pthread_self())) return;
    pthread_join(connection->dispatcher, NULL);
    connection->dispatcher_made = false;
}

void consumers_stop(struct connection *connection)
{
    connection->started = false;
    dispatcher_join(connection);
}

/* Called from a callback, it takes effect when the callback returns. */
static void consumers_suspend(struct connection *connection)
{
    connection->suspended = true;
    if (connection->dispatcher_made && pthread_equal(connection->dispatcher, pthread_self())) return;
    pthread_mutex_lock(&connection->consuming);
    pthread_mutex_unlock(&connection->consuming);
}

/* ---- MQCB, MQCTL ------------------------------------------------------------------------------------------------- */

static MQLONG consumer_register(struct connection *connection, MQHOBJ Hobj, const MQCBD *cbd, const MQMD *md,
                                const MQGMO *gmo)
{
    MQLONG reason;
    bool handles_events = cbd && cbd->CallbackType == MQCBT_EVENT_HANDLER;
    size_t md_length = 0, gmo_length = 0;
    if (!form_length(&FORM_CBD, cbd, &reason)) return reason;
    if (!handles_events && cbd->CallbackType != MQCBT_MESSAGE_CONSUMER) return MQRC_CALLBACK_TYPE_ERROR;
    if (!cbd->CallbackFunction)
        return MQRC_CALLBACK_ROUTINE_ERROR; /* CallbackName, a module to load, is not supported */
    if (cbd->MaxMsgLength < MQCBD_FULL_MSG_LENGTH) return MQRC_MAX_MSG_LENGTH_ERROR;
    if (handles_events != (Hobj == MQHO_NONE)) return MQRC_HOBJ_ERROR;
    if (!handles_events && !(md_length = form_length(&FORM_MD, md, &reason))) return reason;
    if (!handles_events && !(gmo_length = form_length(&FORM_GMO, gmo, &reason))) return reason;
    struct consumer *one = consumer_of(connection, Hobj);
    if (one) one->gone = true;
    one = calloc(1, sizeof *one);
    if (!one) return MQRC_STORAGE_NOT_AVAILABLE;
    one->object = Hobj;
    one->descriptor = *cbd;
    memcpy(&one->md, md, md_length);
    memcpy(&one->gmo, gmo, gmo_length);
    one->since = now();
    one->next = connection->consumers;
    connection->consumers = one;
    if (cbd->Options & MQCBDO_REGISTER_CALL) {
        MQMD some = one->md;
        MQGMO options = one->gmo;
        call(connection, one, (MQCBC){.CallType = MQCBCT_REGISTER_CALL}, &some, &options, NULL);
    }
    return MQRC_NONE;
}

static MQLONG consumer_change(struct connection *connection, MQLONG operation, MQHOBJ Hobj)
{
    struct consumer *one = consumer_of(connection, Hobj);
    if (!one) return MQRC_CALLBACK_NOT_REGISTERED;
    if (operation & MQOP_SUSPEND) one->suspended = true;
    if (operation & MQOP_RESUME) one->suspended = false, one->again = 0.0;
    if (operation & MQOP_DEREGISTER) deregister(connection, one);
    return MQRC_NONE;
}

void MQCB(MQHCONN Hconn, MQLONG Operation, PMQVOID pCallbackDesc, MQHOBJ Hobj, PMQVOID pMsgDesc, PMQVOID pGetMsgOpts,
          MQRESULT)
{
    MQLONG main = Operation & (MQOP_REGISTER | MQOP_DEREGISTER), state = Operation & (MQOP_SUSPEND | MQOP_RESUME);
    struct call call;
    if (!call_begin(&call, Hconn, VERB_LAST, pCompCode, pReason)) return;
    struct connection *connection = call.connection;
    call_end(&call); /* the callback may make MQI calls */
    MQLONG reason = MQRC_NONE;
    if (!Operation || (main | state) != Operation || main & (main - 1) || state & (state - 1))
        reason = MQRC_OPERATION_ERROR;
    if (!reason && main == MQOP_REGISTER)
        reason = consumer_register(connection, Hobj, pCallbackDesc, pMsgDesc, pGetMsgOpts);
    if (!reason && Operation != MQOP_REGISTER) reason = consumer_change(connection, Operation, Hobj);
    answer(reason ? MQCC_FAILED : MQCC_OK, reason, pCompCode, pReason);
}

static MQLONG start(struct connection *connection, const MQCTLO *ctlo, bool waits)
{
    bool any = false;
    for (struct consumer *one = connection->consumers; one; one = one->next) any = any || !one->gone;
    if (connection->started) return MQRC_OPERATION_NOT_ALLOWED;
    if (!any) return MQRC_NO_CALLBACKS_ACTIVE;
    dispatcher_join(connection);
    connection->connection_area = ctlo->ConnectionArea;
    connection->suspended = false;
    connection->started = true;
    if (waits) {
        dispatch(connection);
        connection->dispatcher_made = false;
        return MQRC_NONE;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, dispatch, connection)) return MQRC_RESOURCE_PROBLEM;
    connection->dispatcher = thread;
    connection->dispatcher_made = true;
    return MQRC_NONE;
}

void MQCTL(MQHCONN Hconn, MQLONG Operation, PMQVOID pControlOpts, MQRESULT)
{
    struct connection *connection = connection_find(Hconn);
    MQLONG reason = MQRC_NONE;
    if (!connection) return fail(MQRC_HCONN_ERROR, pCompCode, pReason);
    if (!form_length(&FORM_CTLO, pControlOpts, &reason)) return fail(reason, pCompCode, pReason);
    reason = MQRC_NONE;
    switch (Operation) {
    case MQOP_START:
    case MQOP_START_WAIT: reason = start(connection, pControlOpts, Operation == MQOP_START_WAIT); break;
    case MQOP_STOP: consumers_stop(connection); break;
    case MQOP_SUSPEND:
        if (connection->started) consumers_suspend(connection);
        else reason = MQRC_OPERATION_NOT_ALLOWED;
        break;
    case MQOP_RESUME:
        if (connection->started) connection->suspended = false;
        else reason = MQRC_OPERATION_NOT_ALLOWED;
        break;
    default: reason = MQRC_OPERATION_ERROR;
    }
    answer(reason ? MQCC_FAILED : MQCC_OK, reason, pCompCode, pReason);
}
