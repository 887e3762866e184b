/* cmqpsc.h of the stand-in: there so that programs that include it compile; nothing of it is needed here. */
#include "cmqc.h"
