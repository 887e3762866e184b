/* The verbs that the queue manager executes: requests contain structures and strings, replies their changed values.

   A request contains the bytes of a structure in the caller's version, and the reply contains the same number of bytes, so nothing
   after its end is changed. Strings of variable length (MQCHARV) follow the structure, in the order of their fields. */
#include <string.h>

#include "standin.h"

/* ---- MQOD -------------------------------------------------------------------------------------------------------- */

static bool put_object(struct call *call, const MQOD *od, size_t *length)
{
    if (!call_check(call, &FORM_OD, od, length)) return false;
    bool has_strings = od->Version >= 4;
    if (has_strings && !string_is_valid(&od->ObjectString)) return call_fail(call, MQRC_OBJECT_STRING_ERROR), false;
    if (has_strings && !string_is_valid(&od->SelectionString))
        return call_fail(call, MQRC_SELECTION_STRING_ERROR), false;
    if (has_strings && !string_is_valid(&od->ResObjectString))
        return call_fail(call, MQRC_RES_OBJECT_STRING_ERROR), false;
    static const MQCHARV none;
    put_bytes(call->frame, od, (MQLONG)*length);
    put_string(call->frame, od, has_strings ? &od->ObjectString : &none);
    put_string(call->frame, od, has_strings ? &od->SelectionString : &none);
    return true;
}

static void take_object(struct frame *frame, MQOD *od, size_t length)
{
    take_into(frame, od, length);
    MQCHARV none = {0};
    take_string(frame, od, od->Version >= 4 ? &od->ResObjectString : &none, true);
}

void MQOPEN(MQHCONN Hconn, PMQVOID pObjDesc, MQLONG Options, PMQHOBJ pHobj, MQRESULT)
{
    struct call call;
    size_t length;
    *pHobj = MQHO_UNUSABLE_HOBJ;
    if (!call_begin(&call, Hconn, VERB_OPEN, pCompCode, pReason)) return;
    put_long(call.frame, Options);
    if (put_object(&call, pObjDesc, &length) && call_exchange(&call)) {
        *pHobj = take_long(call.frame);
        take_object(call.frame, pObjDesc, length);
        if (take_long(call.frame)) ahead_open(call.connection, *pHobj);
    }
    call_end(&call);
}

void MQCLOSE(MQHCONN Hconn, PMQHOBJ pHobj, MQLONG Options, MQRESULT)
{
    struct call call;
    if (!call_begin(&call, Hconn, VERB_CLOSE, pCompCode, pReason)) return;
    struct ahead *ahead = ahead_of(call.connection, *pHobj);
    if (ahead && Options & MQCO_QUIESCE && ahead_quiesce(ahead)) {
        answer(MQCC_WARNING, MQRC_READ_AHEAD_MSGS, pCompCode, pReason);
        return call_end(&call);
    }
    put_long(call.frame, *pHobj);
    put_long(call.frame, Options);
    call_exchange(&call);
    call_end(&call);
    if (*pCompCode == MQCC_FAILED) return;
    consumers_forget(call.connection, *pHobj);
    ahead_close(call.connection, *pHobj);
    *pHobj = MQHO_UNUSABLE_HOBJ;
}

/* ---- MQPUT, MQPUT1, MQGET ---------------------------------------------------------------------------------------- */

static MQLONG buffer_error(MQLONG length, const void *buffer)
{
    if (length < 0) return MQRC_BUFFER_LENGTH_ERROR;
    return length && !buffer ? MQRC_BUFFER_ERROR : MQRC_NONE;
}

/* "2010 (MQRC_DATA_LENGTH_ERROR)": BufferLength exceeds the maximum message length that both ends of the channel agreed. */
static MQLONG channel_error(const struct connection *connection, MQLONG length)
{
    bool limits = connection->max_message_length && !connection->consumes;
    return limits && length > connection->max_message_length ? MQRC_DATA_LENGTH_ERROR : MQRC_NONE;
}

/* The rest of a put, after the handle or the object descriptor. */
static void put_message(struct call *call, MQOD *od, size_t od_length, MQMD *md, MQPMO *pmo, MQLONG length,
                        void *buffer)
{
    size_t md_length, pmo_length;
    MQLONG wrong = buffer_error(length, buffer);
    if (!wrong) wrong = channel_error(call->connection, length);
    if (!call_check(call, &FORM_MD, md, &md_length) || !call_check(call, &FORM_PMO, pmo, &pmo_length)) return;
    if (!wrong)
        wrong = reconnection_forbids(call->connection->reconnection, pmo->Options & MQPMO_LOGICAL_ORDER, false);
    if (wrong) return call_fail(call, wrong);
    call->syncpoint = pmo->Options & MQPMO_SYNCPOINT;
    put_bytes(call->frame, md, (MQLONG)md_length);
    put_bytes(call->frame, pmo, (MQLONG)pmo_length);
    put_bytes(call->frame, buffer ? buffer : "", length);
    if (!put_message_properties(call->frame, pmo)) return call_fail(call, MQRC_HMSG_ERROR);
    if (call_is_unanswered(call)) return call_leave(call);
    if (!call_exchange(call)) return;
    if (od) take_object(call->frame, od, od_length);
    take_into(call->frame, md, md_length);
    take_into(call->frame, pmo, pmo_length);
}

/* "Putting messages asynchronously": with MQPMO_ASYNC_RESPONSE, MQPUT and MQPUT1 do not wait for the queue manager. MQSTAT
   reports failures, those of the MQOPEN in an MQPUT1 included. */
static bool is_answered(const MQPMO *pmo)
{
    MQLONG ignored;
    return !form_length(&FORM_PMO, pmo, &ignored) || !(pmo->Options & MQPMO_ASYNC_RESPONSE);
}

void MQPUT(MQHCONN Hconn, MQHOBJ Hobj, PMQVOID pMsgDesc, PMQVOID pPutMsgOpts, MQLONG BufferLength, PMQVOID pBuffer,
           MQRESULT)
{
    struct call call;
    if (!call_begin(&call, Hconn, is_answered(pPutMsgOpts) ? VERB_PUT : VERB_PUT_ASYNC, pCompCode, pReason)) return;
    put_long(call.frame, Hobj);
    put_message(&call, NULL, 0, pMsgDesc, pPutMsgOpts, BufferLength, pBuffer);
    call_end(&call);
}

void MQPUT1(MQHCONN Hconn, PMQVOID pObjDesc, PMQVOID pMsgDesc, PMQVOID pPutMsgOpts, MQLONG BufferLength,
            PMQVOID pBuffer, MQRESULT)
{
    struct call call;
    size_t length;
    if (!call_begin(&call, Hconn, is_answered(pPutMsgOpts) ? VERB_PUT1 : VERB_PUT1_ASYNC, pCompCode, pReason)) return;
    if (put_object(&call, pObjDesc, &length))
        put_message(&call, pObjDesc, length, pMsgDesc, pPutMsgOpts, BufferLength, pBuffer);
    call_end(&call);
}

/* A get with a wait interval waits in the queue manager, and this thread in recv(). */
void MQGET(MQHCONN Hconn, MQHOBJ Hobj, PMQVOID pMsgDesc, PMQVOID pGetMsgOpts, MQLONG BufferLength, PMQVOID pBuffer,
           PMQLONG pDataLength, MQRESULT)
{
    struct call call;
    size_t md_length, gmo_length;
    MQGMO *gmo = pGetMsgOpts;
    MQLONG wrong = pDataLength ? buffer_error(BufferLength, pBuffer) : MQRC_DATA_LENGTH_ERROR;
    if (!call_begin(&call, Hconn, VERB_GET, pCompCode, pReason)) return;
    if (!call_check(&call, &FORM_MD, pMsgDesc, &md_length) || !call_check(&call, &FORM_GMO, gmo, &gmo_length))
        return call_end(&call);
    if (!wrong) wrong = channel_error(call.connection, BufferLength);
    MQHMSG handle = gmo->Version >= 4 ? gmo->MsgHandle : MQHM_NONE;
    bool given = handle_is_given(handle);
    if (!wrong && given) {
        if (message_lock(handle))
            message_unlock();
        else
            wrong = MQRC_HMSG_ERROR;
    }
    if (!wrong && !given && gmo->Options & MQGMO_PROPERTIES_IN_HANDLE) wrong = MQRC_HMSG_ERROR;
    struct ahead *ahead = ahead_of(call.connection, Hobj);
    bool token = gmo->Version >= 2 && gmo->MatchOptions & MQMO_MATCH_MSG_TOKEN;
    if (!wrong) wrong = reconnection_forbids(call.connection->reconnection, false, token);
    if (!wrong && ahead) wrong = ahead_check(call.connection, &ahead, pMsgDesc, gmo, handle);
    if (wrong) {
        call_fail(&call, wrong);
        return call_end(&call);
    }
    *pDataLength = 0;
    if (ahead &&
        ahead_serve(ahead, pMsgDesc, md_length, gmo, BufferLength, pBuffer, pDataLength, pCompCode, pReason))
        return call_end(&call);
    bool more = ahead && ahead_wants(ahead, gmo);
    if (more) frame_start(call.frame, call.verb = VERB_GET_AHEAD);
    put_long(call.frame, Hobj);
    put_bytes(call.frame, pMsgDesc, (MQLONG)md_length);
    put_bytes(call.frame, gmo, (MQLONG)gmo_length);
    put_long(call.frame, BufferLength);
    put_long(call.frame, given);
    if (more) put_long(call.frame, ahead_size());
    call.syncpoint = gmo->Options & (MQGMO_SYNCPOINT | MQGMO_SYNCPOINT_IF_PERSISTENT);
    if (gmo->Options & MQGMO_WAIT) call.wait = gmo->WaitInterval;
    if (call_exchange(&call)) {
        size_t from = call.frame->position;
        take_into(call.frame, pMsgDesc, md_length);
        take_into(call.frame, gmo, gmo_length);
        *pDataLength = take_long(call.frame);
        take_into(call.frame, pBuffer, (size_t)BufferLength);
        if (given || more) take_properties(call.frame, handle);
        if (more) ahead_take(ahead, call.frame, *pCompCode, *pReason, from);
    }
    call_end(&call);
}

/* ---- units of work ----------------------------------------------------------------------------------------------- */

static void simply(MQHCONN Hconn, enum verb verb, MQRESULT)
{
    struct call call;
    if (!call_begin(&call, Hconn, verb, pCompCode, pReason)) return;
    call_exchange(&call);
    call_end(&call);
}

void MQCMIT(MQHCONN Hconn, MQRESULT) { simply(Hconn, VERB_CMIT, pCompCode, pReason); }

void MQBACK(MQHCONN Hconn, MQRESULT) { simply(Hconn, VERB_BACK, pCompCode, pReason); }

void MQBEGIN(MQHCONN Hconn, PMQVOID pBeginOptions, MQRESULT)
{
    struct call call;
    size_t length;
    if (!call_begin(&call, Hconn, VERB_BEGIN, pCompCode, pReason)) return;
    /* "MQBEGIN": a missing structure means MQBO_NONE. A client cannot begin a global unit of work. */
    if (call.connection->client)
        call_fail(&call, MQRC_ENVIRONMENT_ERROR);
    else if (!pBeginOptions || call_check(&call, &FORM_BO, pBeginOptions, &length))
        call_exchange(&call);
    call_end(&call);
}

/* ---- MQINQ, MQSET ------------------------------------------------------------------------------------------------ */

#define MAX_SELECTORS 256

static bool put_selectors(struct call *call, MQHOBJ Hobj, MQLONG count, PMQLONG selectors, MQLONG integers,
                          PMQLONG values, MQLONG characters, PMQCHAR texts)
{
    MQLONG wrong = count < 0 || count > MAX_SELECTORS ? MQRC_SELECTOR_COUNT_ERROR
                   : count && !selectors              ? MQRC_SELECTOR_ERROR
                   : integers < 0                     ? MQRC_INT_ATTR_COUNT_ERROR
                   : integers && !values              ? MQRC_INT_ATTRS_ARRAY_ERROR
                   : characters < 0                   ? MQRC_CHAR_ATTR_LENGTH_ERROR
                   : characters && !texts             ? MQRC_CHAR_ATTRS_ERROR
                                                      : MQRC_NONE;
    if (wrong) return call_fail(call, wrong), false;
    put_long(call->frame, Hobj);
    put_bytes(call->frame, selectors ? (void *)selectors : "", count * (MQLONG)sizeof *selectors);
    return true;
}

void MQINQ(MQHCONN Hconn, MQHOBJ Hobj, MQLONG SelectorCount, PMQLONG pSelectors, MQLONG IntAttrCount, PMQLONG pIntAttrs,
           MQLONG CharAttrLength, PMQCHAR pCharAttrs, MQRESULT)
{
    struct call call;
    if (!call_begin(&call, Hconn, VERB_INQ, pCompCode, pReason)) return;
    if (put_selectors(&call, Hobj, SelectorCount, pSelectors, IntAttrCount, pIntAttrs, CharAttrLength, pCharAttrs)) {
        put_long(call.frame, IntAttrCount);
        put_long(call.frame, CharAttrLength);
        if (call_exchange(&call)) {
            take_into(call.frame, pIntAttrs, (size_t)IntAttrCount * sizeof *pIntAttrs);
            take_into(call.frame, pCharAttrs, (size_t)CharAttrLength);
        }
    }
    call_end(&call);
}

void MQSET(MQHCONN Hconn, MQHOBJ Hobj, MQLONG SelectorCount, PMQLONG pSelectors, MQLONG IntAttrCount, PMQLONG pIntAttrs,
           MQLONG CharAttrLength, PMQCHAR pCharAttrs, MQRESULT)
{
    struct call call;
    if (!call_begin(&call, Hconn, VERB_SET, pCompCode, pReason)) return;
    if (put_selectors(&call, Hobj, SelectorCount, pSelectors, IntAttrCount, pIntAttrs, CharAttrLength, pCharAttrs)) {
        put_bytes(call.frame, pIntAttrs ? (void *)pIntAttrs : "", IntAttrCount * (MQLONG)sizeof *pIntAttrs);
        put_bytes(call.frame, pCharAttrs ? pCharAttrs : "", CharAttrLength);
        call_exchange(&call);
    }
    call_end(&call);
}

/* ---- publish/subscribe, status ----------------------------------------------------------------------------------- */

static MQLONG wrong_string_of(const MQSD *sd)
{
    if (!string_is_valid(&sd->ObjectString)) return MQRC_OBJECT_STRING_ERROR;
    if (!string_is_valid(&sd->SubName)) return MQRC_SUB_NAME_ERROR;
    if (!string_is_valid(&sd->SubUserData)) return MQRC_SUB_USER_DATA_ERROR;
    if (!string_is_valid(&sd->SelectionString)) return MQRC_SELECTION_STRING_ERROR;
    return string_is_valid(&sd->ResObjectString) ? MQRC_NONE : MQRC_RES_OBJECT_STRING_ERROR;
}

void MQSUB(MQHCONN Hconn, PMQVOID pSubDesc, PMQHOBJ pHobj, PMQHOBJ pHsub, MQRESULT)
{
    struct call call;
    size_t length;
    MQLONG wrong;
    MQSD *sd = pSubDesc;
    *pHsub = MQHO_UNUSABLE_HOBJ;
    if (!call_begin(&call, Hconn, VERB_SUB, pCompCode, pReason)) return;
    if (!call_check(&call, &FORM_SD, sd, &length)) return call_end(&call);
    wrong = wrong_string_of(sd);
    if (!wrong) wrong = reconnection_forbids(call.connection->reconnection, false, sd->Options & MQSO_DURABLE);
    if (wrong) {
        call_fail(&call, wrong);
        return call_end(&call);
    }
    put_long(call.frame, *pHobj);
    put_bytes(call.frame, sd, (MQLONG)length);
    put_string(call.frame, sd, &sd->ObjectString);
    put_string(call.frame, sd, &sd->SubName);
    put_string(call.frame, sd, &sd->SubUserData);
    put_string(call.frame, sd, &sd->SelectionString);
    if (call_exchange(&call)) {
        *pHobj = take_long(call.frame);
        *pHsub = take_long(call.frame);
        take_into(call.frame, sd, length);
        take_string(call.frame, sd, &sd->ObjectString, false);
        take_string(call.frame, sd, &sd->SubName, false);
        take_string(call.frame, sd, &sd->SubUserData, false);
        take_string(call.frame, sd, &sd->SelectionString, false);
        take_string(call.frame, sd, &sd->ResObjectString, true);
        if (take_long(call.frame)) ahead_open(call.connection, *pHobj);
    }
    call_end(&call);
}

void MQSUBRQ(MQHCONN Hconn, MQHOBJ Hsub, MQLONG Action, PMQVOID pSubRqOpts, MQRESULT)
{
    struct call call;
    size_t length;
    if (!call_begin(&call, Hconn, VERB_SUBRQ, pCompCode, pReason)) return;
    if (call_check(&call, &FORM_SRO, pSubRqOpts, &length)) {
        put_long(call.frame, Hsub);
        put_long(call.frame, Action);
        put_bytes(call.frame, pSubRqOpts, (MQLONG)length);
        if (call_exchange(&call)) take_into(call.frame, pSubRqOpts, length);
    }
    call_end(&call);
}

void MQSTAT(MQHCONN Hconn, MQLONG Type, PMQVOID pStatus, MQRESULT)
{
    struct call call;
    size_t length;
    MQSTS *sts = pStatus;
    if (!call_begin(&call, Hconn, VERB_STAT, pCompCode, pReason)) return;
    if (call_check(&call, &FORM_STS, sts, &length)) {
        MQCHARV none = {0};
        put_long(call.frame, Type);
        put_bytes(call.frame, sts, (MQLONG)length);
        if (call_exchange(&call)) {
            take_into(call.frame, sts, length);
            take_string(call.frame, sts, sts->Version >= 2 ? &sts->ObjectString : &none, false);
            take_string(call.frame, sts, sts->Version >= 2 ? &sts->SubName : &none, false);
        }
    }
    call_end(&call);
}
