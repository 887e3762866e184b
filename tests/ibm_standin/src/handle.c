/* Message handles: MQCRTMH, MQDLTMH, MQBUFMH, MQMHBUF, and the transfer of their properties to and from the queue manager.

   Like IBM's client, this library keeps message handles in the program's process. Only MQBUFMH and MQMHBUF call the queue manager,
   which has the codec of the MQRFH2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define MAX_HANDLES 65536
#define FIRST_HANDLE 0x7100000000LL /* different from handles of objects and connections */

static struct message *handles[MAX_HANDLES];
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

/* ---- the table --------------------------------------------------------------------------------------------------- */

bool handle_is_given(MQHMSG Hmsg) { return Hmsg != MQHM_NONE; }

struct message *message_lock(MQHMSG Hmsg)
{
    pthread_mutex_lock(&table);
    MQHMSG slot = Hmsg - FIRST_HANDLE;
    if (slot >= 0 && slot < MAX_HANDLES && handles[slot]) return handles[slot];
    pthread_mutex_unlock(&table);
    return NULL;
}

void message_unlock(void) { pthread_mutex_unlock(&table); }

static void message_free(int slot)
{
    properties_clear(handles[slot]);
    free(handles[slot]);
    handles[slot] = NULL;
}

/* MQDISC deletes the handles of its connection. */
void messages_forget(MQHCONN Hconn)
{
    pthread_mutex_lock(&table);
    for (int slot = 0; slot < MAX_HANDLES; slot++)
        if (handles[slot] && handles[slot]->owner == Hconn) message_free(slot);
    pthread_mutex_unlock(&table);
}

void MQCRTMH(MQHCONN Hconn, PMQVOID pCrtMsgHOpts, PMQHMSG pHmsg, MQRESULT)
{
    static int next; /* so that a deleted handle is not reused at once */
    MQCMHO *cmho = pCrtMsgHOpts;
    MQLONG reason;
    *pHmsg = MQHM_UNUSABLE_HMSG;
    if (!form_length(&FORM_CMHO, cmho, &reason)) return fail(reason, pCompCode, pReason);
    if (cmho->Options & ~(MQCMHO_NO_VALIDATION | MQCMHO_VALIDATE) ||
        cmho->Options == (MQCMHO_NO_VALIDATION | MQCMHO_VALIDATE))
        return fail(MQRC_OPTIONS_ERROR, pCompCode, pReason);
    if (Hconn != MQHC_UNASSOCIATED_HCONN && !connection_find(Hconn)) return fail(MQRC_HCONN_ERROR, pCompCode, pReason);
    struct message *message = calloc(1, sizeof *message);
    if (!message) return fail(MQRC_STORAGE_NOT_AVAILABLE, pCompCode, pReason);
    message->owner = Hconn;
    message->validates = cmho->Options != MQCMHO_NO_VALIDATION;
    pthread_mutex_lock(&table);
    for (int tried = 0; tried < MAX_HANDLES && *pHmsg == MQHM_UNUSABLE_HMSG; tried++, next = (next + 1) % MAX_HANDLES) {
        if (handles[next]) continue;
        handles[next] = message;
        *pHmsg = FIRST_HANDLE + next;
    }
    pthread_mutex_unlock(&table);
    if (*pHmsg != MQHM_UNUSABLE_HMSG) return answer(MQCC_OK, MQRC_NONE, pCompCode, pReason);
    free(message);
    fail(MQRC_HANDLE_NOT_AVAILABLE, pCompCode, pReason);
}

void MQDLTMH(MQHCONN Hconn, PMQHMSG pHmsg, PMQVOID pDltMsgHOpts, MQRESULT)
{
    MQDMHO *dmho = pDltMsgHOpts;
    MQLONG reason;
    if (!form_length(&FORM_DMHO, dmho, &reason)) return fail(reason, pCompCode, pReason);
    if (dmho->Options) return fail(MQRC_OPTIONS_ERROR, pCompCode, pReason);
    struct message *message = message_lock(*pHmsg);
    if (!message) return fail(MQRC_HMSG_ERROR, pCompCode, pReason);
    bool owns = message->owner == MQHC_UNASSOCIATED_HCONN || message->owner == Hconn;
    if (owns) message_free((int)(*pHmsg - FIRST_HANDLE));
    message_unlock();
    if (!owns) return fail(MQRC_HCONN_ERROR, pCompCode, pReason);
    *pHmsg = MQHM_UNUSABLE_HMSG;
    answer(MQCC_OK, MQRC_NONE, pCompCode, pReason);
}

/* ---- properties in the protocol: i32 count (-1: no handle), and name, type, MQPD fields and value of each -------- */

static void put_one(struct frame *frame, const struct property *property)
{
    put_bytes(frame, property->name, (MQLONG)strlen(property->name));
    put_long(frame, property->type);
    for (int field = 0; field < 3; field++) put_long(frame, property->descriptor[field]);
    put_bytes(frame, property->value, property->length);
}

static bool is_copied(const struct property *property, MQLONG copy_options)
{
    return !copy_options || property->descriptor[2] & (copy_options | MQCOPY_ALL);
}

/* Write the matching properties of `message` that copy_options (0: all) selects and that `over` does not have. */
static MQLONG put_some(struct frame *frame, struct message *message, MQLONG copy_options, const char *pattern,
                       struct message *over)
{
    MQLONG count = 0;
    for (struct property *one = message ? message->properties : NULL; one; one = one->next) {
        if (!is_copied(one, copy_options) || !name_matches(pattern, one->name)) continue;
        if (over && property_of(over, one->name)) continue;
        put_one(frame, one);
        count++;
    }
    return count;
}

static bool put_two(struct frame *frame, MQHMSG original, MQLONG copy_options, MQHMSG overriding, const char *pattern)
{
    MQLONG count = -1;
    size_t at = frame->length;
    put_long(frame, count);
    if (!handle_is_given(original) && !handle_is_given(overriding)) return true;
    pthread_mutex_lock(&table);
    MQHMSG slots[2] = {original - FIRST_HANDLE, overriding - FIRST_HANDLE};
    struct message *found[2] = {NULL, NULL};
    bool valid = true;
    for (int i = 0; i < 2; i++) {
        if (!handle_is_given(i ? overriding : original)) continue;
        if (slots[i] >= 0 && slots[i] < MAX_HANDLES) found[i] = handles[slots[i]];
        valid = valid && found[i];
    }
    count = put_some(frame, found[0], copy_options, pattern, found[1]) + put_some(frame, found[1], 0, pattern, NULL);
    pthread_mutex_unlock(&table);
    memcpy(frame->bytes + at, &count, sizeof count);
    return valid;
}

bool put_properties(struct frame *frame, MQHMSG Hmsg, MQLONG copy_options, const char *pattern)
{
    return put_two(frame, Hmsg, copy_options, MQHM_NONE, pattern);
}

/* "MQPMO - Action": a message that forwards, answers or reports on another one copies the properties that CopyOptions selects.
   Properties in NewMsgHandle override them. */
bool put_message_properties(struct frame *frame, const MQPMO *pmo)
{
    if (pmo->Version < 3) return put_two(frame, MQHM_NONE, 0, MQHM_NONE, "%");
    MQLONG copied = pmo->Action == MQACTP_FORWARD  ? MQCOPY_FORWARD
                    : pmo->Action == MQACTP_REPLY  ? MQCOPY_REPLY
                    : pmo->Action == MQACTP_REPORT ? MQCOPY_REPORT
                                                   : 0;
    return put_two(frame, pmo->OriginalMsgHandle, copied, pmo->NewMsgHandle, "%");
}

/* The properties from MQGET and MQBUFMH replace all properties of the handle. */
void take_properties(struct frame *frame, MQHMSG Hmsg)
{
    MQLONG count = take_long(frame);
    struct message *message = count < 0 ? NULL : message_lock(Hmsg);
    if (!message) return;
    properties_clear(message);
    while (count-- > 0 && !frame->malformed) {
        MQLONG name_length, value_length, descriptor[3];
        const char *name = take_bytes(frame, &name_length);
        MQLONG type = take_long(frame);
        for (int field = 0; field < 3; field++) descriptor[field] = take_long(frame);
        const char *value = take_bytes(frame, &value_length);
        char *text = strndup(name ? name : "", name ? (size_t)name_length : 0);
        property_set(message, text, type, value, value ? value_length : 0, descriptor);
        free(text);
    }
    message_unlock();
}

/* ---- MQBUFMH, MQMHBUF -------------------------------------------------------------------------------------------- */

/* Move the properties of the MQRFH2 at the start of a buffer to the handle, and delete them from the buffer if requested. */
void MQBUFMH(MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pBufMsgHOpts, PMQVOID pMsgDesc, MQLONG BufferLength, PMQVOID pBuffer,
             PMQLONG pDataLength, MQRESULT)
{
    struct call call;
    size_t md_length, length;
    if (!call_begin(&call, Hconn, VERB_BUFMH, pCompCode, pReason)) return;
    if (!call_check(&call, &FORM_BMHO, pBufMsgHOpts, &length) || !call_check(&call, &FORM_MD, pMsgDesc, &md_length))
        return call_end(&call);
    struct message *message = message_lock(Hmsg);
    if (message) message_unlock();
    if (!message)
        call_fail(&call, MQRC_HMSG_ERROR);
    else if (BufferLength < 0)
        call_fail(&call, MQRC_BUFFER_LENGTH_ERROR);
    else if (BufferLength && !pBuffer)
        call_fail(&call, MQRC_BUFFER_ERROR);
    else {
        put_long(call.frame, ((MQBMHO *)pBufMsgHOpts)->Options);
        put_bytes(call.frame, pMsgDesc, (MQLONG)md_length);
        put_bytes(call.frame, pBuffer ? pBuffer : "", BufferLength);
        if (call_exchange(&call)) {
            take_into(call.frame, pMsgDesc, md_length);
            *pDataLength = take_long(call.frame);
            take_into(call.frame, pBuffer, (size_t)BufferLength);
            take_properties(call.frame, Hmsg);
        }
    }
    call_end(&call);
}

static void delete_matching(struct message *message, const char *pattern)
{
    struct property **link = &message->properties;
    while (*link) {
        struct property *one = *link;
        if (!name_matches(pattern, one->name)) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        if (message->cursor == one) message->cursor = NULL;
        free(one->name);
        free(one->value);
        free(one);
    }
}

/* The handle's properties as an MQRFH2 in a buffer. */
void MQMHBUF(MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pMsgHBufOpts, PMQCHARV pName, PMQVOID pMsgDesc, MQLONG BufferLength,
             PMQVOID pBuffer, PMQLONG pDataLength, MQRESULT)
{
    struct call call;
    size_t md_length, length;
    MQMHBO *mhbo = pMsgHBufOpts;
    if (!call_begin(&call, Hconn, VERB_MHBUF, pCompCode, pReason)) return;
    if (!call_check(&call, &FORM_MHBO, mhbo, &length) || !call_check(&call, &FORM_MD, pMsgDesc, &md_length))
        return call_end(&call);
    char *pattern = name_of(pName);
    put_bytes(call.frame, pMsgDesc, (MQLONG)md_length);
    put_long(call.frame, BufferLength);
    if (!(mhbo->Options & MQMHBO_PROPERTIES_IN_MQRFH2))
        call_fail(&call, MQRC_OPTIONS_ERROR);
    else if (BufferLength < 0)
        call_fail(&call, MQRC_BUFFER_LENGTH_ERROR);
    else if (!handle_is_given(Hmsg) || !put_properties(call.frame, Hmsg, 0, pattern))
        call_fail(&call, MQRC_HMSG_ERROR);
    else if (call_exchange(&call)) {
        take_into(call.frame, pMsgDesc, md_length);
        *pDataLength = take_long(call.frame);
        take_into(call.frame, pBuffer, (size_t)BufferLength);
        struct message *message = mhbo->Options & MQMHBO_DELETE_PROPERTIES ? message_lock(Hmsg) : NULL;
        if (message) {
            delete_matching(message, pattern);
            message_unlock();
        }
    }
    free(pattern);
    call_end(&call);
}
