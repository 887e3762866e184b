      * FILE OF TRANSACTIONS: ONE RECORD TYPE BY ITS FIRST BYTE
       01  TRANSACTION-RECORD.
           03  REC-TYPE                 PIC X.
           03  REC-DATA                 PIC X(39).
           03  REC-HEADER  REDEFINES REC-DATA.
               05  HDR-DATE             PIC 9(8).
               05  HDR-SEQUENCE         PIC S9(4) COMP.
           03  REC-PAYMENT REDEFINES REC-DATA.
               05  PAY-ACCOUNT          PIC X(16).
               05  PAY-AMOUNT           PIC S9(11)V99 COMP-3.
               05  PAY-CURRENCY         PIC A(3).
           03  FILLER REDEFINES REC-DATA.
               05  TRL-COUNT            PIC 9(9) COMP.
               05  TRL-TOTAL            PIC S9(13)V99 COMP-3.
