       01  ALIGNED-RECORD.
           05  WORK-CODE                PIC X.
           05  COMP-TABLE OCCURS 10 TIMES.
               10  COMP-TYPE            PIC X.
               10  COMP-PAY             PIC S9(4)V99 COMP SYNC.
               10  COMP-HRS             PIC S9(3) COMP SYNC.
               10  COMP-NAME            PIC X(5).
           05  FIELD-M                  PIC X(5).
           05  FIELD-N                  PIC XX.
           05  FIELD-O.
               10  FIELD-P              PIC S9(6) COMP SYNC.
           05  FIELD-Q                  PIC X.
           05  FIELD-R                  COMP-2 SYNC.
