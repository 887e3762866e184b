/* A client channel definition table in JSON: the channels to a queue manager or to a group of queue managers.

   Sources, topics of the IBM MQ documentation: "Configuring a JSON format CCDT", "Channel attributes supported by the JSON
   CCDT", "URL access to the CCDT", "Queue manager groups in the CCDT" and its examples of MQCONN calls. Channels are tried in
   the order of their names. Weights and affinity are ignored. An unreadable table causes MQRC_Q_MGR_NOT_AVAILABLE (APAR IT44272),
   and so does a binary table here. A table without an entry for the name causes MQRC_Q_MGR_NAME_ERROR. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define MAX_TABLE 1048576

/* ---- JSON: positions in a text. NULL if the text is malformed or the value is missing --------------------------------- */

static const char *space(const char *at)
{
    while (at && isspace((unsigned char)*at)) at++;
    return at;
}

static const char *after_string(const char *at)
{
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1]) at++;
    return *at ? at + 1 : NULL;
}

static const char *after_value(const char *at)
{
    at = space(at);
    if (!at || !*at) return NULL;
    if (*at == '"') return after_string(at);
    if (*at != '{' && *at != '[') {
        size_t length = strcspn(at, ",]} \t\r\n");
        return length ? at + length : NULL;
    }
    char end = *at == '{' ? '}' : ']';
    for (at = space(at + 1); at && *at != end;) {
        if (end == '}') {
            if (*at != '"') return NULL;
            at = space(after_string(at));
            if (!at || *at++ != ':') return NULL;
        }
        at = space(after_value(at));
        if (!at || (*at != ',' && *at != end)) return NULL;
        /* IBM's own examples have a comma after the last member. */
        if (*at == ',') at = space(at + 1);
    }
    return at ? at + 1 : NULL;
}

static const char *member(const char *object, const char *name)
{
    object = space(object);
    if (!object || *object != '{') return NULL;
    for (const char *at = space(object + 1); at && *at == '"';) {
        const char *end = after_string(at);
        const char *value = space(end ? strchr(end, ':') + 1 : NULL);
        if ((size_t)(end - at) == strlen(name) + 2 && !strncmp(at + 1, name, strlen(name))) return value;
        at = space(after_value(value));
        if (at && *at == ',') at = space(at + 1);
    }
    return NULL;
}

static const char *first_of(const char *array)
{
    array = space(array);
    if (!array || *array != '[') return NULL;
    array = space(array + 1);
    return *array == ']' ? NULL : array;
}

static const char *next_of(const char *element)
{
    const char *at = space(after_value(element));
    if (!at || *at != ',') return NULL;
    at = space(at + 1);
    return *at == ']' ? NULL : at;
}

static void copy_text(char *target, size_t size, const char *value)
{
    size_t length = 0;
    if (value && *value == '"')
        for (value++; *value != '"' && length + 1 < size; value++) {
            if (*value == '\\') value++;
            target[length++] = *value;
        }
    target[length] = 0;
}

static MQLONG number_of(const char *value, MQLONG otherwise) { return value ? atoi(value) : otherwise; }

/* ---- location of the table ------------------------------------------------------------------------------------------- */

static char *read_all(FILE *file)
{
    char *text = file ? calloc(1, MAX_TABLE) : NULL;
    if (text) fread(text, 1, MAX_TABLE - 1, file);
    if (file) fclose(file);
    return text;
}

/* http://host:port/path */
static char *read_http(const char *rest)
{
    char host[200] = "", port[16] = "80", path[400] = "/", place[230];
    sscanf(rest, "%199[^:/]", host);
    rest += strlen(host);
    if (*rest == ':') sscanf(++rest, "%15[0-9]", port), rest += strlen(port);
    if (*rest == '/') snprintf(path, sizeof path, "%s", rest);
    snprintf(place, sizeof place, "%s(%s)", host, port);
    int descriptor = dial_tcp(place);
    FILE *stream = descriptor < 0 ? NULL : fdopen(descriptor, "r+");
    if (!stream) return NULL;
    fprintf(stream, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, host);
    fflush(stream);
    char *text = read_all(stream), *body = text ? strstr(text, "\r\n\r\n") : NULL;
    if (!body || strncmp(text, "HTTP/1.", 7) || strncmp(text + 8, " 200", 4)) return free(text), NULL;
    memmove(text, body + 4, strlen(body + 4) + 1);
    return text;
}

static char *read_table(const char *url)
{
    if (!strncmp(url, "http://", 7)) return read_http(url + 7);
    if (!strncmp(url, "file://", 7)) url += 7;
    return read_all(fopen(url, "r"));
}

/* ---- channels of the table ------------------------------------------------------------------------------------------------- */

static int by_name(const void *one, const void *other)
{
    return strcmp(((const struct ccdt_channel *)one)->definition.ChannelName,
                  ((const struct ccdt_channel *)other)->definition.ChannelName);
}

static void read_channel(struct ccdt_channel *channel, const char *entry)
{
    MQCD *definition = &channel->definition;
    *definition = (MQCD){MQCD_CLIENT_CONN_DEFAULT};
    definition->Version = MQCD_VERSION_12;
    copy_text(definition->ChannelName, sizeof definition->ChannelName, member(entry, "name"));
    const char *connection = member(entry, "clientConnection"), *security = member(entry, "transmissionSecurity");
    const char *management = member(entry, "connectionManagement");
    char *names = definition->ConnectionName;
    for (const char *one = first_of(member(connection, "connection")); one; one = next_of(one)) {
        char host[200];
        size_t length = strlen(names);
        copy_text(host, sizeof host, member(one, "host"));
        snprintf(names + length, sizeof definition->ConnectionName - length, "%s%s(%d)", length ? "," : "", host,
                 number_of(member(one, "port"), 1414));
    }
    copy_text(definition->SSLCipherSpec, sizeof definition->SSLCipherSpec, member(security, "cipherSpecification"));
    copy_text(definition->CertificateLabel, sizeof definition->CertificateLabel, member(security, "certificateLabel"));
    copy_text(channel->peer_name, sizeof channel->peer_name, member(security, "certificatePeerName"));
    definition->SSLPeerNamePtr = channel->peer_name;
    definition->SSLPeerNameLength = (MQLONG)strlen(channel->peer_name);
    definition->HeartbeatInterval = number_of(member(management, "heartInterval"), 300);
    static const char *const RECONNECT[] = {"no", "yes", "queueManager", "disabled"}; /* MQRCN_... */
    char reconnect[16];
    copy_text(reconnect, sizeof reconnect, member(management, "defaultReconnect"));
    for (MQLONG value = 0; value < 4; value++)
        if (!strcmp(reconnect, RECONNECT[value])) definition->DefReconnect = value;
    definition->MaxMsgLength = number_of(member(member(entry, "general"), "maximumMessageLength"), 4194304);
}

/* A name in MQCONN selects the entries of a queue manager. With an asterisk before it, it selects a group. A single asterisk
   selects entries without a name. */
MQLONG ccdt_read(const char *url, const char *queue_manager, struct ccdt_channel channels[CCDT_CHANNELS], int *count)
{
    char *text = read_table(url);
    const char *entry = text && after_value(text) ? first_of(member(text, "channel")) : NULL;
    *count = 0;
    if (!entry) return free(text), MQRC_Q_MGR_NOT_AVAILABLE;
    if (*queue_manager == '*') queue_manager++;
    for (; entry && *count < CCDT_CHANNELS; entry = next_of(entry)) {
        char type[32], name[49];
        copy_text(type, sizeof type, member(entry, "type"));
        copy_text(name, sizeof name, member(member(entry, "clientConnection"), "queueManager"));
        if (strcmp(type, "clientConnection") || strcmp(name, queue_manager)) continue;
        read_channel(&channels[(*count)++], entry);
    }
    free(text);
    qsort(channels, (size_t)*count, sizeof *channels, by_name);
    for (int index = 0; index < *count; index++) channels[index].definition.SSLPeerNamePtr = channels[index].peer_name;
    return *count ? MQRC_NONE : MQRC_Q_MGR_NAME_ERROR;
}
