/* cmqcfc.h of the stand-in: command messages. The packages contain the numbers. Their C code needs only this one. */
#ifndef CMQCFC_H
#define CMQCFC_H

#define MQRCCF_COMMAND_FAILED 3008

#endif
