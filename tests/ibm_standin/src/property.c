/* Properties of a message handle: MQSETMP, MQINQMP, MQDLTMP. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "standin.h"

#define USR "usr." /* a name without a folder is in usr. Both notations mean the same property */
#define MAX_NAME 4095

/* ---- names ------------------------------------------------------------------------------------------------------- */

char *name_of(const MQCHARV *string)
{
    const char *start = string->VSPtr ? string->VSPtr : string->VSOffset ? (char *)string + string->VSOffset : "";
    MQLONG size = string->VSLength < 0 ? (MQLONG)strlen(start) : string->VSLength;
    if (!*start) size = 0;
    char *text = charset_to_utf8(start, &size, string->VSCCSID);
    size_t length = (size_t)size;
    start = text;
    while (length && (start[length - 1] == ' ' || !start[length - 1])) length--;
    if (length > strlen(USR) && !strncmp(start, USR, strlen(USR))) {
        start += strlen(USR);
        length -= strlen(USR);
    }
    char *name = strndup(start, length);
    free(text);
    return name;
}

/* `%` at the end of a pattern matches any characters, including dots. */
bool name_matches(const char *pattern, const char *name)
{
    size_t length = strlen(pattern);
    if (length && pattern[length - 1] == '%') return !strncmp(pattern, name, length - 1);
    return !strcmp(pattern, name);
}

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (!strcasecmp(name, *list)) return true;
    return false;
}

/* "Property name restrictions" and "Property names". */
static bool name_is_allowed(const char *name)
{
    static const char *const words[] = {"NULL",    "TRUE", "FALSE", "NOT", "AND",    "OR",
                                        "BETWEEN", "LIKE", "IN",    "IS",  "ESCAPE", NULL};
    static const char *const synonyms[] = {"JMSCorrelationID", "JMSReplyTo",   "JMSType",
                                           "JMSXGroupID",      "JMSXGroupSeq", NULL};
    if (!*name || is_one_of(name, words)) return false;
    if (!strncmp(name, "JMS", 3) && !is_one_of(name, synonyms)) return false;
    if (!strncmp(name, "Body.", 5) || !strncmp(name, "Root.", 5)) return false;
    bool part_starts = true;
    int dots = 0;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        bool letter = *c >= 0x80 || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_' || *c == '$';
        bool digit = *c >= '0' && *c <= '9';
        if (part_starts ? !letter : !letter && !digit && *c != '.' && *c != '-' && *c != ':') return false;
        part_starts = *c == '.';
        dots += part_starts;
    }
    bool reserved = !strncasecmp(name, "mq", 2) && strncasecmp(name, "mq_usr", 6);
    return !part_starts && !(reserved && dots > 1);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

struct property *property_of(struct message *message, const char *name)
{
    struct property *one = message->properties;
    while (one && strcmp(one->name, name)) one = one->next;
    return one;
}

static struct property *property_new(const char *name, struct property *next)
{
    struct property *one = calloc(1, sizeof *one);
    if (!one) abort();
    one->name = strdup(name);
    one->next = next;
    return one;
}

static void property_fill(struct property *one, MQLONG type, const void *value, MQLONG length,
                          const MQLONG descriptor[3])
{
    char *copy = calloc(1, (size_t)length + 1);
    if (!copy) abort();
    if (length) memcpy(copy, value, (size_t)length);
    free(one->value);
    one->value = copy;
    one->length = length;
    one->type = type;
    memcpy(one->descriptor, descriptor, sizeof one->descriptor);
}

/* Return the property of that name, at its position in the order, or a new one at the end. */
void property_set(struct message *message, const char *name, MQLONG type, const void *value, MQLONG length,
                  const MQLONG descriptor[3])
{
    struct property **link = &message->properties;
    while (*link && strcmp((*link)->name, name)) link = &(*link)->next;
    if (!*link) *link = property_new(name, NULL);
    property_fill(*link, type, value, length, descriptor);
}

static void property_remove(struct message *message, struct property *gone)
{
    struct property **link = &message->properties;
    while (*link != gone) link = &(*link)->next;
    *link = gone->next;
    message->cursor = NULL;
    free(gone->name);
    free(gone->value);
    free(gone);
}

void properties_clear(struct message *message)
{
    while (message->properties) property_remove(message, message->properties);
}

/* Return the locked message of a handle. NULL if the handle is invalid or belongs to another connection. */
static struct message *message_for(MQHCONN Hconn, MQHMSG Hmsg, MQLONG *reason)
{
    *reason = MQRC_HMSG_ERROR;
    struct message *message = message_lock(Hmsg);
    if (!message || message->owner == Hconn || message->owner == MQHC_UNASSOCIATED_HCONN) return message;
    message_unlock();
    *reason = MQRC_HCONN_ERROR;
    return NULL;
}

/* ---- MQSETMP ----------------------------------------------------------------------------------------------------- */

#define SET_WHERE                                                                                                      \
    (MQSMPO_SET_PROP_UNDER_CURSOR | MQSMPO_SET_PROP_AFTER_CURSOR | MQSMPO_APPEND_PROPERTY |                            \
     MQSMPO_SET_PROP_BEFORE_CURSOR)

/* Return the position that MQSMPO selects: the first property of that name, the cursor, before or after it, or the end. */
static MQLONG set_where(struct message *message, MQLONG options, const char *name, MQLONG type, const void *value,
                        MQLONG length, const MQLONG descriptor[3])
{
    struct property *one = message->cursor, **link = &message->properties;
    if (!options) {
        property_set(message, name, type, value, length, descriptor);
        return MQRC_NONE;
    }
    if (options != MQSMPO_APPEND_PROPERTY && !one) return MQRC_PROPERTY_NOT_AVAILABLE;
    if (options == MQSMPO_SET_PROP_UNDER_CURSOR) {
        free(one->name);
        one->name = strdup(name);
    } else {
        while (*link && (options == MQSMPO_APPEND_PROPERTY || *link != one)) link = &(*link)->next;
        if (options == MQSMPO_SET_PROP_AFTER_CURSOR) link = &one->next;
        one = *link = property_new(name, *link);
    }
    property_fill(one, type, value, length, descriptor);
    return MQRC_NONE;
}

void MQSETMP(MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pSetPropOpts, PMQCHARV pName, PMQVOID pPropDesc, MQLONG Type,
             MQLONG ValueLength, PMQVOID pValue, MQRESULT)
{
    MQSMPO *smpo = pSetPropOpts;
    MQPD *pd = pPropDesc;
    MQLONG reason, length = type_length(Type);
    if (!form_length(&FORM_SMPO, smpo, &reason)) return fail(reason, pCompCode, pReason);
    MQLONG where = smpo->Options & SET_WHERE;
    if (where & (where - 1) || smpo->Options != where) return fail(MQRC_OPTIONS_ERROR, pCompCode, pReason);
    if (!form_length(&FORM_PD, pd, &reason) || pd->Options) return fail(MQRC_PD_ERROR, pCompCode, pReason);
    if (length == -2) return fail(MQRC_PROPERTY_TYPE_ERROR, pCompCode, pReason);
    if (!pName || !string_is_valid(pName)) return fail(MQRC_PROPERTY_NAME_ERROR, pCompCode, pReason);
    /* Types of fixed length need no ValueLength. pymqi passes -1 for them. */
    if (length == -1) length = ValueLength;
    if (length == MQVL_NULL_TERMINATED && Type == MQTYPE_STRING) length = pValue ? (MQLONG)strlen(pValue) : 0;
    if (length < 0) return fail(MQRC_BUFFER_LENGTH_ERROR, pCompCode, pReason);
    if (length && !pValue) return fail(MQRC_BUFFER_ERROR, pCompCode, pReason);

    char *name = name_of(pName), swapped[8];
    const void *value = pValue;
    if (length && Type != MQTYPE_STRING && Type != MQTYPE_BYTE_STRING) {
        memcpy(swapped, pValue, (size_t)length);
        value_swap(swapped, Type, smpo->ValueEncoding);
        value = swapped;
    }
    char *text = NULL;
    if (Type == MQTYPE_STRING) value = text = charset_to_utf8(pValue ? pValue : "", &length, smpo->ValueCCSID);
    const MQLONG descriptor[3] = {pd->Support, pd->Context, pd->CopyOptions};
    struct message *message = message_for(Hconn, Hmsg, &reason);
    if (message) {
        if (strlen(name) > MAX_NAME)
            reason = MQRC_PROPERTY_NAME_LENGTH_ERR;
        else if (message->validates && !name_is_allowed(name))
            reason = MQRC_PROPERTY_NAME_ERROR;
        else
            reason = set_where(message, where, name, Type, value, length, descriptor);
        message_unlock();
    }
    free(name);
    free(text);
    answer(reason ? MQCC_FAILED : MQCC_OK, reason, pCompCode, pReason);
}

/* ---- MQINQMP ----------------------------------------------------------------------------------------------------- */

static struct property *inquired(struct message *message, MQLONG options, const char *pattern)
{
    struct property *one = message->properties;
    if (options & MQIMPO_INQ_NEXT) one = message->cursor ? message->cursor->next : message->properties;
    if (options & MQIMPO_INQ_PROP_UNDER_CURSOR) return message->cursor;
    while (one && !name_matches(pattern, one->name)) one = one->next;
    return one;
}

/* Copy the name to the caller's ReturnedName if that has a buffer. Return false if the buffer is too small. */
static bool return_name(MQIMPO *impo, const struct property *one)
{
    MQCHARV *returned = &impo->ReturnedName;
    char *buffer = returned->VSPtr ? returned->VSPtr : returned->VSOffset ? (char *)impo + returned->VSOffset : NULL;
    if (!buffer || returned->VSBufSize <= 0) return true;
    MQLONG length = (MQLONG)strlen(one->name);
    char *name = charset_from_utf8(one->name, &length, returned->VSCCSID);
    memcpy(buffer, name, (size_t)(length < returned->VSBufSize ? length : returned->VSBufSize));
    free(name);
    returned->VSLength = length;
    return length <= returned->VSBufSize;
}

/* Copy the value, converted to the requested type, and its length to the caller's memory. */
static MQLONG return_value(MQIMPO *impo, struct property *one, PMQLONG pType, MQLONG size, PMQVOID pValue,
                           PMQLONG pDataLength)
{
    MQLONG type = *pType == MQTYPE_AS_SET ? one->type : *pType, length = one->length, reason = MQRC_NONE;
    if (type != one->type && !(impo->Options & MQIMPO_CONVERT_TYPE)) return MQRC_PROPERTY_TYPE_ERROR;
    char *converted = type != one->type ? value_converted(one, type, &length, &reason) : NULL;
    if (reason) return reason;
    impo->ReturnedCCSID = 1208;
    if (type == MQTYPE_STRING && impo->Options & MQIMPO_CONVERT_VALUE) {
        char *text = charset_from_utf8(converted ? converted : one->value, &length, impo->RequestedCCSID);
        free(converted);
        converted = text;
        impo->ReturnedCCSID = impo->RequestedCCSID > 0 ? impo->RequestedCCSID : charset_of_client();
    }
    *pDataLength = length;
    if (!return_name(impo, one))
        reason = MQRC_PROPERTY_NAME_TOO_BIG;
    else if (length > size && !(impo->Options & MQIMPO_QUERY_LENGTH))
        reason = MQRC_PROPERTY_VALUE_TOO_BIG;
    bool query = impo->Options & MQIMPO_QUERY_LENGTH;
    if (!query && pValue) memcpy(pValue, converted ? converted : one->value, (size_t)(length < size ? length : size));
    impo->ReturnedEncoding = MQENC_NATIVE;
    if (!reason && !query && impo->Options & MQIMPO_CONVERT_VALUE && pValue) {
        value_swap(pValue, type, impo->RequestedEncoding);
        impo->ReturnedEncoding = impo->RequestedEncoding;
    }
    *pType = type;
    free(converted);
    return reason;
}

void MQINQMP(MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pInqPropOpts, PMQCHARV pName, PMQVOID pPropDesc, PMQLONG pType,
             MQLONG ValueLength, PMQVOID pValue, PMQLONG pDataLength, MQRESULT)
{
    MQIMPO *impo = pInqPropOpts;
    MQPD *pd = pPropDesc;
    MQLONG reason;
    if (pDataLength) *pDataLength = 0;
    if (!form_length(&FORM_IMPO, impo, &reason)) return fail(reason, pCompCode, pReason);
    if (!form_length(&FORM_PD, pd, &reason)) return fail(reason, pCompCode, pReason);
    MQLONG which = impo->Options & (MQIMPO_INQ_NEXT | MQIMPO_INQ_PROP_UNDER_CURSOR);
    if (which & (which - 1)) return fail(MQRC_OPTIONS_ERROR, pCompCode, pReason);
    if (!pDataLength) return fail(MQRC_DATA_LENGTH_ERROR, pCompCode, pReason);
    if (*pType != MQTYPE_AS_SET && type_length(*pType) == -2) return fail(MQRC_PROPERTY_TYPE_ERROR, pCompCode, pReason);
    if (ValueLength < 0) return fail(MQRC_BUFFER_LENGTH_ERROR, pCompCode, pReason);
    if (!pName || !string_is_valid(pName)) return fail(MQRC_PROPERTY_NAME_ERROR, pCompCode, pReason);
    char *pattern = name_of(pName);
    struct message *message = message_for(Hconn, Hmsg, &reason);
    if (message) {
        struct property *one = inquired(message, impo->Options, pattern);
        reason = one ? return_value(impo, one, pType, ValueLength, pValue, pDataLength) : MQRC_PROPERTY_NOT_AVAILABLE;
        if (one && !reason) {
            message->cursor = one;
            pd->Support = one->descriptor[0];
            pd->Context = one->descriptor[1];
            pd->CopyOptions = one->descriptor[2];
        }
        message_unlock();
    }
    free(pattern);
    answer(reason ? MQCC_FAILED : MQCC_OK, reason, pCompCode, pReason);
}

/* ---- MQDLTMP ----------------------------------------------------------------------------------------------------- */

void MQDLTMP(MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pDltPropOpts, PMQCHARV pName, MQRESULT)
{
    MQDMPO *dmpo = pDltPropOpts;
    MQLONG reason;
    if (!form_length(&FORM_DMPO, dmpo, &reason)) return fail(reason, pCompCode, pReason);
    if (dmpo->Options & ~MQDMPO_DEL_PROP_UNDER_CURSOR) return fail(MQRC_OPTIONS_ERROR, pCompCode, pReason);
    if (!pName || !string_is_valid(pName)) return fail(MQRC_PROPERTY_NAME_ERROR, pCompCode, pReason);
    char *name = name_of(pName);
    struct message *message = message_for(Hconn, Hmsg, &reason);
    bool found = false;
    if (message) {
        struct property *one = dmpo->Options ? message->cursor : property_of(message, name);
        if (one) property_remove(message, one);
        found = one != NULL;
        message_unlock();
    }
    free(name);
    if (!message) return fail(reason, pCompCode, pReason);
    answer(found ? MQCC_OK : MQCC_WARNING, found ? MQRC_NONE : MQRC_PROPERTY_NOT_AVAILABLE, pCompCode, pReason);
}
