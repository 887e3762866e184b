/* cmqcfc.h of the stand-in: command messages. The packages carry their own numbers; C code needs this one only. */
#ifndef CMQCFC_H
#define CMQCFC_H

#define MQRCCF_COMMAND_FAILED 3008

#endif
