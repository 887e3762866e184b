/* cmqzc.h of the stand-in. It only makes programs that include it compile. */
#include "cmqc.h"
