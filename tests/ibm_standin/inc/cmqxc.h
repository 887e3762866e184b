/* cmqxc.h of the stand-in: the channel definition with which a client connects. */
#ifndef CMQXC_H
#define CMQXC_H

#include "cmqc.h"

#define MQCD_VERSION_12 12
#define MQCD_VERSION_13 13
#define MQCD_CURRENT_VERSION 13
#define MQCD_CURRENT_LENGTH 2000
#define MQXPT_LU62 1
#define MQXPT_TCP 2
#define MQCHT_CLNTCONN 6

typedef struct tagMQCD {
    MQCHAR20 ChannelName;
    MQLONG Version, ChannelType, TransportType;
    MQCHAR64 Desc;
    MQCHAR48 QMgrName, XmitQName;
    MQCHAR20 ShortConnectionName, MCAName;
    MQCHAR8 ModeName;
    MQCHAR64 TpName;
    MQLONG BatchSize, DiscInterval, ShortRetryCount, ShortRetryInterval, LongRetryCount, LongRetryInterval;
    MQCHAR128 SecurityExit, MsgExit, SendExit, ReceiveExit;
    MQLONG SeqNumberWrap, MaxMsgLength, PutAuthority, DataConversion;
    MQCHAR32 SecurityUserData, MsgUserData, SendUserData, ReceiveUserData;
    MQCHAR12 UserIdentifier, Password, MCAUserIdentifier; /* version 2 */
    MQLONG MCAType;
    MQCHAR264 ConnectionName;
    MQCHAR12 RemoteUserIdentifier, RemotePassword;
    MQCHAR128 MsgRetryExit; /* version 3 */
    MQCHAR32 MsgRetryUserData;
    MQLONG MsgRetryCount, MsgRetryInterval;
    MQLONG HeartbeatInterval, BatchInterval, NonPersistentMsgSpeed, StrucLength; /* version 4 */
    MQLONG ExitNameLength, ExitDataLength, MsgExitsDefined, SendExitsDefined, ReceiveExitsDefined;
    MQPTR MsgExitPtr, MsgUserDataPtr, SendExitPtr, SendUserDataPtr, ReceiveExitPtr, ReceiveUserDataPtr;
    MQPTR ClusterPtr; /* version 5 */
    MQLONG ClustersDefined, NetworkPriority;
    MQLONG LongMCAUserIdLength, LongRemoteUserIdLength; /* version 6 */
    MQPTR LongMCAUserIdPtr, LongRemoteUserIdPtr;
    MQBYTE40 MCASecurityId, RemoteSecurityId;
    MQCHAR32 SSLCipherSpec; /* version 7 */
    MQPTR SSLPeerNamePtr;
    MQLONG SSLPeerNameLength, SSLClientAuth, KeepAliveInterval;
    MQCHAR48 LocalAddress;
    MQLONG BatchHeartbeat;
    MQLONG HdrCompList[2], MsgCompList[16]; /* version 8 */
    MQLONG CLWLChannelRank, CLWLChannelPriority, CLWLChannelWeight, ChannelMonitoring, ChannelStatistics;
    MQLONG SharingConversations, PropertyControl, MaxInstances, MaxInstancesPerClient; /* version 9 */
    MQLONG ClientChannelWeight, ConnectionAffinity;
    MQLONG BatchDataLimit, UseDLQ, DefReconnect; /* version 10 */
    MQCHAR64 CertificateLabel;                   /* version 11 */
    MQLONG SPLProtection;                        /* version 12 */
    MQCHAR4 pad;
    MQLONG QuantumSafeAlgorithm, QuantumSafeRequired; /* version 13 */
} MQCD, *PMQCD;

#endif
