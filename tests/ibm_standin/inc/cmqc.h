/* cmqc.h of the stand-in: the Message Queue Interface for C programs.

   This file was written for this project from IBM's published descriptions of the data types, structures and calls ("MQI
   application reference"). Programs compile against it as against IBM's file. constants.py generates cmqc_constants.h from
   tests/ibm_standin/cmqc.py, so the library, the queue manager and the tests use the same numbers.
   tests/contract/mqi/test_layout.py compares each structure with its format in the real packages. */
#ifndef CMQC_H
#define CMQC_H

#include "cmqc_types.h"
#include "cmqc_constants.h"
#include "cmqc_structures.h"
#include "cmqc_defaults.h"

#define MQENTRY

/* The levels of the command interface that these headers support. pymqi chooses its structure layouts by them. */
#define MQCMDL_LEVEL_500 500
#define MQCMDL_LEVEL_510 510
#define MQCMDL_LEVEL_520 520
#define MQCMDL_LEVEL_530 530
#define MQCMDL_LEVEL_600 600
#define MQCMDL_LEVEL_700 700
#define MQCMDL_LEVEL_710 710
#define MQCMDL_LEVEL_750 750
#define MQCMDL_LEVEL_800 800
#define MQCMDL_LEVEL_801 801
#define MQCMDL_CURRENT_LEVEL 940

/* Asynchronous consume. Only C code uses these, so cmqc.py does not have them. */
#define MQOP_START 0x1
#define MQOP_START_WAIT 0x2
#define MQOP_STOP 0x4
#define MQOP_REGISTER 0x100
#define MQOP_DEREGISTER 0x200
#define MQOP_SUSPEND 0x10000
#define MQOP_RESUME 0x20000
#define MQCBT_MESSAGE_CONSUMER 1
#define MQCBT_EVENT_HANDLER 2
#define MQCBDO_START_CALL 0x1
#define MQCBDO_STOP_CALL 0x4
#define MQCBDO_REGISTER_CALL 0x100
#define MQCBDO_DEREGISTER_CALL 0x200
#define MQCBD_FULL_MSG_LENGTH (-1)
#define MQCBCT_START_CALL 1
#define MQCBCT_STOP_CALL 2
#define MQCBCT_REGISTER_CALL 3
#define MQCBCT_DEREGISTER_CALL 4
#define MQCBCT_EVENT_CALL 5
#define MQCBCT_MSG_REMOVED 6
#define MQCBCT_MSG_NOT_REMOVED 7
#define MQCS_NONE 0
#define MQCS_SUSPENDED_TEMPORARY 1
#define MQCS_SUSPENDED_USER_ACTION 2
#define MQCS_SUSPENDED 3
#define MQCS_STOPPED 4

/* Message handles and buffers, and versions of MQCNO. */
#define MQBMHO_DELETE_PROPERTIES 0x1
#define MQMHBO_PROPERTIES_IN_MQRFH2 0x1
#define MQMHBO_DELETE_PROPERTIES 0x2
#define MQVL_NULL_TERMINATED (-1)
#define MQCNO_VERSION_1 1
#define MQCNO_VERSION_2 2
#define MQCNO_VERSION_5 5

/* The calls. The last parameters of each are the completion code and the reason. */
#define MQRESULT PMQLONG pCompCode, PMQLONG pReason

void MQBACK(MQHCONN Hconn, MQRESULT);
void MQBEGIN(MQHCONN Hconn, PMQVOID pBeginOptions, MQRESULT);
void MQBUFMH(MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pBufMsgHOpts, PMQVOID pMsgDesc, MQLONG BufferLength, PMQVOID pBuffer,
             PMQLONG pDataLength, MQRESULT);
void MQCB(MQHCONN Hconn, MQLONG Operation, PMQVOID pCallbackDesc, MQHOBJ Hobj, PMQVOID pMsgDesc, PMQVOID pGetMsgOpts,
          MQRESULT);
void MQCLOSE(MQHCONN Hconn, PMQHOBJ pHobj, MQLONG Options, MQRESULT);
void MQCMIT(MQHCONN Hconn, MQRESULT);
void MQCONN(PMQCHAR pQMgrName, PMQHCONN pHconn, MQRESULT);
void MQCONNX(PMQCHAR pQMgrName, PMQCNO pConnectOpts, PMQHCONN pHconn, MQRESULT);
void MQCRTMH(MQHCONN Hconn, PMQVOID pCrtMsgHOpts, PMQHMSG pHmsg, MQRESULT);
void MQCTL(MQHCONN Hconn, MQLONG Operation, PMQVOID pControlOpts, MQRESULT);
void MQDISC(PMQHCONN pHconn, MQRESULT);
void MQDLTMH(MQHCONN Hconn, PMQHMSG pHmsg, PMQVOID pDltMsgHOpts, MQRESULT);
void MQDLTMP(MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pDltPropOpts, PMQCHARV pName, MQRESULT);
void MQGET(MQHCONN Hconn, MQHOBJ Hobj, PMQVOID pMsgDesc, PMQVOID pGetMsgOpts, MQLONG BufferLength, PMQVOID pBuffer,
           PMQLONG pDataLength, MQRESULT);
void MQINQ(MQHCONN Hconn, MQHOBJ Hobj, MQLONG SelectorCount, PMQLONG pSelectors, MQLONG IntAttrCount, PMQLONG pIntAttrs,
           MQLONG CharAttrLength, PMQCHAR pCharAttrs, MQRESULT);
void MQINQMP(MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pInqPropOpts, PMQCHARV pName, PMQVOID pPropDesc, PMQLONG pType,
             MQLONG ValueLength, PMQVOID pValue, PMQLONG pDataLength, MQRESULT);
void MQMHBUF(MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pMsgHBufOpts, PMQCHARV pName, PMQVOID pMsgDesc, MQLONG BufferLength,
             PMQVOID pBuffer, PMQLONG pDataLength, MQRESULT);
void MQOPEN(MQHCONN Hconn, PMQVOID pObjDesc, MQLONG Options, PMQHOBJ pHobj, MQRESULT);
void MQPUT(MQHCONN Hconn, MQHOBJ Hobj, PMQVOID pMsgDesc, PMQVOID pPutMsgOpts, MQLONG BufferLength, PMQVOID pBuffer,
           MQRESULT);
void MQPUT1(MQHCONN Hconn, PMQVOID pObjDesc, PMQVOID pMsgDesc, PMQVOID pPutMsgOpts, MQLONG BufferLength,
            PMQVOID pBuffer, MQRESULT);
void MQSET(MQHCONN Hconn, MQHOBJ Hobj, MQLONG SelectorCount, PMQLONG pSelectors, MQLONG IntAttrCount, PMQLONG pIntAttrs,
           MQLONG CharAttrLength, PMQCHAR pCharAttrs, MQRESULT);
void MQSETMP(MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pSetPropOpts, PMQCHARV pName, PMQVOID pPropDesc, MQLONG Type,
             MQLONG ValueLength, PMQVOID pValue, MQRESULT);
void MQSTAT(MQHCONN Hconn, MQLONG Type, PMQVOID pStatus, MQRESULT);
void MQSUB(MQHCONN Hconn, PMQVOID pSubDesc, PMQHOBJ pHobj, PMQHOBJ pHsub, MQRESULT);
void MQSUBRQ(MQHCONN Hconn, MQHOBJ Hsub, MQLONG Action, PMQVOID pSubRqOpts, MQRESULT);

#endif
