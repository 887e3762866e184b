/* The MQAI: the loader needs these symbols for pymqi's extension, but pymqi never calls them. */
#include "cmqbc.h"
#include "standin.h"

#define UNSUPPORTED fail(MQRC_FUNCTION_NOT_SUPPORTED, pCompCode, pReason)
#define STUB(name, ...)                                                                                                \
    void name(__VA_ARGS__, MQRESULT);                                                                                  \
    void name(__VA_ARGS__, MQRESULT) { UNSUPPORTED; }

#pragma GCC diagnostic ignored "-Wunused-parameter"

STUB(mqAddByteString, MQHBAG Bag, MQLONG Selector, MQLONG Length, PMQBYTE pValue)
STUB(mqAddInquiry, MQHBAG Bag, MQLONG Selector)
STUB(mqAddInteger, MQHBAG Bag, MQLONG Selector, MQLONG Value)
STUB(mqAddIntegerFilter, MQHBAG Bag, MQLONG Selector, MQLONG Value, MQLONG Operator)
STUB(mqAddString, MQHBAG Bag, MQLONG Selector, MQLONG Length, PMQCHAR pValue)
STUB(mqAddStringFilter, MQHBAG Bag, MQLONG Selector, MQLONG Length, PMQCHAR pValue, MQLONG Operator)
STUB(mqCountItems, MQHBAG Bag, MQLONG Selector, PMQLONG pCount)
STUB(mqCreateBag, MQLONG Options, PMQHBAG pBag)
STUB(mqDeleteBag, PMQHBAG pBag)
STUB(mqExecute, MQHCONN Hconn, MQLONG Command, MQHBAG Options, MQHBAG Admin, MQHBAG Response, MQHOBJ AdminQ,
     MQHOBJ ResponseQ)
STUB(mqInquireBag, MQHBAG Bag, MQLONG Selector, MQLONG Index, PMQHBAG pValue)
STUB(mqInquireByteString, MQHBAG Bag, MQLONG Selector, MQLONG Index, MQLONG Length, PMQBYTE pValue, PMQLONG pLength)
STUB(mqInquireInteger, MQHBAG Bag, MQLONG Selector, MQLONG Index, PMQLONG pValue)
STUB(mqInquireItemInfo, MQHBAG Bag, MQLONG Selector, MQLONG Index, PMQLONG pOutSelector, PMQLONG pType)
STUB(mqInquireString, MQHBAG Bag, MQLONG Selector, MQLONG Index, MQLONG Length, PMQCHAR pValue, PMQLONG pLength,
     PMQLONG pCcsid)
