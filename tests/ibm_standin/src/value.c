/* The nine types of a property, and their conversions: "MQIMPO - Options", MQIMPO_CONVERT_TYPE.

     from         to
     BOOLEAN      STRING, INT8, INT16, INT32, INT64
     BYTE_STRING  STRING (hexadecimal)
     INT8         STRING, INT16, INT32, INT64
     INT16        STRING, INT32, INT64
     INT32        STRING, INT64
     INT64        STRING
     FLOAT32      STRING, FLOAT64
     FLOAT64      STRING
     STRING       BOOLEAN, INT8, INT16, INT32, INT64, FLOAT32, FLOAT64

   A property without a value (MQTYPE_NULL) cannot be converted. A pair that is not in the table causes
   MQRC_PROP_CONV_NOT_SUPPORTED. A string that is not a valid number causes MQRC_PROP_NUMBER_FORMAT_ERROR. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "standin.h"

MQLONG type_length(MQLONG type)
{
    switch (type) {
    case MQTYPE_NULL: return 0;
    case MQTYPE_INT8: return 1;
    case MQTYPE_INT16: return 2;
    case MQTYPE_BOOLEAN:
    case MQTYPE_INT32:
    case MQTYPE_FLOAT32: return 4;
    case MQTYPE_INT64:
    case MQTYPE_FLOAT64: return 8;
    case MQTYPE_STRING:
    case MQTYPE_BYTE_STRING: return -1;
    default: return -2;
    }
}

/* Convert between the machine's encoding of numbers (little-endian) and another one, in either direction. */
void value_swap(void *value, MQLONG type, MQLONG encoding)
{
    bool is_float = type == MQTYPE_FLOAT32 || type == MQTYPE_FLOAT64;
    bool reversed = is_float ? (encoding & MQENC_FLOAT_MASK) != MQENC_FLOAT_IEEE_NORMAL
                             : (encoding & MQENC_INTEGER_MASK) != MQENC_INTEGER_NORMAL;
    MQLONG length = type_length(type);
    char *bytes = value;
    for (MQLONG i = 0; !reversed && i < length / 2; i++) {
        char byte = bytes[i];
        bytes[i] = bytes[length - 1 - i];
        bytes[length - 1 - i] = byte;
    }
}

static bool is_integer(MQLONG type) { return type & (MQTYPE_INT8 | MQTYPE_INT16 | MQTYPE_INT32 | MQTYPE_INT64); }

static int64_t integer_of(const struct property *property)
{
    const void *value = property->value;
    switch (property->length) {
    case 1: return *(const MQINT8 *)value;
    case 2: return *(const MQINT16 *)value;
    case 4: return *(const MQINT32 *)value;
    default: return *(const MQINT64 *)value;
    }
}

static char *integer_value(int64_t number, MQLONG type, MQLONG *length)
{
    char *value = calloc(1, 8);
    *length = type_length(type);
    memcpy(value, &number, (size_t)*length); /* little-endian: the low bytes come first */
    return value;
}

static char *text_value(const char *text, MQLONG *length)
{
    *length = (MQLONG)strlen(text);
    return strdup(text);
}

/* The shortest decimal that is parsed to the same number. */
static char *float_text(double number, bool is_single, MQLONG *length)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        double back = strtod(text, NULL);
        if (is_single ? (float)back == (float)number : back == number) break;
    }
    return text_value(text, length);
}

static char *hexadecimal(const struct property *property, MQLONG *length)
{
    char *text = calloc(1, (size_t)property->length * 2 + 1);
    for (MQLONG i = 0; i < property->length; i++) sprintf(text + i * 2, "%02X", (unsigned char)property->value[i]);
    *length = property->length * 2;
    return text;
}

static char *as_string(const struct property *property, MQLONG *length)
{
    char text[40];
    switch (property->type) {
    case MQTYPE_BOOLEAN: return text_value(integer_of(property) ? "TRUE" : "FALSE", length);
    case MQTYPE_BYTE_STRING: return hexadecimal(property, length);
    case MQTYPE_FLOAT32: return float_text((double)*(MQFLOAT32 *)(void *)property->value, true, length);
    case MQTYPE_FLOAT64: return float_text(*(MQFLOAT64 *)(void *)property->value, false, length);
    default: snprintf(text, sizeof text, "%lld", (long long)integer_of(property)); return text_value(text, length);
    }
}

static bool ends_in_blanks(const char *text)
{
    while (*text == ' ') text++;
    return !*text;
}

static char *string_as(const char *text, MQLONG type, MQLONG *length)
{
    char *end;
    errno = 0;
    if (type == MQTYPE_BOOLEAN) {
        if (!strcasecmp(text, "TRUE") || !strcmp(text, "1")) return integer_value(1, type, length);
        return !strcasecmp(text, "FALSE") || !strcmp(text, "0") ? integer_value(0, type, length) : NULL;
    }
    if (is_integer(type)) {
        long long number = strtoll(text, &end, 10);
        int bits = type_length(type) * 8;
        bool fits = bits == 64 || (number >= -(1LL << (bits - 1)) && number < 1LL << (bits - 1));
        return end == text || errno || !ends_in_blanks(end) || !fits ? NULL : integer_value(number, type, length);
    }
    double number = strtod(text, &end);
    if (end == text || !ends_in_blanks(end)) return NULL;
    float single = (float)number;
    char *value = calloc(1, 8);
    *length = type_length(type);
    memcpy(value, type == MQTYPE_FLOAT32 ? (void *)&single : (void *)&number, (size_t)*length);
    return value;
}

char *value_converted(const struct property *property, MQLONG type, MQLONG *length, MQLONG *reason)
{
    MQLONG from = property->type;
    *reason = MQRC_NONE;
    if (type == MQTYPE_STRING && from != MQTYPE_NULL) return as_string(property, length);
    if (is_integer(type) && (from == MQTYPE_BOOLEAN || (is_integer(from) && type_length(from) < type_length(type))))
        return integer_value(integer_of(property), type, length);
    if (from == MQTYPE_FLOAT32 && type == MQTYPE_FLOAT64) {
        MQFLOAT64 number = *(MQFLOAT32 *)(void *)property->value;
        char *value = calloc(1, sizeof number);
        *length = sizeof number;
        return memcpy(value, &number, sizeof number);
    }
    if (from == MQTYPE_STRING && type != MQTYPE_BYTE_STRING && type != MQTYPE_NULL) {
        char *value = string_as(property->value, type, length);
        if (!value) *reason = MQRC_PROP_NUMBER_FORMAT_ERROR;
        return value;
    }
    *reason = MQRC_PROP_CONV_NOT_SUPPORTED;
    return NULL;
}
