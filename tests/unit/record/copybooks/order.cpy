       01  ORDER-RECORD.
           05  ORDER-ID                 PIC X(8).
           05  LINE-COUNT               PIC 9(3).
           05  ORDER-LINES OCCURS 0 TO 20 TIMES
                   DEPENDING ON LINE-COUNT
                   INDEXED BY LINE-INDEX.
               10  ARTICLE              PIC X(6).
               10  QUANTITY             PIC S9(5) COMP-3.
               10  PRICE                PIC S9(5)V99.
