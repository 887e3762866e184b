/* The structures of the MQI in their newest versions. An older version is the beginning of the newer one, up to the length
   in structures.c. */
#ifndef CMQC_STRUCTURES_H
#define CMQC_STRUCTURES_H

/* A string of variable length. It starts at VSPtr, or VSOffset bytes after the start of the structure with the MQCHARV. */
typedef struct tagMQCHARV {
    MQPTR VSPtr;
    MQLONG VSOffset, VSBufSize, VSLength, VSCCSID;
} MQCHARV, *PMQCHARV;

/* Object descriptor: the object of MQOPEN and MQPUT1. */
typedef struct tagMQOD {
    MQCHAR4 StrucId;
    MQLONG Version, ObjectType;
    MQCHAR48 ObjectName, ObjectQMgrName, DynamicQName;
    MQCHAR12 AlternateUserId;
    MQLONG RecsPresent, KnownDestCount, UnknownDestCount, InvalidDestCount; /* version 2: distribution lists */
    MQLONG ObjectRecOffset, ResponseRecOffset;
    MQPTR ObjectRecPtr, ResponseRecPtr;
    MQBYTE40 AlternateSecurityId; /* version 3 */
    MQCHAR48 ResolvedQName, ResolvedQMgrName;
    MQCHARV ObjectString, SelectionString, ResObjectString; /* version 4 */
    MQLONG ResolvedType;
} MQOD, *PMQOD;

/* Message descriptor. */
typedef struct tagMQMD {
    MQCHAR4 StrucId;
    MQLONG Version, Report, MsgType, Expiry, Feedback, Encoding, CodedCharSetId;
    MQCHAR8 Format;
    MQLONG Priority, Persistence;
    MQBYTE24 MsgId, CorrelId;
    MQLONG BackoutCount;
    MQCHAR48 ReplyToQ, ReplyToQMgr;
    MQCHAR12 UserIdentifier;
    MQBYTE32 AccountingToken;
    MQCHAR32 ApplIdentityData;
    MQLONG PutApplType;
    MQCHAR28 PutApplName;
    MQCHAR8 PutDate, PutTime;
    MQCHAR4 ApplOriginData;
    MQBYTE24 GroupId; /* version 2 */
    MQLONG MsgSeqNumber, Offset, MsgFlags, OriginalLength;
} MQMD, *PMQMD;

/* Put message options. */
typedef struct tagMQPMO {
    MQCHAR4 StrucId;
    MQLONG Version, Options, Timeout;
    MQHOBJ Context;
    MQLONG KnownDestCount, UnknownDestCount, InvalidDestCount;
    MQCHAR48 ResolvedQName, ResolvedQMgrName;
    MQLONG RecsPresent, PutMsgRecFields, PutMsgRecOffset, ResponseRecOffset; /* version 2: distribution lists */
    MQPTR PutMsgRecPtr, ResponseRecPtr;
    MQHMSG OriginalMsgHandle, NewMsgHandle; /* version 3 */
    MQLONG Action, PubLevel;
} MQPMO, *PMQPMO;

/* Get message options. */
typedef struct tagMQGMO {
    MQCHAR4 StrucId;
    MQLONG Version, Options, WaitInterval, Signal1, Signal2;
    MQCHAR48 ResolvedQName;
    MQLONG MatchOptions; /* version 2 */
    MQCHAR GroupStatus, SegmentStatus, Segmentation, Reserved1;
    MQBYTE16 MsgToken; /* version 3 */
    MQLONG ReturnedLength;
    MQLONG Reserved2; /* version 4 */
    MQHMSG MsgHandle;
} MQGMO, *PMQGMO;

/* Subscription descriptor. */
typedef struct tagMQSD {
    MQCHAR4 StrucId;
    MQLONG Version, Options;
    MQCHAR48 ObjectName;
    MQCHAR12 AlternateUserId;
    MQBYTE40 AlternateSecurityId;
    MQLONG SubExpiry;
    MQCHARV ObjectString, SubName, SubUserData;
    MQBYTE24 SubCorrelId;
    MQLONG PubPriority;
    MQBYTE32 PubAccountingToken;
    MQCHAR32 PubApplIdentityData;
    MQCHARV SelectionString;
    MQLONG SubLevel;
    MQCHARV ResObjectString;
} MQSD, *PMQSD;

/* Subscription request options. */
typedef struct tagMQSRO {
    MQCHAR4 StrucId;
    MQLONG Version, Options, NumPubs;
} MQSRO, *PMQSRO;

/* Status reporting: the result of MQSTAT. */
typedef struct tagMQSTS {
    MQCHAR4 StrucId;
    MQLONG Version, CompCode, Reason, PutSuccessCount, PutWarningCount, PutFailureCount, ObjectType;
    MQCHAR48 ObjectName, ObjectQMgrName, ResolvedObjectName, ResolvedQMgrName;
    MQCHARV ObjectString, SubName; /* version 2 */
    MQLONG OpenOptions, SubOptions;
} MQSTS, *PMQSTS;

/* Options of the calls for message handles and their properties. */
typedef struct tagMQOptions {
    MQCHAR4 StrucId;
    MQLONG Version, Options;
} MQBO, MQCMHO, MQDMHO, MQDMPO, MQBMHO, MQMHBO, *PMQBO, *PMQCMHO, *PMQDMHO, *PMQDMPO, *PMQBMHO, *PMQMHBO;

typedef struct tagMQSMPO {
    MQCHAR4 StrucId;
    MQLONG Version, Options, ValueEncoding, ValueCCSID;
} MQSMPO, *PMQSMPO;

typedef struct tagMQIMPO {
    MQCHAR4 StrucId;
    MQLONG Version, Options, RequestedEncoding, RequestedCCSID, ReturnedEncoding, ReturnedCCSID, Reserved1;
    MQCHARV ReturnedName;
    MQCHAR8 TypeString;
} MQIMPO, *PMQIMPO;

/* Property descriptor. */
typedef struct tagMQPD {
    MQCHAR4 StrucId;
    MQLONG Version, Options, Support, Context, CopyOptions;
} MQPD, *PMQPD;

/* Asynchronous consume: descriptor, context and control options of a callback. */
typedef struct tagMQCBD {
    MQCHAR4 StrucId;
    MQLONG Version, CallbackType, Options;
    MQPTR CallbackArea, CallbackFunction;
    MQCHAR128 CallbackName;
    MQLONG MaxMsgLength;
} MQCBD, *PMQCBD;

typedef struct tagMQCBC {
    MQCHAR4 StrucId;
    MQLONG Version, CallType;
    MQHOBJ Hobj;
    MQPTR CallbackArea, ConnectionArea;
    MQLONG CompCode, Reason, State, DataLength, BufferLength, Flags;
    MQLONG ReconnectDelay; /* version 2 */
} MQCBC, *PMQCBC;

typedef struct tagMQCTLO {
    MQCHAR4 StrucId;
    MQLONG Version, Options, Reserved;
    MQPTR ConnectionArea;
} MQCTLO, *PMQCTLO;

/* Connection: TLS configuration, security parameters, balancing, connect options. */
typedef struct tagMQSCO {
    MQCHAR4 StrucId;
    MQLONG Version;
    MQCHAR256 KeyRepository, CryptoHardware;
    MQLONG AuthInfoRecCount, AuthInfoRecOffset;
    MQPTR AuthInfoRecPtr;
    MQLONG KeyResetCount, FipsRequired, EncryptionPolicySuiteB[4], CertificateValPolicy;
    MQCHAR64 CertificateLabel;
    MQPTR KeyRepoPasswordPtr;
    MQLONG KeyRepoPasswordOffset, KeyRepoPasswordLength, HTTPSCertValidation, HTTPSCertRevocation;
    MQPTR HTTPSKeyStorePtr;
    MQLONG HTTPSKeyStoreOffset, HTTPSKeyStoreLength;
} MQSCO, *PMQSCO;

typedef struct tagMQCSP {
    MQCHAR4 StrucId;
    MQLONG Version, AuthenticationType, Reserved1;
    MQPTR CSPUserIdPtr;
    MQLONG CSPUserIdOffset, CSPUserIdLength;
    MQBYTE8 Reserved2;
    MQPTR CSPPasswordPtr;
    MQLONG CSPPasswordOffset, CSPPasswordLength;
    MQBYTE8 Reserved3; /* version 2 */
    MQPTR InitialKeyPtr;
    MQLONG InitialKeyOffset, InitialKeyLength;
    MQBYTE8 Reserved4; /* version 3 */
    MQPTR TokenPtr;
    MQLONG TokenOffset, TokenLength;
} MQCSP, *PMQCSP;

typedef struct tagMQBNO {
    MQCHAR4 StrucId;
    MQLONG Version, ApplType, Timeout, Options;
} MQBNO, *PMQBNO;

struct tagMQCD; /* cmqxc.h */

typedef struct tagMQCNO {
    MQCHAR4 StrucId;
    MQLONG Version, Options;
    MQLONG ClientConnOffset; /* version 2 */
    MQPTR ClientConnPtr;
    MQBYTE128 ConnTag;   /* version 3 */
    PMQSCO SSLConfigPtr; /* version 4 */
    MQLONG SSLConfigOffset;
    MQBYTE24 ConnectionId; /* version 5 */
    MQLONG SecurityParmsOffset;
    PMQCSP SecurityParmsPtr;
    PMQCHAR CCDTUrlPtr; /* version 6 */
    MQLONG CCDTUrlOffset, CCDTUrlLength;
    MQBYTE8 Reserved;
    MQCHAR28 ApplName; /* version 7 */
    MQBYTE Reserved2[4];
    PMQBNO BalanceParmsPtr; /* version 8 */
    MQLONG BalanceParmsOffset;
    MQBYTE Reserved3[4];
} MQCNO, *PMQCNO;

#define MQOD_CURRENT_LENGTH ((MQLONG)sizeof(MQOD))
#define MQPMO_CURRENT_LENGTH ((MQLONG)sizeof(MQPMO))

/* The newest version of each structure. ibmmq and pymqi choose their layouts by these numbers. */
#define MQBNO_CURRENT_VERSION 1
#define MQCBC_CURRENT_VERSION 2
#define MQCBD_CURRENT_VERSION 1
#define MQCMHO_CURRENT_VERSION 1
#define MQCNO_CURRENT_VERSION 8
#define MQCSP_CURRENT_VERSION 3
#define MQCTLO_CURRENT_VERSION 1
#define MQDMHO_CURRENT_VERSION 1
#define MQDMPO_CURRENT_VERSION 1
#define MQGMO_CURRENT_VERSION 4
#define MQIMPO_CURRENT_VERSION 1
#define MQMD_CURRENT_VERSION 2
#define MQOD_CURRENT_VERSION 4
#define MQPD_CURRENT_VERSION 1
#define MQPMO_CURRENT_VERSION 3
#define MQSCO_CURRENT_VERSION 7
#define MQSD_CURRENT_VERSION 1
#define MQSMPO_CURRENT_VERSION 1
#define MQSRO_CURRENT_VERSION 1
#define MQSTS_CURRENT_VERSION 2

/* Records of a distribution list: the destinations and the outcomes. Distribution lists are not supported
   (MQRC_RECS_PRESENT_ERROR). */
typedef struct tagMQOR {
    MQCHAR48 ObjectName, ObjectQMgrName;
} MQOR, *PMQOR;

typedef struct tagMQRR {
    MQLONG CompCode, Reason;
} MQRR, *PMQRR;

#endif
