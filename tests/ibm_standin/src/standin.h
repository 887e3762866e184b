/* Declarations shared by the source files of the stand-in.

   The library forwards each MQI call to a queue manager over a stream socket per connection handle: one request and one reply, as
   IBM's client does over a channel. Like IBM's client, it implements these functions in the program's process: connections and
   their sharing (connection.c), message handles and properties (handle.c, property.c, value.c), asynchronous consume (consume.c),
   read ahead (ahead.c), reconnection (reconnect.c), TLS (tls.c) and client channel definition tables (ccdt.c). structures.c contains
   the lengths of the structures, frame.c the protocol, and fault.c the control by tests and benchmarks. */
#ifndef STANDIN_H
#define STANDIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cmqc.h"
#include "cmqxc.h"

/* ---- frame.c: protocol -------------------------------------------------------------------------------------- */

/* A request is `u32 length, i32 verb, fields`, a reply `u32 length, i32 CompCode, i32 Reason, fields`.

   Integers are little-endian, as on the machine. A byte string is an i32 length and the bytes. Length -1: no string. frames.py is
   the other side. */

enum verb {
    VERB_CONN = 1,
    VERB_DISC,
    VERB_OPEN,
    VERB_CLOSE,
    VERB_PUT,
    VERB_PUT1,
    VERB_GET,
    VERB_BEGIN,
    VERB_CMIT,
    VERB_BACK,
    VERB_INQ,
    VERB_SET,
    VERB_SUB,
    VERB_SUBRQ,
    VERB_STAT,
    VERB_BUFMH,
    VERB_MHBUF,
    VERB_PUT_ASYNC,
    VERB_GET_AHEAD,
    VERB_PUT1_ASYNC,
    VERB_LAST = VERB_PUT1_ASYNC
};

struct frame {
    char *bytes;
    size_t length, capacity;
    size_t position; /* position of the next read */
    bool malformed;  /* the reply was too short */
};

void frame_start(struct frame *frame, enum verb verb);
void put_long(struct frame *frame, MQLONG value);
void put_bytes(struct frame *frame, const void *bytes, MQLONG length);
void put_string(struct frame *frame, const void *structure, const MQCHARV *string);
MQLONG take_long(struct frame *frame);
const char *take_bytes(struct frame *frame, MQLONG *length);
void take_into(struct frame *frame, void *target, size_t size);
void take_string(struct frame *frame, void *structure, MQCHARV *string, bool rightmost);
bool frame_has_more(const struct frame *frame);
void frame_replace(struct frame *frame, const char *bytes, size_t length);
bool frame_leave(struct frame *frame, int descriptor);
bool frame_travel(struct frame *frame, int descriptor, enum verb verb, int patience);

/* ---- tls.c: TLS, and the bytes of a socket with or without it ------------------------------------------------------ */

struct tls_options {
    char cipher_spec[33], key_repository[257], password[256], label[65], peer_name[1025];
    bool fips;
};

MQLONG tls_start(int descriptor, const struct tls_options *options); /* performs the handshake. Returns the reason if it fails */
ssize_t stream_send(int descriptor, const void *bytes, size_t length);
ssize_t stream_receive(int descriptor, void *bytes, size_t length);
bool stream_has_more(int descriptor);
void stream_close(int descriptor);

/* ---- ccdt.c: client channel definition tables ----------------------------------------------------------------------- */

#define CCDT_CHANNELS 16

struct ccdt_channel {
    MQCD definition;
    char peer_name[1025];
};

/* The channels for a name of MQCONN, in the order in which they are tried. */
MQLONG ccdt_read(const char *url, const char *queue_manager, struct ccdt_channel channels[CCDT_CHANNELS], int *count);

/* ---- charset.c: the client's character set ------------------------------------------------------------------------ */

MQLONG charset_of_client(void);
/* New strings. A `ccsid` of 0 or less means that of the client. */
char *charset_to_utf8(const char *bytes, MQLONG *length, MQLONG ccsid);
char *charset_from_utf8(const char *bytes, MQLONG *length, MQLONG ccsid);

/* ---- fault.c: delays and broken connections by environment variables --------------------------------------------- */

enum cut { CUT_NONE, CUT_BEFORE, CUT_AFTER };

enum cut fault_of(enum verb verb);
void fault_delay(void);

/* ---- structures.c: StrucId, Version and length of each structure ------------------------------------------------- */

struct form {
    char struc_id[5];
    MQLONG reason;     /* if StrucId or Version is wrong, or the structure is missing */
    size_t lengths[8]; /* by version, starting with 1 */
};

extern const struct form FORM_OD, FORM_MD, FORM_PMO, FORM_GMO, FORM_SD, FORM_SRO, FORM_STS, FORM_CNO, FORM_BO,
    FORM_CMHO, FORM_DMHO, FORM_SMPO, FORM_IMPO, FORM_DMPO, FORM_PD, FORM_CBD, FORM_CTLO, FORM_BMHO, FORM_MHBO, FORM_CSP,
    FORM_SCO;

/* Return the number of bytes of the caller's version of the structure. 0 and *reason if it is not valid. */
size_t form_length(const struct form *form, const void *structure, MQLONG *reason);
bool string_is_valid(const MQCHARV *string);

/* ---- connection.c: connection handles ---------------------------------------------------------------------------- */

struct consumer; /* consume.c */

struct connection {
    MQHCONN handle;
    int socket;     /* -1: broken */
    MQLONG sharing; /* MQCNO_HANDLE_SHARE_... */
    MQLONG heartbeat_interval; /* of the client, in seconds */
    bool client;    /* connected with a channel definition, not in bindings mode */
    int patience;   /* milliseconds until a call without an answer breaks the connection. Negative: no limit */
    MQLONG max_message_length; /* negotiated with the server-connection channel. 0: no limit */
    bool reads_ahead;          /* the channel supports read ahead (SHARECNV is not 0) */
    bool consumes;             /* the MQGET is for a message consumer, which the channel does not limit */
    pthread_t owner;
    pid_t process;
    pthread_mutex_t busy; /* held during a call */
    struct frame frame;
    struct tls_options *tls; /* NULL: none */
    struct reconnection *reconnection; /* reconnect.c. NULL: no reconnection */
    bool reconnecting;
    pthread_t reconnector;
    char where[512], queue_manager[49];
    /* asynchronous consume */
    struct ahead *aheads; /* ahead.c: queues that are open with read ahead */
    struct consumer *consumers;
    pthread_t dispatcher;
    pthread_mutex_t consuming; /* held by the dispatcher from an MQGET to the end of the callback */
    bool started, suspended, dispatcher_made;
    MQPTR connection_area;
};

/* One MQI call on a connection: begin, fill call.frame, exchange, read the reply, end. */
struct call {
    struct connection *connection;
    struct frame *frame;
    enum verb verb;
    PMQLONG pCompCode, pReason;
    bool syncpoint; /* within a unit of work */
    MQLONG wait; /* milliseconds that the queue manager may take, by the options of the call. Negative: no limit */
};

bool call_begin(struct call *call, MQHCONN Hconn, enum verb verb, MQRESULT);
bool call_check(struct call *call, const struct form *form, const void *structure, size_t *length);
bool call_exchange(struct call *call); /* true: the reply holds the call's output */
bool call_is_unanswered(const struct call *call);
void call_leave(struct call *call);    /* don't wait for a reply */
void call_fail(struct call *call, MQLONG reason);
void call_end(struct call *call);

struct connection *connection_find(MQHCONN Hconn); /* NULL if the handle does not belong to this process */
int dial_tcp(const char *place); /* connects to host(port). Returns the socket, or -1 */
bool connection_dial(struct connection *connection); /* to the first of its addresses that answers */
void connection_drop(struct connection *connection); /* the socket */
void connection_take_channel(struct connection *connection);

void answer(MQLONG comp_code, MQLONG reason, MQRESULT);
static inline void fail(MQLONG reason, MQRESULT) { answer(MQCC_FAILED, reason, pCompCode, pReason); }

/* ---- handle.c, property.c, value.c: message handles, their properties, and the types of a property --------------- */

struct property {
    struct property *next;
    char *name; /* without "usr." */
    MQLONG type, length;
    MQLONG descriptor[3]; /* Support, Context, CopyOptions of the MQPD */
    char *value;          /* terminated with a NUL that is not counted */
};

struct message {
    MQHCONN owner;
    bool validates; /* the rules for property names are checked */
    struct property *properties;
    struct property *cursor;
};

struct message *message_lock(MQHMSG Hmsg); /* NULL if the handle does not exist. Otherwise call unlock */
void message_unlock(void);
void messages_forget(MQHCONN Hconn);
bool handle_is_given(MQHMSG Hmsg);

struct property *property_of(struct message *message, const char *name);
void property_set(struct message *message, const char *name, MQLONG type, const void *value, MQLONG length,
                  const MQLONG descriptor[3]);
void properties_clear(struct message *message);
bool put_properties(struct frame *frame, MQHMSG Hmsg, MQLONG copy_options, const char *pattern);
bool put_message_properties(struct frame *frame, const MQPMO *pmo);
void take_properties(struct frame *frame, MQHMSG Hmsg);
bool name_matches(const char *pattern, const char *name);
char *name_of(const MQCHARV *string);

/* Length of a type of fixed length, -1 for strings, -2 for an invalid type. */
MQLONG type_length(MQLONG type);
/* Convert the value to another type by the rules of MQIMPO_CONVERT_TYPE: a new string of *length bytes. NULL and *reason if the
   conversion is not possible. */
char *value_converted(const struct property *property, MQLONG type, MQLONG *length, MQLONG *reason);
void value_swap(void *value, MQLONG type, MQLONG encoding);

/* ---- ahead.c: read ahead ------------------------------------------------------------------------------------------ */

struct ahead *ahead_of(struct connection *connection, MQHOBJ object); /* NULL: no read ahead */
void ahead_open(struct connection *connection, MQHOBJ object);
void ahead_close(struct connection *connection, MQHOBJ object);
void ahead_discard(struct connection *connection);
void ahead_forget(struct connection *connection);
bool ahead_quiesce(struct ahead *ahead);
MQLONG ahead_check(struct connection *connection, struct ahead **ahead, const MQMD *md, const MQGMO *gmo, MQHMSG handle);
bool ahead_wants(const struct ahead *ahead, const MQGMO *gmo);
MQLONG ahead_size(void);
void ahead_take(struct ahead *ahead, struct frame *frame, MQLONG comp_code, MQLONG reason, size_t from);
bool ahead_serve(struct ahead *ahead, MQMD *md, size_t md_length, MQGMO *gmo, MQLONG size, void *buffer,
                 MQLONG *data_length, MQRESULT);

/* ---- reconnect.c: automatic client reconnection ------------------------------------------------------------------ */

struct reconnection *reconnection_make(MQLONG options, const struct frame *introduction);
void reconnection_free(struct reconnection *reconnection);
/* Return the reason why an option is not allowed on a connection that reconnects, or MQRC_NONE. */
MQLONG reconnection_forbids(const struct reconnection *reconnection, bool relies_on_state, bool relies_on_queue_manager);
void reconnection_remember_id(struct reconnection *reconnection, const MQBYTE24 connection_id);
/* Execute a call with `travel`, over as many connections as necessary. Return the reason if it fails. */
MQLONG reconnection_travel(struct call *call, bool (*travel)(struct call *));

/* ---- consume.c --------------------------------------------------------------------------------------------------- */

void consumers_forget(struct connection *connection, MQHOBJ Hobj);
void consumers_stop(struct connection *connection);
void consumers_tell(struct connection *connection, MQLONG reason); /* calls the event handler, if any */

#endif
