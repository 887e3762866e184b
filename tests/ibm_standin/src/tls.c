/* TLS of a client's channel, with OpenSSL instead of GSKit, which IBM's client uses.

   Sources, all topics of the IBM MQ documentation: "Enabling CipherSpecs"; "MQSCO - SSL/TLS configuration options" and
   "Specifying the key repository location for an IBM MQ MQI client"; "Supplying the key repository password for an IBM MQ MQI
   client"; "Connecting a client to a queue manager securely" (a client sends only the certificate with its label);
   "IBM MQ rules for SSLPEER values"; "2381 MQRC_KEY_REPOSITORY_ERROR", "2393 MQRC_SSL_INITIALIZATION_ERROR",
   "2398 MQRC_SSL_PEER_NAME_MISMATCH" and "2399 MQRC_SSL_PEER_NAME_ERROR". The host name is not compared with the
   certificate: IBM's client compares SSLPEER only. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/ssl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "standin.h"

#define MAX_DESCRIPTORS 65536
#define MAX_ATTRIBUTES 64
#define WILDCARD '*'
#define ASTERISK '\1' /* an escaped asterisk of a filter */

/* ---- CipherSpecs ------------------------------------------------------------------------------------------------- */

static const struct cipher_spec {
    const char *name;
    int from, to; /* TLS versions */
    const char *cipher, *suite; /* OpenSSL names for TLS 1.2 and for TLS 1.3; NULL: all */
    bool fips;
} CIPHER_SPECS[] = {
    {"ANY", TLS1_2_VERSION, TLS1_3_VERSION, NULL, NULL, true},
    {"ANY_TLS12", TLS1_2_VERSION, TLS1_2_VERSION, NULL, NULL, true},
    {"ANY_TLS12_OR_HIGHER", TLS1_2_VERSION, TLS1_3_VERSION, NULL, NULL, true},
    {"ANY_TLS13", TLS1_3_VERSION, TLS1_3_VERSION, NULL, NULL, true},
    {"ANY_TLS13_OR_HIGHER", TLS1_3_VERSION, TLS1_3_VERSION, NULL, NULL, true},
    {"TLS_AES_128_GCM_SHA256", TLS1_3_VERSION, TLS1_3_VERSION, NULL, "TLS_AES_128_GCM_SHA256", true},
    {"TLS_AES_256_GCM_SHA384", TLS1_3_VERSION, TLS1_3_VERSION, NULL, "TLS_AES_256_GCM_SHA384", true},
    {"TLS_CHACHA20_POLY1305_SHA256", TLS1_3_VERSION, TLS1_3_VERSION, NULL, "TLS_CHACHA20_POLY1305_SHA256", false},
    {"ECDHE_ECDSA_AES_128_GCM_SHA256", TLS1_2_VERSION, TLS1_2_VERSION, "ECDHE-ECDSA-AES128-GCM-SHA256", NULL, true},
    {"ECDHE_ECDSA_AES_256_GCM_SHA384", TLS1_2_VERSION, TLS1_2_VERSION, "ECDHE-ECDSA-AES256-GCM-SHA384", NULL, true},
    {"ECDHE_RSA_AES_128_GCM_SHA256", TLS1_2_VERSION, TLS1_2_VERSION, "ECDHE-RSA-AES128-GCM-SHA256", NULL, true},
    {"ECDHE_RSA_AES_256_GCM_SHA384", TLS1_2_VERSION, TLS1_2_VERSION, "ECDHE-RSA-AES256-GCM-SHA384", NULL, true},
};

static bool use_cipher_spec(SSL_CTX *context, const struct tls_options *options)
{
    const struct cipher_spec *spec = NULL;
    for (size_t index = 0; index < sizeof CIPHER_SPECS / sizeof *CIPHER_SPECS; index++)
        if (!strcmp(CIPHER_SPECS[index].name, options->cipher_spec)) spec = &CIPHER_SPECS[index];
    if (!spec || (options->fips && !spec->fips)) return false;
    return SSL_CTX_set_min_proto_version(context, spec->from) && SSL_CTX_set_max_proto_version(context, spec->to) &&
           (!spec->cipher || SSL_CTX_set_cipher_list(context, spec->cipher)) &&
           (!spec->suite || SSL_CTX_set_ciphersuites(context, spec->suite));
}

/* ---- key repository ---------------------------------------------------------------------------------------------- */

struct repository {
    EVP_PKEY *key;
    X509 *certificate;
    STACK_OF(X509) *trusted;
    bool has_labels;
};

static bool is_readable(const char *stem, const char *extension, char path[static 300])
{
    snprintf(path, 300, "%s%s", stem, extension);
    return !access(path, R_OK);
}

/* The stand-in reads the certificates of a CMS repository from STEM.pem. key.kdb and key.sth must exist. */
static bool read_cms(const char *stem, bool has_password, struct repository *repository)
{
    char path[300];
    if (!is_readable(stem, ".kdb", path) || (!has_password && !is_readable(stem, ".sth", path))) return false;
    if (!is_readable(stem, ".pem", path)) return false;
    BIO *file = BIO_new_file(path, "r");
    STACK_OF(X509_INFO) *entries = file ? PEM_X509_INFO_read_bio(file, NULL, NULL, NULL) : NULL;
    for (int index = 0; index < sk_X509_INFO_num(entries); index++) {
        X509_INFO *entry = sk_X509_INFO_value(entries, index);
        if (entry->x_pkey && entry->x_pkey->dec_pkey) {
            EVP_PKEY_up_ref(entry->x_pkey->dec_pkey);
            repository->key = entry->x_pkey->dec_pkey;
        }
        if (entry->x509) {
            X509_up_ref(entry->x509);
            sk_X509_push(repository->trusted, entry->x509);
        }
    }
    for (int index = 0; repository->key && index < sk_X509_num(repository->trusted); index++)
        if (X509_check_private_key(sk_X509_value(repository->trusted, index), repository->key))
            repository->certificate = sk_X509_delete(repository->trusted, index--);
    sk_X509_INFO_pop_free(entries, X509_INFO_free);
    BIO_free(file);
    return entries != NULL;
}

/* A PKCS#12 file. Its password is a parameter, or in a stash file next to it, which is plain text for the stand-in. */
static bool read_pkcs12(const char *path, const char *stem, const char *password, struct repository *repository)
{
    char stash[300], stashed[256] = "";
    if (!password[0]) {
        FILE *file = is_readable(stem, ".sth", stash) ? fopen(stash, "r") : NULL;
        if (!file) return false;
        if (fgets(stashed, sizeof stashed, file)) stashed[strcspn(stashed, "\n")] = 0;
        fclose(file);
        password = stashed;
    }
    FILE *file = fopen(path, "rb");
    PKCS12 *content = file ? d2i_PKCS12_fp(file, NULL) : NULL;
    if (file) fclose(file);
    bool parsed = content && PKCS12_parse(content, password, &repository->key, &repository->certificate, &repository->trusted);
    PKCS12_free(content);
    repository->has_labels = true;
    return parsed;
}

static bool read_repository(const struct tls_options *options, struct repository *repository)
{
    char stem[257];
    const char *path = options->key_repository;
    if (!path[0]) return false;
    snprintf(stem, sizeof stem, "%s", path);
    char *extension = strrchr(stem, '.');
    if (!extension || strchr(extension, '/')) extension = NULL;
    bool is_cms = !extension || !strcmp(extension, ".kdb");
    if (extension) *extension = 0;
    repository->trusted = sk_X509_new_null();
    return is_cms ? read_cms(stem, options->password[0], repository)
                  : read_pkcs12(path, stem, options->password, repository);
}

static void free_repository(struct repository *repository)
{
    EVP_PKEY_free(repository->key);
    X509_free(repository->certificate);
    sk_X509_pop_free(repository->trusted, X509_free);
}

/* The personal certificate is sent only if it has the requested label, by default ibmwebspheremqUSER. */
static bool use_certificate(SSL_CTX *context, const struct tls_options *options, struct repository *repository)
{
    char label[65];
    const struct passwd *user = getpwuid(geteuid());
    snprintf(label, sizeof label, "ibmwebspheremq%s", user ? user->pw_name : "");
    if (options->label[0]) snprintf(label, sizeof label, "%s", options->label);
    int length = 0;
    const unsigned char *alias = repository->certificate ? X509_alias_get0(repository->certificate, &length) : NULL;
    bool has_label = repository->certificate &&
                     (!repository->has_labels ||
                      (alias && strlen(label) == (size_t)length && !memcmp(alias, label, (size_t)length)));
    if (!has_label) return !options->label[0];
    return SSL_CTX_use_certificate(context, repository->certificate) && SSL_CTX_use_PrivateKey(context, repository->key);
}

/* ---- SSLPEER ----------------------------------------------------------------------------------------------------- */

/* The attribute types of "Distinguished Names", with their names in filters and in OpenSSL. */
static const char *const TYPES[][4] = {
    {"CN"}, {"O"}, {"OU"}, {"C"}, {"L"}, {"DC"}, {"T", "title"}, {"STREET"}, {"UNSTRUCTUREDNAME"}, {"UNSTRUCTUREDADDRESS"},
    {"ST", "SP", "S"}, {"PC", "postalCode"}, {"DNQ", "dnQualifier"}, {"UID", "USERID"}, {"SERIALNUMBER"},
    {"MAIL", "E", "emailAddress"},
};

static int type_of(const char *name, int (*compare)(const char *, const char *))
{
    for (size_t type = 0; type < sizeof TYPES / sizeof *TYPES; type++)
        for (int other = 0; other < 4 && TYPES[type][other]; other++)
            if (!compare(TYPES[type][other], name)) return (int)type;
    return -1;
}

struct attribute {
    int type;
    char value[256];
};

static bool read_attribute(char *part, struct attribute *attribute)
{
    char *equals = strchr(part, '=');
    if (!equals) return false;
    *equals = 0;
    while (*part == ' ') part++;
    attribute->type = type_of(part, strcmp); /* in upper case, with no space before the = */
    char *value = equals + 1;
    while (*value == ' ') value++;
    size_t length = strlen(value);
    while (length && value[length - 1] == ' ') length--;
    if (attribute->type < 0 || !length || length >= sizeof attribute->value) return false;
    memcpy(attribute->value, value, length);
    attribute->value[length] = 0;
    for (size_t index = 1; index + 1 < length; index++)
        if (value[index] == WILDCARD) return false; /* wildcards are at the beginning and at the end only */
    return true;
}

/* A comma or semicolon separates attributes. Values contain them quoted or with a backslash. -1: the filter is malformed. */
static int read_filter(const char *filter, struct attribute *attributes)
{
    char part[1100];
    size_t length = 0;
    bool quoted = false;
    int count = 0;
    for (const char *next = filter;; next++) {
        if (*next == '\\' && next[1]) {
            next++;
            part[length++] = *next == WILDCARD ? ASTERISK : *next;
        } else if (*next == '"') {
            quoted = !quoted;
        } else if (!*next || (!quoted && (*next == ',' || *next == ';'))) {
            part[length] = 0;
            if (quoted || count == MAX_ATTRIBUTES || !read_attribute(part, &attributes[count++])) return -1;
            length = 0;
            if (!*next) return count;
        } else {
            part[length++] = *next;
        }
    }
}

static bool value_matches(const char *wanted, const char *value)
{
    char middle[256];
    size_t length = strlen(wanted);
    bool begins = wanted[0] == WILDCARD, ends = length > 1 && wanted[length - 1] == WILDCARD;
    snprintf(middle, sizeof middle, "%.*s", (int)(length - begins - ends), wanted + begins);
    for (char *character = middle; *character; character++)
        if (*character == ASTERISK) *character = WILDCARD;
    size_t kept = strlen(middle), there = strlen(value);
    if (begins && ends) return strcasestr(value, middle) != NULL;
    if (begins) return there >= kept && !strcasecmp(value + there - kept, middle);
    return ends ? !strncasecmp(value, middle, kept) : !strcasecmp(value, middle);
}

/* Return whether the name contains all attributes of the filter. Several of one type (OU, DC) must be in the same order. */
static bool name_has(X509_NAME *name, const struct attribute *attributes, int count)
{
    int from[sizeof TYPES / sizeof *TYPES] = {0};
    for (int index = 0; index < count; index++) {
        int type = attributes[index].type, position = from[type];
        bool found = false;
        for (; !found && position < X509_NAME_entry_count(name); position++) {
            X509_NAME_ENTRY *entry = X509_NAME_get_entry(name, position);
            unsigned char *value = NULL;
            if (type_of(OBJ_nid2sn(OBJ_obj2nid(X509_NAME_ENTRY_get_object(entry))), strcasecmp) != type) continue;
            if (ASN1_STRING_to_UTF8(&value, X509_NAME_ENTRY_get_data(entry)) < 0) continue;
            found = value_matches(attributes[index].value, (char *)value);
            OPENSSL_free(value);
        }
        if (!found) return false;
        from[type] = position;
    }
    return true;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* By socket. NULL: no TLS. */
static SSL *sessions[MAX_DESCRIPTORS];

static SSL *session_of(int descriptor)
{
    return descriptor >= 0 && descriptor < MAX_DESCRIPTORS ? sessions[descriptor] : NULL;
}

static MQLONG prepare(SSL_CTX *context, const struct tls_options *options)
{
    struct repository repository = {0};
    MQLONG reason = MQRC_NONE;
    if (!use_cipher_spec(context, options))
        reason = MQRC_SSL_INITIALIZATION_ERROR;
    else if (!read_repository(options, &repository))
        reason = MQRC_KEY_REPOSITORY_ERROR;
    else if (!use_certificate(context, options, &repository))
        reason = MQRC_SSL_INITIALIZATION_ERROR;
    X509_STORE *trusted = SSL_CTX_get_cert_store(context);
    for (int index = 0; index < sk_X509_num(repository.trusted); index++)
        X509_STORE_add_cert(trusted, sk_X509_value(repository.trusted, index));
    free_repository(&repository);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    return reason;
}

MQLONG tls_start(int descriptor, const struct tls_options *options)
{
    struct attribute attributes[MAX_ATTRIBUTES];
    int count = options->peer_name[0] ? read_filter(options->peer_name, attributes) : 0;
    if (count < 0) return MQRC_SSL_PEER_NAME_ERROR;
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes without MSG_NOSIGNAL */
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *session = NULL;
    MQLONG reason = context && descriptor < MAX_DESCRIPTORS ? prepare(context, options) : MQRC_SSL_INITIALIZATION_ERROR;
    if (!reason) {
        session = SSL_new(context);
        SSL_set_fd(session, descriptor);
        int result;
        do result = SSL_connect(session);
        while (result <= 0 && SSL_get_error(session, result) == SSL_ERROR_WANT_READ);
        if (result <= 0)
            reason = MQRC_SSL_INITIALIZATION_ERROR;
        else if (!name_has(X509_get_subject_name(SSL_get0_peer_certificate(session)), attributes, count))
            reason = MQRC_SSL_PEER_NAME_MISMATCH;
    }
    SSL_CTX_free(context);
    ERR_clear_error();
    if (reason)
        SSL_free(session);
    else
        sessions[descriptor] = session;
    return reason;
}

ssize_t stream_send(int descriptor, const void *bytes, size_t length)
{
    SSL *session = session_of(descriptor);
    if (!session) return send(descriptor, bytes, length, MSG_NOSIGNAL);
    ERR_clear_error();
    return SSL_write(session, bytes, length > INT_MAX ? INT_MAX : (int)length);
}

ssize_t stream_receive(int descriptor, void *bytes, size_t length)
{
    SSL *session = session_of(descriptor);
    if (!session) return recv(descriptor, bytes, length, 0);
    ERR_clear_error();
    int result = SSL_read(session, bytes, length > INT_MAX ? INT_MAX : (int)length);
    if (result > 0) return result;
    if (SSL_get_error(session, result) != SSL_ERROR_WANT_READ) return result;
    errno = EINTR; /* a record without data, such as a session ticket */
    return -1;
}

/* Bytes that are available without reading from the socket. */
bool stream_has_more(int descriptor)
{
    SSL *session = session_of(descriptor);
    return session && SSL_pending(session) > 0;
}

void stream_close(int descriptor)
{
    SSL *session = session_of(descriptor);
    if (session) {
        sessions[descriptor] = NULL;
        SSL_free(session);
    }
    close(descriptor);
}
