/* Initial values of the structures, for `MQOD od = {MQOD_DEFAULT};`: "Initial values and language declarations" of each.
   Fields that are not listed are zero, as in IBM's declarations. */
#ifndef CMQC_DEFAULTS_H
#define CMQC_DEFAULTS_H

/* Formats. Other character fields without a value are NUL, as in IBM's C declarations. */
#define MQFMT_NONE_ARRAY ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' '
#define MQFMT_STRING_ARRAY 'M', 'Q', 'S', 'T', 'R', ' ', ' ', ' '
#define MQFMT_RF_HEADER_2_ARRAY 'M', 'Q', 'H', 'R', 'F', '2', ' ', ' '

#define MQCHARV_DEFAULT .VSPtr = 0, .VSCCSID = MQCCSI_APPL
#define MQOD_DEFAULT \
    .StrucId = {'O', 'D', ' ', ' '}, .Version = 1, .ObjectType = MQOT_Q, .DynamicQName = "AMQ.*", \
    .ObjectString = {MQCHARV_DEFAULT}, .SelectionString = {MQCHARV_DEFAULT}, .ResObjectString = {MQCHARV_DEFAULT}
#define MQMD_DEFAULT \
    .StrucId = {'M', 'D', ' ', ' '}, .Version = 1, .MsgType = MQMT_DATAGRAM, .Expiry = MQEI_UNLIMITED, \
    .Encoding = MQENC_NATIVE, .CodedCharSetId = MQCCSI_Q_MGR, .Format = {MQFMT_NONE_ARRAY}, \
    .Priority = MQPRI_PRIORITY_AS_Q_DEF, .Persistence = MQPER_PERSISTENCE_AS_Q_DEF, .MsgSeqNumber = 1, \
    .OriginalLength = MQOL_UNDEFINED
#define MQPMO_DEFAULT .StrucId = {'P', 'M', 'O', ' '}, .Version = 1, .Timeout = -1, .PubLevel = 9
#define MQGMO_DEFAULT \
    .StrucId = {'G', 'M', 'O', ' '}, .Version = 1, .MatchOptions = MQMO_MATCH_MSG_ID | MQMO_MATCH_CORREL_ID, \
    .GroupStatus = ' ', .SegmentStatus = ' ', .Segmentation = ' ', .Reserved1 = ' ', .ReturnedLength = -1
#define MQSD_DEFAULT \
    .StrucId = {'S', 'D', ' ', ' '}, .Version = 1, .SubExpiry = MQEI_UNLIMITED, .ObjectString = {MQCHARV_DEFAULT}, \
    .SubName = {MQCHARV_DEFAULT}, .SubUserData = {MQCHARV_DEFAULT}, .PubPriority = MQPRI_PRIORITY_AS_PUBLISHED, \
    .SelectionString = {MQCHARV_DEFAULT}, .SubLevel = 1, .ResObjectString = {MQCHARV_DEFAULT}
#define MQSRO_DEFAULT .StrucId = {'S', 'R', 'O', ' '}, .Version = 1
#define MQSTS_DEFAULT \
    .StrucId = {'S', 'T', 'A', 'T'}, .Version = 1, .ObjectType = MQOT_Q, .ObjectString = {MQCHARV_DEFAULT}, \
    .SubName = {MQCHARV_DEFAULT}
#define MQBO_DEFAULT .StrucId = {'B', 'O', ' ', ' '}, .Version = 1
#define MQCMHO_DEFAULT .StrucId = {'C', 'M', 'H', 'O'}, .Version = 1
#define MQDMHO_DEFAULT .StrucId = {'D', 'M', 'H', 'O'}, .Version = 1
#define MQDMPO_DEFAULT .StrucId = {'D', 'M', 'P', 'O'}, .Version = 1
#define MQBMHO_DEFAULT .StrucId = {'B', 'M', 'H', 'O'}, .Version = 1, .Options = MQBMHO_DELETE_PROPERTIES
#define MQMHBO_DEFAULT .StrucId = {'M', 'H', 'B', 'O'}, .Version = 1, .Options = MQMHBO_PROPERTIES_IN_MQRFH2
#define MQSMPO_DEFAULT \
    .StrucId = {'S', 'M', 'P', 'O'}, .Version = 1, .ValueEncoding = MQENC_NATIVE, .ValueCCSID = MQCCSI_APPL
#define MQIMPO_DEFAULT \
    .StrucId = {'I', 'M', 'P', 'O'}, .Version = 1, .RequestedEncoding = MQENC_NATIVE, .RequestedCCSID = MQCCSI_APPL, \
    .ReturnedEncoding = MQENC_NATIVE, .ReturnedName = {MQCHARV_DEFAULT}
#define MQPD_DEFAULT \
    .StrucId = {'P', 'D', ' ', ' '}, .Version = 1, .Support = MQPD_SUPPORT_OPTIONAL, .CopyOptions = MQCOPY_DEFAULT
#define MQCBD_DEFAULT \
    .StrucId = {'C', 'B', 'D', ' '}, .Version = 1, .CallbackType = MQCBT_MESSAGE_CONSUMER, \
    .MaxMsgLength = MQCBD_FULL_MSG_LENGTH
#define MQCBC_DEFAULT .StrucId = {'C', 'B', 'C', ' '}, .Version = 1
#define MQCTLO_DEFAULT .StrucId = {'C', 'T', 'L', 'O'}, .Version = 1
#define MQCNO_DEFAULT .StrucId = {'C', 'N', 'O', ' '}, .Version = 1
#define MQCSP_DEFAULT .StrucId = {'C', 'S', 'P', ' '}, .Version = 1
#define MQSCO_DEFAULT .StrucId = {'S', 'C', 'O', ' '}, .Version = 1, .EncryptionPolicySuiteB = {1, 0, 0, 0}
#define MQBNO_DEFAULT .StrucId = {'B', 'N', 'O', ' '}, .Version = 1
#define MQOR_DEFAULT .ObjectName = "", .ObjectQMgrName = ""
#define MQRR_DEFAULT .CompCode = MQCC_OK, .Reason = MQRC_NONE
/* The channel definition of a client (cmqxc.h). */
#define MQCD_CLIENT_CONN_DEFAULT \
    .Version = 6, .ChannelType = MQCHT_CLNTCONN, .TransportType = MQXPT_TCP, .HeartbeatInterval = 1, \
    .MaxMsgLength = 4194304, .SharingConversations = 10, .KeepAliveInterval = -1

#endif
