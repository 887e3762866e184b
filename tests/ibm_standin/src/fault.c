/* Environment variables by which tests and benchmarks control the stand-in.

   MQI_STANDIN_DELAY_US=N        delay of each round trip, to simulate a network
   MQI_STANDIN_HBINT=SECONDS     heartbeat interval of the channel (connection.c)
   MQCCSID=NUMBER                character set of the client, as with IBM's library (charset.c)
   MQI_STANDIN_RECONNECT_TIMEOUT=SECONDS
                                 timeout of automatic reconnection (reconnect.c)
   MQI_STANDIN_CUT=VERB:N[:before|after],...
                                 the connection breaks at the N-th call of VERB in this process: before the request is
                                 sent, or (`after`, the default) after the queue manager has executed it, so that the
                                 reply is lost. The call returns MQRC_CONNECTION_BROKEN
   MQI_STANDIN_CUT_FILE=PATH     a line is added for each cut. A cut in this file does not happen again in any process, so
                                 that a restarted program does not fail at the same call again
*/
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

static const char *const NAMES[] = {
    [VERB_CONN] = "MQCONN",   [VERB_DISC] = "MQDISC",     [VERB_OPEN] = "MQOPEN", [VERB_CLOSE] = "MQCLOSE",
    [VERB_PUT] = "MQPUT",     [VERB_PUT1] = "MQPUT1",     [VERB_GET] = "MQGET",   [VERB_BEGIN] = "MQBEGIN",
    [VERB_CMIT] = "MQCMIT",   [VERB_BACK] = "MQBACK",     [VERB_INQ] = "MQINQ",   [VERB_SET] = "MQSET",
    [VERB_SUB] = "MQSUB",     [VERB_SUBRQ] = "MQSUBRQ",   [VERB_STAT] = "MQSTAT", [VERB_BUFMH] = "MQBUFMH",
    [VERB_MHBUF] = "MQMHBUF", [VERB_PUT_ASYNC] = "MQPUT", [VERB_GET_AHEAD] = "MQGET",
    [VERB_PUT1_ASYNC] = "MQPUT1",
};

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static long calls[VERB_LAST + 1];

static bool has_happened(const char *path, const char *cut)
{
    char line[128];
    bool found = false;
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        found = !strcmp(line, cut);
    }
    if (file) fclose(file);
    return found;
}

/* Return whether `text`, one VERB:N[:before|after], selects this call. */
static enum cut cut_of(const char *text, enum verb verb, long number)
{
    char name[16] = "", moment[8] = "after";
    long wanted = 0;
    sscanf(text, "%15[^:]:%ld:%7s", name, &wanted, moment);
    if (wanted != number || strcmp(name, NAMES[verb])) return CUT_NONE;
    const char *path = getenv("MQI_STANDIN_CUT_FILE");
    if (path && has_happened(path, text)) return CUT_NONE;
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s\n", text);
        fclose(file);
    }
    return strcmp(moment, "before") ? CUT_AFTER : CUT_BEFORE;
}

enum cut fault_of(enum verb verb)
{
    const char *wanted = getenv("MQI_STANDIN_CUT");
    if (!wanted) return CUT_NONE;
    enum cut cut = CUT_NONE;
    char list[512], *rest = NULL;
    snprintf(list, sizeof list, "%s", wanted);
    pthread_mutex_lock(&counting);
    long number = ++calls[verb == VERB_GET_AHEAD ? VERB_GET : verb];
    for (char *text = strtok_r(list, ",", &rest); text && !cut; text = strtok_r(NULL, ",", &rest))
        cut = cut_of(text, verb, number);
    pthread_mutex_unlock(&counting);
    return cut;
}

void fault_delay(void)
{
    const char *wanted = getenv("MQI_STANDIN_DELAY_US");
    long microseconds = wanted ? atol(wanted) : 0;
    if (microseconds <= 0) return;
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&time, NULL);
}
