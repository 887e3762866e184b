000100*****************************************************************
000200* CUSTOMER MASTER, KSDS KEYED BY BRANCH AND NUMBER              *
000300*****************************************************************
000400 01  CUSTOMER-RECORD.                                             V1R2M0
000500     05  CUSTOMER-KEY.                                            V1R2M0
000600         10  CUST-BRANCH              PIC 9(03)      COMP-3.
000700         10  CUST-NUMBER              PIC 9(09)      COMP-3.
000800     05  CUST-NAME                    PIC X(30).
000900     05  CUST-TYPE                    PIC X(01).
001000         88  CUST-PRIVATE                 VALUE 'P'.
001100         88  CUST-COMPANY                 VALUES ARE 'C', 'S'.
001200     05  CUST-DETAIL                  PIC X(20).
001300     05  CUST-PERSON REDEFINES CUST-DETAIL.
001400         10  CUST-BIRTH-DATE          PIC 9(08).
001500         10  CUST-FIRST-NAME          PIC X(12).
001600     05  CUST-FIRM REDEFINES CUST-DETAIL.
001700         10  CUST-TAX-ID              PIC X(11).
001800         10  CUST-EMPLOYEES           PIC S9(07)     COMP-3.
001900     05  CUST-ADDRESS  OCCURS 2 TIMES.
002000         10  ADDR-LINE                PIC X(10) OCCURS 3.
002100         10  ADDR-ZIP                 PIC 9(05).
002200     05  CUST-BALANCE                 PIC S9(09)V9(02) COMP-3.
002300     05  CUST-LIMIT                   PIC S9(7)V99
002400             SIGN IS LEADING SEPARATE CHARACTER.
002500     05  FILLER                       PIC X(04).
