      * NUMBERS OF WHICH THE COMPILER CHOOSES THE FORMAT
       01  MACHINE.
           05  NATIVE-HALF              PIC S9(4) COMP-5.
           05  NATIVE-FULL              PIC 9(9) COMP-5.
           05  NATIVE-DOUBLE            PIC S9(18) COMP-5.
           05  BINARY-SCALED            PIC S9(7)V99 COMP.
           05  SHORT-FLOAT              COMP-1.
           05  LONG-FLOAT               COMP-2.
