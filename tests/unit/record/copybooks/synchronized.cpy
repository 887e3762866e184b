      * GNUCOBOL PUTS SLACK BYTES OF A TABLE BEFORE ITS LAST ITEM, IBM AFTER
      * IT. AN ELEMENT OF THIS TABLE NEEDS NONE THERE.
       01  SYNC-RECORD.
           05  WORK-CODE                PIC X(4).
           05  COMP-TABLE OCCURS 10 TIMES.
               10  COMP-TYPE            PIC X.
               10  COMP-PAY             PIC S9(4)V99 COMP SYNC.
               10  COMP-HRS             PIC S9(3) COMP SYNC.
               10  COMP-NAME            PIC X(6).
           05  FIELD-N                  PIC X(3).
           05  FIELD-P                  PIC S9(6) COMP SYNC.
           05  FIELD-Q                  PIC X.
           05  FIELD-R                  COMP-2 SYNC.
