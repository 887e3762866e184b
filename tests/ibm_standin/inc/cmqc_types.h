/* Elementary data types of the MQI on LP64 Linux (x86-64, aarch64): "Elementary data types". */
#ifndef CMQC_TYPES_H
#define CMQC_TYPES_H

#include <stdint.h>

typedef int8_t MQINT8;
typedef int16_t MQINT16;
typedef int32_t MQINT32, MQLONG, MQBOOL, MQHCONN, MQHOBJ;
typedef int64_t MQINT64, MQHMSG;
typedef float MQFLOAT32;
typedef double MQFLOAT64;
typedef void MQVOID;
typedef void *MQPTR;
typedef char MQCHAR;
typedef unsigned char MQBYTE;

typedef MQCHAR MQCHAR4[4], MQCHAR8[8], MQCHAR12[12], MQCHAR20[20], MQCHAR28[28], MQCHAR32[32], MQCHAR48[48],
    MQCHAR64[64], MQCHAR128[128], MQCHAR256[256], MQCHAR264[264];
typedef MQBYTE MQBYTE8[8], MQBYTE16[16], MQBYTE24[24], MQBYTE32[32], MQBYTE40[40], MQBYTE128[128];

typedef MQVOID *PMQVOID;
typedef MQCHAR *PMQCHAR;
typedef MQBYTE *PMQBYTE;
typedef MQLONG *PMQLONG;
typedef MQBOOL *PMQBOOL;
typedef MQINT8 *PMQINT8;
typedef MQINT16 *PMQINT16;
typedef MQINT32 *PMQINT32;
typedef MQINT64 *PMQINT64;
typedef MQFLOAT32 *PMQFLOAT32;
typedef MQFLOAT64 *PMQFLOAT64;
typedef MQHCONN *PMQHCONN;
typedef MQHOBJ *PMQHOBJ;
typedef MQHMSG *PMQHMSG;

#endif
