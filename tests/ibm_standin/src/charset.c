/* The client's character set, and conversion of strings between it and UTF-8, which the protocol uses.

   "Choosing client or server CCSID": character data of the MQI is in the local CCSID of the client, unless the environment variable
   MQCCSID specifies another one. Strings of variable length have their own CCSID (VSCCSID). Its default is that of the client. */
#include <iconv.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "standin.h"

#define UTF_8 1208

static const struct charset {
    MQLONG ccsid;
    const char *name; /* name for iconv and nl_langinfo */
} CHARSETS[] = {
    {UTF_8, "UTF-8"},      {819, "ISO-8859-1"}, {923, "ISO-8859-15"}, {912, "ISO-8859-2"}, {437, "IBM437"},
    {850, "IBM850"},       {858, "IBM858"},     {1250, "CP1250"},     {1252, "CP1252"},    {37, "IBM037"},
    {500, "IBM500"},       {1047, "IBM1047"},   {1140, "IBM1140"},    {1200, "UTF-16LE"},  {367, "US-ASCII"},
};
#define COUNT (sizeof CHARSETS / sizeof *CHARSETS)

MQLONG charset_of_client(void)
{
    const char *wanted = getenv("MQCCSID");
    if (wanted && atoi(wanted) > 0) return atoi(wanted);
    locale_t locale = newlocale(LC_CTYPE_MASK, "", NULL);
    const char *codeset = locale ? nl_langinfo_l(CODESET, locale) : "";
    MQLONG ccsid = 819; /* for locale C, whose codeset is ASCII */
    for (size_t i = 0; i < COUNT; i++)
        if (CHARSETS[i].ccsid != 367 && !strcasecmp(codeset, CHARSETS[i].name)) ccsid = CHARSETS[i].ccsid;
    if (locale) freelocale(locale);
    return ccsid;
}

static const char *name_of_charset(MQLONG ccsid)
{
    for (size_t i = 0; i < COUNT; i++)
        if (CHARSETS[i].ccsid == ccsid) return CHARSETS[i].name;
    return NULL;
}

/* Return a new string, terminated with NUL, and its *length. UTF-8 and text that cannot be converted stay unchanged. */
static char *converted(const char *bytes, MQLONG *length, const char *from, const char *to)
{
    size_t left = (size_t)*length, room = left * 4 + 4, size = room;
    char *made = calloc(1, size + 1), *out = made, *in = (char *)bytes;
    if (!made) abort();
    iconv_t conversion = from && to ? iconv_open(to, from) : (iconv_t)-1;
    bool done = conversion != (iconv_t)-1 && iconv(conversion, &in, &left, &out, &room) != (size_t)-1;
    if (conversion != (iconv_t)-1) iconv_close(conversion);
    if (!done) {
        memset(made, 0, size);
        memcpy(made, bytes, (size_t)*length);
        return made;
    }
    *length = (MQLONG)(size - room);
    return made;
}

char *charset_to_utf8(const char *bytes, MQLONG *length, MQLONG ccsid)
{
    return converted(bytes, length, name_of_charset(ccsid > 0 ? ccsid : charset_of_client()), "UTF-8");
}

char *charset_from_utf8(const char *bytes, MQLONG *length, MQLONG ccsid)
{
    return converted(bytes, length, "UTF-8", name_of_charset(ccsid > 0 ? ccsid : charset_of_client()));
}
