/* Connection handles: MQCONN, MQCONNX, MQDISC, and the beginning and end of every other call.

   The MQCNO_HANDLE_SHARE_ option ("MQCNO - Options") determines which threads can use a handle: only the thread that connected
   (NONE, the default), all threads, one after the other (BLOCK), or all threads, of which a second one gets
   MQRC_CALL_IN_PROGRESS (NO_BLOCK). A child of fork() has no handles of its parent. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "standin.h"

#define MAX_CONNECTIONS 4096
/* All handles have five digits: ibmmq's table of callbacks compares prefixes, and takes 100 for 1001. */
#define FIRST_HANDLE 10001
#define SHARING (MQCNO_HANDLE_SHARE_NONE | MQCNO_HANDLE_SHARE_BLOCK | MQCNO_HANDLE_SHARE_NO_BLOCK)
#define RECONNECTING (MQCNO_RECONNECT | MQCNO_RECONNECT_DISABLED | MQCNO_RECONNECT_Q_MGR)
#define MAX_MESSAGE_LENGTH 104857600 /* of all channels: 100 MB */
#define GREETING "MQI\1" /* distinguishes it from frames of the MessagePack protocol on the same port */

static struct connection *connections[MAX_CONNECTIONS];
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

void answer(MQLONG comp_code, MQLONG reason, MQRESULT)
{
    *pCompCode = comp_code;
    *pReason = reason;
}

struct connection *connection_find(MQHCONN Hconn)
{
    pthread_mutex_lock(&table);
    int slot = Hconn - FIRST_HANDLE;
    struct connection *connection = slot >= 0 && slot < MAX_CONNECTIONS ? connections[slot] : NULL;
    pthread_mutex_unlock(&table);
    return connection && connection->process == getpid() ? connection : NULL;
}

/* ---- address of the queue manager ---------------------------------------------------------------------------------- */

static int dial_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return -1;
    strcpy(address.sun_path, path);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!connect(descriptor, (struct sockaddr *)&address, sizeof address)) return descriptor;
    close(descriptor);
    return -1;
}

/* Parse "host(port)" as in a channel's CONNAME. The default port is 1414. */
int dial_tcp(const char *place)
{
    char host[264] = "", port[16] = "1414";
    sscanf(place, " %263[^(](%15[^)])", host, port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(host, port, &hints, &found)) return -1;
    int descriptor = -1, yes = 1;
    for (struct addrinfo *one = found; one && descriptor < 0; one = one->ai_next) {
        descriptor = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(descriptor, one->ai_addr, one->ai_addrlen)) {
            close(descriptor);
            descriptor = -1;
        }
    }
    freeaddrinfo(found);
    if (descriptor >= 0) setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return descriptor;
}

/* A character field without padding (blanks or NULs). */
static void trim(char *text, const char *field, size_t size)
{
    size_t length = strnlen(field, size);
    while (length && field[length - 1] == ' ') length--;
    memcpy(text, field, length);
    text[length] = 0;
}

static PMQCD channel_of(const MQCNO *cno, size_t length)
{
    if (length < offsetof(MQCNO, ConnTag)) return NULL;
    if (cno->ClientConnPtr) return cno->ClientConnPtr;
    return cno->ClientConnOffset ? (PMQCD)((char *)cno + cno->ClientConnOffset) : NULL;
}

static PMQCSP security_of(const MQCNO *cno, size_t length)
{
    if (length < offsetof(MQCNO, CCDTUrlPtr)) return NULL;
    if (cno->SecurityParmsPtr) return cno->SecurityParmsPtr;
    return cno->SecurityParmsOffset ? (PMQCSP)((char *)cno + cno->SecurityParmsOffset) : NULL;
}

static PMQSCO tls_of(const MQCNO *cno, size_t length)
{
    if (length < offsetof(MQCNO, ConnectionId)) return NULL;
    if (cno->SSLConfigPtr) return cno->SSLConfigPtr;
    return cno->SSLConfigOffset ? (PMQSCO)((char *)cno + cno->SSLConfigOffset) : NULL;
}

/* "URL access to the CCDT": the program's own URL, then MQSERVER, then MQCCDTURL, then MQCHLLIB with MQCHLTAB. The latter name a
   binary table, which cannot be read here. NULL: no table. */
static const char *table_of(const MQCNO *cno, size_t length, char url[static 1025])
{
    const char *given = NULL;
    if (cno->Options & MQCNO_LOCAL_BINDING) return NULL;
    if (length >= offsetof(MQCNO, ApplName) && (cno->CCDTUrlPtr || cno->CCDTUrlOffset)) {
        given = cno->CCDTUrlPtr ? cno->CCDTUrlPtr : (const char *)cno + cno->CCDTUrlOffset;
        snprintf(url, 1025, "%.*s", cno->CCDTUrlLength < 0 ? 1024 : (int)cno->CCDTUrlLength, given);
        return url;
    }
    if (getenv("MQSERVER")) return NULL;
    given = getenv("MQCCDTURL");
    if (!given && getenv("MQCHLTAB")) given = "";
    return given;
}

static void take_text(char *target, size_t size, const char *text, MQLONG length)
{
    if (text) snprintf(target, size, "%.*s", (int)length, text);
}

/* Return the TLS options of a client, from the channel, the program's MQSCO and the environment. NULL: no TLS. */
static struct tls_options *tls_options_of(const MQCD *channel, const MQSCO *sco)
{
    struct tls_options options = {0}, *made;
    size_t length = sco ? FORM_SCO.lengths[sco->Version - 1] : 0;
    const char *repository = getenv("MQSSLKEYR"), *password = getenv("MQKEYRPWD"), *label = getenv("MQCERTLABL");
    if (!channel || channel->Version < 7) return NULL;
    trim(options.cipher_spec, channel->SSLCipherSpec, sizeof channel->SSLCipherSpec);
    if (!options.cipher_spec[0]) return NULL;
    take_text(options.peer_name, sizeof options.peer_name, channel->SSLPeerNamePtr, channel->SSLPeerNameLength);
    if (channel->Version >= 11) trim(options.label, channel->CertificateLabel, sizeof channel->CertificateLabel);
    if (sco) trim(options.key_repository, sco->KeyRepository, sizeof sco->KeyRepository);
    if (length > offsetof(MQSCO, FipsRequired)) options.fips = sco->FipsRequired;
    if (length > offsetof(MQSCO, CertificateLabel) && !options.label[0])
        trim(options.label, sco->CertificateLabel, sizeof sco->CertificateLabel);
    if (length > offsetof(MQSCO, KeyRepoPasswordPtr)) {
        const char *start = sco->KeyRepoPasswordPtr;
        if (!start && sco->KeyRepoPasswordOffset) start = (const char *)sco + sco->KeyRepoPasswordOffset;
        take_text(options.password, sizeof options.password, start, sco->KeyRepoPasswordLength);
    }
    if (!options.key_repository[0] && repository) take_text(options.key_repository, 257, repository, 256);
    if (!options.password[0] && password) take_text(options.password, sizeof options.password, password, 255);
    if (!options.label[0] && label) take_text(options.label, sizeof options.label, label, 64);
    made = malloc(sizeof *made);
    if (!made) abort();
    *made = options;
    return made;
}

/* Return the address: MQI_STANDIN overrides the program. Otherwise the connection name of its channel, or that of MQSERVER. */
static void find_place(char *where, size_t size, const MQCD *channel)
{
    const char *always = getenv("MQI_STANDIN"), *server = getenv("MQSERVER");
    char name[265] = "";
    if (channel) trim(name, channel->ConnectionName, sizeof channel->ConnectionName);
    const char *last = server ? strrchr(server, '/') : NULL;
    snprintf(where, size, "%s", always && always[0] ? always : name[0] ? name : last ? last + 1 : "");
}

/* ---- MQCONN, MQCONNX, MQDISC ------------------------------------------------------------------------------------- */

/* A client closes its connection if it receives nothing for twice the heartbeat interval, or for a minute more than an interval of
   at least a minute ("HBINT"). The interval is the longer one of both sides. It is 300 s until the client knows the interval of
   the server. MQI_STANDIN_HBINT replaces it. (IBM's client and queue manager exchange heartbeats while
   the client waits for a message. Here such a wait has no limit.) */
static int patience_of(MQLONG own, MQLONG other)
{
    const char *server = getenv("MQI_STANDIN_HBINT");
    if (server) other = atoi(server);
    MQLONG seconds = own > other ? own : other;
    if (!seconds) return -1;
    return 1000 * (seconds < 60 ? 2 * seconds : seconds + 60);
}

static bool has_one_at_most(MQLONG options, MQLONG of)
{
    MQLONG chosen = options & of;
    return !(chosen & (chosen - 1));
}

/* Return the connection of this thread to the same queue manager. A second unshared one is rejected with 2002. */
static struct connection *connected_already(const char *where, const char *queue_manager)
{
    for (int slot = 0; slot < MAX_CONNECTIONS; slot++) {
        struct connection *one = connections[slot];
        if (one && one->sharing == MQCNO_HANDLE_SHARE_NONE && one->process == getpid() && one->socket >= 0 &&
            pthread_equal(one->owner, pthread_self()) && !strcmp(one->where, where) &&
            !strcmp(one->queue_manager, queue_manager))
            return one;
    }
    return NULL;
}

static struct connection *connection_make(struct connection values)
{
    struct connection *connection = NULL;
    pthread_mutex_lock(&table);
    for (int slot = 0; slot < MAX_CONNECTIONS && !connection; slot++) {
        if (connections[slot]) continue;
        connection = connections[slot] = calloc(1, sizeof *connection);
        if (!connection) abort();
        *connection = values;
        connection->handle = FIRST_HANDLE + slot;
        connection->process = getpid();
        connection->owner = pthread_self();
        pthread_mutex_init(&connection->busy, NULL);
        pthread_mutex_init(&connection->consuming, NULL);
    }
    pthread_mutex_unlock(&table);
    return connection;
}

void connection_drop(struct connection *connection)
{
    if (connection->socket >= 0) stream_close(connection->socket);
    connection->socket = -1;
}

/* Return the socket, with TLS if required. -1 and *reason on failure. MQRC_NONE: no host answers. */
static int dial(const char *place, const struct tls_options *tls, MQLONG *reason)
{
    int descriptor = !strncmp(place, "unix:", 5) ? dial_unix(place + 5) : dial_tcp(place);
    *reason = descriptor >= 0 && tls ? tls_start(descriptor, tls) : MQRC_NONE;
    if (!*reason) return descriptor;
    close(descriptor);
    return -1;
}

static bool greet(int descriptor) { return stream_send(descriptor, GREETING, 4) == 4; }

bool connection_dial(struct connection *connection)
{
    char list[sizeof connection->where], *rest = NULL;
    MQLONG reason;
    snprintf(list, sizeof list, "%s", connection->where);
    for (char *place = strtok_r(list, ",", &rest); place; place = strtok_r(NULL, ",", &rest)) {
        connection->socket = dial(place, connection->tls, &reason);
        if (connection->socket >= 0 && greet(connection->socket)) return true;
        connection_drop(connection);
    }
    return false;
}

/* Remove the connection from the table. Its memory is not freed, because another thread may be about to use it. */
static void connection_end(struct connection *connection)
{
    connection_drop(connection);
    reconnection_free(connection->reconnection);
    connection->reconnection = NULL;
    free(connection->tls);
    connection->tls = NULL;
    pthread_mutex_lock(&table);
    connections[connection->handle - FIRST_HANDLE] = NULL;
    pthread_mutex_unlock(&table);
}

/* A token is sent as a password without a user. */
static void put_security(struct frame *frame, const MQCSP *csp)
{
    if (csp && csp->AuthenticationType == MQCSP_AUTH_ID_TOKEN) {
        put_bytes(frame, NULL, 0);
        return put_bytes(frame, csp->TokenPtr ? csp->TokenPtr : (const char *)csp + csp->TokenOffset, csp->TokenLength);
    }
    bool given = csp && csp->AuthenticationType == MQCSP_AUTH_USER_ID_AND_PWD;
    put_bytes(frame, given ? csp->CSPUserIdPtr : NULL, given ? csp->CSPUserIdLength : 0);
    put_bytes(frame, given ? csp->CSPPasswordPtr : NULL, given ? csp->CSPPasswordLength : 0);
}

/* Attributes of a program when it connects. */
struct introduction {
    MQLONG options, reconnects; /* 0: no reconnection */
    MQLONG max_message_length;  /* 0: the limit of the queue manager */
    MQLONG sharing_conversations, heartbeat_interval;
    char connection_name[265];
    char channel[21], application[29];
    const MQCSP *security;
    const MQCD *definition; /* of its channel. NULL: none */
    const MQSCO *sco;
};

/* The negotiated attributes of the channel: the end of the reply to VERB_CONN. */
void connection_take_channel(struct connection *connection)
{
    connection->max_message_length = take_long(&connection->frame);
    connection->reads_ahead = take_long(&connection->frame) > 0 && connection->client;
    MQLONG interval = take_long(&connection->frame);
    if (connection->client) connection->patience = patience_of(connection->heartbeat_interval, interval);
}

/* Connect to one address. A peer that is not a queue manager counts as no answer. */
static struct connection *connect_at(const char *place, struct connection values, const struct introduction *program,
                                     MQBYTE24 connection_id, MQRESULT)
{
    MQLONG reason;
    values.tls = tls_options_of(program->definition, program->sco);
    values.socket = dial(place, values.tls, &reason);
    /* If the host does not answer, the client gets this reason, unless it accepts any queue manager of a group. */
    fail(values.client && values.queue_manager[0] != '*' ? MQRC_HOST_NOT_AVAILABLE : MQRC_Q_MGR_NOT_AVAILABLE, pCompCode,
         pReason);
    if (reason) fail(reason, pCompCode, pReason);
    if (values.socket < 0) return free(values.tls), NULL;
    struct connection *connection = connection_make(values);
    struct call call;
    if (!connection) {
        stream_close(values.socket);
        free(values.tls);
        return fail(MQRC_MAX_CONNS_LIMIT_REACHED, pCompCode, pReason), NULL;
    }
    if (!call_begin(&call, connection->handle, VERB_CONN, pCompCode, pReason)) return NULL;
    put_bytes(call.frame, values.queue_manager, (MQLONG)strlen(values.queue_manager));
    put_long(call.frame, program->options);
    put_long(call.frame, values.client);
    put_bytes(call.frame, program->channel, (MQLONG)strlen(program->channel));
    put_security(call.frame, program->security);
    put_bytes(call.frame, program->application, (MQLONG)strlen(program->application));
    put_long(call.frame, getpid());
    put_long(call.frame, program->max_message_length);
    put_long(call.frame, program->sharing_conversations);
    put_long(call.frame, program->heartbeat_interval);
    put_long(call.frame, values.client ? charset_of_client() : 0);
    put_bytes(call.frame, program->connection_name, (MQLONG)strlen(program->connection_name));
    struct reconnection *reconnection = program->reconnects ? reconnection_make(program->reconnects, call.frame) : NULL;
    bool connected = greet(connection->socket) && call_exchange(&call);
    if (connected) {
        take_into(call.frame, connection_id, sizeof(MQBYTE24));
        connection_take_channel(connection);
    } else if (*pReason == MQRC_NONE || (*pReason == MQRC_CONNECTION_BROKEN && connection->socket < 0))
        /* With TLS 1.3 the queue manager rejects a client's certificate after the client has finished its handshake. */
        call_fail(&call, values.tls ? MQRC_SSL_INITIALIZATION_ERROR : MQRC_Q_MGR_NOT_AVAILABLE);
    if (connected && reconnection) {
        reconnection_remember_id(reconnection, connection_id);
        connection->reconnection = reconnection;
    }
    call_end(&call);
    if (connected) return connection;
    reconnection_free(reconnection);
    connection_end(connection);
    return NULL;
}

/* MQCNO_RECONNECT_AS_DEF uses DEFRECON of the channel. Local applications do not reconnect. */
static MQLONG reconnection_of(MQLONG options, const MQCD *channel)
{
    static const MQLONG BY_DEFAULT[] = {0, MQCNO_RECONNECT, MQCNO_RECONNECT_Q_MGR, 0}; /* MQRCN_NO, _YES, _Q_MGR, _DISABLED */
    if (!channel) return 0;
    MQLONG chosen = options & RECONNECTING, otherwise = channel->Version >= 10 ? channel->DefReconnect : 0;
    if (!chosen && otherwise > 0 && otherwise < 4) chosen = BY_DEFAULT[otherwise];
    return chosen & ~MQCNO_RECONNECT_DISABLED;
}

static bool is_unavailable(MQLONG reason)
{
    return reason == MQRC_Q_MGR_NOT_AVAILABLE || reason == MQRC_HOST_NOT_AVAILABLE;
}

/* "Using authentication tokens in an application": only for clients without automatic reconnection. */
static MQLONG token_reason(const struct introduction *program)
{
    if (!program->security || program->security->AuthenticationType != MQCSP_AUTH_ID_TOKEN) return MQRC_NONE;
    if (program->security->Version < MQCSP_VERSION_3) return MQRC_CSP_ERROR;
    if (!program->definition) return MQRC_FUNCTION_NOT_SUPPORTED;
    return program->reconnects ? MQRC_RECONNECT_INCOMPATIBLE : MQRC_NONE;
}

/* Connect via the channel of `program`, to the first address in "host(port),host(port)" that answers. */
static void connect_by(struct introduction program, const char *queue_manager, PMQHCONN pHconn, MQBYTE24 connection_id,
                       MQRESULT)
{
    const MQCD *channel = program.definition;
    program.reconnects = reconnection_of(program.options, channel);
    if (channel) {
        trim(program.channel, channel->ChannelName, sizeof channel->ChannelName);
        program.max_message_length = channel->MaxMsgLength;
        /* The field exists since version 9, and its default is 10 ("SharingConversations"). */
        program.sharing_conversations = channel->Version >= 9 ? channel->SharingConversations : 10;
        program.heartbeat_interval = channel->Version >= 4 ? channel->HeartbeatInterval : 0;
        trim(program.connection_name, channel->ConnectionName, sizeof channel->ConnectionName);
        if (channel->MaxMsgLength < 0 || channel->MaxMsgLength > MAX_MESSAGE_LENGTH)
            return fail(MQRC_CD_ERROR, pCompCode, pReason);
    }
    MQLONG reason = token_reason(&program);
    if (reason) return fail(reason, pCompCode, pReason);

    struct connection values = {.socket = -1, .client = channel != NULL, .patience = -1};
    values.heartbeat_interval = program.heartbeat_interval;
    if (channel) values.patience = patience_of(program.heartbeat_interval, 300);
    values.sharing = program.options & SHARING ? program.options & SHARING : MQCNO_HANDLE_SHARE_NONE;
    find_place(values.where, sizeof values.where, channel);
    snprintf(values.queue_manager, sizeof values.queue_manager, "%s", queue_manager);
    pthread_mutex_lock(&table);
    struct connection *connection = connected_already(values.where, values.queue_manager);
    pthread_mutex_unlock(&table);
    if (connection && values.sharing == MQCNO_HANDLE_SHARE_NONE) {
        *pHconn = connection->handle;
        return answer(MQCC_WARNING, MQRC_ALREADY_CONNECTED, pCompCode, pReason);
    }
    char list[sizeof values.where], *rest = NULL;
    snprintf(list, sizeof list, "%s", values.where);
    fail(MQRC_Q_MGR_NOT_AVAILABLE, pCompCode, pReason);
    connection = NULL;
    for (char *place = strtok_r(list, ",", &rest); place && !connection && is_unavailable(*pReason);
         place = strtok_r(NULL, ",", &rest))
        connection = connect_at(place, values, &program, connection_id, pCompCode, pReason);
    if (connection) *pHconn = connection->handle;
}

static void connect_to(PMQCHAR pQMgrName, PMQCNO cno, PMQHCONN pHconn, MQRESULT)
{
    MQCNO none = {.StrucId = {'C', 'N', 'O', ' '}, .Version = 1};
    MQLONG reason;
    size_t length = form_length(&FORM_CNO, cno ? cno : (cno = &none), &reason);
    *pHconn = MQHC_UNUSABLE_HCONN;
    if (!length) return fail(reason, pCompCode, pReason);
    MQLONG options = cno->Options;
    if (!has_one_at_most(options, SHARING) || !has_one_at_most(options, RECONNECTING))
        return fail(MQRC_OPTIONS_ERROR, pCompCode, pReason);
    struct introduction program = {.options = options, .security = security_of(cno, length), .sco = tls_of(cno, length)};
    if (program.security && !form_length(&FORM_CSP, program.security, &reason)) return fail(reason, pCompCode, pReason);
    if (program.sco && !form_length(&FORM_SCO, program.sco, &reason)) return fail(reason, pCompCode, pReason);
    if (length >= offsetof(MQCNO, BalanceParmsPtr)) trim(program.application, cno->ApplName, sizeof cno->ApplName);
    if (!program.application[0])
        snprintf(program.application, sizeof program.application, "%s", program_invocation_short_name);
    char queue_manager[49] = "", url[1025];
    if (pQMgrName) trim(queue_manager, pQMgrName, 48);

    MQBYTE24 connection_id;
    program.definition = channel_of(cno, length);
    const char *table_url = program.definition ? NULL : table_of(cno, length, url);
    if (table_url) {
        struct ccdt_channel *channels = calloc(CCDT_CHANNELS, sizeof *channels);
        if (!channels) abort();
        int count;
        reason = ccdt_read(table_url, queue_manager, channels, &count);
        fail(reason ? reason : MQRC_Q_MGR_NOT_AVAILABLE, pCompCode, pReason);
        for (int index = 0; index < count && is_unavailable(*pReason); index++) {
            program.definition = &channels[index].definition;
            connect_by(program, queue_manager, pHconn, connection_id, pCompCode, pReason);
        }
        if (*pReason == MQRC_HOST_NOT_AVAILABLE) *pReason = MQRC_Q_MGR_NOT_AVAILABLE;
        free(channels);
    } else {
        connect_by(program, queue_manager, pHconn, connection_id, pCompCode, pReason);
    }
    if (*pCompCode == MQCC_OK && length >= offsetof(MQCNO, CCDTUrlPtr))
        memcpy(cno->ConnectionId, connection_id, sizeof connection_id);
}

void MQCONN(PMQCHAR pQMgrName, PMQHCONN pHconn, MQRESULT) { connect_to(pQMgrName, NULL, pHconn, pCompCode, pReason); }

void MQCONNX(PMQCHAR pQMgrName, PMQCNO pConnectOpts, PMQHCONN pHconn, MQRESULT)
{
    connect_to(pQMgrName, pConnectOpts, pHconn, pCompCode, pReason);
}

void MQDISC(PMQHCONN pHconn, MQRESULT)
{
    struct connection *connection = connection_find(*pHconn);
    if (connection) {
        consumers_stop(connection);
        consumers_forget(connection, MQHO_NONE);
    }
    struct call call;
    if (!call_begin(&call, *pHconn, VERB_DISC, pCompCode, pReason)) return;
    call_exchange(&call);
    messages_forget(*pHconn);
    ahead_forget(call.connection);
    connection_end(call.connection);
    call_end(&call);
    *pHconn = MQHC_UNUSABLE_HCONN;
}

/* ---- every call -------------------------------------------------------------------------------------------------- */

static MQLONG admit(struct connection *connection)
{
    if (!connection) return MQRC_HCONN_ERROR;
    bool dispatches = connection->dispatcher_made && pthread_equal(connection->dispatcher, pthread_self());
    bool owns = pthread_equal(connection->owner, pthread_self());
    if (connection->sharing == MQCNO_HANDLE_SHARE_NONE && !owns && !dispatches) return MQRC_HCONN_ERROR;
    if (connection->started && !connection->suspended && !dispatches) return MQRC_HCONN_ASYNC_ACTIVE;
    /* The event handler is called for the reconnection. */
    if (connection->reconnecting && pthread_equal(connection->reconnector, pthread_self())) return MQRC_CALL_IN_PROGRESS;
    if (connection->sharing == MQCNO_HANDLE_SHARE_NO_BLOCK && !dispatches) {
        if (pthread_mutex_trylock(&connection->busy)) return MQRC_CALL_IN_PROGRESS;
    } else {
        pthread_mutex_lock(&connection->busy);
    }
    if (connection_find(connection->handle) == connection) return MQRC_NONE;
    pthread_mutex_unlock(&connection->busy); /* disconnected while this thread waited */
    return MQRC_HCONN_ERROR;
}

bool call_begin(struct call *call, MQHCONN Hconn, enum verb verb, MQRESULT)
{
    struct connection *connection = connection_find(Hconn);
    MQLONG reason = admit(connection);
    if (reason) {
        fail(reason, pCompCode, pReason);
        return false;
    }
    *call = (struct call){
        .connection = connection, .frame = &connection->frame, .verb = verb, .pCompCode = pCompCode, .pReason = pReason};
    answer(MQCC_OK, MQRC_NONE, pCompCode, pReason);
    frame_start(call->frame, verb);
    return true;
}

bool call_check(struct call *call, const struct form *form, const void *structure, size_t *length)
{
    MQLONG reason;
    *length = form_length(form, structure, &reason);
    if (!*length) call_fail(call, reason);
    return *length != 0;
}

void call_fail(struct call *call, MQLONG reason) { fail(reason, call->pCompCode, call->pReason); }

bool call_is_unanswered(const struct call *call)
{
    return call->verb == VERB_PUT_ASYNC || call->verb == VERB_PUT1_ASYNC;
}

static bool travel(struct call *call)
{
    struct connection *connection = call->connection;
    if (call_is_unanswered(call)) return frame_leave(call->frame, connection->socket);
    int patience = call->wait < 0 || connection->patience < 0 ? -1 : connection->patience + call->wait;
    return frame_travel(call->frame, connection->socket, call->verb, patience);
}

/* A broken connection stays broken unless it reconnects: all later calls get MQRC_CONNECTION_BROKEN, too, until MQDISC. */
static bool call_travel(struct call *call)
{
    MQLONG reason = MQRC_NONE;
    if (call->connection->reconnection)
        reason = reconnection_travel(call, travel);
    else if (!travel(call)) {
        connection_drop(call->connection);
        reason = MQRC_CONNECTION_BROKEN;
    }
    if (reason) call_fail(call, reason);
    return !reason;
}

void call_leave(struct call *call) { call_travel(call); }

bool call_exchange(struct call *call)
{
    if (!call_travel(call)) return false;
    *call->pCompCode = take_long(call->frame);
    *call->pReason = take_long(call->frame);
    return frame_has_more(call->frame);
}

void call_end(struct call *call) { pthread_mutex_unlock(&call->connection->busy); }
