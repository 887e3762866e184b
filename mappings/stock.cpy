      *****************************************************************
      * STOCK INQUIRY: REQUEST AND ANSWER, 120 BYTES EACH             *
      *****************************************************************
       01  STOCK-REQUEST.
           05  TRANSACTION-CODE         PIC X(4).
           05  DEVICE-ID                PIC X(12).
           05  REQUEST-NUMBER           PIC 9(9)       COMP.
           05  SHOP                     PIC 9(5)       COMP-3.
           05  LINE-COUNT               PIC 9(2).
           05  REQUEST-LINE             OCCURS 4 TIMES.
               10  ARTICLE              PIC X(10).
               10  QUANTITY             PIC S9(5)      COMP-3.
               10  PRICE-LIMIT          PIC S9(5)V99   COMP-3.
           05  REQUEST-DATE             PIC X(10).
           05  FILLER                   PIC X(17).
       01  STOCK-ANSWER.
           05  RETURN-CODE              PIC S9(4)      COMP.
           05  REQUEST-NUMBER           PIC 9(9)       COMP.
           05  ANSWER-KIND              PIC X.
               88  ANSWER-OK            VALUE 'S'.
               88  ANSWER-ERROR         VALUE 'E'.
           05  ANSWER-STOCK.
               10  ARTICLE              PIC X(10).
               10  ARTICLE-NAME         PIC X(30).
               10  ON-STOCK             PIC S9(7)      COMP-3.
               10  UNIT-PRICE           PIC S9(5)V99   COMP-3.
               10  DELIVERY-DATE        PIC X(10).
               10  FILLER               PIC X(55).
           05  ANSWER-ERROR-TEXT        REDEFINES ANSWER-STOCK
                                        PIC X(80).
